use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::depth::{Depths, depth_at};
use super::descriptors::{Descriptors, Holder, Slot};
use super::node::NodeId;
use crate::resolve::Name;
use crate::sys::{self, Birth, Kind, Stat, Version};

/// Where an inode was last found.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The root's directory itself, or a file root in its parent.
    Root,
    /// A name in a directory.
    Child(Arc<Inode>, Name),
    /// Its last known name was removed. The descriptor is all that is left, so it is never given up.
    Gone,
}

/// What leads to an inode's object when a descriptor is wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A name.
    Name,
    /// The `O_PATH` descriptor that it has.
    Pin,
    /// Nothing.
    None,
}

/// One object that the kernel knows. There is one of these for each file of a tree that was walked, so it is kept small:
/// what few inodes need is boxed.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) node: NodeId,
    /// Tells two objects apart that had the same inode number one after the other (`fuse_entry_out.generation`).
    pub(crate) generation: u32,
    pub(crate) kind: Kind,
    /// Requests that are on it at the moment.
    inside: AtomicU32,
    pub(crate) dev: u64,
    ino: u64,
    birth: Birth,
    lookups: AtomicU64,
    pub(super) depths: Depths,
    place: Mutex<Place>,
    /// The `O_PATH` descriptor.
    slot: Slot,
    /// What the kernel's cached pages were read from.
    cached: Mutex<Option<Box<Version>>>,
}

