use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rootsfs::publisher::PublishError;
use rootsfs::record::{Decision, Outcome};
use rootsfs::roots::{ListState, RootInput, RootSource, Trigger};
use rootsfs::view::Explanation;
use serde_json::{Value, json};

use super::super::host::{Change, Host};
use crate::service::Question;
use crate::status::SessionInfo;

/// What the daemon was told, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Announce,
    List(Vec<String>, Trigger),
    Refreshed(Vec<String>),
    Unsupported,
    Unavailable,
    Gone,
}

/// A daemon without a mount.
pub(super) struct Fake {
    command_line: bool,
    seen: Mutex<Vec<Seen>>,
    sources: Mutex<Vec<Arc<dyn RootSource>>>,
}

fn uris(list: Vec<RootInput>) -> Vec<String> {
    list.into_iter().map(|root| root.uri).collect()
}

impl Fake {
    pub(super) fn new(command_line: bool) -> Self {
        Self { command_line, seen: Mutex::default(), sources: Mutex::default() }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    fn generation(&self) -> usize {
        self.seen.lock().iter().filter(|seen| matches!(seen, Seen::List(..) | Seen::Refreshed(_))).count()
    }
}

impl Host for Fake {
    fn mountpoint(&self) -> PathBuf {
        "/view".into()
    }

    fn set_session(&self, _session: Option<SessionInfo>) {}

    fn status(&self) -> Value {
        let state = self.list_state();
        json!({"mountpoint": "/view", "state": state, "generation": self.generation(), "roots": []})
    }

    fn list_state(&self) -> ListState {
        if self.command_line || self.generation() > 0 { ListState::Active } else { ListState::Waiting }
    }

    fn check(&self, question: Question) -> Explanation {
        let decision = Decision {
            generation: 1,
            op: question.op,
            pid: 0,
            uid: 0,
            path: question.path,
            object: None,
            to: None,
            to_object: None,
            root: None,
            to_root: None,
            decision: Outcome::Allow,
            reason: None,
            result: "ok".into(),
            query: false,
        };
        Explanation { decision, detail: String::new() }
    }

    fn recent(&self, _limit: usize, _denied_only: bool) -> Vec<Arc<str>> {
        vec![r#"{"event":"decision","generation":1}"#.into()]
    }

    fn apply(&self, change: Change) -> Result<(), PublishError> {
        let seen = match change {
            Change::Announce => Seen::Announce,
            Change::List(list, trigger) => Seen::List(uris(list), trigger),
            Change::Unsupported => Seen::Unsupported,
            Change::Unavailable(_) => Seen::Unavailable,
            Change::Gone => Seen::Gone,
        };
        self.seen.lock().push(seen);
        Ok(())
    }

    fn refresh(&self, timeout: Duration) -> Result<(), PublishError> {
        for source in self.sources.lock().iter() {
            let list = source.ask(timeout).expect("the client answers");
            self.seen.lock().push(Seen::Refreshed(uris(list.unwrap_or_default())));
        }
        Ok(())
    }

    fn add_source(&self, source: Arc<dyn RootSource>) {
        self.sources.lock().push(source);
    }
}
