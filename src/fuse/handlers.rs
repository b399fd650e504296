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
use crate::view::wire::{Answer, Attr, Changes, Core, Entry, FileAt, Flags, Make, WriteMode};

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

impl Adapter {
    fn reply_entry(&self, reply: ReplyEntry, result: Result<Answer<Entry>, rustix::io::Errno>) {
        let answer = answer!(reply, result);
        let entry = &answer.value;
        reply.entry(&self.timeout(entry), &file_attr(&entry.attr), Generation(entry.generation));
    }

    fn reply_attr(&self, reply: ReplyAttr, result: Result<Answer<Attr>, rustix::io::Errno>) {
        let answer = answer!(reply, result);
        reply.attr(&self.view.timeout, &file_attr(&answer.value));
    }

    fn timeout(&self, entry: &Entry) -> Duration {
        if entry.lasting { self.view.timeout } else { Duration::ZERO }
    }
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
        self.reply_entry(reply, self.view.lookup(caller(req), node(parent), name.as_bytes()));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.view.forget(node(ino), nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attr(reply, self.view.getattr(caller(req), node(ino)));
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
        let changes = Changes { mode, uid, gid, size, times: times(atime, mtime), handle: fh.map(|fh| fh.0) };
        self.reply_attr(reply, self.view.setattr(caller(req), node(ino), changes));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let answer = answer!(reply, self.view.readlink(caller(req), node(ino)));
        reply.data(&answer.value);
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
        let make = Make { mode, umask };
        self.reply_entry(reply, self.view.mknod(caller(req), node(parent), name.as_bytes(), make));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let make = Make { mode, umask };
        self.reply_entry(reply, self.view.mkdir(caller(req), node(parent), name.as_bytes(), make));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.view.unlink(caller(req), node(parent), name.as_bytes()));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.view.rmdir(caller(req), node(parent), name.as_bytes()));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.reply_entry(reply, self.view.symlink(caller(req), node(parent), link_name.as_bytes(), target));
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
        let (from, to) = ((node(parent), name.as_bytes()), (node(newparent), newname.as_bytes()));
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        reply_empty(reply, self.view.rename(caller(req), from, to, flags));
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.reply_entry(reply, self.view.link(caller(req), node(ino), node(newparent), newname.as_bytes()));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let answer = answer!(reply, self.view.open(caller(req), node(ino), open_flags(flags.0)));
        let opened = answer.value;
        let mut flags = FopenFlags::empty();
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
        flags.set(FopenFlags::FOPEN_NOFLUSH, opened.read_only);
        reply.opened(FileHandle(opened.handle), flags);
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
        let make = Make { mode, umask };
        let result = self.view.create(caller(req), node(parent), name.as_bytes(), make, open_flags(flags));
        let answer = answer!(reply, result);
        let (entry, handle) = &answer.value;
        reply.created(
            &self.timeout(entry),
            &file_attr(&entry.attr),
            Generation(entry.generation),
            FileHandle(*handle),
            FopenFlags::empty(),
        );
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
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(MAX_TRANSFER) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let Some(buffer) = buffer.get_mut(..size) else { return reply.error(Errno::EINVAL) };
            let answer = answer!(reply, self.view.read(caller(req), at(ino, fh, offset), buffer));
            reply.data(buffer.get(..answer.value).unwrap_or_default());
        });
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
        let mode = WriteMode {
            append: open_flags(flags.0).contains(OFlags::APPEND) && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let answer = answer!(reply, self.view.write(caller(req), at(ino, fh, offset), data, mode));
        reply.written(u32::try_from(answer.value).unwrap_or(u32::MAX));
    }

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
        let answer = answer!(reply, self.view.opendir(caller(req), node(ino)));
        reply.opened(FileHandle(answer.value), FopenFlags::empty());
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let result = self.view.readdir(caller(req), node(ino), fh.0, offset, false, &mut |item| {
            reply.add(INodeNo(item.node.raw()), item.next, file_type(item.kind), OsStr::from_bytes(item.name))
        });
        let _answer = answer!(reply, result);
        reply.ok();
    }

    fn readdirplus(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let result = self.view.readdir(caller(req), node(ino), fh.0, offset, true, &mut |item| {
            let name = OsStr::from_bytes(item.name);
            match &item.entry {
                Some(entry) => {
                    let attr = file_attr(&entry.attr);
                    reply.add(attr.ino, item.next, name, &self.timeout(entry), &attr, Generation(entry.generation))
                }
                // `.` and `..`: the kernel takes their numbers and looks nothing up.
                None => {
                    let mut attr = file_attr(&self.view.top_attr(&self.view.current.load()));
                    attr.ino = INodeNo(item.node.raw());
                    reply.add(attr.ino, item.next, name, &Duration::ZERO, &attr, Generation(0))
                }
            }
        });
        let _answer = answer!(reply, result);
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.view.release(node(ino), fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.view.fsyncdir(caller(req), node(ino), fh.0, datasync));
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let answer = answer!(reply, self.view.statfs(caller(req), node(ino)));
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
        reply_empty(reply, self.view.setxattr(caller(req), node(ino), name, value, flags.cast_unsigned()));
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.view.getxattr(caller(req), node(ino), name));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.view.listxattr(caller(req), node(ino)));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.view.removexattr(caller(req), node(ino), name));
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        reply_empty(reply, self.view.access(caller(req), node(ino), mask.contains(AccessFlags::W_OK)));
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
        reply_empty(reply, self.view.fallocate(caller(req), at(ino, fh, offset), length, mode.cast_unsigned()));
    }

    fn lseek(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let answer = answer!(reply, self.view.lseek(caller(req), at(ino, fh, offset), whence));
        reply.offset(answer.value.cast_signed());
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
        let (from, to) = (at(ino_in, fh_in, offset_in), at(ino_out, fh_out, offset_out));
        let answer = answer!(reply, self.view.copy_range(caller(req), from, to, len));
        reply.written(u32::try_from(answer.value).unwrap_or(u32::MAX));
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
        let answer = answer!(reply, self.view.flags(caller(req), at(ino, fh, 0), request));
        let words: &[u32] = match &answer.value {
            Flags::Plain(flags) => std::slice::from_ref(flags),
            Flags::Extended(words) => words,
            Flags::Done => &[],
        };
        let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        data.truncate(out_size as usize);
        reply.ioctl(0, &data);
    }
}
