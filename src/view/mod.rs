//! The mounted view: what the kernel asks, answered from the current snapshot.

mod check;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use check::{CheckQuery, Explanation};

use crate::authorize::Policy;
use crate::publisher::{Installed, Manner, Stage};
use crate::record::Record;
use crate::roots::{Instance, Snapshot};

/// How a view is mounted. Fixed for its life.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// An existing, empty directory.
    pub mountpoint: PathBuf,
    /// Other users may enter; every operation then runs with the caller's own credentials.
    pub allow_other: bool,
    /// What is allowed beyond the root list.
    pub policy: Policy,
    /// How long the kernel may use a name, or attributes, without asking.
    pub timeout: Duration,
    /// Threads that serve requests.
    pub threads: usize,
}

/// Why a view could not be mounted. The text says what is missing and the command that mends it.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount {mountpoint}: {detail}")]
pub struct MountError {
    /// Where it should have been mounted.
    pub mountpoint: PathBuf,
    /// What happened, why, and the mending command.
    pub detail: String,
}

/// Figures of one root's tree.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct TreeFigures {
    /// Inodes the kernel knows.
    pub inodes: u64,
    /// Handles that are open.
    pub handles: u64,
}

/// A mounted view. Dropping it unmounts.
#[derive(Debug)]
pub struct View {}

impl View {
    /// Mounts an empty view; roots come with [`Stage::install`].
    ///
    /// # Errors
    /// [`MountError`], with a sentence for people.
    pub fn mount(options: ViewOptions, record: Arc<Record>) -> Result<Self, MountError> {
        let _ = record;
        Err(MountError { mountpoint: options.mountpoint, detail: "not built yet".into() })
    }

    /// Where the view is mounted (canonical).
    #[must_use]
    pub fn mountpoint(&self) -> PathBuf {
        PathBuf::new()
    }

    /// Answers "what would happen if": the same resolver and the same decision as the view.
    #[must_use]
    pub fn check(&self, query: &CheckQuery) -> Explanation {
        let _ = query;
        Explanation::default()
    }

    /// The values of the virtual attributes of the top directory (`user.rootsfs.state`, `user.rootsfs.control`).
    pub fn set_label(&self, name: &'static str, value: String) {
        let _ = (name, value);
    }

    /// Figures per active root.
    #[must_use]
    pub fn figures(&self) -> Vec<(Instance, TreeFigures)> {
        Vec::new()
    }

    /// Requests served since the start.
    #[must_use]
    pub fn requests(&self) -> u64 {
        0
    }

    /// Unmounts, by force if it must, and waits until the session has ended. Idempotent.
    pub fn unmount(&self) {}

    /// Blocks until the session has ended, whoever unmounted.
    pub fn wait(&self) {}
}

impl Stage for View {
    fn install(&self, snapshot: Arc<Snapshot>, manner: Manner) -> Installed {
        let _ = (snapshot, manner);
        Installed::default()
    }

    fn own_mount(&self) -> Option<u64> {
        None
    }
}
