use super::*;

const NOW: Duration = Duration::ZERO;

fn wake(number: u64, pause: Duration) -> Action {
    Action::Wake(Attempt(number), pause)
}

/// Brings a machine into a state the way a client would. Returns it with the number of the attempt in hand.
fn reach(state: State) -> Refresher {
    let mut machine = Refresher::new();
    let at = |machine: &Refresher| machine.attempt;
    match state {
        State::Waiting => {}
        State::Asking | State::AskingDirty => {
            machine.step(Event::Initialized);
            machine.step(Event::Due(at(&machine)));
            if state == State::AskingDirty {
                machine.step(Event::Changed);
            }
        }
        State::Active => {
            machine = reach(State::Asking);
            machine.step(Event::Answered(at(&machine), Answer::List));
            machine.step(Event::Published(at(&machine)));
        }
        State::Unavailable => {
            machine = reach(State::Active);
            machine.step(Event::Changed);
            for _ in 0..=RETRIES {
                machine.step(Event::Due(at(&machine)));
                machine.step(Event::Answered(at(&machine), Answer::Failed));
            }
        }
    }
    assert_eq!(machine.state(), state);
    machine
}

/// One cell of the table: from a state, an event, to a state with actions.
fn cell(from: State, event: impl Fn(Attempt) -> Event, to: State, actions: &[Action]) {
    let mut machine = reach(from);
    let event = event(machine.attempt);
    assert_eq!(machine.step(event), actions, "{from:?} {event:?}");
    assert_eq!(machine.state(), to, "{from:?} {event:?}");
}

#[test]
fn the_table() {
    use Answer::{Failed, List, NotSupported};
    use State::{Active, Asking, AskingDirty, Unavailable, Waiting};

    cell(Waiting, |_| Event::Initialized, Asking, &[wake(1, NOW)]);
    cell(Waiting, |_| Event::Changed, Asking, &[wake(1, NOW)]);
    cell(Waiting, |_| Event::Wanted, Asking, &[wake(1, NOW)]);

    cell(Asking, |_| Event::Initialized, Asking, &[]);
    cell(Asking, |_| Event::Changed, AskingDirty, &[]);
    cell(Asking, |_| Event::Wanted, Asking, &[]);
    cell(Asking, Event::Due, Asking, &[]);
    cell(Asking, |n| Event::Answered(n, List), Asking, &[Action::Publish(Attempt(1), Trigger::Initialized)]);
    cell(Asking, |n| Event::Answered(n, NotSupported), Asking, &[wake(2, RETRY_PAUSE)]);
    cell(Asking, |n| Event::Answered(n, Failed), Asking, &[wake(2, RETRY_PAUSE)]);
    cell(Asking, Event::Published, Asking, &[]);

    cell(AskingDirty, |_| Event::Initialized, AskingDirty, &[]);
    cell(AskingDirty, |_| Event::Changed, AskingDirty, &[]);
    cell(AskingDirty, |_| Event::Wanted, AskingDirty, &[]);
    cell(AskingDirty, |n| Event::Answered(n, List), Asking, &[wake(2, NOW)]);
    cell(AskingDirty, |n| Event::Answered(n, NotSupported), Asking, &[wake(2, RETRY_PAUSE)]);
    cell(AskingDirty, |n| Event::Answered(n, Failed), Asking, &[wake(2, RETRY_PAUSE)]);

    cell(Active, |_| Event::Initialized, Active, &[]);
    cell(Active, |_| Event::Changed, Asking, &[Action::Announce, wake(2, NOW)]);
    cell(Active, |_| Event::Wanted, Asking, &[wake(2, NOW)]);
    cell(Active, Event::Due, Active, &[]);
    cell(Active, |n| Event::Answered(n, List), Active, &[]);
    cell(Active, Event::Published, Active, &[]);

    cell(Unavailable, |_| Event::Initialized, Unavailable, &[]);
    cell(Unavailable, |_| Event::Changed, Asking, &[wake(5, NOW)]);
    cell(Unavailable, |_| Event::Wanted, Asking, &[wake(5, NOW)]);
    cell(Unavailable, Event::Due, Unavailable, &[Action::Ask(Attempt(4))]);
    cell(Unavailable, |n| Event::Answered(n, List), Unavailable, &[]);
}

