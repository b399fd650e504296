//! Installing a snapshot, and the revocation of what is no longer in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant, SystemTime};

use super::burial::{Burial, OwnMount};
use super::core::{Core, Current, KernelCaches};
use super::inodes::Inode;
use super::node::NodeId;
use super::sweep::Sweep;
use super::tidy::Tidy;
use super::tree::Tree;
use crate::publisher::{Installed, Manner};
use crate::roots::{Instance, Snapshot};

/// How long a publication waits for requests that are stuck in a slow backing call, in all trees together, before it goes on
/// without them. Their replies are refused when they return.
const DRAIN: Duration = Duration::from_secs(5);

/// What dropping the caches of a tree gets when all the time has gone into waiting for others.
const AT_LEAST: Duration = Duration::from_millis(500);

/// How long it waits for pages to be written back to a slow backing before they are refused.
const WRITE_BACK: Duration = Duration::from_secs(5);

/// Where the revocation of one tree stands. Each step is begun when the one before has ended for the whole tree.
///
/// | state | what has ended | what can still happen |
/// | --- | --- | --- |
/// | `Current` | nothing | everything |
/// | `Emptying` | no call enters; those that waited for a list were refused (graceful only) | calls inside finish; pages are written back |
/// | `WrittenBack` | pages written through maps have reached the backing (graceful only) | the same |
/// | `Closed` | the snapshot without the root is current; nothing enters | requests inside finish |
/// | `Drained` | the last request has replied, or is stuck and its reply will be refused | the kernel's caches answer by themselves |
/// | `Unnamed` | the entry and every name below it are forgotten | open descriptors, working directories, maps |
/// | `Dropped` | attributes, pages and maps of every inode are gone, but for those that a stuck request holds | every call that reaches the daemon gets ESTALE. **Here publishing is done** |
/// | `Settled` | the stuck requests have returned, and the caches of their inodes are gone, too | the same |
/// | `Buried` | the kernel itself gives up every inode that it still knows | every call on one is EIO, with or without the daemon |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Current,
    Emptying,
    WrittenBack,
    Closed,
    Drained,
    Unnamed,
    Dropped,
    Settled,
    Buried,
}

/// One tree on its way out.
#[derive(Debug)]
struct Revocation {
    tree: Arc<Tree>,
    step: Step,
    /// What stuck requests hold.
    busy: Vec<Arc<Inode>>,
    /// The others.
    sweep: Option<Arc<Sweep>>,
}

impl Revocation {
    fn reach(&mut self, step: Step) {
        debug_assert!(self.step < step, "{:?} after {step:?}", self.step);
        tracing::trace!(entry = %self.tree.root.entry, ?step, "revoking");
        self.step = step;
    }
}

/// Word from the thread that revokes: a tree is `Dropped`.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    inodes: u64,
    stuck: u64,
}

impl Core {
    /// Makes a snapshot current and revokes the trees that are not in it. Returns when publishing is done: nothing of a
    /// revoked root can be read or written any more.
    ///
    /// Runs on the publisher's thread, never in a handler, and holds no lock. What can wait for the kernel or the backing
    /// runs on a thread of its own, and is waited for only so long: a stuck file system holds up nobody else's list.
    pub(crate) fn install(&self, snapshot: Arc<Snapshot>, manner: Manner) -> Installed {
        let old = self.current.load_full();
        let mut going: Vec<Revocation> = old
            .trees
            .values()
            .filter(|tree| !snapshot.roots.iter().any(|root| root.instance == tree.root.instance))
            .map(|tree| Revocation { tree: Arc::clone(tree), step: Step::Current, busy: Vec::new(), sweep: None })
            .collect();
        if manner == Manner::Graceful && !going.is_empty() {
            self.write_back(&mut going);
        }
        self.burial.begin(going.iter().map(|revocation| Arc::clone(&revocation.tree)));
        self.swap(&old, snapshot);
        for revocation in &mut going {
            self.retire(&revocation.tree);
            revocation.tree.gate.close();
            revocation.reach(Step::Closed);
        }
        // The list that was waited for is in force, and says to each call what has become of its root.
        self.hold.end();
        let installed = self.revoke(going);
        if let Some(caches) = self.caches.get() {
            caches.drop_inode(NodeId::TOP);
        }
        installed
    }

    /// Invalidation writes dirty pages back while the trees still take them.
    fn write_back(&self, going: &mut [Revocation]) {
        let roots: Vec<Instance> = going.iter().map(|revocation| revocation.tree.root.instance).collect();
        for revocation in &mut *going {
            revocation.tree.gate.empty();
        }
        self.hold.release(&roots);
        going.iter_mut().for_each(|revocation| revocation.reach(Step::Emptying));
        let nodes: Vec<NodeId> = going.iter().flat_map(|revocation| revocation.tree.handles.writable()).collect();
        if let (Some(caches), false) = (self.caches.get(), nodes.is_empty()) {
            let (caches, (ended, end)) = (Arc::clone(caches), mpsc::channel());
            let work = move || {
                nodes.iter().for_each(|node| caches.drop_inode(*node));
                // Nobody listens any more if it took too long.
                let _ = ended.send(());
            };
            on_a_thread("rootsfs-write-back", work);
            if end.recv_timeout(WRITE_BACK).is_err() {
                tracing::warn!(
                    "pages that were written through maps may be lost: the backing did not take them in time"
                );
            }
        }
        going.iter_mut().for_each(|revocation| revocation.reach(Step::WrittenBack));
    }