impl Inode {
    /// The `O_PATH` descriptor, opened again by name if it was given up.
    ///
    /// ESTALE when the name is gone or means another object by now: the kernel then looks the name up again.
    ///
    /// The way up to the nearest ancestor that still has a descriptor is a loop, not a recursion: a tree may be deeper
    /// than a thread's stack.
    pub(crate) fn descriptor(&self, anchor: &Anchor<'_>) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.slot.get() {
            return Ok(fd);
        }
        // Ancestors without a descriptor, nearest first; the inode itself stands as None.
        let mut missing: Vec<(Option<Arc<Self>>, Name)> = Vec::new();
        let mut current: Option<Arc<Self>> = None;
        let mut dir = loop {
            let inode = current.as_deref().unwrap_or(self);
            match inode.place() {
                Place::Gone => return Err(Errno::STALE),
                Place::Root => break inode.verify_and_keep(anchor.open_root()?)?,
                Place::Child(parent, name) => {
                    missing.push((current.take(), name));
                    if let Some(fd) = parent.slot.get() {
                        break fd;
                    }
                    current = Some(parent);
                }
            }
        };
        while let Some((inode, name)) = missing.pop() {
            let fd = sys::open_child(&*dir, &name, anchor.mounts).map_err(|errno| match errno {
                Errno::NOENT | Errno::NOTDIR | Errno::XDEV => Errno::STALE,
                other => other,
            })?;
            dir = inode.as_deref().unwrap_or(self).verify_and_keep(fd)?;
        }
        Ok(dir)
    }

    fn verify_and_keep(&self, fd: OwnedFd) -> Result<Arc<OwnedFd>, Errno> {
        if self.is(&sys::stat(&fd)?) { Ok(self.keep(fd)) } else { Err(Errno::STALE) }
    }

    pub(super) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request is on it: the kernel may hold its pages or its lock until that has been answered.
    pub(super) fn is_busy(&self) -> bool {
        self.inside.load(Ordering::Relaxed) > 0
    }

    /// Keeps a descriptor of this very object.
    pub(crate) fn keep(&self, fd: OwnedFd) -> Arc<OwnedFd> {
        self.slot.keep(fd, Holder::Inode(self.node))
    }

    /// Whether `stat` is of this object and not of one that got its inode number later.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        (self.dev, self.ino, self.kind, self.birth) == (stat.id.dev, stat.id.ino, stat.kind, stat.birth)
    }

    /// Counts a lookup that found the inode at `place`; gives the descriptor back if it must not be the same inode there. A
    /// link is judged by the directory that holds it, so in another directory it always is another.
    fn found_again(self: &Arc<Self>, fd: OwnedFd, place: Place, depth: u32) -> Result<Arc<Self>, OwnedFd> {
        let other = match self.kind {
            Kind::Directory => self.is_outdated(depth) || !self.may_come_to(depth),
            Kind::Symlink => self.is_outdated(depth) || !self.is_held_as(&place),
            _ => false,
        };
        if other {
            return Err(fd);
        }
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.moved_to(place);
        if self.slot.get().is_none() {
            self.keep(fd);
        }
        Ok(Arc::clone(self))
    }

    /// Whether it is known in the directory of `place`.
    pub(super) fn is_held_as(&self, place: &Place) -> bool {
        match (self.place(), place) {
            (Place::Child(before, _), Place::Child(now, _)) => Arc::ptr_eq(&before, now),
            // Its name was removed: nothing is judged from there any more.
            _ => true,
        }
    }

    /// Gives the descriptor up if it was not used since the last time and the object can be had again: it still has a name,
    /// if perhaps another one than is known here.
    pub(super) fn give_up(&self, ran_out: bool) -> bool {
        if self.slot.was_used() && !ran_out {
            return false;
        }
        if self.slot.peek().is_some_and(|fd| !sys::stat(&*fd).is_ok_and(|stat| stat.nlink > 0)) {
            return false;
        }
        drop(self.slot.take());
        true
    }

    /// What a handle can be opened again through.
    pub(super) fn way(&self) -> Way {
        match *self.place.lock() {
            Place::Gone if self.slot.peek().is_some() => Way::Pin,
            Place::Gone => Way::None,
            _ => Way::Name,
        }
    }

    /// Device and inode number.
    pub(super) const fn key(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Whether this is the very name that it is known by.
    pub(super) fn is_named(&self, place: &Place) -> bool {
        match (self.place(), place) {
            (Place::Child(here, name), Place::Child(there, other)) => Arc::ptr_eq(&here, there) && name == *other,
            _ => false,
        }
    }

    pub(crate) fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// Notes a new place. A link that changes its directory may still be known to the kernel in the old one.
    pub(crate) fn moved_to(&self, place: Place) {
        if let (Place::Child(before, _), Place::Child(now, _)) = (self.place(), &place)
            && !Arc::ptr_eq(&before, now)
        {
            // Its ancestors may have moved since it was found: what they came to is this inode's past as well.
            self.remember_depth();
        }
        let old = std::mem::replace(&mut *self.place.lock(), place.clone());
        if self.kind == Kind::Symlink
            && let (Place::Child(before, _), Place::Child(now, _)) = (old, &place)
            && !Arc::ptr_eq(&before, now)
        {
            self.also_held_by(before);
        }
    }

    /// Names from the root down to this inode. None below a removed name.
    pub(crate) fn names(&self) -> Option<Vec<Name>> {
        self.last_names(usize::MAX).map(|(names, _)| names)
    }

    /// The last `most` of the names, and whether there are more above them.
    pub(crate) fn last_names(&self, most: usize) -> Option<(Vec<Name>, bool)> {
        let mut names = Vec::new();
        let mut place = self.place();
        let cut = loop {
            match place {
                Place::Root => break false,
                Place::Gone => return None,
                Place::Child(..) if names.len() == most => break true,
                Place::Child(parent, name) => {
                    names.push(name);
                    place = parent.place();
                }
            }
        };
        names.reverse();
        Some((names, cut))
    }

    /// What the kernel has cached is not what the file holds: a page was not written.
    pub(crate) fn cache_is_wrong(&self) {
        *self.cached.lock() = None;
    }

    /// Notes which version of the data the kernel is about to cache; true when its pages are of that version already.
    pub(crate) fn cache_is_current(&self, version: Version) -> bool {
        let mut cached = self.cached.lock();
        if cached.as_deref() == Some(&version) {
            return true;
        }
        *cached = Some(Box::new(version));
        false
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        // Let go of the ancestors one by one: dropping them in turn would recurse as deep as the tree.
        let mut place = std::mem::replace(self.place.get_mut(), Place::Gone);
        while let Place::Child(parent, _) = place {
            let Some(mut parent) = Arc::into_inner(parent) else { break };
            place = std::mem::replace(parent.place.get_mut(), Place::Gone);
        }
    }
}

/// What an inode at the root of a tree is opened again from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor<'a> {
    pub(crate) root: &'a crate::roots::Root,
    pub(crate) mounts: sys::Mounts,
}

