//! The gate of a tree under every interleaving of its threads (loom), built from the very source that the view uses.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)]

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use gate::{Gate, Guest};

#[path = "../src/view/gate.rs"]
mod gate;

/// The parts of the gate, as loom has them, with the interface of those that it has otherwise. Time does not pass here.
mod sync {
    use std::time::Instant;

    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty while its thread waits.
    pub(crate) struct Guard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    pub(crate) struct InTime;

    impl InTime {
        pub(crate) fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait_until<T>(&self, guard: &mut Guard<'_, T>, _: Instant) -> InTime {
            guard.0 = guard.0.take().map(|guard| self.0.wait(guard).unwrap());
            InTime
        }
    }
}

/// With at most three switches that no thread asked for: more find nothing further and take for ever.
fn every_interleaving(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

const LONG: Duration = Duration::from_secs(3600);

/// Two requests race with a revocation. Whoever comes in is out again when the revocation is done, and whoever comes after that
/// is not let in.
#[test]
fn a_revocation_has_a_moment() {
    every_interleaving(|| {
        let (gate, inside) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
        let (listed, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let requests: Vec<_> = (0..2)
            .map(|_| {
                let (gate, inside, listed, done) = (gate.clone(), inside.clone(), listed.clone(), done.clone());
                thread::spawn(move || {
                    let late = done.load(Ordering::Acquire);
                    if !listed.load(Ordering::Acquire) || !gate.enter(Guest::Call) {
                        return;
                    }
                    assert!(!late, "let in after the revocation was done");
                    inside.fetch_add(1, Ordering::AcqRel);
                    inside.fetch_sub(1, Ordering::AcqRel);
                    gate.leave();
                })
            })
            .collect();
        listed.store(false, Ordering::Release);
        gate.close();
        assert_eq!(gate.wait_empty(LONG), 0);
        assert_eq!(inside.load(Ordering::Acquire), 0, "done while a request was inside");
        done.store(true, Ordering::Release);
        requests.into_iter().for_each(|request| request.join().unwrap());
    });
}

/// While a tree is emptied, pages are written back and calls are refused; once it is closed, nothing enters.
#[test]
fn pages_are_written_back_until_it_is_closed() {
    every_interleaving(|| {
        let gate = Arc::new(Gate::default());
        let (emptied, closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let call = {
            let (gate, emptied) = (gate.clone(), emptied.clone());
            thread::spawn(move || {
                let late = emptied.load(Ordering::Acquire);
                if gate.enter(Guest::Call) {
                    assert!(!late, "a call was let in after the tree was emptied");
                    gate.leave();
                }
            })
        };
        let page = {
            let (gate, emptied, closed) = (gate.clone(), emptied.clone(), closed.clone());
            thread::spawn(move || {
                let (before, late) = (emptied.load(Ordering::Acquire), closed.load(Ordering::Acquire));
                if gate.enter(Guest::WriteBack) {
                    assert!(!late, "a page was let in after the tree was closed");
                    gate.leave();
                } else {
                    assert!(before || emptied.load(Ordering::Acquire), "a page was refused by an open tree");
                }
            })
        };
        gate.empty();
        emptied.store(true, Ordering::Release);
        gate.close();
        closed.store(true, Ordering::Release);
        assert_eq!(gate.wait_empty(LONG), 0);
        call.join().unwrap();
        page.join().unwrap();
    });
}
