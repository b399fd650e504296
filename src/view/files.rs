//! Data of regular files. Every operation is addressed by inode; a handle only spares it an open.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::core::{Answer, Call, Core, Ends};
use super::gate::Guest;
use super::handles::OpenFile;
use super::node::NodeId;
use crate::authorize::{Ask, Op, Place, Verdict, decide};
use crate::sys::{self, Caller, Kind};

/// Bytes copied by one request: a longer copy comes back for the rest, so that it does not hold a thread, or a revocation,
/// for longer than a write does.
const MOST_COPIED: u64 = 16 << 20;

/// Where a file's data is read or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileAt {
    pub(crate) node: NodeId,
    /// The kernel's handle; 0 when it has none.
    pub(crate) handle: u64,
    /// In bytes.
    pub(crate) offset: u64,
}

/// How a write is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteMode {
    /// Whose data it is: a call's, or a page's (`FUSE_WRITE_CACHE`).
    pub(crate) guest: Guest,
    /// At the end of the file, wherever that is by now (`O_APPEND`).
    pub(crate) append: bool,
    /// Set-id bits and file capabilities go, because the writer lacks the right to keep them (`FUSE_WRITE_KILL_SUIDGID`).
    pub(crate) kill_privileges: bool,
}

/// An open of the kernel, granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    /// The pages the kernel has are of the file as it is now.
    pub(crate) keep_cache: bool,
    /// Nothing can be written through it, so closing it has nothing to say.
    pub(crate) read_only: bool,
}

impl Core {
    /// What of the caller's open flags reaches the backing file. `O_APPEND` is kept to each write, because the kernel also
    /// writes back mapped pages through the same handle; `O_DIRECT` would ask the kernel's buffers to be aligned.
    pub(crate) const KEPT_FLAGS: OFlags =
        OFlags::WRONLY.union(OFlags::RDWR).union(OFlags::SYNC).union(OFlags::DSYNC).union(OFlags::NOATIME);

    pub(crate) fn open(&self, caller: Caller, node: NodeId, flags: OFlags) -> Result<Answer<Opened>, Errno> {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        let op = if writes { Op::Write } else { Op::Read };
        let call = self.admit(caller, op, node)?;
        let Ok((tree, inode)) = call.inside() else { return Err(Errno::ISDIR) };
        let ends = Ends::of(&call);
        self.authorize(&ends, &Ask { device: inode.kind.is_device(), ..Ask::new(op, call.place()) })?;
        if inode.kind != Kind::File {
            return Err(Errno::ACCESS);
        }
        let opened = self.with_room(|| {
            let object = call.descriptor_in_place()?;
            let (file, kept) = Self::open_object(&object, flags)?;
            if flags.contains(OFlags::TRUNC) {
                sys::truncate(&file, 0)?;
            }
            Ok((file, kept))
        });
        let (file, kept) = self.done(&ends, op, opened)?;
        if writes && tree.overlay {
            // There may be a new copy by now, which is not the file that readers have open.
            tree.handles.files(node).iter().filter_map(|handle| handle.file().ok()).for_each(OpenFile::let_go_to_read);
        }
        let keep_cache = inode.cache_is_current(sys::stat(&file)?.version());
        let handle = tree.handles.open_file(node, kept, file);
        call.answer(Opened { handle, keep_cache, read_only: !flags.intersects(OFlags::WRONLY | OFlags::RDWR) })
    }

    /// Opens a regular file with what is kept of the caller's flags; says what that was.
    pub(super) fn open_object(object: &OwnedFd, flags: OFlags) -> Result<(OwnedFd, OFlags), Errno> {
        let kept = flags & Self::KEPT_FLAGS;
        // Only the owner may ask for O_NOATIME; a reader of somebody else's file does without. And a file that may only be
        // appended to (chattr +a) is opened for that or not at all.
        let (without, append) = (kept - OFlags::NOATIME, flags & OFlags::APPEND);
        let mut tried = OFlags::all();
        for kept in [kept, without, kept | append, without | append] {
            if kept == tried {
                continue;
            }
            tried = kept;
            match sys::reopen(object, kept) {
                Err(Errno::PERM) => {}
                other => return other.map(|file| (file, kept)),
            }
        }
        Err(Errno::PERM)
    }

    /// The descriptor for an operation: the handle's, or one opened by inode.
    pub(super) fn serve(&self, call: &Call, handle: u64, flags: OFlags) -> Result<Arc<OwnedFd>, Errno> {
        let (tree, inode) = call.inside()?;
        if handle != 0 {
            let handle = tree.handles.get(handle, inode.node)?;
            let file = self.with_room(|| handle.file()?.descriptor(|| call.descriptor()))?;
            return Ok(file);
        }
        if inode.kind != Kind::File {
            return Err(Errno::BADF);
        }
        let op = if flags.contains(OFlags::RDWR) { Op::Write } else { Op::Read };
        self.authorize(&Ends::of(call), &Ask::new(op, call.place()))?;
        self.with_room(|| sys::reopen(&*call.descriptor()?, flags)).map(Arc::new)
    }

