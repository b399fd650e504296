//! What the backing answers reaches the caller unchanged, and leaves what is there whole.
//!
//! Errors that no healthy file system gives (EIO, EDQUOT, a failing `close`) come from one that is made for it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Deviation, Mounted, Trees, View, errno_of, within};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

/// The calls that can fail, and what they can fail with.
const CALLS: [&str; 10] =
    ["lookup", "open", "read", "write", "flush", "fsync", "truncate", "fallocate", "chmod", "unlink"];
const ERRORS: [i32; 4] = [libc::EIO, libc::EDQUOT, libc::ENOSPC, libc::EROFS];
const NO_TIME: Duration = Duration::ZERO;

/// A directory with a file for each call and error: that call on that file fails with that error, everything else works.
struct Faulty {
    /// Each with its content.
    files: Vec<(&'static str, i32, Mutex<Vec<u8>>)>,
}

impl Faulty {
    fn new() -> Self {
        let pairs = CALLS.iter().flat_map(|call| ERRORS.map(|error| (*call, error, Mutex::new(b"content".to_vec()))));
        Self { files: pairs.collect() }
    }

    fn file(&self, ino: INodeNo) -> &(&'static str, i32, Mutex<Vec<u8>>) {
        &self.files[usize::try_from(ino.0).unwrap() - 2]
    }

