use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::{ListStatus, Manner, PublishError, Published, PublisherOptions, Shared, Stage};
use crate::record::{Record, RefusedEvent, SnapshotEvent};
use crate::roots::{Authority, Instance, Judge, Judgement, ListState, Lists, Look, Root, RootInput, Snapshot, Trigger};

/// How often the actor looks whether roots have come, gone or been replaced.
const RESCAN: Duration = Duration::from_secs(1);

/// What a caller wants done.
pub(super) enum Change {
    Client { list: Vec<RootInput>, trigger: Trigger },
    NoClient { trigger: Trigger },
    Announce,
    Unavailable { why: String },
    Operator(Result<Vec<RootInput>, String>),
    Set(Vec<RootInput>),
    Add(Vec<RootInput>),
    Remove { keys: Vec<String>, manner: Manner },
    Refresh { answers: Vec<(Authority, Result<Vec<RootInput>, String>)>, given: u64 },
}

/// A change and where its caller waits.
pub(super) struct Command {
    pub(super) change: Change,
    pub(super) reply: SyncSender<Result<Published, PublishError>>,
}

/// The owner of lists, judge and generation.
pub(super) struct Actor {
    stage: Arc<dyn Stage>,
    record: Arc<Record>,
    lists: Lists,
    judge: Judge,
    shared: Arc<Shared>,
    /// What is in force: the list, what each of its elements became, and the snapshot.
    inputs: Vec<RootInput>,
    chosen: Vec<Option<Instance>>,
    snapshot: Arc<Snapshot>,
    /// Why the list is stale or unavailable.
    why: String,
}

impl Actor {
    /// An actor whose first snapshot is installed.
    pub(super) fn start(stage: Arc<dyn Stage>, record: Arc<Record>, options: PublisherOptions) -> (Self, Arc<Shared>) {
        let PublisherOptions { policy, judge, command_line, expects_client } = options;
        let lists = Lists::new(policy, command_line, expects_client);
        let authority = lists.effective().0;
        let snapshot = Arc::new(Snapshot { generation: 0, authority, roots: Vec::new(), refused: Vec::new() });
        let status =
            ListStatus { state: lists.state(), authority, snapshot: Arc::clone(&snapshot), why: String::new() };
        let shared = Arc::new(Shared {
            status: ArcSwap::from_pointee(status),
            wants_client: lists.wants_client(),
            given: AtomicU64::new(0),
        });
        let mut actor = Self {
            stage,
            record,
            lists,
            judge: Judge::new(judge),
            shared: Arc::clone(&shared),
            inputs: Vec::new(),
            chosen: Vec::new(),
            snapshot,
            why: String::new(),
        };
        actor.publish(Trigger::Start, Manner::Graceful);
        (actor, shared)
    }

    /// Serves until every sender is gone.
    pub(super) fn run(&mut self, queue: &Receiver<Command>) {
        let mut next_scan = Instant::now() + RESCAN;
        while let Some(command) = next(queue, next_scan) {
            if let Some(Command { change, reply }) = command {
                let result = self.apply(change);
                // A caller that no longer waits has got what it asked for all the same.
                let _ = reply.send(result);
            }
            if Instant::now() >= next_scan {
                self.rescan();
                next_scan = Instant::now() + RESCAN;
            }
        }
    }

    fn apply(&mut self, change: Change) -> Result<Published, PublishError> {
        match change {
            Change::Client { list, trigger } => {
                if !self.lists.set_client(list) {
                    return Ok(self.unchanged());
                }
                Ok(self.publish(trigger, Manner::Graceful))
            }
            Change::NoClient { trigger } => {
                self.lists.client_gone();
                Ok(self.publish(trigger, Manner::Graceful))
            }
            Change::Announce => {
                if self.lists.announce() && self.lists.state() == ListState::Stale {
                    self.why = "the client announced a new list, which is not in force yet".into();
                    self.tell();
                    self.stage.hold(&self.announcers());
                }
                Ok(self.unchanged())
            }
            Change::Unavailable { why } => {
                if !self.lists.unavailable() {
                    return Ok(self.unchanged());
                }
                self.why = why;
                Ok(self.publish(Trigger::Unavailable, Manner::Graceful))
            }
            Change::Operator(Ok(list)) => {
                if !self.lists.set_command_line(list) {
                    return Ok(self.unchanged());
                }
                Ok(self.publish(Trigger::RootsFile, Manner::Graceful))
            }
            Change::Operator(Err(why)) => {
                if !self.lists.command_line_failed() {
                    return Ok(self.unchanged());
                }
                self.why = why;
                Ok(self.publish(Trigger::Unavailable, Manner::Graceful))
            }
            Change::Set(list) => {
                self.lists.control_set(list);
                Ok(self.publish(Trigger::Control, Manner::Graceful))
            }
            Change::Add(list) => {
                self.lists.control_add(list);
                Ok(self.publish(Trigger::Control, Manner::Graceful))
            }
            Change::Remove { keys, manner } => {
                let doomed = self.spelled(&keys)?;
                self.lists.control_remove(|input| !doomed.contains(input));
                Ok(self.publish(Trigger::Control, manner))
            }
            Change::Refresh { answers, given } => self.refresh(answers, given),
        }
    }

