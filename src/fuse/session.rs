//! Mounting, notifications and the way down.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Notifier, SessionACL};
use parking_lot::{Condvar, Mutex};

use super::Adapter;
use crate::resolve::Name;
use crate::sys;
use crate::view::wire::{KernelCaches, NodeId};

/// How a view is mounted.
#[derive(Clone, Debug)]
pub(crate) struct MountOptions {
    pub(crate) mountpoint: PathBuf,
    pub(crate) allow_other: bool,
    pub(crate) read_only: bool,
    pub(crate) threads: usize,
}

/// A mounted session. It ends when somebody unmounts it: us, or `umount(8)`.
#[derive(Debug)]
pub(crate) struct Session {
    mountpoint: PathBuf,
    ended: Arc<Ended>,
    /// The kernel's number of the connection (`/sys/fs/fuse/connections`).
    connection: u64,
    pub(crate) mount_id: u64,
}

#[derive(Debug, Default)]
struct Ended {
    ended: Mutex<bool>,
    changed: Condvar,
}

/// How long the session's threads may take to notice that the mount has gone.
const PATIENCE: Duration = Duration::from_secs(2);

impl Session {
    pub(crate) fn mount(adapter: Adapter, options: &MountOptions) -> io::Result<(Self, Notifications)> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("rootsfs".into()),
            // fuser's own option for it reaches fusermount3 alone; this one, the kernel too.
            MountOption::CUSTOM("subtype=rootsfs".into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        if options.read_only {
            config.mount_options.push(MountOption::RO);
        }
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(options.threads.max(1));
        let session = fuser::Session::new(adapter, &options.mountpoint, &config)?;
        let notifier = session.notifier();
        let background = session.spawn()?;
        let ended = Arc::new(Ended::default());
        watch(background, Arc::clone(&ended))?;
        let top = sys::stat_without_sync(sys::open_directory(&options.mountpoint)?)?;
        let session = Self {
            mountpoint: options.mountpoint.clone(),
            ended,
            connection: sys::minor(top.id.dev),
            mount_id: top.id.mnt,
        };
        Ok((session, Notifications { notifier }))
    }

    /// Waits until the session has ended, at most `limit` if there is one; says whether it has.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        let mut ended = self.ended.ended.lock();
        let until = limit.map(|limit| Instant::now() + limit);
        while !*ended {
            match until {
                None => self.ended.changed.wait(&mut ended),
                Some(until) => {
                    if self.ended.changed.wait_until(&mut ended, until).timed_out() {
                        return *ended;
                    }
                }
            }
        }
        true
    }

    /// The ladder: a plain unmount; a lazy one when the mount is busy; and, so that nobody waits for answers that no
    /// longer come, an abort of the connection.
    pub(crate) fn unmount(&self) {
        if self.wait(Some(Duration::ZERO)) {
            return;
        }
        match sys::mount::unmount(&self.mountpoint) {
            Ok(()) => {}
            Err(error) => tracing::warn!(mountpoint = %self.mountpoint.display(), %error, "cannot unmount"),
        }
        if !self.wait(Some(PATIENCE / 4)) {
            let abort = format!("/sys/fs/fuse/connections/{}/abort", self.connection);
            match std::fs::write(&abort, "1") {
                Ok(()) => drop(self.wait(Some(PATIENCE))),
                // An ordinary matter where fusectl is not mounted: the connection ends with the process.
                Err(error) => tracing::debug!(%error, abort, "cannot abort the connection"),
            }
        }
    }
}

/// Joins fuser's threads on one of our own and says when they have ended.
fn watch(background: BackgroundSession, ended: Arc<Ended>) -> io::Result<()> {
    let watcher = move || {
        if let Err(error) = background.join() {
            tracing::warn!(%error, "the FUSE session ended with an error");
        }
        *ended.ended.lock() = true;
        ended.changed.notify_all();
    };
    std::thread::Builder::new().name("rootsfs-session".into()).spawn(watcher).map(drop)
}

/// The kernel's caches, by notification.
#[derive(Debug)]
pub(crate) struct Notifications {
    notifier: Notifier,
}

impl KernelCaches for Notifications {
    fn drop_entry(&self, parent: NodeId, name: &Name) {
        let name: &OsStr = name.as_os_str();
        report("entry", self.notifier.inval_entry(INodeNo(parent.raw()), name));
    }

    fn drop_inode(&self, node: NodeId) {
        report("inode", self.notifier.inval_inode(INodeNo(node.raw()), 0, 0));
    }

    fn drop_attributes(&self, node: NodeId) {
        // A negative offset leaves the pages alone.
        report("attributes", self.notifier.inval_inode(INodeNo(node.raw()), -1, 0));
    }
}

/// ENOENT is no failure (nothing was cached) and fuser does not report it; ENOTCONN and ENODEV mean that the mount has
/// gone, and its caches with it.
fn report(what: &str, result: io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ENODEV)) => {}
        Err(error) => tracing::warn!(%error, what, "the kernel refused to drop a cache"),
    }
}
