//! Calls that wait for a list.
//!
//! From the announcement of a change until the new list is in force nobody knows what the announcer still allows. A call into
//! one of its roots therefore waits, without a thread: its reply is put aside here and given when the list has come, or as
//! ETIMEDOUT when its time is up. Not the top directory, which always answers; nor what only ends something (a close, a
//! forget, the writing back of pages), which would hold up the very revocation that is waited for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::node::NodeId;
use crate::roots::Instance;

/// Threads that answer the calls which waited, at most.
const ANSWERING: usize = 8;

/// Bytes of requests that wait, together: more is not put aside but refused at once.
const MOST_KEPT: usize = 64 << 20;

/// The rest of a request: it goes on as if it came now, or ends with the error.
pub(crate) type Rest = Box<dyn FnOnce(Result<(), Errno>) + Send>;

struct Waiting {
    until: Instant,
    nodes: [NodeId; 2],
    bytes: usize,
    rest: Rest,
}

#[derive(Default)]
struct Room {
    /// Whose calls are held; empty when nobody's are.
    roots: Vec<Instance>,
    calls: VecDeque<Waiting>,
    bytes: usize,
    /// A thread ends the calls whose time is up.
    watched: bool,
}

/// The room in which calls wait. Cheap to look into while nothing is held.
#[derive(Clone)]
pub(crate) struct Hold {
    limit: Duration,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Some root's calls are held.
    holding: AtomicBool,
    room: Mutex<Room>,
    changed: Condvar,
}

impl Hold {
    /// Each call waits for at most `limit`; for none at all if that is zero.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, shared: Arc::default() }
    }

    /// From now on calls into these roots wait.
    pub(crate) fn begin(&self, roots: &[Instance]) {
        if self.limit.is_zero() {
            return;
        }
        let mut room = self.shared.room.lock();
        room.roots = roots.to_vec();
        self.shared.holding.store(!roots.is_empty(), Ordering::Release);
    }

    /// Whether a call on one of these inodes has to wait.
    pub(crate) fn holds(&self, nodes: [NodeId; 2]) -> bool {
        self.shared.holding.load(Ordering::Acquire) && self.shared.room.lock().concerns(&nodes)
    }

    /// Puts a call aside that [`holds`](Self::holds) was true for; `bytes` is what it keeps in memory. Blocks for nothing.
    pub(crate) fn wait(&self, nodes: [NodeId; 2], bytes: usize, rest: Rest) {
        let mut room = self.shared.room.lock();
        if !room.concerns(&nodes) {
            drop(room);
            return answer(vec![rest], Ok(()));
        }
        let watched = room.watched || self.watch().is_ok();
        if !watched || room.bytes.saturating_add(bytes) > MOST_KEPT {
            drop(room);
            return rest(Err(Errno::TIMEDOUT));
        }
        room.watched = true;
        room.bytes += bytes;
        room.calls.push_back(Waiting { until: Instant::now() + self.limit, nodes, bytes, rest });
        drop(room);
        self.shared.changed.notify_all();
    }

    /// Calls into these roots wait no longer: they go on and find out what has become of the root.
    pub(crate) fn release(&self, roots: &[Instance]) {
        let mut room = self.shared.room.lock();
        room.roots.retain(|root| !roots.contains(root));
        self.shared.holding.store(!room.roots.is_empty(), Ordering::Release);
        let released = room.take(|call| call.nodes.iter().any(|node| roots.contains(&node.instance())));
        drop(room);
        answer(released, Ok(()));
    }

    /// Nothing waits any longer.
    pub(crate) fn end(&self) {
        let mut room = self.shared.room.lock();
        room.roots.clear();
        self.shared.holding.store(false, Ordering::Release);
        let released = room.take(|_| true);
        drop(room);
        self.shared.changed.notify_all();
        answer(released, Ok(()));
    }

    /// Starts the thread that ends calls whose time is up. It ends by itself when none is left.
    fn watch(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let watch = move || {
            let mut room = shared.room.lock();
            while let Some(until) = room.calls.front().map(|call| call.until) {
                shared.changed.wait_until(&mut room, until);
                let now = Instant::now();
                let late = room.take(|call| call.until <= now);
                if !late.is_empty() {
                    parking_lot::MutexGuard::unlocked(&mut room, || answer(late, Err(Errno::TIMEDOUT)));
                }
            }
            room.watched = false;
        };
        std::thread::Builder::new().name("rootsfs-hold".into()).spawn(watch).map(drop)
    }
}

impl Room {
    fn concerns(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().any(|node| self.roots.contains(&node.instance()))
    }

    fn take(&mut self, which: impl Fn(&Waiting) -> bool) -> Vec<Rest> {
        let (taken, kept) = std::mem::take(&mut self.calls).into_iter().partition::<Vec<_>, _>(|call| which(call));
        self.calls = kept.into();
        self.bytes = self.calls.iter().map(|call| call.bytes).sum();
        taken.into_iter().map(|call| call.rest).collect()
    }
}

/// Lets the calls go on, on threads of their own: each may block in the backing for as long as it likes.
fn answer(calls: Vec<Rest>, outcome: Result<(), Errno>) {
    if outcome.is_err() {
        // To end one takes no more than a reply.
        return calls.into_iter().for_each(|rest| rest(outcome));
    }
    let threads = calls.len().min(ANSWERING);
    let queue = Arc::new(Mutex::new(VecDeque::from(calls)));
    let mut started = 0;
    for _ in 0..threads {
        let queue = Arc::clone(&queue);
        let next = move || queue.lock().pop_front();
        let work = move || {
            while let Some(rest) = next() {
                rest(Ok(()));
            }
        };
        match std::thread::Builder::new().name("rootsfs-held".into()).spawn(work) {
            Ok(_) => started += 1,
            Err(error) => tracing::debug!(%error, "no thread to answer held calls"),
        }
    }
    if started == 0 {
        let left = std::mem::take(&mut *queue.lock());
        left.into_iter().for_each(|rest| rest(Err(Errno::TIMEDOUT)));
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = self.shared.room.lock();
        let (roots, waiting) = (&room.roots, room.calls.len());
        f.debug_struct("Hold").field("limit", &self.limit).field("roots", roots).field("waiting", &waiting).finish()
    }
}