    fn refresh(
        &mut self,
        answers: Vec<(Authority, Result<Vec<RootInput>, String>)>,
        given: u64,
    ) -> Result<Published, PublishError> {
        let overtaken = self.shared.given.load(Ordering::SeqCst) != given;
        let mut failures = Vec::new();
        for (authority, list) in merged(answers) {
            match (authority, list) {
                (Authority::Client | Authority::Control, _) if overtaken => {}
                (Authority::Client, Ok(list)) => {
                    self.lists.set_client(list);
                }
                (Authority::Control, Ok(list)) => self.lists.control_set(list),
                (Authority::CommandLine, Ok(list)) => {
                    self.lists.set_command_line(list);
                }
                (authority, Err(why)) => {
                    let lost = match authority {
                        Authority::Client => self.lists.unavailable(),
                        Authority::CommandLine => self.lists.command_line_failed(),
                        Authority::Control => false,
                    };
                    if lost {
                        self.why.clone_from(&why);
                    }
                    failures.push(why);
                }
            }
        }
        let published = self.publish(Trigger::Refresh, Manner::Graceful);
        if failures.is_empty() { Ok(published) } else { Err(PublishError::Unavailable(failures.join("; "))) }
    }

    fn rescan(&mut self) {
        if self.judge.changed(&self.inputs, &self.snapshot) {
            let started = Instant::now();
            let inputs = self.inputs.clone();
            let judgement = self.judged(self.snapshot.authority, &inputs, Look::Again);
            let same = Turnover::between(&self.snapshot.roots, &judgement.snapshot.roots).is_none()
                && self.snapshot.refused == judgement.snapshot.refused;
            if !same {
                self.install(inputs, judgement, Trigger::Rescan, Manner::Graceful, started);
            }
        }
    }

    /// Judges the list in force and installs the result.
    fn publish(&mut self, trigger: Trigger, manner: Manner) -> Published {
        let started = Instant::now();
        let (authority, inputs) = self.lists.effective();
        let judgement = self.judged(authority, &inputs, Look::Anew);
        if matches!(self.lists.state(), ListState::Active | ListState::Waiting) {
            self.why.clear();
        }
        self.install(inputs, judgement, trigger, manner, started)
    }

    fn judged(&mut self, authority: Authority, inputs: &[RootInput], look: Look) -> Judgement {
        self.judge.judge(authority, inputs, Some(&self.snapshot), self.stage.own_mount(), look)
    }

    fn install(
        &mut self,
        inputs: Vec<RootInput>,
        judgement: Judgement,
        trigger: Trigger,
        manner: Manner,
        started: Instant,
    ) -> Published {
        let Judgement { snapshot, chosen } = judgement;
        let snapshot = Arc::new(snapshot);
        let installed = self.stage.install(Arc::clone(&snapshot), manner);
        let turnover = Turnover::between(&self.snapshot.roots, &snapshot.roots);
        let old = std::mem::replace(&mut self.snapshot, snapshot);
        (self.inputs, self.chosen) = (inputs, chosen);
        let published = Published {
            generation: self.snapshot.generation,
            revoked: turnover.revoked,
            added: turnover.added,
            retained: turnover.retained,
            handles_revoked: installed.handles_revoked,
            still_draining: installed.still_draining,
            took: started.elapsed(),
        };
        self.tell();
        if self.lists.state() == ListState::Stale {
            // Something else than the list that was announced.
            self.stage.hold(&self.announcers());
        }
        self.record.snapshot(&event(trigger, &old, &self.snapshot, &published));
        published
    }

    /// The roots in force that the client alone supplied: its next list may be without them.
    fn announcers(&self) -> Vec<Instance> {
        let (operators, clients) = self.chosen.split_at(self.lists.operators_part().min(self.chosen.len()));
        clients.iter().flatten().filter(|instance| !operators.contains(&Some(**instance))).copied().collect()
    }

