//! The mounted view: what the kernel asks, answered from the current snapshot.

mod attrs;
mod burial;
mod check;
mod core;
mod depth;
mod descriptors;
mod dirs;
mod files;
mod flags;
mod gate;
mod handles;
mod hold;
mod inodes;
mod links;
mod names;
mod node;
mod revoke;
mod seats;
mod sweep;
mod sync;
mod tidy;
mod top;
mod tree;
mod veil;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use check::{CheckQuery, Explanation};

use self::core::Core;
use self::descriptors::Descriptors;
use crate::authorize::{Links, Policy};
use crate::fuse::{Adapter, MountOptions, Session};
use crate::publisher::{Installed, Manner, Stage};
use crate::record::Record;
use crate::roots::{Instance, ListState, Snapshot};

/// What the FUSE adapter speaks: plain values in and out of the view.
pub(crate) mod wire {
    pub(crate) use super::attrs::Changes;
    pub(crate) use super::core::{Answer, Attr, Core, Entry, KernelCaches};
    pub(crate) use super::files::{FileAt, WriteMode};
    pub(crate) use super::flags::{Flags, FlagsRequest};
    pub(crate) use super::gate::Guest;
    pub(crate) use super::names::Make;
    pub(crate) use super::node::NodeId;
}

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
    /// How long a call may wait for a list that was announced; zero lets the old list serve meanwhile.
    pub hold: Duration,
    /// Threads that serve requests.
    pub threads: usize,
}

/// Why a view could not be mounted. The text says what is missing and the command that mends it.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount {}: {detail}", mountpoint.display())]
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
pub struct View {
    core: Arc<Core>,
    session: Session,
}

impl View {
    /// Mounts an empty view; roots come with [`Stage::install`].
    ///
    /// # Errors
    /// [`MountError`], with a sentence for people.
    pub fn mount(options: &ViewOptions, record: Arc<Record>) -> Result<Self, MountError> {
        let failed = |detail: String| MountError { mountpoint: options.mountpoint.clone(), detail };
        let mountpoint = options.mountpoint.canonicalize().map_err(|error| failed(error.to_string()))?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let budget = Descriptors::new(usize::try_from(limit).unwrap_or(usize::MAX));
        let core = Arc::new(Core::new(options, mountpoint.clone(), record, budget));
        let mount = MountOptions {
            mountpoint,
            allow_other: options.allow_other,
            read_only: options.policy.read_only,
            threads: options.threads,
        };
        let (session, caches) = Session::mount(Adapter { view: Arc::clone(&core) }, &mount)
            .map_err(|error| failed(explain_mount_error(&error)))?;
        if core.policy.links == Links::Strict {
            match crate::sys::follow_no_links(&core.mountpoint, core.policy.read_only) {
                Ok(()) => core.unfollowed_by_kernel.store(true, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(%error, "--links strict without root: links can neither be followed nor read")
                }
            }
        }
        // Neither was set before: the core is new.
        let _ = core.own_mount.set(session.mount_id);
        let _ = core.caches.set(Arc::new(caches));
        Ok(Self { core, session })
    }

    /// Where the view is mounted (canonical).
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.core.mountpoint
    }

    /// Answers "what would happen if": the same resolver and the same decision as the view.
    #[must_use]
    pub fn check(&self, query: &CheckQuery) -> Explanation {
        check::explain(&self.core, query)
    }

    /// Sets a virtual attribute of the top directory: `user.rootsfs.` and `name`.
    pub fn set_label(&self, name: &'static str, value: String) {
        self.core.labels.lock().insert(name, value);
    }

    /// Figures per active root.
    #[must_use]
    pub fn figures(&self) -> Vec<(Instance, TreeFigures)> {
        let current = self.core.current.load();
        let figures = |tree: &tree::Tree| TreeFigures { inodes: tree.inodes.len(), handles: tree.handles.len() };
        current.trees.iter().map(|(instance, tree)| (*instance, figures(tree))).collect()
    }

    /// Requests served since the start.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.core.requests.load(Ordering::Relaxed)
    }

    /// Unmounts, by force if it must, and waits until the session has ended. Idempotent.
    ///
    /// Every root is revoked first, so that a busy mount that can only be detached serves nothing to those who hold it.
    pub fn unmount(&self) {
        if !self.session.wait(Some(Duration::ZERO)) {
            let generation = self.core.current.load().snapshot.generation;
            let authority = self.core.current.load().snapshot.authority;
            let empty = Snapshot { generation, authority, roots: Vec::new(), refused: Vec::new() };
            self.core.burial.close();
            self.core.install(Arc::new(empty), Manner::Graceful);
        }
        self.session.unmount();
    }

    /// Blocks until the session has ended, whoever unmounted.
    pub fn wait(&self) {
        self.session.wait(None);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.unmount();
    }
}

impl Stage for View {
    fn install(&self, snapshot: Arc<Snapshot>, manner: Manner) -> Installed {
        self.core.install(snapshot, manner)
    }

    fn hold(&self, roots: &[Instance]) {
        self.core.hold.begin(roots);
    }

    fn show_state(&self, state: ListState) {
        self.core.show_state(state);
    }

    fn own_mount(&self) -> Option<u64> {
        self.core.own_mount.get().copied()
    }
}

/// One sentence: what is missing and the command that mends it.
fn explain_mount_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    if !Path::new("/dev/fuse").exists() {
        return "/dev/fuse does not exist; load the module with `modprobe fuse`".into();
    }
    if text.contains("user_allow_other") {
        return "--allow-other needs the line user_allow_other in /etc/fuse.conf; add it with \
                `echo user_allow_other | sudo tee -a /etc/fuse.conf`"
            .into();
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "this user may not open /dev/fuse; allow it with `sudo chmod 0666 /dev/fuse`".into()
        }
        std::io::ErrorKind::NotFound => {
            "fusermount3 is not installed; an ordinary user needs it: `sudo apt-get install fuse3`".into()
        }
        _ => text.trim().to_owned(),
    }
}
