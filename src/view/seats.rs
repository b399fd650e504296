//! The session's threads, of which one is always there to read the next request.
//!
//! A handler may block in the backing for as long as that likes. If all of the session's threads did, nothing in the view
//! would answer, however healthy. So all but one of them may serve what they read; the last one hands it to threads that are
//! started for that, and reads on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::hold::Rest;

/// Threads beside the session's, at most.
const SPARE: usize = 256;

/// Bytes of requests that wait for one of them, together.
const MOST_KEPT: usize = 64 << 20;

/// How long a spare thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// Seats for those that may block.
#[derive(Debug)]
pub(crate) struct Seats {
    free: AtomicUsize,
    spare: Arc<Spare>,
}

/// A session's thread may block until this is dropped.
pub(crate) struct Seat<'a>(&'a Seats);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Release);
    }
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<(Rest, usize)>,
    bytes: usize,
    idle: usize,
    threads: usize,
}

#[derive(Default)]
struct Spare {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Seats {
    /// Of a session with so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self { free: AtomicUsize::new(threads.saturating_sub(1)), spare: Arc::default() }
    }

    /// None: whoever asks must not block.
    pub(crate) fn take(&self) -> Option<Seat<'_>> {
        let less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).ok().map(|_| Seat(self))
    }

    /// Has a call served by another thread; `bytes` is what it keeps in memory meanwhile.
    pub(crate) fn hand_over(&self, bytes: usize, rest: Rest) {
        let mut queue = self.spare.queue.lock();
        if queue.bytes.saturating_add(bytes) > MOST_KEPT {
            drop(queue);
            return rest(Err(Errno::AGAIN));
        }
        queue.bytes += bytes;
        queue.calls.push_back((rest, bytes));
        if queue.idle >= queue.calls.len() {
            self.spare.more.notify_one();
        } else if queue.threads < SPARE {
            let spare = Arc::clone(&self.spare);
            match std::thread::Builder::new().name("rootsfs-spare".into()).spawn(move || spare.serve()) {
                Ok(_) => queue.threads += 1,
                // Without any thread it has to be done here.
                Err(error) if queue.threads == 0 => {
                    tracing::debug!(%error, "no spare thread");
                    let call = queue.take();
                    drop(queue);
                    call.into_iter().for_each(|rest| rest(Ok(())));
                }
                Err(error) => tracing::debug!(%error, "no further spare thread"),
            }
        }
    }
}

impl Queue {
    fn take(&mut self) -> Option<Rest> {
        let (rest, bytes) = self.calls.pop_front()?;
        self.bytes -= bytes;
        Some(rest)
    }
}

impl Spare {
    fn serve(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(rest) = queue.take() {
                parking_lot::MutexGuard::unlocked(&mut queue, || rest(Ok(())));
                continue;
            }
            queue.idle += 1;
            let idle = self.more.wait_for(&mut queue, IDLE).timed_out();
            queue.idle -= 1;
            if idle && queue.calls.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue.lock();
        f.debug_struct("Spare").field("waiting", &queue.calls.len()).field("threads", &queue.threads).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_thread_never_blocks() {
        let seats = Seats::new(3);
        let taken = (seats.take().unwrap(), seats.take().unwrap());
        assert!(seats.take().is_none());
        let (done, served) = channel();
        // Twenty that wait for each other: each has a thread.
        let all = Arc::new(std::sync::Barrier::new(20));
        for _ in 0..20 {
            let (all, done) = (Arc::clone(&all), done.clone());
            seats.hand_over(
                1,
                Box::new(move |outcome| {
                    all.wait();
                    done.send(outcome).unwrap();
                }),
            );
        }
        for _ in 0..20 {
            assert_eq!(served.recv_timeout(Duration::from_secs(10)), Ok(Ok(())));
        }
        drop(taken);
        assert!(seats.take().is_some());
    }

    #[test]
    fn what_waits_is_bounded() {
        let seats = Seats::new(1);
        let (done, served) = channel();
        seats.hand_over(MOST_KEPT + 1, Box::new(move |outcome| done.send(outcome).unwrap()));
        assert_eq!(served.recv().unwrap(), Err(Errno::AGAIN));
    }
}