impl Anchor<'_> {
    /// A descriptor of the root's own object.
    pub(crate) fn open_root(&self) -> Result<OwnedFd, Errno> {
        match &self.root.kind {
            crate::roots::RootKind::Directory => rustix::io::fcntl_dupfd_cloexec(&self.root.anchor, 0),
            crate::roots::RootKind::File(name) => sys::open_child(&self.root.anchor, name, sys::Mounts::default()),
        }
    }
}

const SHARDS: usize = 16;

/// The inodes of one tree by nodeid, with their lookup counts.
#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: [RwLock<HashMap<NodeId, Arc<Inode>>>; SHARDS],
    budget: Arc<Descriptors>,
}

impl InodeTable {
    pub(crate) fn new(budget: Arc<Descriptors>) -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::default()), budget }
    }

    #[allow(clippy::indexing_slicing, reason = "the index is taken modulo the length")]
    fn shard(&self, node: NodeId) -> &RwLock<HashMap<NodeId, Arc<Inode>>> {
        &self.shards[node.raw() as usize % SHARDS]
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<Arc<Inode>> {
        self.shard(node).read().get(&node).cloned()
    }

    /// Counts one lookup of the object behind `fd`, which was found at `place`, and returns its inode.
    ///
    /// An object that got the number of another one the kernel still knows takes over its nodeid under the next
    /// generation; the kernel then calls the old inode bad and forgets it under the same nodeid, so its count moves along.
    ///
    /// The descriptor comes back, and nothing is counted, when the kernel must not know this object as the same inode at this
    /// place (see [`super::depth`]).
    pub(crate) fn found(&self, node: NodeId, fd: OwnedFd, stat: &Stat, place: Place) -> Result<Arc<Inode>, OwnedFd> {
        let depth = depth_at(stat.kind, &place);
        if let Some(inode) = self.shard(node).read().get(&node).filter(|inode| inode.is(stat)) {
            return inode.found_again(fd, place, depth);
        }
        let mut shard = self.shard(node).write();
        let (generation, lookups) = match shard.get(&node) {
            // Another thread was faster.
            Some(inode) if inode.is(stat) => return inode.found_again(fd, place, depth),
            Some(old) => (old.generation + 1, old.lookups.load(Ordering::Relaxed)),
            None => (0, 0),
        };
        let inode = Arc::new(Inode {
            node,
            generation,
            kind: stat.kind,
            inside: AtomicU32::new(0),
            dev: stat.id.dev,
            ino: stat.id.ino,
            birth: stat.birth,
            lookups: AtomicU64::new(lookups + 1),
            depths: Depths::at(depth),
            place: Mutex::new(place),
            slot: Slot::new(Arc::clone(&self.budget)),
            cached: Mutex::new(None),
        });
        let replaced = shard.insert(node, Arc::clone(&inode));
        drop(shard);
        // Dropping an inode may drop its parents in turn; not under the lock.
        drop(replaced);
        inode.keep(fd);
        Ok(inode)
    }

    /// Counts one more lookup of an inode that the table holds for its own sake.
    pub(crate) fn found_again(&self, inode: &Inode) {
        // The lock keeps this in order with a forget that is about to remove the inode.
        let _shard = self.shard(inode.node).read();
        inode.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// The kernel has forgotten `count` lookups (`FUSE_FORGET`). The inode, when it does not know it any more.
    pub(crate) fn forget(&self, node: NodeId, count: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(node).write();
        let inode = shard.get(&node)?;
        let before = inode.lookups.load(Ordering::Relaxed);
        inode.lookups.store(before.saturating_sub(count), Ordering::Relaxed);
        let removed = if before <= count { shard.remove(&node) } else { None };
        // A tree that was walked once must not cost its memory for ever.
        if shard.capacity() > 1024 && shard.len() < shard.capacity() / 4 {
            let len = shard.len();
            shard.shrink_to(2 * len);
        }
        removed
    }

    /// Every inode of the tree.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.shards.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64).sum()
    }

    /// Drops every inode, and with them the descriptors.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let inodes = std::mem::take(&mut *shard.write());
            drop(inodes);
        }
    }
}
