//! The one owner of the root lists: it judges them, numbers the snapshots and installs them in the view.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::roots::Snapshot;

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
    /// From the decision to publish until it was done.
    pub took: Duration,
}
