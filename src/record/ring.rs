use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The newest events, already serialized, numbered from 1. Readers never hold writers up: they copy references.
#[derive(Debug)]
pub(super) struct Ring {
    capacity: usize,
    state: Mutex<State>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Entry>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    seq: u64,
    denied: bool,
    line: Arc<str>,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default(), grown: Condvar::new() }
    }

    pub(super) fn push(&self, line: Arc<str>, denied: bool) {
        let mut state = self.state.lock();
        state.last += 1;
        let seq = state.last;
        if state.lines.len() == self.capacity {
            state.lines.pop_front();
        }
        state.lines.push_back(Entry { seq, denied, line });
        drop(state);
        self.grown.notify_all();
    }

    /// The number of the newest event; 0 before the first.
    pub(super) fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// The newest `limit` events, oldest of them first.
    pub(super) fn recent(&self, limit: usize, denied_only: bool) -> Vec<(u64, Arc<str>)> {
        let state = self.state.lock();
        let mut lines: Vec<_> = state
            .lines
            .iter()
            .rev()
            .filter(|entry| entry.denied || !denied_only)
            .take(limit)
            .map(|entry| (entry.seq, Arc::clone(&entry.line)))
            .collect();
        lines.reverse();
        lines
    }

    /// The events after number `after`; waits for one, at most `timeout`.
    pub(super) fn follow(&self, after: u64, timeout: Duration) -> Vec<(u64, Arc<str>)> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.last <= after {
            if self.grown.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        let behind = usize::try_from(state.last.saturating_sub(after)).unwrap_or(usize::MAX);
        let skip = state.lines.len().saturating_sub(behind);
        state.lines.iter().skip(skip).map(|entry| (entry.seq, Arc::clone(&entry.line))).collect()
    }
}
