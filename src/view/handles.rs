use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::node::NodeId;
use crate::sys::{self, DirEntry};

/// Bytes read from a backing directory at once: what the kernel asks for in one request, so that batches line up.
const BATCH: usize = 32 * 1024;

/// What an open of the kernel stands for.
#[derive(Debug)]
pub(crate) enum Handle {
    File { node: NodeId, file: Arc<OwnedFd>, writable: bool },
    Directory { node: NodeId, stream: Mutex<DirStream> },
}

impl Handle {
    /// The inode it was opened on; a request that names another one is refused.
    pub(crate) const fn node(&self) -> NodeId {
        match self {
            Self::File { node, .. } | Self::Directory { node, .. } => *node,
        }
    }
}

/// A directory stream at the place where the kernel will ask next.
#[derive(Debug)]
pub(crate) struct DirStream {
    dir: OwnedFd,
    /// The cookie the entries in `pending` follow.
    at: u64,
    /// Read from the directory and not yet handed out.
    pending: VecDeque<DirEntry>,
    ended: bool,
}

impl DirStream {
    pub(crate) const fn new(dir: OwnedFd) -> Self {
        Self { dir, at: 0, pending: VecDeque::new(), ended: false }
    }

    pub(crate) const fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Goes to a cookie; the beginning is always read afresh (`rewinddir(3)`).
    pub(crate) fn seek(&mut self, cookie: u64) -> Result<(), Errno> {
        if cookie != self.at || cookie == 0 {
            sys::seek_dir(&self.dir, cookie)?;
            self.pending.clear();
            self.at = cookie;
            self.ended = false;
        }
        Ok(())
    }

    /// The next entry, which stays until [`taken`](Self::taken).
    pub(crate) fn peek(&mut self) -> Result<Option<&DirEntry>, Errno> {
        if self.pending.is_empty() && !self.ended {
            thread_local!(static BUFFER: std::cell::RefCell<Vec<MaybeUninit<u8>>> =
                std::cell::RefCell::new(vec![MaybeUninit::uninit(); BATCH]));
            self.pending = BUFFER.with_borrow_mut(|buffer| sys::read_dir(&self.dir, buffer))?.into();
            self.ended = self.pending.is_empty();
        }
        Ok(self.pending.front())
    }

    /// The entry was handed out.
    pub(crate) fn taken(&mut self) {
        if let Some(entry) = self.pending.pop_front() {
            self.at = entry.next;
        }
    }
}

/// The open handles of one tree.
#[derive(Debug, Default)]
pub(crate) struct HandleTable {
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl HandleTable {
    /// Keeps a handle under a number that no other handle of the process has had.
    pub(crate) fn insert(&self, handle: Handle) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.handles.write().insert(number, Arc::new(handle));
        number
    }

    /// The handle, if it was opened on this inode (EBADF otherwise).
    pub(crate) fn get(&self, number: u64, node: NodeId) -> Result<Arc<Handle>, Errno> {
        self.handles.read().get(&number).filter(|handle| handle.node() == node).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.handles.write().remove(&number)
    }

    /// The inodes that are open for writing. Pages that a program wrote through a map are of these: the map keeps the file
    /// open, whatever else was closed.
    pub(crate) fn writable(&self) -> Vec<NodeId> {
        let handles = self.handles.read();
        let writable = |handle: &Arc<Handle>| matches!(**handle, Handle::File { writable: true, .. });
        let mut nodes: Vec<_> =
            handles.values().filter(|handle| writable(handle)).map(|handle| handle.node()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    pub(crate) fn len(&self) -> u64 {
        self.handles.read().len() as u64
    }

    /// Drops every handle; says how many there were.
    pub(crate) fn clear(&self) -> u64 {
        let handles = std::mem::take(&mut *self.handles.write());
        handles.len() as u64
    }
}