    pub(crate) fn read(&self, caller: Caller, at: FileAt, buffer: &mut [u8]) -> Result<Answer<usize>, Errno> {
        let call = self.admit(caller, Op::Read, at.node)?;
        let file = self.serve(&call, at.handle, OFlags::RDONLY)?;
        let read = sys::read_at(&file, buffer, at.offset)?;
        call.answer(read)
    }

    pub(crate) fn write(
        &self,
        caller: Caller,
        at: FileAt,
        data: &[u8],
        mode: WriteMode,
    ) -> Result<Answer<usize>, Errno> {
        let call = self.admit_guest(caller, Op::Write, at.node, mode.guest)?;
        let file = self.serve(&call, at.handle, OFlags::RDWR)?;
        let write = || sys::write_at(&file, data, at.offset, mode.append);
        let written = if mode.kill_privileges { self.change_data(&call, &file, write) } else { write() };
        if !written.as_ref().is_ok_and(|written| *written == data.len()) {
            call.inside()?.1.cache_is_wrong();
        }
        call.answer(written?)
    }

    /// Changes a file's data with the caller's rights: without the capability to keep set-id bits and file capabilities, the
    /// backing file system drops them itself, as it would for the caller.
    fn change_data<T>(&self, call: &Call, file: &OwnedFd, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let had_set_id_bits = sys::stat(file)?.perm & 0o6000 != 0;
        let result = {
            let _acting = sys::act_as(&call.caller, None)?;
            act()?
        };
        if had_set_id_bits && let (Some(caches), Ok((_, inode))) = (self.caches.get(), call.inside()) {
            // The kernel leaves the mode it has cached alone.
            caches.drop_attributes(inode.node);
        }
        Ok(result)
    }

    /// What `close(2)` reports. Closing what was revoked succeeds: there is nothing left to lose.
    pub(crate) fn flush(&self, caller: Caller, node: NodeId, handle: u64) -> Result<Answer<()>, Errno> {
        if !self.current.load().trees.contains_key(&node.instance()) {
            return Ok(Answer::of_nothing());
        }
        let call = self.admit(caller, Op::Stat, node)?;
        let (tree, inode) = call.inside()?;
        let handle = tree.handles.get(handle, inode.node)?;
        let file = handle.file()?;
        if file.writable() {
            self.with_room(|| file.flush(inode.way()))?;
        }
        call.answer(())
    }

    /// Closes a handle. One of a revoked root is gone already, which is as good.
    pub(crate) fn release(&self, node: NodeId, handle: u64) {
        if node == NodeId::TOP {
            self.listings.lock().remove(&handle);
        } else if let Some(tree) = self.current.load().trees.get(&node.instance()) {
            drop(tree.handles.remove(handle));
        }
    }

    pub(crate) fn fsync(&self, caller: Caller, at: FileAt, data_only: bool) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, Op::Stat, at.node)?;
        let file = self.serve(&call, at.handle, OFlags::RDONLY)?;
        sys::sync(&file, data_only)?;
        call.answer(())
    }

    pub(crate) fn fallocate(&self, caller: Caller, at: FileAt, len: u64, mode: u32) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, Op::Write, at.node)?;
        let file = self.serve(&call, at.handle, OFlags::RDWR)?;
        self.change_data(&call, &file, || sys::allocate(&file, mode, at.offset, len))?;
        call.answer(())
    }

    pub(crate) fn lseek(&self, caller: Caller, at: FileAt, whence: i32) -> Result<Answer<u64>, Errno> {
        let call = self.admit(caller, Op::Read, at.node)?;
        let file = self.serve(&call, at.handle, OFlags::RDONLY)?;
        let offset = sys::seek_extent(&file, at.offset, whence)?;
        call.answer(offset)
    }

    /// Copies between two files of the view, perhaps of two roots: it is a read and a write, so no rule of renames applies.
    pub(crate) fn copy_range(
        &self,
        caller: Caller,
        from: FileAt,
        to: FileAt,
        len: u64,
    ) -> Result<Answer<usize>, Errno> {
        let source = self.admit(caller, Op::Read, from.node)?;
        let target = self.admit(caller, Op::Write, to.node)?;
        let input = self.serve(&source, from.handle, OFlags::RDONLY)?;
        let output = self.serve(&target, to.handle, OFlags::RDWR)?;
        let len = usize::try_from(len.min(MOST_COPIED)).unwrap_or(0);
        let copy = || sys::copy_range((&input, from.offset), (&output, to.offset), len);
        let copied = self.change_data(&target, &output, copy)?;
        target.answer_with(source, copied)
    }

    /// `access(2)` reaches the daemon only where the kernel does not check by itself.
    pub(crate) fn access(&self, caller: Caller, node: NodeId, writes: bool) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, Op::Stat, node)?;
        let op = if writes { Op::Write } else { Op::Stat };
        if let (Place::In(_), Verdict::Deny(_, errno)) =
            (call.place(), decide(&self.policy, &Ask::new(op, call.place())))
        {
            return Err(errno);
        }
        call.answer(())
    }
}
