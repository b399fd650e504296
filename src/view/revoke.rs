//! Installing a snapshot, and the revocation of what is no longer in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::core::{Core, Current};
use super::node::NodeId;
use super::tidy::Tidy;
use super::tree::Tree;
use crate::publisher::{Installed, Manner};
use crate::roots::Snapshot;

/// How long a revocation, of however many trees, waits for requests that are stuck in a slow backing call before it goes on
/// without them. Their
/// replies are refused when they return.
const DRAIN: Duration = Duration::from_secs(5);

/// Where the revocation of one tree stands. Each step is begun when the one before has ended for the whole tree.
///
/// | state | what has ended | what can still happen |
/// | --- | --- | --- |
/// | `Current` | nothing | everything |
/// | `WrittenBack` | dirty maps have reached the backing (graceful only) | everything |
/// | `Unlisted` | the snapshot without the root is current | requests that entered before |
/// | `Closed` | no request enters | requests inside finish |
/// | `Drained` | the last request has replied, or its reply will be refused | the kernel's caches answer by themselves |
/// | `Unnamed` | the entry and every name below it are forgotten | open descriptors, working directories, maps |
/// | `Dropped` | attributes, pages and maps of every inode are gone | every call reaches the daemon and gets ESTALE |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Current,
    WrittenBack,
    Unlisted,
    Closed,
    Drained,
    Unnamed,
    Dropped,
}

/// One tree on its way out.
#[derive(Debug)]
struct Revocation {
    tree: Arc<Tree>,
    step: Step,
}

impl Core {
    /// Makes a snapshot current and revokes the trees that are not in it. Returns when publishing is done: nothing of a
    /// revoked root can be read or written any more.
    ///
    /// Runs on the publisher's thread, never in a handler, and holds no lock: the kernel's notifications wait for requests
    /// that handlers are still to answer.
    pub(crate) fn install(&self, snapshot: Arc<Snapshot>, manner: Manner) -> Installed {
        let old = self.current.load_full();
        let mut going: Vec<Revocation> = old
            .trees
            .values()
            .filter(|tree| !snapshot.roots.iter().any(|root| root.instance == tree.root.instance))
            .map(|tree| Revocation { tree: Arc::clone(tree), step: Step::Current })
            .collect();
        if manner == Manner::Graceful {
            for revocation in &mut going {
                self.write_back(revocation);
            }
        }
        self.swap(&old, snapshot);
        let mut installed = Installed::default();
        for revocation in &mut going {
            revocation.step = Step::Unlisted;
            self.retire(&revocation.tree);
        }
        for revocation in &mut going {
            revocation.tree.gate.close();
            revocation.step = Step::Closed;
        }
        let until = Instant::now() + DRAIN;
        for revocation in &mut going {
            let left = until.saturating_duration_since(Instant::now());
            installed.still_draining += revocation.tree.gate.wait_empty(left);
            revocation.step = Step::Drained;
        }
        for revocation in &mut going {
            self.drop_tree(revocation, &mut installed);
        }
        if let Some(caches) = self.caches.get() {
            caches.drop_inode(NodeId::TOP);
        }
        close_behind(going, self.tidy.clone());
        installed
    }

    /// Invalidation writes dirty pages back while the tree still takes them.
    fn write_back(&self, revocation: &mut Revocation) {
        if let Some(caches) = self.caches.get() {
            for node in revocation.tree.handles.writable() {
                caches.drop_inode(node);
            }
        }
        revocation.step = Step::WrittenBack;
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

    fn drop_tree(&self, revocation: &mut Revocation, installed: &mut Installed) {
        let tree = &revocation.tree;
        let nodes = tree.inodes.nodes();
        if let Some(caches) = self.caches.get() {
            caches.drop_entry(NodeId::TOP, &tree.root.entry);
            revocation.step = Step::Unnamed;
            for node in &nodes {
                caches.drop_inode(*node);
            }
        }
        installed.inodes_revoked += nodes.len() as u64;
        installed.handles_revoked += tree.handles.clear();
        revocation.step = Step::Dropped;
        tracing::debug!(entry = %tree.root.entry, step = ?revocation.step, inodes = nodes.len(), "revoked");
    }
}

/// Closes what the revoked trees still hold of the backing. Nothing leads there any more, so nobody has to wait for it; if
/// no thread can be had, it is done here and now.
fn close_behind(gone: Vec<Revocation>, tidy: Tidy) {
    if gone.is_empty() {
        return;
    }
    let close = move || {
        for revocation in &gone {
            let inodes = revocation.tree.inodes.len();
            revocation.tree.inodes.clear();
            tidy.freed(inodes);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("rootsfs-close".into()).spawn(close) {
        tracing::debug!(%error, "no thread to close a revoked tree");
    }
}
