//! Protocol 2026-07-28: no session and no request from the server. The list comes with a tool call: the call is
//! answered with an input-required result (SEP-2322), and the client sends it again with its list.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{CallToolRequestParams, InputRequest, InputRequiredResult};
use tokio::time::Instant;

use rootsfs::roots::RootInput;

use super::raw::split_list;

/// A list that is older is asked for again with the next tool call.
pub(super) const MAX_AGE: Duration = Duration::from_secs(30);
/// The key of the one input request.
const KEY: &str = "roots";

/// What a tool call means for the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It brings the list.
    List(Vec<RootInput>),
    /// It brings something that is no list.
    Malformed(String),
    /// It brings a list that is older than the one in force, or none, and the one in force will do.
    Proceed,
    /// It has to wait for a list; the number goes into the request state.
    Ask(u64),
}

/// The questions and answers of a client without a session. The client echoes a question's number, so that the answer
/// to an earlier question never replaces the answer to a later one, even with several calls in hand.
#[derive(Debug, Default)]
pub(super) struct Inline(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    /// Questions so far.
    asked: u64,
    /// The question whose answer is in force.
    accepted: u64,
    /// Questions up to this one came before the last notice of a change.
    stale: u64,
    /// When the answer in force came.
    since: Option<Instant>,
}

impl Inline {
    /// A stray `notifications/roots/list_changed`: what was asked before it does not count as fresh.
    pub(super) fn changed(&self) {
        let mut ledger = self.0.lock();
        ledger.stale = ledger.asked;
        ledger.since = None;
    }

    /// Judges a tool call of a client that declared roots. `now_wanted`: the tool asks for a fresh list by itself.
    pub(super) fn judge(&self, call: &CallToolRequestParams, now_wanted: bool) -> Call {
        let mut ledger = self.0.lock();
        let answer = call.input_responses.as_ref().and_then(|responses| responses.get(KEY));
        let number = call.request_state.as_deref().and_then(|state| state.parse::<u64>().ok());
        if let (Some(answer), Some(number)) = (answer, number.filter(|number| (1..=ledger.asked).contains(number))) {
            if number <= ledger.accepted {
                return Call::Proceed;
            }
            ledger.accepted = number;
            return match split_list(answer) {
                Ok(list) => {
                    ledger.since = (number > ledger.stale).then(Instant::now);
                    Call::List(list)
                }
                Err(why) => {
                    ledger.since = None;
                    Call::Malformed(why)
                }
            };
        }
        if !now_wanted && ledger.since.is_some_and(|since| since.elapsed() < MAX_AGE) {
            return Call::Proceed;
        }
        ledger.asked += 1;
        Call::Ask(ledger.asked)
    }
}

/// The answer to a call that needs the list first.
#[expect(deprecated, reason = "roots are deprecated by SEP-2577 and in use; they are what this program is about")]
pub(super) fn input_required(number: u64) -> InputRequiredResult {
    let request = InputRequest::ListRoots(rmcp::model::ListRootsRequest::default());
    InputRequiredResult::new(Some(BTreeMap::from([(KEY.to_owned(), request)])), Some(number.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn call(answer: Option<(u64, Value)>) -> CallToolRequestParams {
        let call = CallToolRequestParams::new("view_status");
        match answer {
            None => call,
            Some((number, value)) => call
                .with_input_responses(BTreeMap::from([(KEY.to_owned(), value)]))
                .with_request_state(number.to_string()),
        }
    }

    fn empty(number: u64) -> CallToolRequestParams {
        call(Some((number, json!({"roots": []}))))
    }

    #[test]
    fn a_list_is_asked_for_once_and_again_after_a_notice() {
        let inline = Inline::default();
        assert_eq!(inline.judge(&call(None), false), Call::Ask(1));
        assert_eq!(inline.judge(&empty(1), false), Call::List(vec![]));
        assert_eq!(inline.judge(&call(None), false), Call::Proceed);
        assert_eq!(inline.judge(&call(None), true), Call::Ask(2));
        inline.changed();
        assert_eq!(inline.judge(&call(None), false), Call::Ask(3));
    }

    #[test]
    fn an_older_answer_never_replaces_a_newer_one() {
        let inline = Inline::default();
        assert_eq!(inline.judge(&call(None), false), Call::Ask(1));
        assert_eq!(inline.judge(&call(None), false), Call::Ask(2));
        assert_eq!(inline.judge(&empty(2), false), Call::List(vec![]));
        assert_eq!(inline.judge(&empty(1), false), Call::Proceed);
        assert_eq!(inline.judge(&empty(9), true), Call::Ask(3), "a number that was never given");
    }

    #[test]
    fn an_answer_to_a_question_from_before_a_notice_is_taken_but_not_fresh() {
        let inline = Inline::default();
        assert_eq!(inline.judge(&call(None), false), Call::Ask(1));
        inline.changed();
        assert_eq!(inline.judge(&empty(1), false), Call::List(vec![]));
        assert_eq!(inline.judge(&call(None), false), Call::Ask(2));
    }

    #[test]
    fn a_malformed_answer_is_asked_for_again() {
        let inline = Inline::default();
        assert_eq!(inline.judge(&call(None), false), Call::Ask(1));
        assert!(matches!(inline.judge(&call(Some((1, json!({"roots": 1})))), false), Call::Malformed(_)));
        assert_eq!(inline.judge(&call(None), false), Call::Ask(2));
    }
}