#[test]
fn a_publication_that_a_notice_overtook_is_followed_by_another_round() {
    let mut machine = reach(State::Asking);
    machine.step(Event::Answered(Attempt(1), Answer::List));
    assert_eq!(machine.step(Event::Changed), []);
    assert_eq!(machine.state(), State::AskingDirty);
    assert_eq!(machine.step(Event::Published(Attempt(1))), [Action::Announce, wake(2, NOW)]);
    assert_eq!(machine.state(), State::Asking);
}

#[test]
fn an_answer_that_came_too_late_is_ignored() {
    let mut machine = reach(State::Asking);
    machine.step(Event::Answered(Attempt(1), Answer::Failed));
    machine.step(Event::Due(Attempt(2)));
    assert_eq!(machine.step(Event::Answered(Attempt(1), Answer::List)), []);
    assert_eq!(
        machine.step(Event::Answered(Attempt(2), Answer::List)),
        [Action::Publish(Attempt(2), Trigger::Initialized)]
    );
}

#[test]
fn a_client_that_does_not_do_roots_after_all_is_left_alone() {
    let mut machine = reach(State::Asking);
    machine.step(Event::Answered(Attempt(1), Answer::NotSupported));
    machine.step(Event::Due(Attempt(2)));
    assert_eq!(machine.step(Event::Answered(Attempt(2), Answer::NotSupported)), [Action::Unsupported]);
    assert_eq!(machine.state(), State::Waiting);
}

#[test]
fn not_supported_after_a_list_is_a_failure() {
    let mut machine = reach(State::Active);
    machine.step(Event::Changed);
    machine.step(Event::Due(Attempt(2)));
    machine.step(Event::Answered(Attempt(2), Answer::NotSupported));
    machine.step(Event::Due(Attempt(3)));
    let actions = machine.step(Event::Answered(Attempt(3), Answer::NotSupported));
    assert_eq!(actions, [Action::Unavailable, wake(4, Duration::from_secs(1))]);
    assert_eq!(machine.state(), State::Unavailable);
}

#[test]
fn the_background_backs_off_to_thirty_seconds_and_comes_back() {
    let mut machine = reach(State::Unavailable);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        assert_eq!(machine.step(Event::Due(machine.attempt)), [Action::Ask(machine.attempt)]);
        let actions = machine.step(Event::Answered(machine.attempt, Answer::Failed));
        let [Action::Wake(_, pause)] = actions[..] else { panic!("{actions:?}") };
        pauses.push(pause.as_secs());
    }
    assert_eq!(pauses, [2, 4, 8, 16, 30, 30, 30]);
    machine.step(Event::Due(machine.attempt));
    let attempt = machine.attempt;
    assert_eq!(machine.step(Event::Answered(attempt, Answer::List)), [Action::Publish(attempt, Trigger::Refresh)]);
    machine.step(Event::Published(attempt));
    assert_eq!(machine.state(), State::Active);
}

#[test]
fn there_are_never_two_requests() {
    let mut machine = reach(State::Unavailable);
    let attempt = machine.attempt;
    machine.step(Event::Due(attempt));
    assert_eq!(machine.step(Event::Changed), []);
    assert_eq!(machine.state(), State::AskingDirty);
    assert!(matches!(machine.step(Event::Answered(attempt, Answer::List))[..], [Action::Wake(..)]));
}

#[test]
fn a_client_that_always_announces_gets_its_list_in_force_all_the_same() {
    let mut machine = reach(State::Active);
    machine.step(Event::Changed);
    for round in 0..=DROPS {
        machine.step(Event::Due(machine.attempt));
        machine.step(Event::Changed);
        let attempt = machine.attempt;
        let actions = machine.step(Event::Answered(attempt, Answer::List));
        if round < DROPS {
            assert!(matches!(actions[..], [Action::Wake(..)]), "{round}: {actions:?}");
        } else {
            assert_eq!(actions, [Action::Publish(attempt, Trigger::ListChanged)]);
            assert!(matches!(machine.step(Event::Published(attempt))[..], [Action::Announce, Action::Wake(..)]));
        }
    }
}

#[tokio::test]
async fn a_burst_of_notices_costs_few_requests() {
    let mut pace = Pace::default();
    let mut now = Instant::now();
    let start = now;
    let mut requests = 0;
    // A notice every 10 ms for three seconds, each of which asks as soon as it may.
    while now - start < Duration::from_secs(3) {
        now += pace.delay(now).max(Duration::from_millis(10));
        requests += 1;
    }
    assert!(requests <= 36, "{requests}");
}
