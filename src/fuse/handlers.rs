use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

use super::convert::{caller, errno, file_attr, file_type, flags_request, node, times};
use crate::sys::Caller;
use crate::view::wire::{Answer, Attr, Changes, Core, Entry, FileAt, Flags, Guest, Make, NodeId, WriteMode};

/// Bytes of one write or read request: the kernel's own limit (`fs.fuse.max_pages_limit`, 256 pages).
const MAX_TRANSFER: u32 = 1 << 20;

/// The kernel's requests, answered by the view.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) view: Arc<Core>,
}

thread_local! {
    /// Where reads of this thread go before the reply copies them to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Replies with an error, or goes on with the answer; the answer lives to the end of the handler.
macro_rules! answer {
    ($reply:ident, $result:expr) => {
        match $result {
            Ok(answer) => answer,
            Err(error) => return $reply.error(errno(error)),
        }
    };
}

/// Serves a call at once; or puts it aside with a copy of what it borrows, while the list that allows it is awaited, or for
/// another thread to serve if this one must not block.
macro_rules! serve {
    ($self:ident, $reply:ident, [$first:expr, $second:expr], [$($borrowed:ident),*], |$view:ident| $body:expr) => {{
        let nodes = [$first, $second];
        let held = $self.view.hold.holds(nodes);
        let seat = if held { None } else { $self.view.seats.take() };
        if seat.is_none() {
            let view = Arc::clone(&$self.view);
            $(let $borrowed = $borrowed.to_owned();)*
            let bytes = 0 $(+ $borrowed.len())*;
            let rest = move |outcome: Result<(), rustix::io::Errno>| {
                if let Err(error) = outcome {
                    return $reply.error(errno(error));
                }
                $(let $borrowed = &*$borrowed;)*
                let $view = &*view;
                $body
            };
            if held {
                $self.view.hold.wait(nodes, bytes, Box::new(rest));
            } else {
                $self.view.seats.hand_over(bytes, Box::new(rest));
            }
        } else {
            let $view = &*$self.view;
            $body
        }
        drop(seat);
    }};
    ($self:ident, $reply:ident, $node:ident, [$($borrowed:ident),*], |$view:ident| $body:expr) => {
        serve!($self, $reply, [$node, $node], [$($borrowed),*], |$view| $body)
    };
}

fn timeout(view: &Core, entry: &Entry) -> Duration {
    if entry.lasting { view.timeout } else { Duration::ZERO }
}

fn reply_entry(view: &Core, reply: ReplyEntry, result: Result<Answer<Entry>, rustix::io::Errno>) {
    let answer = answer!(reply, result);
    let entry = &answer.value;
    reply.entry(&timeout(view, entry), &file_attr(&entry.attr), Generation(entry.generation));
}

fn reply_attr(view: &Core, reply: ReplyAttr, result: Result<Answer<Attr>, rustix::io::Errno>) {
    let answer = answer!(reply, result);
    reply.attr(&view.timeout, &file_attr(&answer.value));
}

fn reply_empty(reply: ReplyEmpty, result: Result<Answer<()>, rustix::io::Errno>) {
    let _answer = answer!(reply, result);
    reply.ok();
}

/// Answers `getxattr` and `listxattr`: the size alone, or the value if it fits (ERANGE).
fn reply_xattr(reply: ReplyXattr, size: u32, result: Result<Answer<Vec<u8>>, rustix::io::Errno>) {
    let answer = answer!(reply, result);
    let value = &answer.value;
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

fn read_into_reply(view: &Core, caller: Caller, at: FileAt, size: u32, reply: ReplyData) {
    BUFFER.with_borrow_mut(|buffer| {
        let size = size.min(MAX_TRANSFER) as usize;
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let Some(buffer) = buffer.get_mut(..size) else { return reply.error(Errno::EINVAL) };
        let answer = answer!(reply, view.read(caller, at, buffer));
        reply.data(buffer.get(..answer.value).unwrap_or_default());
    });
}

const fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

const fn at(ino: INodeNo, fh: FileHandle, offset: u64) -> FileAt {
    FileAt { node: node(ino), handle: fh.0, offset }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // One by one, so that an older kernel goes without what it lacks. Left out on purpose: symlink caching, which a
        // revocation does not reach; writeback caching, under which the kernel's size and times win over the backing's; locks,
        // which stay in the kernel where a waiter can be killed; O_TRUNC in open, which the kernel then sends as a setattr.
        for flag in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            if let Err(missing) = config.add_capabilities(flag) {
                tracing::debug!(?missing, "not offered by this kernel");
            }
        }
        // Both bounds come back corrected when the kernel's are lower.
        if let Err(most) = config.set_max_write(MAX_TRANSFER) {
            let _ = config.set_max_write(most);
        }
        if let Err(most) = config.set_max_readahead(MAX_TRANSFER) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (caller, parent, name) = (caller(req), node(parent), name.as_bytes());
        serve!(self, reply, parent, [name], |view| reply_entry(view, reply, view.lookup(caller, parent, name)));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.view.forget(node(ino), nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| reply_attr(view, reply, view.getattr(caller, node)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (caller, node) = (caller(req), node(ino));
        let changes = Changes { mode, uid, gid, size, times: times(atime, mtime), handle: fh.map(|fh| fh.0) };
        serve!(self, reply, node, [], |view| reply_attr(view, reply, view.setattr(caller, node, changes)));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| {
            let answer = answer!(reply, view.readlink(caller, node));
            reply.data(&answer.value);
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let (caller, parent, name, make) = (caller(req), node(parent), name.as_bytes(), Make { mode, umask });
        serve!(self, reply, parent, [name], |view| reply_entry(view, reply, view.mknod(caller, parent, name, make)));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (caller, parent, name, make) = (caller(req), node(parent), name.as_bytes(), Make { mode, umask });
        serve!(self, reply, parent, [name], |view| reply_entry(view, reply, view.mkdir(caller, parent, name, make)));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, parent, name) = (caller(req), node(parent), name.as_bytes());
        serve!(self, reply, parent, [name], |view| reply_empty(reply, view.unlink(caller, parent, name)));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, parent, name) = (caller(req), node(parent), name.as_bytes());
        serve!(self, reply, parent, [name], |view| reply_empty(reply, view.rmdir(caller, parent, name)));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, parent, name) = (caller(req), node(parent), link_name.as_bytes());
        let text = target.as_os_str().as_bytes();
        serve!(self, reply, parent, [name, text], |view| {
            reply_entry(view, reply, view.symlink(caller, parent, name, text));
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (caller, name, newname) = (caller(req), name.as_bytes(), newname.as_bytes());
        let (parent, newparent) = (node(parent), node(newparent));
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        serve!(self, reply, [parent, newparent], [name, newname], |view| {
            reply_empty(reply, view.rename(caller, (parent, name), (newparent, newname), flags));
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (caller, node, parent, name) = (caller(req), node(ino), node(newparent), newname.as_bytes());
        serve!(self, reply, [node, parent], [name], |view| {
            reply_entry(view, reply, view.link(caller, node, parent, name));
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| {
            let answer = answer!(reply, view.open(caller, node, open_flags(flags.0)));
            let opened = answer.value;
            let mut flags = FopenFlags::empty();
            flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
            flags.set(FopenFlags::FOPEN_NOFLUSH, opened.read_only);
            reply.opened(FileHandle(opened.handle), flags);
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, parent, name, make) = (caller(req), node(parent), name.as_bytes(), Make { mode, umask });
        serve!(self, reply, parent, [name], |view| {
            let answer = answer!(reply, view.create(caller, parent, name, make, open_flags(flags)));
            let (entry, handle) = &answer.value;
            reply.created(
                &timeout(view, entry),
                &file_attr(&entry.attr),
                Generation(entry.generation),
                FileHandle(*handle),
                FopenFlags::empty(),
            );
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (caller, node, at) = (caller(req), node(ino), at(ino, fh, offset));
        serve!(self, reply, node, [], |view| read_into_reply(view, caller, at, size, reply));
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written_back = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let mode = WriteMode {
            guest: if written_back { Guest::WriteBack } else { Guest::Call },
            append: open_flags(flags.0).contains(OFlags::APPEND) && !written_back,
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        // Pages that are written back wait for nobody: a revocation may be waiting for them.
        let (caller, at) = (caller(req), at(ino, fh, offset));
        let held = if written_back { NodeId::TOP } else { at.node };
        serve!(self, reply, held, [data], |view| {
            let answer = answer!(reply, view.write(caller, at, data, mode));
            reply.written(u32::try_from(answer.value).unwrap_or(u32::MAX));
        });
    }

    /// Ends something, like the next two, and so does not wait for a list.
    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply_empty(reply, self.view.flush(caller(req), node(ino), fh.0));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.view.release(node(ino), fh.0);
        reply.ok();
    }

    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.view.fsync(caller(req), at(ino, fh, 0), datasync));
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| {
            let answer = answer!(reply, view.opendir(caller, node));
            reply.opened(FileHandle(answer.value), FopenFlags::empty());
        });
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| {
            let result = view.readdir(caller, node, fh.0, offset, false, &mut |item| {
                reply.add(INodeNo(item.node.raw()), item.next, file_type(item.kind), OsStr::from_bytes(item.name))
            });
            let _answer = answer!(reply, result);
            reply.ok();
        });
    }

    fn readdirplus(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| {
            let result = view.readdir(caller, node, fh.0, offset, true, &mut |item| {
                let name = OsStr::from_bytes(item.name);
                match &item.entry {
                    Some(entry) => {
                        let (attr, generation) = (file_attr(&entry.attr), Generation(entry.generation));
                        reply.add(attr.ino, item.next, name, &timeout(view, entry), &attr, generation)
                    }
                    // `.` and `..`: the kernel takes their numbers and looks nothing up.
                    None => {
                        let mut attr = file_attr(&view.top_attr(&view.current.load()));
                        attr.ino = INodeNo(item.node.raw());
                        reply.add(attr.ino, item.next, name, &Duration::ZERO, &attr, Generation(0))
                    }
                }
            });
            let _answer = answer!(reply, result);
            reply.ok();
        });
    }

    fn releasedir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.view.release(node(ino), fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.view.fsyncdir(caller(req), node(ino), fh.0, datasync));
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| {
            let answer = answer!(reply, view.statfs(caller, node));
            match &answer.value {
                Some(fs) => reply.statfs(
                    fs.f_blocks,
                    fs.f_bfree,
                    fs.f_bavail,
                    fs.f_files,
                    fs.f_ffree,
                    u32::try_from(fs.f_bsize).unwrap_or(4096),
                    u32::try_from(fs.f_namemax).unwrap_or(255),
                    u32::try_from(fs.f_frsize).unwrap_or(4096),
                ),
                None => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
            }
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, node, flags) = (caller(req), node(ino), flags.cast_unsigned());
        serve!(self, reply, node, [name, value], |view| {
            reply_empty(reply, view.setxattr(caller, node, name, value, flags));
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [name], |view| reply_xattr(reply, size, view.getxattr(caller, node, name)));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [], |view| reply_xattr(reply, size, view.listxattr(caller, node)));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, node) = (caller(req), node(ino));
        serve!(self, reply, node, [name], |view| reply_empty(reply, view.removexattr(caller, node, name)));
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let (caller, node, writes) = (caller(req), node(ino), mask.contains(AccessFlags::W_OK));
        serve!(self, reply, node, [], |view| reply_empty(reply, view.access(caller, node, writes)));
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (caller, node, at) = (caller(req), node(ino), at(ino, fh, offset));
        let mode = mode.cast_unsigned();
        serve!(self, reply, node, [], |view| reply_empty(reply, view.fallocate(caller, at, length, mode)));
    }

    fn lseek(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let (caller, node, at) = (caller(req), node(ino), at(ino, fh, offset));
        serve!(self, reply, node, [], |view| {
            let answer = answer!(reply, view.lseek(caller, at, whence));
            reply.offset(answer.value.cast_signed());
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let caller = caller(req);
        let (from, to) = (at(ino_in, fh_in, offset_in), at(ino_out, fh_out, offset_out));
        serve!(self, reply, [from.node, to.node], [], |view| {
            let answer = answer!(reply, view.copy_range(caller, from, to, len));
            reply.written(u32::try_from(answer.value).unwrap_or(u32::MAX));
        });
    }

    /// There is no device behind a file of the view.
    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        reply.error(Errno::EINVAL);
    }

    /// Inode flags; to all else what a file system without ioctls of its own says (`ioctl(2)`).
    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let Some(request) = flags_request(cmd, in_data) else { return reply.error(Errno::ENOTTY) };
        let (caller, node, at) = (caller(req), node(ino), at(ino, fh, 0));
        serve!(self, reply, node, [], |view| {
            let answer = answer!(reply, view.flags(caller, at, request));
            let words: &[u32] = match &answer.value {
                Flags::Plain(flags) => std::slice::from_ref(flags),
                Flags::Extended(words) => words,
                Flags::Done => &[],
            };
            let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            data.truncate(out_size as usize);
            reply.ioctl(0, &data);
        });
    }
}