    fn fault(&self, ino: INodeNo, call: &str) -> Result<(), Errno> {
        if ino.0 == 1 {
            return Ok(());
        }
        let (fails, error, _) = self.file(ino);
        if *fails == call { Err(Errno::from_i32(*error)) } else { Ok(()) }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let (kind, size, perm) = match ino.0 {
            1 => (FileType::Directory, 0, 0o755),
            _ => (FileType::RegularFile, self.file(ino).2.lock().unwrap().len() as u64, 0o644),
        };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (atime, mtime, ctime, crtime) = (UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH);
        FileAttr {
            ino,
            size,
            blocks: 1,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn named(&self, name: &OsStr) -> Option<INodeNo> {
        let place = self.files.iter().position(|(call, error, _)| *name == *format!("{call}-{error}"))?;
        Some(INodeNo(place as u64 + 2))
    }
}

fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Faulty {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(ino) = self.named(name) else { return reply.error(Errno::ENOENT) };
        match self.fault(ino, "lookup") {
            Ok(()) => reply.entry(&NO_TIME, &self.attr(ino), Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NO_TIME, &self.attr(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let fault = mode.map_or(Ok(()), |_| self.fault(ino, "chmod"));
        if let Err(errno) = fault.and_then(|()| size.map_or(Ok(()), |_| self.fault(ino, "truncate"))) {
            return reply.error(errno);
        }
        if let Some(size) = size {
            self.file(ino).2.lock().unwrap().resize(usize::try_from(size).unwrap(), 0);
        }
        reply.attr(&NO_TIME, &self.attr(ino));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.fault(ino, "open") {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Err(errno) = self.fault(ino, "read") {
            return reply.error(errno);
        }
        let content = self.file(ino).2.lock().unwrap();
        let from = content.len().min(usize::try_from(offset).unwrap());
        reply.data(&content[from..content.len().min(from + size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Err(errno) = self.fault(ino, "write") {
            return reply.error(errno);
        }
        let mut content = self.file(ino).2.lock().unwrap();
        let from = usize::try_from(offset).unwrap();
        let end = content.len().max(from + data.len());
        content.resize(end, 0);
        content[from..from + data.len()].copy_from_slice(data);
        reply.written(u32::try_from(data.len()).unwrap());
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        empty(reply, self.fault(ino, "flush"));
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.fault(ino, "fsync"));
    }

    fn fallocate(&self, _: &Request, ino: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        empty(reply, self.fault(ino, "fallocate"));
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let fault = self.named(name).map_or(Err(Errno::ENOENT), |ino| self.fault(ino, "unlink"));
        empty(reply, fault.and(Err(Errno::EPERM)));
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::from_i32(libc::ENODATA));
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (index, (call, error, _)) in self.files.iter().enumerate().skip(usize::try_from(offset).unwrap()) {
            let next = index as u64 + 1;
            if reply.add(INodeNo(index as u64 + 2), next, FileType::RegularFile, format!("{call}-{error}")) {
                break;
            }
        }
        reply.ok();
    }
}

/// A faulty file system of its own.
fn faulty() -> Mounted {
    Mounted::by(|point| {
        let session = fuser::Session::new(Faulty::new(), point, &fuser::Config::default()).unwrap();
        std::thread::spawn(move || session.run());
    })
}

/// A view of one file system and, as its twin, another of the same kind.
fn over(plain: &Mounted, backing: &Mounted) -> View {
    let mut trees = Trees::new(&[]);
    trees.site.twin = plain.path();
    trees.mount(&[&backing.arg()], &[])
}

/// A table over two backings: the plain one and the one below the view.
fn table(view: &View, program: &'static str, deviations: &'static [Deviation]) {
    let site = view.site.clone();
    within(Duration::from_secs(60), "a table of errors", move || common::alike(&site, program, deviations));
}

/// The close of a descriptor for reading asks nobody.
const FAULTY: &[Deviation] = &[("a reader's close", "None")];

as_root_and_user! {
    fn of_a_faulty_file_system() {
        let (plain, backing) = (faulty(), faulty());
        table(&over(&plain, &backing), include_str!("calls/faulty.py"), FAULTY);
    }

    fn of_a_limited_process() {
        table(&View::of(&["a"]), include_str!("calls/limits.py"), &[]);
    }
}

/// What needs a file system that only root can mount.
mod only_root {
    use super::*;

    /// A store through a map finds out when it is written back: `msync` and `fsync` tell, and not SIGBUS at the store.
    const FULL: &[Deviation] = &[("a map with no room behind it", "28")];

    /// The kernel does not know that the backing is mounted read-only: what it answers without asking, it answers as for a
    /// view that can be written.
    const SEALED: &[Deviation] = &[
        ("access", "[0, 0, 0, 0, 0, 0, 'ENOENT', 'ENOENT', 'ENOENT']"),
        ("rmdir of nothing", "ENOENT"),
        ("unlink of nothing", "ENOENT"),
    ];

    #[test]
    fn of_a_full_file_system() {
        common::as_root(|| {
            let [plain, backing] = [(); 2].map(|()| Mounted::tmpfs("size=1m,nr_inodes=64"));
            table(&over(&plain, &backing), include_str!("calls/full.py"), FULL);
        });
    }

    #[test]
    fn of_a_read_only_file_system() {
        common::as_root(|| {
            let [plain, backing] = [(); 2].map(|()| {
                let mounted = Mounted::tmpfs("size=1m");
                let script = "echo file >file; mkdir dir; echo in >dir/in; ln -s file link; touch -d @1000 file";
                common::sh(&mounted.path(), script).ok();
                mounted.remount("ro");
                mounted
            });
            table(&over(&plain, &backing), include_str!("calls/sealed.py"), SEALED);
        });
    }

    /// The most links that a file may have are made on the backing; one more is refused by either way.
    #[test]
    fn of_a_file_with_too_many_links() {
        common::as_root(|| {
            View::of(&["a"]).within("EMLINK", |s| {
                let (viewed, backing) = (s.view("a"), s.native("a"));
                s.both("links", |d| {
                    let below = if d == viewed { &backing } else { d };
                    fs::write(below.join("f"), "f").unwrap();
                    // Some file systems have no such limit, or one too far away.
                    let made = (1..66_000)
                        .take_while(|n| fs::hard_link(below.join("f"), below.join(n.to_string())).is_ok())
                        .count();
                    let again = |name: &str| errno_of(fs::hard_link(d.join("f"), d.join(name)));
                    (
                        made,
                        again("more"),
                        errno_of(fs::remove_file(d.join("1"))),
                        again("1"),
                        again("more"),
                        fs::read(d.join("2")).unwrap(),
                    )
                });
            });
        });
    }
}