    fn swap(&self, old: &Current, snapshot: Arc<Snapshot>) {
        let mut trees = HashMap::with_capacity(snapshot.roots.len());
        for root in &snapshot.roots {
            let tree = old
                .trees
                .get(&root.instance)
                .cloned()
                .unwrap_or_else(|| Arc::new(Tree::new(Arc::clone(root), self.mounts(), Arc::clone(&self.budget))));
            trees.insert(root.instance, tree);
        }
        self.current.store(Arc::new(Current { snapshot, trees, since: SystemTime::now() }));
    }

    /// Revokes closed trees on a thread of its own; returns when all are `Dropped`, or have been given time enough.
    fn revoke(&self, going: Vec<Revocation>) -> Installed {
        let trees = going.len();
        if trees == 0 {
            return Installed::default();
        }
        let handles_revoked = going.iter().map(|revocation| revocation.tree.handles.len()).sum();
        let mut installed = Installed { handles_revoked, ..Installed::default() };
        let own = self.own_mount.get().map(|id| OwnMount { mountpoint: self.mountpoint.clone(), id: *id });
        let revoker = Revoker {
            caches: self.caches.get().cloned(),
            burial: Arc::clone(&self.burial),
            tidy: self.tidy.clone(),
            own,
        };
        let inside: u64 = going.iter().map(|revocation| revocation.tree.gate.inside()).sum();
        let (done, word) = mpsc::channel();
        on_a_thread("rootsfs-revoke", move || revoker.run(going, &done));
        let until = Instant::now() + DRAIN + Duration::from_secs(2);
        let all = (0..trees).try_for_each(|_| hear(&word, until, &mut installed));
        if all.is_none() {
            installed.still_draining = installed.still_draining.max(inside).max(1);
        }
        installed
    }
}

fn hear(word: &Receiver<Done>, until: Instant, installed: &mut Installed) -> Option<()> {
    let Done { inodes, stuck } = word.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
    installed.inodes_revoked += inodes;
    installed.still_draining += stuck;
    Some(())
}

/// Runs what may block; here and now, if no thread can be had.
pub(super) fn on_a_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(parking_lot::Mutex::new(Some(work)));
    let theirs = Arc::clone(&work);
    let run = move || {
        let work = theirs.lock().take();
        work.into_iter().for_each(|work| work());
    };
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(run) {
        tracing::debug!(%error, name, "no thread");
        let work = work.lock().take();
        work.into_iter().for_each(|work| work());
    }
}

/// What the thread of a revocation needs. It holds no lock while it waits for the kernel.
struct Revoker {
    caches: Option<Arc<dyn KernelCaches>>,
    burial: Arc<Burial>,
    tidy: Tidy,
    own: Option<OwnMount>,
}

impl Revoker {
    fn run(&self, mut going: Vec<Revocation>, done: &Sender<Done>) {
        let until = Instant::now() + DRAIN;
        // A tree that somebody is in may take all the time there is.
        going.sort_by_key(|revocation| revocation.tree.gate.inside());
        for revocation in &mut going {
            let mut stuck = revocation.tree.gate.wait_empty(until.saturating_duration_since(Instant::now()));
            revocation.reach(Step::Drained);
            let (inodes, held) = self.drop_tree(revocation, until.max(Instant::now() + AT_LEAST));
            stuck = stuck.max(held);
            // Nobody listens any more if it took too long.
            let _ = done.send(Done { inodes, stuck });
        }
        for revocation in &mut going {
            self.settle(revocation);
            if let (Some(own), Some(caches)) = (&self.own, &self.caches) {
                self.burial.bury(&revocation.tree, own, &**caches);
            }
            revocation.reach(Step::Buried);
            let tree = &revocation.tree;
            self.burial.end(tree);
            let inodes = tree.inodes.len();
            // Closing may take as long as the backing likes; nothing leads there any more, and nobody waits.
            tree.handles.clear();
            tree.inodes.clear();
            self.tidy.freed(inodes);
        }
    }

    /// From `Drained` to `Dropped`: how many inodes there were, and on how many of them the kernel waits for a request that the
    /// daemon has not seen. Inodes that a stuck request is on come later: invalidating one waits for the request.
    fn drop_tree(&self, revocation: &mut Revocation, until: Instant) -> (u64, u64) {
        let inodes = revocation.tree.inodes.all();
        let count = inodes.len() as u64;
        let mut held = 0;
        if let Some(caches) = &self.caches {
            caches.drop_entry(NodeId::TOP, &revocation.tree.root.entry);
            revocation.reach(Step::Unnamed);
            let (busy, idle): (Vec<_>, Vec<_>) = inodes.into_iter().partition(|inode| inode.is_busy());
            let sweep = Sweep::over(Arc::clone(caches), idle.iter().map(|inode| inode.node).collect());
            held = sweep.run(until) as u64;
            revocation.busy = busy;
            revocation.sweep = Some(sweep);
        }
        revocation.reach(Step::Dropped);
        (count, held)
    }

    /// From `Dropped` to `Settled`, however long that takes.
    fn settle(&self, revocation: &mut Revocation) {
        if let Some(sweep) = revocation.sweep.take() {
            sweep.finish();
        }
        if let (Some(caches), false) = (&self.caches, revocation.busy.is_empty()) {
            while revocation.tree.gate.wait_empty(DRAIN) > 0 {}
            revocation.busy.drain(..).for_each(|inode| caches.drop_inode(inode.node));
        }
        revocation.reach(Step::Settled);
    }
}
