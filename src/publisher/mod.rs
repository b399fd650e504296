//! The one owner of the root lists: it judges them, numbers the snapshots and installs them in the view.

mod actor;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Serialize;

use self::actor::{Actor, Change, Command};
use crate::record::Record;
use crate::roots::{
    Authority, AuthorityPolicy, Instance, JudgeOptions, ListState, RootInput, RootSource, Snapshot, Trigger,
};

/// How a revocation treats data that a program has written through a map and the kernel has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Let it reach the backing file first.
    Graceful,
    /// Refuse first; it is lost, with an error to the writer.
    Now,
}

/// What installing a snapshot did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Installed {
    /// Open handles that were revoked.
    pub handles_revoked: u64,
    /// Inodes whose kernel caches were dropped.
    pub inodes_revoked: u64,
    /// Requests that were still inside a slow backing call; their replies are refused when they return.
    pub still_draining: u64,
}

/// The view's side of a publication.
pub trait Stage: Send + Sync {
    /// Makes `snapshot` the current one and revokes the roots that are not in it. Returns when publishing is done.
    fn install(&self, snapshot: Arc<Snapshot>, manner: Manner) -> Installed;

    /// Calls into these roots wait until the next snapshot is installed: a list was announced that may be without them.
    /// Returns at once.
    fn hold(&self, roots: &[Instance]);

    /// Learns how good the list in force is, to tell those who ask the view. Returns at once.
    fn show_state(&self, state: ListState);

    /// The mount id of the view itself, so that a root inside it is refused.
    fn own_mount(&self) -> Option<u64>;
}

/// What a finished publication was, in the words of the record.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// The new generation.
    pub generation: u64,
    /// Entries that are gone.
    pub revoked: Vec<String>,
    /// Entries that are new.
    pub added: Vec<String>,
    /// Entries that stayed, undisturbed.
    pub retained: Vec<String>,
    /// Open handles that were revoked.
    pub handles_revoked: u64,
    /// Requests into revoked roots that are stuck in a slow backing call; their answers will be refused.
    pub still_draining: u64,
    /// From the decision to publish until it was done.
    pub took: Duration,
}

/// Why a list was not published. What was in force before still is, except after [`PublishError::Unavailable`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A root to be removed is not in the list; nothing was removed.
    #[error("no root {0:?} in the list in force, so nothing was removed; `rootsfs roots MOUNTPOINT` lists them")]
    UnknownRoot(String),
    /// A source did not give its list. What it had in force is gone from the view.
    #[error("the root list could not be refreshed: {0}")]
    Unavailable(String),
    /// The publisher has ended.
    #[error("the view is being unmounted and takes no more lists")]
    Ended,
}

/// How lists are arbitrated and judged. Fixed for the life of a view.
#[derive(Clone, Debug, Default)]
pub struct PublisherOptions {
    /// Whose list counts.
    pub policy: AuthorityPolicy,
    /// What may become a root.
    pub judge: JudgeOptions,
    /// The roots of the command line.
    pub command_line: Vec<RootInput>,
    /// A client is to come; without a command line, the view waits for its list.
    pub expects_client: bool,
}

/// The list in force, as of the last finished publication.
#[derive(Clone, Debug)]
pub struct ListStatus {
    /// How good the list is.
    pub state: ListState,
    /// Who supplied it.
    pub authority: Authority,
    /// What it was judged to be.
    pub snapshot: Arc<Snapshot>,
    /// Why it is stale or unavailable; empty otherwise.
    pub why: String,
}

/// Publishes root lists, one at a time, in the order of the calls.
///
/// The calls block until what they asked for is in force, and may come from any thread but the one that runs
/// [`Stage::install`]. One thread owns the lists; it also looks every second whether a missing root has appeared or an
/// active one was replaced. Dropping the publisher ends that thread; the last snapshot stays installed.
pub struct Publisher {
    /// `None` only while dropping.
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    sources: Mutex<Vec<Arc<dyn RootSource>>>,
}

/// What callers read without asking the actor.
struct Shared {
    status: ArcSwap<ListStatus>,
    /// A client's list would count.
    wants_client: bool,
    /// Calls that gave a list, those still queued included: an answer to a question asked before one of them is old news.
    given: AtomicU64,
}

