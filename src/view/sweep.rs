//! Dropping the kernel's caches of many inodes, of which any may have to be waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::core::KernelCaches;
use super::node::NodeId;

/// Without progress for so long, another thread goes on with the rest.
const PATIENCE: Duration = Duration::from_millis(20);

/// Threads, at most: so many inodes may be waited for without holding up the others.
const THREADS: usize = 256;

/// Invalidating an inode waits for a request on one of its pages, be it that the daemon has not even been given that request
/// yet. The other inodes must not wait with it: threads take one inode after the other, and whenever all of them wait another
/// one goes on.
#[derive(Debug)]
pub(super) struct Sweep {
    caches: Arc<dyn KernelCaches>,
    nodes: Vec<NodeId>,
    next: AtomicUsize,
    done: Mutex<usize>,
    changed: Condvar,
}

impl Sweep {
    pub(super) fn over(caches: Arc<dyn KernelCaches>, nodes: Vec<NodeId>) -> Arc<Self> {
        Arc::new(Self { caches, nodes, next: AtomicUsize::new(0), done: Mutex::new(0), changed: Condvar::new() })
    }

    /// Drops what can be dropped until then; says how many inodes are still waited for. Threads that wait go on after it.
    pub(super) fn run(self: &Arc<Self>, until: Instant) -> usize {
        let mut started = 0;
        let mut seen = usize::MAX;
        loop {
            let mut done = self.done.lock();
            let left = self.nodes.len() - *done;
            if left == 0 || Instant::now() >= until {
                return left;
            }
            let nobody_takes_them = *done == seen && self.next.load(Ordering::Relaxed) < self.nodes.len();
            seen = *done;
            if started == 0 || (nobody_takes_them && started < THREADS) {
                drop(done);
                started += 1;
                let sweep = Arc::clone(self);
                super::revoke::on_a_thread("rootsfs-sweep", move || sweep.work());
                done = self.done.lock();
            }
            if *done < self.nodes.len() {
                self.changed.wait_for(&mut done, PATIENCE);
            }
        }
    }

    /// Waits for the rest, however long that takes.
    pub(super) fn finish(&self) {
        let mut done = self.done.lock();
        while *done < self.nodes.len() {
            self.changed.wait(&mut done);
        }
    }

    fn work(&self) {
        while let Some(node) = self.nodes.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.caches.drop_inode(*node);
            let mut done = self.done.lock();
            *done += 1;
            if *done == self.nodes.len() {
                self.changed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::resolve::Name;
    use crate::roots::Instance;

    /// Every tenth inode is waited for until the channel closes.
    #[derive(Debug)]
    struct Slow(Mutex<Receiver<()>>, AtomicUsize);

    impl KernelCaches for Slow {
        fn drop_entry(&self, _: NodeId, _: &Name) {}

        fn drop_inode(&self, node: NodeId) {
            if node.raw().is_multiple_of(10) {
                let _ = self.0.lock().recv();
            }
            self.1.fetch_add(1, Ordering::SeqCst);
        }

        fn drop_attributes(&self, _: NodeId) {}
    }

    #[test]
    fn one_that_is_waited_for_holds_up_no_other() {
        let (open, closed) = channel();
        let slow = Arc::new(Slow(Mutex::new(closed), AtomicUsize::new(0)));
        let nodes = (1..=200).map(|low| NodeId::new(Instance(1), low)).collect::<Vec<_>>();
        let waited_for = nodes.iter().filter(|node| node.raw().is_multiple_of(10)).count();
        let sweep = Sweep::over(Arc::clone(&slow) as _, nodes);
        assert_eq!(sweep.run(Instant::now() + Duration::from_secs(2)), waited_for);
        assert_eq!(slow.1.load(Ordering::SeqCst), 200 - waited_for);
        drop(open);
        sweep.finish();
        assert_eq!(slow.1.load(Ordering::SeqCst), 200);
    }
}
