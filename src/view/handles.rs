use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::descriptors::{Descriptors, Holder, Slot};
use super::inodes::Way;
use super::node::NodeId;
use crate::sys::{self, DirEntry};

/// Bytes read from a backing directory at once: what the kernel asks for in one request, so that batches line up.
const BATCH: usize = 32 * 1024;

/// What an open of the kernel stands for.
#[derive(Debug)]
pub(crate) enum Handle {
    File(OpenFile),
    Directory { node: NodeId, stream: Mutex<DirStream> },
}

impl Handle {
    /// The inode it was opened on; a request that names another one is refused.
    pub(crate) const fn node(&self) -> NodeId {
        match self {
            Self::File(file) => file.node,
            Self::Directory { node, .. } => *node,
        }
    }

    /// The open file; EISDIR for a directory.
    pub(crate) const fn file(&self) -> Result<&OpenFile, Errno> {
        match self {
            Self::File(file) => Ok(file),
            Self::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    /// The stream of a directory; ENOTDIR for a file.
    pub(crate) const fn stream(&self) -> Result<&Mutex<DirStream>, Errno> {
        match self {
            Self::Directory { stream, .. } => Ok(stream),
            Self::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// Closes the descriptor if it was not used since the last time and can be had again.
    fn give_up(&self, way: Way, ran_out: bool) -> bool {
        match self {
            Self::File(file) => file.give_up(way, ran_out),
            // One that is being read is in use.
            Self::Directory { stream, .. } => stream.try_lock().is_some_and(|stream| stream.give_up(ran_out)),
        }
    }

    /// The descriptor, if there is one at the moment.
    fn held(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::File(file) => file.slot.peek(),
            Self::Directory { stream, .. } => stream.try_lock().and_then(|stream| stream.slot.peek()),
        }
    }
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    node: NodeId,
    number: u64,
    /// How it was opened, and is again.
    flags: OFlags,
    slot: Slot,
}

impl OpenFile {
    pub(crate) const fn writable(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY.union(OFlags::RDWR))
    }

    /// The descriptor; if it was given up, it is opened again through an `O_PATH` descriptor of the inode.
    pub(crate) fn descriptor(
        &self,
        object: impl FnOnce() -> Result<Arc<OwnedFd>, Errno>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.slot.get() {
            return Ok(fd);
        }
        let fd = sys::reopen(&*object()?, self.flags)?;
        Ok(self.slot.keep(fd, Holder::Handle(self.node, self.number)))
    }

    fn give_up(&self, way: Way, ran_out: bool) -> bool {
        if (self.slot.was_used() && !ran_out) || !self.can_be_had_again(way) {
            return false;
        }
        drop(self.slot.take());
        true
    }

    /// Closes a descriptor to read, for whoever wants it next to open the object as it is by then.
    pub(crate) fn let_go_to_read(&self) {
        if !self.writable() {
            drop(self.slot.take());
        }
    }

    /// Whether closing the descriptor now loses nothing. A file that has no name left is not found again by one; and what was
    /// made writable by its creation alone (`O_EXCL` with mode 0444), or may only be appended to by now, is not opened for
    /// writing again.
    fn can_be_had_again(&self, way: Way) -> bool {
        self.slot.peek().is_none_or(|fd| {
            let Ok(stat) = sys::stat(&*fd) else { return false };
            let led_to = match way {
                Way::Name => stat.nlink > 0,
                Way::Pin => true,
                Way::None => false,
            };
            led_to && !(stat.fixed && self.writable()) && sys::may_reopen(&*fd, self.flags).unwrap_or(false)
        })
    }

    /// What a program's `close(2)` reports. Where there is nothing to report it closes the descriptor, if it can, for the
    /// program: whoever executes or replaces the backing file next finds no writer there, although the kernel's release
    /// comes later. Somebody with a copy of the program's descriptor may go on, upon which it is opened again.
    pub(crate) fn flush(&self, way: Way) -> Result<(), Errno> {
        let Some(fd) = self.slot.peek() else { return Ok(()) };
        sys::flush(&*fd)?;
        if self.can_be_had_again(way) {
            drop(self.slot.take());
        }
        Ok(())
    }
}

/// A directory stream at the place where the kernel will ask next.
#[derive(Debug)]
pub(crate) struct DirStream {
    node: NodeId,
    number: u64,
    slot: Slot,
    /// The cookie the entries in `pending` follow.
    at: u64,
    /// Read from the directory and not yet handed out.
    pending: VecDeque<DirEntry>,
    ended: bool,
}

impl DirStream {
    /// The directory; if it was given up, it is opened again and read on from the same cookie.
    pub(crate) fn dir(&mut self, object: impl FnOnce() -> Result<Arc<OwnedFd>, Errno>) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(dir) = self.slot.get() {
            return Ok(dir);
        }
        let dir = sys::reopen(&*object()?, OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.pending.clear();
        self.ended = false;
        sys::seek_dir(&dir, self.at)?;
        Ok(self.slot.keep(dir, Holder::Handle(self.node, self.number)))
    }

    /// In the midst of a listing a directory is given up only when there is no other way: not every file system's cookies
    /// outlive the descriptor they came from.
    fn give_up(&self, ran_out: bool) -> bool {
        let used = self.slot.was_used();
        let midway = self.at != 0 && !(self.ended && self.pending.is_empty());
        let nameless = || self.slot.peek().is_some_and(|dir| !sys::stat(&*dir).is_ok_and(|stat| stat.nlink > 0));
        if ((used || midway) && !ran_out) || nameless() {
            return false;
        }
        drop(self.slot.take());
        true
    }

    /// Goes to a cookie; the beginning is always read afresh (`rewinddir(3)`).
    pub(crate) fn seek(&mut self, dir: &OwnedFd, cookie: u64) -> Result<(), Errno> {
        if cookie != self.at || cookie == 0 {
            sys::seek_dir(dir, cookie)?;
            self.pending.clear();
            self.at = cookie;
            self.ended = false;
        }
        Ok(())
    }

    /// The next entry, which stays until [`taken`](Self::taken).
    pub(crate) fn peek(&mut self, dir: &OwnedFd) -> Result<Option<&DirEntry>, Errno> {
        if self.pending.is_empty() && !self.ended {
            thread_local!(static BUFFER: std::cell::RefCell<Vec<MaybeUninit<u8>>> =
                std::cell::RefCell::new(vec![MaybeUninit::uninit(); BATCH]));
            self.pending = BUFFER.with_borrow_mut(|buffer| sys::read_dir(dir, buffer))?.into();
            self.ended = self.pending.is_empty();
        }
        Ok(self.pending.front())
    }

    /// The entry was handed out.
    pub(crate) fn taken(&mut self) {
        if let Some(entry) = self.pending.pop_front() {
            self.at = entry.next;
        }
    }
}

/// The open handles of one tree.
#[derive(Debug)]
pub(crate) struct HandleTable {
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    budget: Arc<Descriptors>,
}

/// A number that no other handle of the process has had.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl HandleTable {
    pub(crate) fn new(budget: Arc<Descriptors>) -> Self {
        Self { handles: RwLock::default(), budget }
    }

    /// Keeps a file that was opened with these flags; the handle's number.
    pub(crate) fn open_file(&self, node: NodeId, flags: OFlags, fd: OwnedFd) -> u64 {
        let number = fresh();
        let file = OpenFile { node, number, flags, slot: Slot::new(Arc::clone(&self.budget)) };
        file.slot.keep(fd, Holder::Handle(node, number));
        self.handles.write().insert(number, Arc::new(Handle::File(file)));
        number
    }

    /// Keeps a directory that was opened to be listed; the handle's number.
    pub(crate) fn open_directory(&self, node: NodeId, dir: OwnedFd) -> u64 {
        let number = fresh();
        let slot = Slot::new(Arc::clone(&self.budget));
        slot.keep(dir, Holder::Handle(node, number));
        let stream = Mutex::new(DirStream { node, number, slot, at: 0, pending: VecDeque::new(), ended: false });
        self.handles.write().insert(number, Arc::new(Handle::Directory { node, stream }));
        number
    }

    /// The handle, if it was opened on this inode (EBADF otherwise).
    pub(crate) fn get(&self, number: u64, node: NodeId) -> Result<Arc<Handle>, Errno> {
        self.handles.read().get(&number).filter(|handle| handle.node() == node).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.handles.write().remove(&number)
    }

    /// Closes the descriptor of one handle that the budget named; false when it should be spared. `way` is what leads to its
    /// object.
    pub(crate) fn give_up(&self, number: u64, way: Way, ran_out: bool) -> bool {
        let handle = self.handles.read().get(&number).cloned();
        handle.is_none_or(|handle| handle.give_up(way, ran_out))
    }

    /// Any descriptor that a handle of this inode holds: all that leads to an object whose name somebody took away.
    pub(crate) fn held(&self, node: NodeId) -> Option<Arc<OwnedFd>> {
        let handles = self.handles.read();
        handles.values().filter(|handle| handle.node() == node).find_map(|handle| handle.held())
    }

    /// Whether anything is open on this inode.
    pub(crate) fn any(&self, node: NodeId) -> bool {
        self.handles.read().values().any(|handle| handle.node() == node)
    }

    /// The files that are open on this inode.
    pub(crate) fn files(&self, node: NodeId) -> Vec<Arc<Handle>> {
        let handles = self.handles.read();
        handles.values().filter(|handle| handle.node() == node && handle.file().is_ok()).cloned().collect()
    }

    /// The inodes of open files.
    pub(crate) fn open(&self) -> HashSet<NodeId> {
        self.handles.read().values().filter(|handle| handle.file().is_ok()).map(|handle| handle.node()).collect()
    }

    /// The inodes that are open for writing. Pages that a program wrote through a map are of these: the map keeps the file
    /// open, whatever else was closed.
    pub(crate) fn writable(&self) -> Vec<NodeId> {
        let handles = self.handles.read();
        let writable = |handle: &Arc<Handle>| handle.file().is_ok_and(OpenFile::writable);
        let mut nodes: Vec<_> =
            handles.values().filter(|handle| writable(handle)).map(|handle| handle.node()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    pub(crate) fn len(&self) -> u64 {
        self.handles.read().len() as u64
    }

    /// Drops every handle; says how many there were.
    pub(crate) fn clear(&self) -> u64 {
        let handles = std::mem::take(&mut *self.handles.write());
        handles.len() as u64
    }
}
