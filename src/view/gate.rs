use std::time::{Duration, Instant};

use super::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// The door of a tree. Requests enter and leave; once it is closed nobody enters, and whoever closed it can wait until
/// the last one has left.
///
/// | state | enters | how it gets there |
/// | --- | --- | --- |
/// | open | everybody | at first |
/// | emptying | pages that the kernel writes back | [`empty`](Self::empty) |
/// | closed | nobody | [`close`](Self::close) |
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Requests inside; [`EMPTYING`] and [`CLOSED`] on top.
    state: AtomicU64,
    left: Mutex<()>,
    changed: Condvar,
}

const CLOSED: u64 = 1 << 63;
const EMPTYING: u64 = 1 << 62;
const FLAGS: u64 = CLOSED | EMPTYING;

/// Who comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// Somebody's call.
    Call,
    /// The kernel, with a page that a program wrote through a map.
    WriteBack,
}

impl Gate {
    /// Enters, unless the gate is not open for such a guest. Every `true` is matched by one [`leave`](Self::leave).
    pub(crate) fn enter(&self, guest: Guest) -> bool {
        let refused = if guest == Guest::WriteBack { CLOSED } else { FLAGS };
        if self.state.fetch_add(1, Ordering::AcqRel) & refused == 0 {
            return true;
        }
        self.leave();
        false
    }

    pub(crate) fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::AcqRel) & FLAGS != 0 {
            // The lock orders this against a waiter that has read the count and is about to sleep.
            drop(self.left.lock());
            self.changed.notify_all();
        }
    }

    /// From now on only pages that are written back enter.
    pub(crate) fn empty(&self) {
        self.state.fetch_or(EMPTYING, Ordering::AcqRel);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many are inside.
    pub(crate) fn inside(&self) -> u64 {
        self.state.load(Ordering::Acquire) & !FLAGS
    }

    pub(crate) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Waits until nobody is inside, at most `limit`; says how many still are.
    pub(crate) fn wait_empty(&self, limit: Duration) -> u64 {
        let until = Instant::now() + limit;
        let mut left = self.left.lock();
        loop {
            let inside = self.inside();
            if inside == 0 || self.changed.wait_until(&mut left, until).timed_out() {
                return inside;
            }
        }
    }
}
