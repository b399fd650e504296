//! When to ask the client for its list, and what to do with the answer: a state machine without I/O and without a clock.

use std::time::Duration;

use rootsfs::roots::Trigger;
use tokio::time::Instant;

/// Further attempts after a failed request: some clients register their handler only after they have sent `initialized`.
const RETRIES: u32 = 1;
/// Before such a further attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Answers in a row that may be dropped because a notice overtook them. A client that announces a change at every
/// request would otherwise keep its old list in force for ever.
const DROPS: u32 = 3;
/// The longest pause between two attempts while the list is unavailable.
const BACKOFF_LIMIT: Duration = Duration::from_secs(30);

/// Where the client's list stands.
///
/// | state | `Initialized` | `Changed` | `Wanted` | `Due` | list | −32601 | failed | `Published` |
/// | --- | --- | --- | --- | --- | --- | --- | --- | --- |
/// | Waiting | Asking | Asking | Asking | – | – | – | – | – |
/// | Asking | – | AskingDirty if a request is out | – | ask | publish | retry, else Waiting ¹ | retry, else Unavailable | Active |
/// | AskingDirty | – | – | – | – | drop ², Asking | as Asking | as Asking | Asking |
/// | Active | – | announce, Asking | Asking | – | – | – | – | – |
/// | Unavailable | – | Asking ³ | Asking ³ | ask | publish, Asking | back off ¹ | back off | – |
///
/// ¹ Before the first list: the client does not do roots after all, the command line stays in force. Later it is a
/// failure like any other. ² Three times in a row at most; then it is published and asked again. ³ With a request of
/// the background out, `Changed` leads to AskingDirty and `Wanted` waits for that request: there are never two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was asked yet, or the client turned out not to do roots.
    Waiting,
    /// A round is on: a pause, a request or a publication.
    Asking,
    /// A notice came while the round was on; its answer may be older than the notice.
    AskingDirty,
    /// The last list is in force.
    Active,
    /// The last round failed; asked again in the background.
    Unavailable,
}

/// How far the round has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pausing,
    Out,
    Publishing,
}

/// The number of an attempt. What comes back under an older number is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt(u64);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// `notifications/initialized`.
    Initialized,
    /// `notifications/roots/list_changed`.
    Changed,
    /// Somebody wants the list now.
    Wanted,
    /// The pause before this attempt is over.
    Due(Attempt),
    /// The request of this attempt ended.
    Answered(Attempt, Answer),
    /// The list of this attempt was published.
    Published(Attempt),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// With a list, whatever its elements are worth.
    List,
    /// JSON-RPC error −32601.
    NotSupported,
    /// Late, refused, or malformed as a whole.
    Failed,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Mark the list in force as stale.
    Announce,
    /// Come back with [`Event::Due`] after the pause.
    Wake(Attempt, Duration),
    /// Send `roots/list`.
    Ask(Attempt),
    /// Publish the list that was just received.
    Publish(Attempt, Trigger),
    /// The client does not do roots.
    Unsupported,
    /// No list can be had.
    Unavailable,
}

/// The machine. See [`State`] for its table.
#[derive(Debug)]
pub(super) struct Refresher {
    state: State,
    stage: Stage,
    attempt: Attempt,
    trigger: Trigger,
    /// Failed requests of this round.
    missed: u32,
    /// Failed rounds in a row.
    failures: u32,
    /// Answers dropped in a row.
    dropped: u32,
    /// A list was received at least once.
    good: bool,
    /// The list in force was marked stale.
    stale: bool,
}

