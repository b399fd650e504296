//! Descriptors of the backing, as a cache.
//!
//! The kernel remembers far more inodes, and programs may open far more files, than this process may have descriptors
//! (`RLIMIT_NOFILE`). So neither an inode nor an open handle owns one: each has a [`Slot`], the least recently used slots are
//! emptied when there are too many, and what stood in them is opened again, and verified, when it is wanted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::node::NodeId;

/// Descriptors kept back for everything that has no slot: anchors of roots, sockets, what a request opens for itself.
const RESERVED: usize = 1024;

/// More are never held, however many the process may have: each keeps objects of the kernel alive.
const MOST: usize = 32 * 1024;

/// Slots that one sweep looks at.
const MOST_SWEPT: usize = 1024;

/// Whose slot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The `O_PATH` descriptor of an inode.
    Inode(NodeId),
    /// The descriptor of an open handle, with the inode it was opened on.
    Handle(NodeId, u64),
}

impl Holder {
    pub(crate) const fn node(self) -> NodeId {
        match self {
            Self::Inode(node) | Self::Handle(node, _) => node,
        }
    }
}

/// How many descriptors the slots hold, and which may go first.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: usize,
    held: AtomicUsize,
    queued: AtomicUsize,
    /// Slots in the order in which they were filled; one may stand here more than once or be gone.
    queue: Mutex<VecDeque<Holder>>,
}

impl Descriptors {
    /// A budget for a process that may have `process_limit` descriptors (`RLIMIT_NOFILE`).
    pub(crate) fn new(process_limit: usize) -> Self {
        let limit = if process_limit > 2 * RESERVED { process_limit - RESERVED } else { process_limit / 2 };
        Self { limit: limit.min(MOST), held: AtomicUsize::new(0), queued: AtomicUsize::new(0), queue: Mutex::default() }
    }

    fn took(&self, holder: Holder) {
        self.held.fetch_add(1, Ordering::Relaxed);
        self.spare(holder);
    }

    fn gave_back(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Time to sweep: too many descriptors, or a queue of slots that have long gone.
    pub(crate) fn over_budget(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit || self.queued.load(Ordering::Relaxed) > 4 * self.limit
    }

    /// Slots to look at, oldest first: enough to bring the count to the limit, or an eighth of the limit when descriptors
    /// ran out in spite of it. Never so many that the request which sweeps would be held up by it.
    pub(crate) fn candidates(&self, ran_out: bool) -> Vec<Holder> {
        let over = self.held.load(Ordering::Relaxed).saturating_sub(self.limit);
        let over = over.max(self.queued.load(Ordering::Relaxed).saturating_sub(4 * self.limit)).min(MOST_SWEPT);
        let wanted = if ran_out { over.max(self.limit / 8).max(1) } else { over };
        let mut queue = self.queue.lock();
        let wanted = wanted.min(queue.len());
        let candidates = queue.drain(..wanted).collect();
        self.queued.store(queue.len(), Ordering::Relaxed);
        candidates
    }

    /// A candidate that was used lately, or must not be emptied, gets another turn.
    pub(crate) fn spare(&self, holder: Holder) {
        let mut queue = self.queue.lock();
        queue.push_back(holder);
        self.queued.store(queue.len(), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// A place for one descriptor, which may be empty.
#[derive(Debug)]
pub(crate) struct Slot {
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    used: AtomicBool,
    budget: Arc<Descriptors>,
}

impl Slot {
    pub(crate) const fn new(budget: Arc<Descriptors>) -> Self {
        Self { descriptor: Mutex::new(None), used: AtomicBool::new(false), budget }
    }

    /// What is there, which counts as a use.
    pub(crate) fn get(&self) -> Option<Arc<OwnedFd>> {
        self.used.store(true, Ordering::Relaxed);
        self.descriptor.lock().clone()
    }

    /// What is there, for somebody who only looks.
    pub(crate) fn peek(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.lock().clone()
    }

    /// Fills the slot, unless another thread has done so meanwhile, and says what is in it.
    pub(crate) fn keep(&self, fd: OwnedFd, holder: Holder) -> Arc<OwnedFd> {
        let mut slot = self.descriptor.lock();
        if let Some(fd) = &*slot {
            return Arc::clone(fd);
        }
        let fd = Arc::new(fd);
        *slot = Some(Arc::clone(&fd));
        drop(slot);
        self.budget.took(holder);
        fd
    }

    /// Empties the slot. Requests that have its descriptor in hand go on with it.
    pub(crate) fn take(&self) -> Option<Arc<OwnedFd>> {
        let taken = self.descriptor.lock().take();
        if taken.is_some() {
            self.budget.gave_back();
        }
        taken
    }

    /// Whether it was used since this was last asked.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.descriptor.get_mut().is_some() {
            self.budget.gave_back();
        }
    }
}
