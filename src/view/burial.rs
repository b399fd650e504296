//! Trees on their way out, and the last step with each: what the kernel still holds of them is made bad, or blank.
//!
//! A descriptor of a revoked inode is refused by the daemon; but not when there is no daemon any more, nor where the kernel
//! answers without asking (`statx(2)` with `AT_STATX_DONT_SYNC`). So the kernel itself is made to give the inode up: a lookup
//! whose answer has the nodeid of an inode and another generation means to it that the inode it has is of the past, and
//! everything on that is EIO from then on. Nobody but the thread that buries may look such a name up.
//!
//! Everything is `close(2)`, too, which ought to succeed. An inode that is open as a file is therefore not made bad: the lookup
//! has the same generation and attributes that say nothing (no size, no times, no permissions), which are all that the kernel
//! can then show by itself, for its pages were dropped before.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::core::{Attr, Entry, KernelCaches};
use super::inodes::Inode;
use super::node::NodeId;
use super::tree::Tree;
use crate::resolve::Name;
use crate::roots::Instance;
use crate::sys::{self, Kind, Stat};

/// How long the kernel may take to forget what nobody holds: that needs no burial.
const FORGETTING: Duration = Duration::from_millis(50);

/// The view's own mount, to look a name up in it.
#[derive(Clone, Debug)]
pub(super) struct OwnMount {
    pub(super) mountpoint: PathBuf,
    pub(super) id: u64,
}

#[derive(Debug)]
struct Grave {
    name: Name,
    /// The thread that may look it up (`gettid(2)`).
    thread: u32,
    node: NodeId,
    generation: u64,
    kind: Kind,
}

/// What is left of revoked trees.
#[derive(Debug, Default)]
pub(crate) struct Burial {
    /// Their revocation has not ended: forgets still count.
    dying: Mutex<Vec<Arc<Tree>>>,
    graves: Mutex<Vec<Grave>>,
    open: AtomicUsize,
    /// The mount is going, and everything with it.
    closed: AtomicBool,
}

impl Burial {
    pub(super) fn begin(&self, trees: impl Iterator<Item = Arc<Tree>>) {
        self.dying.lock().extend(trees);
    }

    pub(super) fn end(&self, tree: &Arc<Tree>) {
        self.dying.lock().retain(|dying| !Arc::ptr_eq(dying, tree));
    }

    /// The tree of this instance, if its revocation has not ended.
    pub(super) fn dying(&self, instance: Instance) -> Option<Arc<Tree>> {
        self.dying.lock().iter().find(|tree| tree.root.instance == instance).cloned()
    }

    /// Nothing is looked up in the mount from now on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// The answer to a lookup at the top by the thread that buries.
    pub(super) fn grave(&self, name: &Name, thread: u32) -> Option<Entry> {
        if self.open.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let graves = self.graves.lock();
        let grave = graves.iter().find(|grave| grave.thread == thread && grave.name == *name)?;
        let attr = Attr { node: grave.node, stat: Stat::unknown(grave.kind) };
        Some(Entry { attr, generation: grave.generation, lasting: false })
    }

    /// Makes the kernel give up every inode that it still knows of a tree, or all that it knows of one that is open. Their
    /// caches have been dropped before: a bad inode can no longer be invalidated.
    pub(super) fn bury(&self, tree: &Tree, mount: &OwnMount, caches: &dyn KernelCaches) {
        if tree.inodes.len() > 1 {
            std::thread::sleep(FORGETTING);
        }
        let left = tree.inodes.all();
        if left.is_empty() || self.closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(top) = sys::open_directory(&mount.mountpoint) else { return };
        // Somebody may have mounted over it, or moved it away.
        if !sys::stat_without_sync(&top).is_ok_and(|stat| stat.id.mnt == mount.id) {
            return;
        }
        let thread = sys::thread_id();
        // Nothing can be opened any more; what is closed meanwhile is blank and as good as forgotten.
        let open = tree.handles.open();
        for inode in left {
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            let Some(name) = self.dig(&inode, open.contains(&inode.node), thread) else { continue };
            // Only what it makes of the inode matters, not what it says.
            let _ = sys::look_up(&top, &name);
            self.graves.lock().retain(|grave| grave.thread != thread);
            self.open.fetch_sub(1, Ordering::Relaxed);
            caches.drop_entry(NodeId::TOP, &name);
        }
    }

    fn dig(&self, inode: &Inode, open: bool, thread: u32) -> Option<Name> {
        let name = Name::new(format!(".rootsfs-{}", inode.node.raw())).ok()?;
        let generation = u64::from(inode.generation) + u64::from(!open);
        let grave = Grave { name: name.clone(), thread, node: inode.node, generation, kind: inode.kind };
        self.graves.lock().push(grave);
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(name)
    }
}
