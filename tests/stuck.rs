//! A backing file system that does not answer: it holds up those who use it, and nobody else.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use common::{Mounted, STEP, Trees, View, eventually, within};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyEntry, Request,
};

const NO_TIME: Duration = Duration::ZERO;
/// What waits for nothing is done within this.
const PROMPT: Duration = Duration::from_secs(3);
/// A list is in force within this, whatever is stuck.
const BOUND: Duration = Duration::from_secs(9);

type Late = Box<dyn FnOnce() + Send>;

/// Answers that are held back while it is stuck.
#[derive(Default)]
struct Stuck {
    on: bool,
    late: Vec<Late>,
}

/// A directory of empty-looking files whose reads, and lookups of `slow`, are answered when they may be.
struct Slow {
    stuck: Arc<Mutex<Stuck>>,
}

impl Slow {
    fn when_it_may(&self, answer: impl FnOnce() + Send + 'static) {
        let mut stuck = self.stuck.lock().unwrap();
        if stuck.on {
            stuck.late.push(Box::new(answer));
        } else {
            answer();
        }
    }
}

fn attr(ino: INodeNo) -> FileAttr {
    let directory = ino.0 == 1;
    FileAttr {
        ino,
        size: 5,
        blocks: 1,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if directory { FileType::Directory } else { FileType::RegularFile },
        perm: 0o755,
        nlink: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Slow {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = match name.to_str() {
            Some("slow") => return self.when_it_may(move || reply.entry(&NO_TIME, &attr(INodeNo(2)), Generation(0))),
            Some(name) => name.strip_prefix('f').and_then(|number| number.parse::<u64>().ok()),
            None => None,
        };
        match number {
            Some(number) => reply.entry(&NO_TIME, &attr(INodeNo(3 + number)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NO_TIME, &attr(ino));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.when_it_may(move || reply.data(if offset == 0 { b"late!" } else { b"" }));
    }
}

/// A view of the stuck file system as `a`, and of a good directory as `b`.
struct Bench {
    view: View,
    stuck: Arc<Mutex<Stuck>>,
    _slow: Mounted,
}

impl Bench {
    fn new() -> Self {
        let stuck = Arc::new(Mutex::new(Stuck { on: true, late: Vec::new() }));
        let slow = Mounted::by(|point| {
            let session =
                fuser::Session::new(Slow { stuck: Arc::clone(&stuck) }, point, &fuser::Config::default()).unwrap();
            std::thread::spawn(move || session.run());
        });
        let trees = Trees::new(&["b"]);
        fs::write(trees.site.native("b/f"), "good").unwrap();
        let b = trees.site.native("b").to_str().unwrap().to_owned();
        let view = trees.mount(&[&slow.arg(), &b], &[]);
        Self { view, stuck, _slow: slow }
    }

    /// Reads of `a` that do not come back until [`Bench::free`].
    fn readers(&self, count: usize, name: impl Fn(usize) -> String) -> Vec<JoinHandle<io::Result<String>>> {
        let read = |path: PathBuf| std::thread::spawn(move || fs::read_to_string(path));
        let readers = (0..count).map(|n| read(self.view.site.view("a").join(name(n)))).collect();
        assert!(eventually(STEP, || !self.stuck.lock().unwrap().late.is_empty()), "nobody got stuck");
        std::thread::sleep(Duration::from_millis(300));
        readers
    }

    fn free(&self) {
        let late = {
            let mut stuck = self.stuck.lock().unwrap();
            stuck.on = false;
            std::mem::take(&mut stuck.late)
        };
        late.into_iter().for_each(|answer| answer());
    }

    /// The other root, the top and the status answer as if nothing were the matter.
    fn others_go_on(&self, entries: &[&str]) {
        let since = Instant::now();
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        self.view.within("the others", move |s| {
            assert_eq!(fs::read_to_string(s.view("b/f")).unwrap(), "good");
            fs::write(s.view("b/new"), "x").unwrap();
            let mut names: Vec<_> = fs::read_dir(&s.mount)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            assert_eq!(names, entries);
            assert!(fs::metadata(&s.mount).unwrap().is_dir());
        });
        assert_eq!(self.view.status()["state"], "active");
        assert!(since.elapsed() < PROMPT, "{:?}", since.elapsed());
    }

    /// Takes the stuck root away; what the command said.
    fn remove(&self) -> String {
        let since = Instant::now();
        let said = self.view.roots("remove", &["a"]).ok();
        assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
        said
    }
}

fn refused(readers: Vec<JoinHandle<io::Result<String>>>) {
    for reader in readers {
        let read = within(STEP, "the end of a stuck read", move || reader.join().unwrap());
        let errno = read.expect_err("a revoked file was read").raw_os_error().unwrap();
        assert!(
            [libc::ESTALE, libc::EIO, libc::ENOENT, libc::ENOTCONN, libc::ECONNABORTED].contains(&errno),
            "{errno}"
        );
    }
}

as_root_and_user! {
    fn a_read() {
        let bench = Bench::new();
        let readers = bench.readers(2, |n| format!("f{n}"));
        bench.others_go_on(&["a", "b"]);
        let said = bench.remove();
        assert!(said.contains("stuck"), "{said}");
        bench.others_go_on(&["b"]);
        // The next list does not wait for what the last one left behind.
        let since = Instant::now();
        let more = bench.view.site.native("b").to_str().unwrap().to_owned();
        bench.view.roots("add", &[&format!("{more}/../b")]).ok();
        assert!(since.elapsed() < PROMPT, "{:?}", since.elapsed());
        bench.free();
        refused(readers);
        bench.others_go_on(&["b"]);
    }

    fn a_lookup() {
        let bench = Bench::new();
        let readers = bench.readers(2, |_| "slow".into());
        bench.others_go_on(&["a", "b"]);
        bench.remove();
        bench.others_go_on(&["b"]);
        bench.free();
        refused(readers);
    }

    /// More stuck requests than the view has threads: the list changes in time all the same, and the view ends.
    fn everybody() {
        let bench = Bench::new();
        let readers = bench.readers(40, |n| format!("f{n}"));
        bench.others_go_on(&["a", "b"]);
        bench.remove();
        assert_eq!(bench.view.status()["roots"].as_array().unwrap().len(), 1);
        bench.free();
        refused(readers);
        bench.others_go_on(&["b"]);
    }

    fn a_view_that_ends() {
        let mut bench = Bench::new();
        let readers = bench.readers(3, |n| format!("f{n}"));
        let since = Instant::now();
        bench.view.end(rustix::process::Signal::TERM, BOUND);
        assert!(!common::is_mounted(&bench.view.site.mount));
        assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
        bench.free();
        refused(readers);
    }
}
