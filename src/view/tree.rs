use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::descriptors::{Descriptors, Holder};
use super::gate::{Gate, Guest};
use super::handles::HandleTable;
use super::inodes::{Anchor, Inode, InodeTable, Place, Way};
use super::node::NodeId;
use crate::resolve::Name;
use crate::roots::{Root, RootKind};
use crate::sys::{self, Kind, Mounts, ObjectId, Stat};

/// One root instance in the view: everything that dies with it when the root is revoked.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Arc<Root>,
    pub(crate) mounts: Mounts,
    pub(crate) inodes: InodeTable,
    pub(crate) handles: HandleTable,
    pub(crate) gate: Gate,
    /// The root's own inode and attributes as they were when the tree was made, held so that the top directory can be
    /// listed without touching the backing. None when the object was gone by then.
    pub(crate) face: Option<(Arc<Inode>, Stat)>,
    /// It lies on an overlay: a descriptor that was opened to read keeps to the old copy once a new one was made to write.
    pub(crate) overlay: bool,
    /// Kept as long as the object has a name or the kernel knows it, so that `st_ino` stays.
    stand_ins: Mutex<StandIns>,
    /// An object whose own number would do has a stand-in.
    renumbered: AtomicBool,
}

/// Numbers for objects, by device and inode, whose own inode number does not fit a nodeid or is taken by their past.
#[derive(Debug, Default)]
struct StandIns {
    /// Oldest first; the last is the one in force.
    numbers: HashMap<(u64, u64), Vec<u64>>,
    given: u64,
}

impl StandIns {
    fn known(&self, key: (u64, u64)) -> Option<u64> {
        self.numbers.get(&key).and_then(|numbers| numbers.last()).copied()
    }

    fn of(&mut self, key: (u64, u64)) -> u64 {
        self.known(key).unwrap_or_else(|| self.renew(key))
    }

    fn renew(&mut self, key: (u64, u64)) -> u64 {
        let number = NodeId::STAND_INS + self.given;
        self.given += 1;
        self.numbers.entry(key).or_default().push(number);
        number
    }
}

impl Tree {
    pub(crate) fn new(root: Arc<Root>, mounts: Mounts, budget: Arc<Descriptors>) -> Self {
        if let Err(errno) = sys::learn_mount(&root.anchor) {
            tracing::debug!(%errno, entry = %root.entry, "what the root lies on cannot be told");
        }
        let mut tree = Self {
            overlay: sys::is_overlay(&root.anchor).unwrap_or(false),
            root,
            mounts,
            inodes: InodeTable::new(Arc::clone(&budget)),
            handles: HandleTable::new(budget),
            gate: Gate::default(),
            face: None,
            stand_ins: Mutex::default(),
            renumbered: AtomicBool::new(false),
        };
        tree.face = tree.enter_root().ok();
        tree
    }

    /// The nodeid of an object of this tree, known to the kernel or not.
    pub(crate) fn node(&self, id: ObjectId) -> NodeId {
        let key = (id.dev, id.ino);
        let fits = id.dev == self.root.id.dev && id.ino < NodeId::STAND_INS;
        let low = if !fits {
            self.stand_ins.lock().of(key)
        } else if self.renumbered.load(Ordering::SeqCst) {
            self.stand_ins.lock().known(key).unwrap_or(id.ino)
        } else {
            id.ino
        };
        NodeId::new(self.root.instance, low)
    }

    /// Counts one lookup of the object behind `fd`, which was found at `place`, and returns its inode.
    pub(crate) fn found(&self, fd: OwnedFd, stat: &Stat, place: Place) -> Result<Arc<Inode>, Errno> {
        let fd = match self.inodes.found(self.node(stat.id), fd, stat, place.clone()) {
            Ok(inode) => return Ok(inode),
            Err(fd) => fd,
        };
        // A directory that must stay where it is for the kernel: it gets another number where it is now.
        self.renumbered.store(true, Ordering::SeqCst);
        let key = (stat.id.dev, stat.id.ino);
        let mut stand_ins = self.stand_ins.lock();
        if let Some(numbers) = stand_ins.numbers.get_mut(&key) {
            // What the kernel has forgotten need not be remembered here.
            numbers.retain(|low| self.inodes.get(NodeId::new(self.root.instance, *low)).is_some());
        }
        stand_ins.renew(key);
        drop(stand_ins);
        self.inodes.found(self.node(stat.id), fd, stat, place).map_err(|_| Errno::STALE)
    }

