use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::node::NodeId;

/// Descriptors kept back for everything that is not an inode's `O_PATH` descriptor: open handles, anchors, sockets.
const RESERVED: usize = 1024;

/// How many `O_PATH` descriptors the inode tables hold, and which may go first.
///
/// The kernel remembers far more inodes than a process may have descriptors, so an inode's descriptor is a cache: the
/// least recently used ones are closed and opened again by name when they are wanted.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: usize,
    held: AtomicUsize,
    /// Inodes in the order in which they got a descriptor; an inode may stand here more than once or be gone.
    queue: Mutex<VecDeque<NodeId>>,
}

impl Descriptors {
    /// A budget for a process that may have `process_limit` descriptors (`RLIMIT_NOFILE`).
    pub(crate) fn new(process_limit: usize) -> Self {
        let limit = if process_limit > 2 * RESERVED { process_limit - RESERVED } else { process_limit / 2 };
        Self { limit, held: AtomicUsize::new(0), queue: Mutex::default() }
    }

    pub(crate) fn took(&self, node: NodeId) {
        self.held.fetch_add(1, Ordering::Relaxed);
        self.queue.lock().push_back(node);
    }

    pub(crate) fn gave_back(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Time to sweep: too many descriptors, or a queue of inodes that have long gone.
    pub(crate) fn over_budget(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit || self.queue.lock().len() > 4 * self.limit
    }

    /// Inodes to look at, oldest first: enough to bring the count to the limit, or an eighth of the limit when descriptors
    /// ran out in spite of it.
    pub(crate) fn candidates(&self, ran_out: bool) -> Vec<NodeId> {
        let over = self.held.load(Ordering::Relaxed).saturating_sub(self.limit);
        let over = over.max(self.queue.lock().len().saturating_sub(4 * self.limit));
        let wanted = if ran_out { over.max(self.limit / 8).max(1) } else { over };
        let mut queue = self.queue.lock();
        let len = queue.len();
        queue.drain(..wanted.min(len)).collect()
    }

    /// A candidate that was used lately gets another turn.
    pub(crate) fn spare(&self, node: NodeId) {
        self.queue.lock().push_back(node);
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}
