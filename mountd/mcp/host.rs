//! What the MCP server needs of the daemon. The calls may block; [`super`] keeps them off the async threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rootsfs::publisher::PublishError;
use rootsfs::roots::{ListState, RootInput, RootSource, Trigger};
use rootsfs::view::Explanation;
use serde_json::Value;

use crate::service::{Question, Service};
use crate::status::SessionInfo;

/// What the client, or its silence, means for the list in force.
#[derive(Debug)]
pub(super) enum Change {
    /// A change was announced.
    Announce,
    /// The client's list.
    List(Vec<RootInput>, Trigger),
    /// The client does not do roots.
    Unsupported,
    /// The client's list cannot be had, and why.
    Unavailable(String),
    /// The client is gone.
    Gone,
}

/// The daemon as the MCP server sees it; a trait so that the protocol can be tested without a mount.
pub(super) trait Host: Send + Sync + 'static {
    fn mountpoint(&self) -> PathBuf;
    fn set_session(&self, session: Option<SessionInfo>);
    /// The contract's `status --json`.
    fn status(&self) -> Value;
    /// [`ListState::Waiting`] means that nobody has named roots: no client, no `--root`, no operator.
    fn list_state(&self) -> ListState;
    fn check(&self, question: Question) -> Explanation;
    /// The newest lines of the boundary record, oldest first.
    fn recent(&self, limit: usize, denied_only: bool) -> Vec<Arc<str>>;
    /// Returns when publishing is done.
    fn apply(&self, change: Change) -> Result<(), PublishError>;
    /// Asks every source again. Returns when publishing is done.
    fn refresh(&self, timeout: Duration) -> Result<(), PublishError>;
    fn add_source(&self, source: Arc<dyn RootSource>);
}

impl Host for Service {
    fn mountpoint(&self) -> PathBuf {
        self.view.mountpoint().to_owned()
    }

    fn set_session(&self, session: Option<SessionInfo>) {
        Self::set_session(self, session);
    }

    fn status(&self) -> Value {
        serde_json::to_value(Self::status(self)).unwrap_or_default()
    }

    fn list_state(&self) -> ListState {
        self.publisher.status().state
    }

    fn check(&self, question: Question) -> Explanation {
        Self::check(self, question, rustix::process::getuid().as_raw(), std::process::id())
    }

    fn recent(&self, limit: usize, denied_only: bool) -> Vec<Arc<str>> {
        self.record.recent(limit, denied_only).into_iter().map(|(_, line)| line).collect()
    }

    fn apply(&self, change: Change) -> Result<(), PublishError> {
        match change {
            Change::Announce => self.publisher.announce().map(drop),
            Change::List(list, trigger) => self.publisher.set_client(list, trigger).map(drop),
            Change::Unsupported => self.publisher.client_unsupported().map(drop),
            Change::Unavailable(why) => self.publisher.unavailable(why).map(drop),
            Change::Gone => self.publisher.client_gone().map(drop),
        }
    }

    fn refresh(&self, timeout: Duration) -> Result<(), PublishError> {
        self.publisher.refresh(timeout).map(drop)
    }

    fn add_source(&self, source: Arc<dyn RootSource>) {
        self.publisher.add_source(source);
    }
}
