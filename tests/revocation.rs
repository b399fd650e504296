//! The moment of revocation: when `rootsfs roots M remove R` has returned, nothing of R can be read or written, whatever
//! a process was holding; and a root that stayed has not noticed.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use common::{STEP, Trees, View, errno_of, eventually, step, within};
use serde_json::Value;

/// Roots `gone` and `stays`, each with a `sub/inner` and a `data` of two pages.
fn mounted() -> View {
    let trees = Trees::new(&["gone", "stays"]);
    for root in ["gone", "stays"] {
        fs::create_dir(trees.site.native(root).join("sub")).unwrap();
        fs::write(trees.site.native(root).join("sub/inner"), root).unwrap();
        fs::write(trees.site.native(root).join("data"), page_of(b'x').repeat(2)).unwrap();
    }
    trees.mount(&["gone", "stays"], &[])
}

fn page_of(byte: u8) -> Vec<u8> {
    vec![byte; 4096]
}

/// `tests/scripts/holder.py` on a directory, probed over a pipe.
struct Holder {
    child: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Holder {
    fn of(dir: &Path) -> Self {
        let mut python = Command::new(common::python());
        python.args(["-c", include_str!("scripts/holder.py")]).arg(dir).current_dir("/");
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = child.stdout.take().map(BufReader::new);
        let mut holder = Self { child, said };
        assert_eq!(holder.line().trim(), "ready");
        holder
    }

    fn line(&mut self) -> String {
        let mut said = self.said.take().unwrap();
        let (line, said) = within(STEP, "holder", move || {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            (line, said)
        });
        self.said = Some(said);
        line
    }

    /// What still works: pairs of an attempt and its outcome.
    fn probe(&mut self) -> Vec<(String, String)> {
        self.child.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
        let Value::Object(map) = serde_json::from_str(&self.line()).unwrap() else { panic!("not an object") };
        map.into_iter().map(|(attempt, outcome)| (attempt, outcome.as_str().unwrap().to_owned())).collect()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn assert_dead(probe: &[(String, String)]) {
    for (attempt, outcome) in probe {
        let fits = match attempt.as_str() {
            "close" => outcome == "ok",
            "path" => outcome == "ENOENT",
            // Private to the kernel's own copy of the attributes; everything that reaches the file is refused.
            "map: read" | "map: write" => outcome == "SIGBUS",
            _ if attempt.starts_with("cwd") || attempt.starts_with("directory") || attempt.starts_with("path desc") => {
                ["ENOENT", "ESTALE", "EIO"].contains(&outcome.as_str())
            }
            _ => ["ESTALE", "EIO"].contains(&outcome.as_str()),
        };
        assert!(fits, "after the removal {attempt:?} gave {outcome:?}: {probe:#?}");
    }
}

fn assert_well(probe: &[(String, String)]) {
    let ill: Vec<_> = probe.iter().filter(|(_, outcome)| outcome != "ok" && outcome != "EEXIST").collect();
    assert!(ill.is_empty(), "a retained root was disturbed: {ill:#?}");
}

/// What the kernel says of a file without asking.
fn known(fd: &OwnedFd) -> rustix::io::Result<rustix::fs::Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, rustix::fs::StatxFlags::BASIC_STATS)
}

/// `tail -f` with its output collected in a file.
fn tail(view: &View, file: &str) -> (Child, std::path::PathBuf) {
    let out = view.file(&file.replace('/', "-"));
    let sink = File::create(&out).unwrap();
    let mut tail = Command::new("tail");
    // Polling, as on every file system whose changes inotify does not tell wholly.
    tail.args(["---disable-inotify", "-s", "0.1", "-f"]).arg(view.site.view(file)).current_dir("/");
    (tail.stdout(sink.try_clone().unwrap()).stderr(sink).spawn().unwrap(), out)
}

as_root_and_user! {
    fn everything_held_dies_and_the_other_root_goes_on() {
        let view = mounted();
        let mut gone = Holder::of(&view.site.view("gone"));
        let mut stays = Holder::of(&view.site.view("stays"));

        view.roots("remove", &["gone"]).ok();

        assert_dead(&gone.probe());
        assert_well(&stays.probe());
        assert_eq!(view.status()["roots"].as_array().unwrap().len(), 1);

        // The same directory again is a new root: nothing of the old one comes back to life with it.
        let before = fs::read(view.site.native("gone/data")).unwrap();
        view.roots("add", &[view.site.native("gone").to_str().unwrap()]).ok();
        let old: Vec<_> = gone.probe().into_iter().filter(|(attempt, _)| attempt != "path").collect();
        assert_dead(&old);
        assert_eq!(fs::read(view.site.native("gone/data")).unwrap(), before, "an old descriptor changed the backing");
        assert!(!view.site.native("gone/sub/made").exists() && !view.site.native("gone/made").exists());
        view.within("new handles", |s| {
            assert_eq!(fs::read(s.view("gone/data")).unwrap().len(), 8192);
            assert_eq!(fs::read_to_string(s.view("gone/sub/inner")).unwrap(), "gone");
        });
        assert_well(&stays.probe());
    }

    fn descriptors_of_this_process() {
        let view = mounted();
        let (gone, stays) = view.within("open and warm", |s| {
            let open = |path: &str| {
                step(format!("open {path}"));
                let file = File::options().read(true).write(true).open(s.view(path)).unwrap();
                file.read_exact_at(&mut page_of(0), 0).unwrap();
                file
            };
            let files = (open("gone/data"), open("stays/data"));
            // What was written with success before the removal is in the backing file after it.
            files.0.write_all_at(b"late", 100).unwrap();
            files
        });
        view.roots("remove", &["gone"]).ok();
        assert_eq!(fs::read(view.site.native("gone/data")).unwrap()[100..104], *b"late");
        view.within("after the removal", move |s| {
            for (name, outcome) in [
                ("pread", errno_of(gone.read_at(&mut page_of(0), 0))),
                ("pwrite", errno_of(gone.write_at(b"never", 0))),
                ("ftruncate", errno_of(gone.set_len(1))),
                ("fsync", errno_of(gone.sync_all())),
                ("fchmod", errno_of(gone.set_permissions(fs::metadata("/dev/null").unwrap().permissions()))),
            ] {
                assert!(outcome == "ESTALE" || outcome == "EIO", "{name}: {outcome}");
            }
            let backing = fs::read(s.native("gone/data")).unwrap();
            assert_eq!((backing.len(), backing[0]), (8192, b'x'));

            let mut page = page_of(0);
            stays.read_exact_at(&mut page, 0).unwrap();
            assert_eq!(page, page_of(b'x'), "cached data of the retained root");
            stays.write_all_at(b"on", 0).unwrap();
            assert_eq!(fs::read(s.native("stays/data")).unwrap()[..2], *b"on");
        });
    }

    /// Soon after its revocation the kernel itself gives up whatever is held of a root: it is refused also when nobody is
    /// there to refuse it.
    fn what_was_revoked_stays_so_without_the_daemon() {
        let mut view = mounted();
        let (file, path, dir, other) = view.within("open", |s| {
            let open = |flags, name: &str| rustix::fs::open(s.view(name), flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let file = open(OFlags::RDWR, "gone/data");
            rustix::io::pread(&file, &mut [0; 9], 0).unwrap();
            let dir = open(OFlags::DIRECTORY, "gone/sub");
            (file, open(OFlags::PATH, "gone/sub/inner"), dir, open(OFlags::RDONLY, "stays/data"))
        });
        view.roots("remove", &["gone"]).ok();
        let calls = std::sync::Arc::new(move || {
            let at_hand = |fd: &OwnedFd| known(fd).err();
            [
                at_hand(&path),
                at_hand(&dir),
                rustix::fs::RawDir::new(&dir, &mut [std::mem::MaybeUninit::uninit(); 512]).next().unwrap().err(),
                rustix::fs::openat(&dir, "inner", OFlags::RDONLY, Mode::empty()).err(),
            ]
        });
        let all_bad = {
            let calls = std::sync::Arc::clone(&calls);
            move || calls().iter().all(|errno| *errno == Some(Errno::IO))
        };
        assert!(eventually(Duration::from_secs(5), all_bad), "{:?}", calls());
        // One that is open as a file is left with nothing, so that closing it succeeds.
        let blank = known(&file).unwrap();
        assert_eq!((blank.stx_size, blank.stx_mode & 0o7777, blank.stx_mtime.tv_sec), (0, 0, 0), "{blank:?}");
        let refused = |errno| {
            let calls = [
                rustix::io::pread(&file, &mut [0; 9], 0).err(),
                rustix::io::pwrite(&file, b"x", 0).err(),
                rustix::fs::fstat(&file).err(),
            ];
            assert_eq!(calls, [Some(errno); 3]);
        };
        refused(Errno::STALE);
        view.within("the other root", move |_| rustix::io::pread(&other, &mut [0; 9], 4096).unwrap());
        view.end(rustix::process::Signal::KILL, Duration::from_secs(5));
        assert_eq!(calls(), [Some(Errno::IO); 4]);
        refused(Errno::NOTCONN);
        assert_eq!(known(&file).unwrap().stx_size, 0);
    }

    /// Also long after, when the kernel has given up what it held of the root.
    fn close_succeeds() {
        let view = mounted();
        let program = format!(
            r#"
import errno, subprocess, time
held = [os.open("gone/data", flags) for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND)]
held += [os.dup(held[1]), os.open("gone/sub", os.O_RDONLY), os.open("gone/sub", os.O_PATH)]
os.read(held[0], 10)
given_up = os.open("gone/sub/inner", os.O_PATH)
subprocess.run([{:?}, "roots", {:?}, "remove", "gone"], check=True, stdout=subprocess.DEVNULL)
for attempt in range(500):
    try:
        os.fstat(given_up)
    except OSError as error:
        if error.errno == errno.EIO:
            break
    time.sleep(0.01)
else:
    sys.exit("never given up")
for fd in held:
    os.close(fd)
"#,
            common::program(),
            view.m()
        );
        let mut python = Command::new(common::python());
        python.args(["-c", &format!("import os, sys\nos.chdir({:?})\n{program}", view.m())]);
        python.env("XDG_RUNTIME_DIR", view.file("run"));
        common::run(15, &python).ok();
    }

    fn tail_ends_with_an_error() {
        let view = mounted();
        for root in ["gone", "stays"] {
            fs::write(view.site.native(root).join("log"), "one\n").unwrap();
        }
        let (mut ends, said) = tail(&view, "gone/log");
        let (mut goes_on, hears) = tail(&view, "stays/log");
        let shown = |file: &Path, text: &str| fs::read_to_string(file).unwrap().contains(text);
        assert!(eventually(STEP, || shown(&said, "one") && shown(&hears, "one")));

        view.roots("remove", &["gone"]).ok();

        // tail keeps the last descriptor it has as long as that answers; an error ends it, or at the least is told.
        let ended = eventually(Duration::from_secs(5), || {
            matches!(ends.try_wait(), Ok(Some(status)) if !status.success())
        });
        let told = ["error", "cannot", "Stale", "inaccessible"].iter().any(|word| shown(&said, word));
        drop((ends.kill(), ends.wait()));
        assert!(ended || told, "tail went on in silence: {:?}", fs::read_to_string(&said));

        view.within("append to the retained log", |s| {
            File::options().append(true).open(s.view("stays/log")).unwrap().write_all(b"two\n").unwrap();
        });
        assert!(eventually(Duration::from_secs(5), || shown(&hears, "two")), "the tail on the retained root stopped");
        assert!(matches!(goes_on.try_wait(), Ok(None)));
        drop((goes_on.kill(), goes_on.wait()));
    }

    fn many_changes_with_a_reader_on_the_retained_root() {
        let view = mounted();
        let gone = view.site.native("gone");
        let data = view.site.view("stays/data");
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let file = File::open(data).unwrap();
            let mut reads = 0u64;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let mut page = page_of(0);
                file.read_exact_at(&mut page, 4096).unwrap();
                assert_eq!(page, page_of(b'x'));
                reads += 1;
            }
            reads
        });
        for _ in 0..20 {
            let site = view.site.clone();
            within(STEP, "walk", move || drop(fs::read(site.view("gone/sub/inner")).unwrap()));
            view.roots("remove", &["gone"]).ok();
            view.within("gone", |s| assert_eq!(errno_of(fs::read(s.view("gone/sub/inner"))), "ENOENT"));
            view.roots("add", &[gone.to_str().unwrap()]).ok();
        }
        stop.send(()).unwrap();
        let reads = within(STEP, "the reader", move || reader.join().unwrap());
        assert!(reads > 20, "the reader was held up: {reads} reads");
    }
}