impl Publisher {
    /// Publishes the first snapshot on `stage` and starts the actor.
    #[must_use]
    pub fn start(stage: Arc<dyn Stage>, record: Arc<Record>, options: PublisherOptions) -> Self {
        let (commands, queue) = mpsc::channel();
        let (mut actor, shared) = Actor::start(stage, record, options);
        // Without a thread the queue is dropped, and every call says that the publisher has ended.
        let thread = std::thread::Builder::new().name("publisher".into()).spawn(move || actor.run(&queue)).ok();
        Self { commands: Some(commands), thread, shared, sources: Mutex::new(Vec::new()) }
    }

    /// The state of the list in force. Never waits.
    #[must_use]
    pub fn status(&self) -> ListStatus {
        ListStatus::clone(&self.shared.status.load())
    }

    /// Registers a source for [`Publisher::refresh`]. Sources of one authority together make its list.
    pub fn add_source(&self, source: Arc<dyn RootSource>) {
        self.sources.lock().push(source);
    }

    /// The client gave this list. Ignored, as far as the view goes, under [`AuthorityPolicy::CommandLine`].
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn set_client(&self, list: Vec<RootInput>, trigger: Trigger) -> Result<Published, PublishError> {
        self.give(Change::Client { list, trigger })
    }

    /// The client does no roots: the operator's list is in force.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn client_unsupported(&self) -> Result<Published, PublishError> {
        self.give(Change::NoClient { trigger: Trigger::Initialized })
    }

    /// The client has left: back to the operator's list.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn client_gone(&self) -> Result<Published, PublishError> {
        self.give(Change::NoClient { trigger: Trigger::ListChanged })
    }

    /// The operator's own list changed where it is kept, or (`Err`, a sentence) it cannot be read any more: then it goes. A
    /// client's list that is in force stays.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn operator(&self, list: Result<Vec<RootInput>, String>) -> Result<Published, PublishError> {
        self.give(Change::Operator(list))
    }

    /// The client announced a change: its list is stale. Publishes nothing and returns what is in force.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn announce(&self) -> Result<Published, PublishError> {
        self.call(Change::Announce)
    }

    /// The client's list could not be had, retries included: what it had in force goes.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn unavailable(&self, why: impl Into<String>) -> Result<Published, PublishError> {
        self.call(Change::Unavailable { why: why.into() })
    }

    /// `rootsfs roots set`.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn control_set(&self, list: Vec<RootInput>) -> Result<Published, PublishError> {
        self.give(Change::Set(list))
    }

    /// `rootsfs roots add`.
    ///
    /// # Errors
    /// [`PublishError::Ended`].
    pub fn control_add(&self, list: Vec<RootInput>) -> Result<Published, PublishError> {
        self.give(Change::Add(list))
    }

    /// `rootsfs roots remove`: each of `keys` is an entry, a path or a URI, and takes away every spelling of its root.
    ///
    /// # Errors
    /// [`PublishError::UnknownRoot`], and nothing is removed; [`PublishError::Ended`].
    pub fn control_remove(&self, keys: &[String], manner: Manner) -> Result<Published, PublishError> {
        self.give(Change::Remove { keys: keys.to_vec(), manner })
    }

    /// Asks every registered source whose list would count, each for at most what is left of `timeout`, on the caller's
    /// thread; then judges everything anew. An answer that was overtaken by a list given meanwhile is dropped.
    ///
    /// # Errors
    /// [`PublishError::Unavailable`] if a source failed: what it had in force is gone, but after a failure of a source of
    /// [`Authority::Control`]. [`PublishError::Ended`].
    pub fn refresh(&self, timeout: Duration) -> Result<Published, PublishError> {
        let deadline = Instant::now() + timeout;
        let given = self.shared.given.load(Ordering::SeqCst);
        let mut sources = self.sources.lock().clone();
        sources.retain(|source| self.shared.wants_client || source.authority() != Authority::Client);
        let answers = sources
            .iter()
            .filter_map(|source| {
                let answer = source.ask(deadline.saturating_duration_since(Instant::now()));
                answer.transpose().map(|answer| (source.authority(), answer))
            })
            .collect();
        self.call(Change::Refresh { answers, given })
    }

    fn give(&self, change: Change) -> Result<Published, PublishError> {
        self.shared.given.fetch_add(1, Ordering::SeqCst);
        self.call(change)
    }

    fn call(&self, change: Change) -> Result<Published, PublishError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let commands = self.commands.as_ref().ok_or(PublishError::Ended)?;
        commands.send(Command { change, reply }).map_err(|_| PublishError::Ended)?;
        answer.recv().map_err(|_| PublishError::Ended)?
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // An error is a panic in `Stage::install`, which the panic hook has told of.
            let _ = thread.join();
        }
    }
}
