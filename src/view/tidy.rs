//! Memory goes back to the system once the kernel has forgotten what it was for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::sys;

/// Fewer forgotten inodes than this are not worth the work: a few megabytes.
const WORTH_IT: u64 = 16 * 1024;

/// The kernel forgets in bursts; the work is done once, this long after the last of them.
const QUIET: Duration = Duration::from_millis(500);

/// Counts what was freed, and has a thread give it back when there is much of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tidy {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    freed: AtomicU64,
    /// A thread is waiting for the burst to end.
    waiting: AtomicBool,
}

impl Tidy {
    /// `count` inodes were freed. Blocks for nothing.
    pub(crate) fn freed(&self, count: u64) {
        let freed = self.state.freed.fetch_add(count, Ordering::Relaxed) + count;
        if freed < WORTH_IT || self.state.waiting.swap(true, Ordering::Relaxed) {
            return;
        }
        let state = Arc::clone(&self.state);
        if let Err(error) = std::thread::Builder::new().name("rootsfs-tidy".into()).spawn(move || state.give_back()) {
            self.state.waiting.store(false, Ordering::Relaxed);
            tracing::debug!(%error, "no thread to give memory back");
        }
    }
}

impl State {
    fn give_back(&self) {
        let mut seen = self.freed.load(Ordering::Relaxed);
        loop {
            std::thread::sleep(QUIET);
            match self.freed.load(Ordering::Relaxed) {
                now if now == seen => break,
                now => seen = now,
            }
        }
        self.freed.store(0, Ordering::Relaxed);
        self.waiting.store(false, Ordering::Relaxed);
        sys::give_memory_back();
    }
}