impl Refresher {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Waiting,
            stage: Stage::Pausing,
            attempt: Attempt(0),
            trigger: Trigger::Initialized,
            missed: 0,
            failures: 0,
            dropped: 0,
            good: false,
            stale: false,
        }
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// No round is on that a tool call should wait for.
    pub(super) const fn settled(&self) -> bool {
        !matches!(self.state, State::Asking | State::AskingDirty)
    }

    /// A list was received and nothing newer was announced: the list may be handed out as it is.
    pub(super) fn publishing(&self) -> bool {
        self.state == State::Asking && self.stage == Stage::Publishing
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Initialized if self.state == State::Waiting => self.begin(Trigger::Initialized, &mut actions),
            Event::Initialized => {}
            Event::Changed => self.changed(&mut actions),
            Event::Wanted => match self.state {
                State::Unavailable if self.stage == Stage::Out => self.state = State::Asking,
                State::Waiting | State::Active | State::Unavailable => self.begin(Trigger::Refresh, &mut actions),
                State::Asking | State::AskingDirty => {}
            },
            Event::Due(attempt) if attempt == self.attempt && self.stage == Stage::Pausing => {
                self.stage = Stage::Out;
                actions.push(Action::Ask(attempt));
            }
            Event::Answered(attempt, answer) if attempt == self.attempt && self.stage == Stage::Out => match answer {
                Answer::List => self.listed(&mut actions),
                Answer::NotSupported | Answer::Failed => self.missed(answer, &mut actions),
            },
            Event::Published(attempt) if attempt == self.attempt && self.stage == Stage::Publishing => {
                if self.state == State::AskingDirty {
                    self.announce(&mut actions);
                    self.begin(Trigger::ListChanged, &mut actions);
                } else {
                    self.state = State::Active;
                }
            }
            Event::Due(_) | Event::Answered(..) | Event::Published(_) => {}
        }
        actions
    }

    fn changed(&mut self, actions: &mut Vec<Action>) {
        match self.state {
            State::Waiting => self.begin(Trigger::Initialized, actions),
            State::Active => {
                self.announce(actions);
                self.begin(Trigger::ListChanged, actions);
            }
            State::Asking | State::Unavailable if self.stage != Stage::Pausing => {
                if self.stage == Stage::Out {
                    self.announce(actions);
                }
                self.state = State::AskingDirty;
            }
            State::Asking => {
                self.announce(actions);
                if self.good {
                    self.trigger = Trigger::ListChanged;
                }
            }
            State::Unavailable => self.begin(Trigger::ListChanged, actions),
            State::AskingDirty => {}
        }
    }

    /// Nothing is stale before the first list or after the list was withdrawn.
    fn announce(&mut self, actions: &mut Vec<Action>) {
        if self.good && !self.stale && self.failures == 0 {
            self.stale = true;
            actions.push(Action::Announce);
        }
    }

    fn begin(&mut self, trigger: Trigger, actions: &mut Vec<Action>) {
        self.state = State::Asking;
        self.trigger = trigger;
        self.missed = 0;
        self.pause(Duration::ZERO, actions);
    }

    fn pause(&mut self, pause: Duration, actions: &mut Vec<Action>) {
        self.stage = Stage::Pausing;
        self.attempt.0 += 1;
        actions.push(Action::Wake(self.attempt, pause));
    }

    fn listed(&mut self, actions: &mut Vec<Action>) {
        if self.state == State::AskingDirty {
            self.dropped += 1;
            if self.dropped <= DROPS {
                let trigger = if self.good { Trigger::ListChanged } else { self.trigger };
                self.begin(trigger, actions);
                return;
            }
        } else {
            self.state = State::Asking;
        }
        self.stage = Stage::Publishing;
        self.good = true;
        self.stale = false;
        self.failures = 0;
        self.dropped = 0;
        actions.push(Action::Publish(self.attempt, self.trigger));
    }

    fn missed(&mut self, answer: Answer, actions: &mut Vec<Action>) {
        let background = self.state == State::Unavailable;
        self.missed += 1;
        if !background && self.missed <= RETRIES {
            self.state = State::Asking;
            self.pause(RETRY_PAUSE, actions);
            return;
        }
        if answer == Answer::NotSupported && !self.good {
            self.state = State::Waiting;
            self.failures = 0;
            actions.push(Action::Unsupported);
            return;
        }
        if self.failures == 0 {
            actions.push(Action::Unavailable);
        }
        self.state = State::Unavailable;
        self.stale = false;
        // What comes by itself later is no answer to the notice that began this round.
        self.trigger = Trigger::Refresh;
        let backoff = Duration::from_secs(1 << self.failures.min(5)).min(BACKOFF_LIMIT);
        self.failures = self.failures.saturating_add(1);
        self.pause(backoff, actions);
    }
}

/// Spaces requests out, so that a burst of notices costs few of them: five at once, then one each 100 ms
/// (the generic cell rate algorithm, ITU-T I.371).
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the bucket would be empty.
    due: Option<Instant>,
}

impl Pace {
    const INTERVAL: Duration = Duration::from_millis(100);
    const BURST: Duration = Duration::from_millis(400);

    /// How long a request that is wanted now has to wait.
    pub(super) fn delay(&mut self, now: Instant) -> Duration {
        let due = self.due.map_or(now, |due| due.max(now));
        self.due = Some(due + Self::INTERVAL);
        due.saturating_duration_since(now).saturating_sub(Self::BURST)
    }
}

#[cfg(test)]
#[path = "refresher_tests.rs"]
mod tests;