    /// Every inode under which the kernel knows the object with these attributes: more than one if it was renumbered and the
    /// kernel has not forgotten its past.
    pub(crate) fn known(&self, stat: &Stat) -> Vec<Arc<Inode>> {
        let current = self.node(stat.id);
        let mut nodes = vec![current];
        if self.renumbered.load(Ordering::SeqCst) {
            let past = self.stand_ins.lock().numbers.get(&(stat.id.dev, stat.id.ino)).cloned().unwrap_or_default();
            let own = (stat.id.ino < NodeId::STAND_INS && stat.id.dev == self.root.id.dev).then_some(stat.id.ino);
            nodes.extend(past.into_iter().chain(own).map(|low| NodeId::new(self.root.instance, low)));
            nodes.sort_unstable();
            nodes.dedup();
        }
        nodes.into_iter().filter_map(|node| self.inodes.get(node)).filter(|inode| inode.is(stat)).collect()
    }

    fn anchor(&self) -> Anchor<'_> {
        Anchor { root: &self.root, mounts: self.mounts }
    }

    /// An inode's `O_PATH` descriptor. When its name leads elsewhere by now, somebody who has it open may still lead to it.
    pub(crate) fn descriptor(&self, inode: &Inode) -> Result<Arc<OwnedFd>, Errno> {
        inode.descriptor(&self.anchor()).or_else(|errno| match self.handles.held(inode.node) {
            Some(held) if errno == Errno::STALE => Ok(inode.keep(sys::path_of(&*held)?)),
            _ => Err(errno),
        })
    }

    /// Empties a slot that the budget named; false when it was used lately and should be spared.
    pub(crate) fn give_up(&self, holder: Holder, ran_out: bool) -> bool {
        match holder {
            Holder::Inode(node) => {
                // All that leads to an open file whose known name is gone; who reaches a closed one by another name finds it.
                let needed = |inode: &Inode| inode.way() != Way::Name && !self.handles.files(node).is_empty();
                self.inodes.get(node).is_none_or(|inode| !needed(&inode) && inode.give_up(ran_out))
            }
            Holder::Handle(node, number) => {
                let way = self.inodes.get(node).map_or(Way::None, |inode| inode.way());
                self.handles.give_up(number, way, ran_out)
            }
        }
    }

    /// An inode's descriptor, of an object that is still below the root. One that was moved out on the backing is as good as
    /// gone (ESTALE), whatever descriptor is held; one that was moved inside is not.
    pub(crate) fn descriptor_in_place(&self, inode: &Inode) -> Result<Arc<OwnedFd>, Errno> {
        let fd = self.descriptor(inode)?;
        if matches!(self.root.kind, RootKind::File(_)) {
            return Ok(fd);
        }
        match inode.names() {
            // A removed name leads nowhere, in or out.
            None => return Ok(fd),
            Some(names) if names.is_empty() => return Ok(fd),
            Some(names) => {
                match sys::open_below(&self.root.anchor, &names, self.mounts).and_then(sys::stat) {
                    Ok(stat) if inode.is(&stat) => return Ok(fd),
                    // That no descriptor can be had says nothing of where the object is.
                    Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                    _ => {}
                }
            }
        }
        let inside = self.shown_below(&fd) || (inode.kind == Kind::Directory && self.contains(&fd)?);
        // What somebody has open and nobody can find any more is neither in nor out. What nobody has open is refused, so that
        // the kernel looks the name up again: it may be another object's by now.
        let nowhere = || sys::stat(&fd).is_ok_and(|stat| stat.nlink == 0) && self.handles.any(inode.node);
        if inside || nowhere() { Ok(fd) } else { Err(Errno::STALE) }
    }

    /// Whether the kernel, asked for both paths as they are now, shows an object below the root: also where permissions forbid
    /// to go there, and for files that were renamed on the backing. Of a deleted one it says nothing.
    fn shown_below(&self, object: &OwnedFd) -> bool {
        let (Ok(root), Ok(path)) = (sys::anchor::path_of(&self.root.anchor), sys::anchor::path_of(object)) else {
            return false;
        };
        sys::stat(object).is_ok_and(|stat| stat.nlink > 0) && path != root && path.starts_with(root)
    }

    /// The kernel has forgotten `count` lookups of an inode; true when it does not know it any more.
    pub(crate) fn forget(&self, node: NodeId, count: u64) -> bool {
        let Some(inode) = self.inodes.forget(node, count) else { return false };
        if matches!(inode.place(), Place::Gone) && self.renumbered_or_foreign(&inode) {
            // Its object is gone, too, or will be found anew.
            self.stand_ins.lock().numbers.remove(&inode.key());
        }
        true
    }

    fn renumbered_or_foreign(&self, inode: &Inode) -> bool {
        inode.dev != self.root.id.dev || self.renumbered.load(Ordering::SeqCst)
    }

    /// Climbs from a directory to see whether the root is above it.
    fn contains(&self, dir: &OwnedFd) -> Result<bool, Errno> {
        let mut at = rustix::io::fcntl_dupfd_cloexec(dir, 0)?;
        let mut id = sys::stat(&at)?.id;
        while (id.dev, id.ino) != (self.root.id.dev, self.root.id.ino) {
            at = match sys::open_parent(&at, self.mounts) {
                Err(Errno::XDEV | Errno::NOENT) => return Ok(false),
                other => other?,
            };
            let above = sys::stat(&at)?.id;
            if above == id {
                return Ok(false);
            }
            id = above;
        }
        Ok(true)
    }

    /// Opens one name below a directory, without telling the kernel of it.
    pub(crate) fn step(&self, dir: &OwnedFd, name: &Name) -> Result<(OwnedFd, Stat), Errno> {
        let fd = sys::open_child(dir, name, self.mounts)?;
        let stat = sys::stat(&fd)?;
        Ok((fd, stat))
    }

    /// The root's own object, counted as looked up. A lookup at the top must not wait for a slow file system, because all
    /// others there wait for it: a directory's attributes are those at hand, and the kernel soon asks for newer ones.
    pub(crate) fn enter_root(&self) -> Result<(Arc<Inode>, Stat), Errno> {
        let fd = self.anchor().open_root()?;
        let stat = sys::stat_without_sync(&fd)?;
        let is_file = matches!(self.root.kind, RootKind::File(_));
        if is_file != (stat.kind == Kind::File) {
            return Err(Errno::NOENT);
        }
        Ok((self.found(fd, &stat, Place::Root)?, stat))
    }
}

/// A request is inside the tree, on one inode of it perhaps, until this is dropped, which is after the reply was sent.
#[derive(Debug)]
pub(crate) struct Pass {
    tree: Arc<Tree>,
    inode: Option<Arc<Inode>>,
}

impl Pass {
    /// None when the tree was revoked.
    pub(crate) fn into_tree(tree: &Arc<Tree>, guest: Guest) -> Option<Self> {
        tree.gate.enter(guest).then(|| Self { tree: Arc::clone(tree), inode: None })
    }

    /// The request is about this inode of the tree. ESTALE if the kernel names one that it has forgotten.
    pub(crate) fn onto(mut self, node: NodeId) -> Result<Self, Errno> {
        let inode = self.tree.inodes.get(node).ok_or(Errno::STALE)?;
        inode.enter();
        self.inode = Some(inode);
        Ok(self)
    }

    pub(crate) const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) const fn inode(&self) -> Option<&Arc<Inode>> {
        self.inode.as_ref()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(inode) = &self.inode {
            inode.leave();
        }
        self.tree.gate.leave();
    }
}