    /// Makes the state known to [`super::Publisher::status`].
    fn tell(&self) {
        self.stage.show_state(self.lists.state());
        self.shared.status.store(Arc::new(ListStatus {
            state: self.lists.state(),
            authority: self.snapshot.authority,
            snapshot: Arc::clone(&self.snapshot),
            why: self.why.clone(),
        }));
    }

    /// The answer to a call that published nothing.
    fn unchanged(&self) -> Published {
        Published {
            generation: self.snapshot.generation,
            revoked: Vec::new(),
            added: Vec::new(),
            retained: entries(&self.snapshot.roots),
            handles_revoked: 0,
            still_draining: 0,
            took: Duration::ZERO,
        }
    }

    /// The elements of the list in force that `keys` stand for.
    fn spelled(&self, keys: &[String]) -> Result<Vec<RootInput>, PublishError> {
        let mut doomed = Vec::new();
        for key in keys {
            let before = doomed.len();
            let instance = self.root_of(key).map(|root| root.instance);
            for (input, chosen) in self.inputs.iter().zip(&self.chosen) {
                if (instance.is_some() && *chosen == instance) || self.judge.spells(key, input) {
                    doomed.push(input.clone());
                }
            }
            if doomed.len() == before {
                return Err(PublishError::UnknownRoot(key.clone()));
            }
        }
        Ok(doomed)
    }

    /// The active root that `key` means: an entry before a path or URI, by any spelling of it.
    fn root_of(&self, key: &str) -> Option<&Arc<Root>> {
        self.snapshot.by_entry(key.as_bytes()).or_else(|| {
            let spelled = self.inputs.iter().zip(&self.chosen).find(|(input, _)| self.judge.spells(key, input));
            let instance = spelled.and_then(|(_, chosen)| *chosen);
            let own = |root: &&Arc<Root>| Some(root.instance) == instance || self.judge.leads_to(key, root);
            self.snapshot.roots.iter().find(own)
        })
    }
}

/// The next command; `Some(None)` when it is time to look around; `None` at the end.
fn next(queue: &Receiver<Command>, deadline: Instant) -> Option<Option<Command>> {
    match queue.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(command) => Some(Some(command)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// One answer an authority: its sources' lists in a row, or their first failure.
fn merged(
    answers: Vec<(Authority, Result<Vec<RootInput>, String>)>,
) -> BTreeMap<Authority, Result<Vec<RootInput>, String>> {
    let mut merged: BTreeMap<Authority, Result<Vec<RootInput>, String>> = BTreeMap::new();
    for (authority, answer) in answers {
        let sum = merged.entry(authority).or_insert_with(|| Ok(Vec::new()));
        match (sum.as_mut(), answer) {
            (Ok(list), Ok(more)) => list.extend(more),
            (Ok(_), failure) => *sum = failure,
            (Err(_), _) => {}
        }
    }
    merged
}

/// Who came, went and stayed from one snapshot to the next, by entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turnover {
    pub(super) revoked: Vec<String>,
    pub(super) added: Vec<String>,
    pub(super) retained: Vec<String>,
}

impl Turnover {
    pub(super) fn between(old: &[Arc<Root>], new: &[Arc<Root>]) -> Self {
        let within = |list: &[Arc<Root>], root: &Root| list.iter().any(|other| other.instance == root.instance);
        let pick = |from: &[Arc<Root>], keep: &dyn Fn(&Root) -> bool| {
            from.iter().filter(|root| keep(root)).map(|root| root.entry.to_string()).collect()
        };
        Self {
            revoked: pick(old, &|root| !within(new, root)),
            added: pick(new, &|root| !within(old, root)),
            retained: pick(new, &|root| within(old, root)),
        }
    }

    /// Nobody came or went.
    fn is_none(&self) -> bool {
        self.revoked.is_empty() && self.added.is_empty()
    }
}

fn entries(roots: &[Arc<Root>]) -> Vec<String> {
    roots.iter().map(|root| root.entry.to_string()).collect()
}

fn event(trigger: Trigger, old: &Snapshot, new: &Snapshot, published: &Published) -> SnapshotEvent {
    let uris = |snapshot: &Snapshot| snapshot.roots.iter().map(|root| root.uri.clone()).collect();
    SnapshotEvent {
        generation: new.generation,
        trigger,
        old: uris(old),
        new: uris(new),
        revoked: published.revoked.clone(),
        added: published.added.clone(),
        retained: published.retained.clone(),
        refused: new.refused.iter().map(|r| RefusedEvent { uri: r.uri.clone(), reason: r.reason }).collect(),
        handles_revoked: published.handles_revoked,
        still_draining: published.still_draining,
        took_us: u64::try_from(published.took.as_micros()).unwrap_or(u64::MAX),
        result: "published",
    }
}
