//! The harness of the tests that need a real mount.
//!
//! * Both ways of running rootsfs are first-class: [`as_root_and_user!`](crate::as_root_and_user) runs the same body as
//!   root and, through `runuser`, as the ordinary user [`USER`].
//! * Nothing may hang the suite: programs run under `timeout`, and file operations inside [`View::within`], which panics
//!   with the name of the [`step`] that did not return.
//! * Nothing is left behind: dropping a [`View`], also while panicking, unmounts it by a ladder that ends in a forced
//!   detach.
#![allow(dead_code, unused_imports, reason = "every test crate uses its own part of the harness")]
#![allow(unreachable_pub, reason = "a module of a test crate has nobody to be reachable for")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod mounts;
mod roles;
mod table;
mod toolchain;
mod work;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub use mounts::{Mounted, unmount};
pub use roles::{as_root, as_user, as_user_with};
pub use table::{Deviation, alike, rows};
pub use toolchain::{link_tree, toolchain};
pub use work::{LONG, at_work, installed, work};

/// How long one step may take before it counts as hung.
pub const STEP: Duration = Duration::from_secs(20);
/// How long a view may take to become live.
const LIVE: Duration = Duration::from_secs(10);

/// The program under test.
pub fn program() -> PathBuf {
    std::env::var_os("ROOTSFS_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_rootsfs").into(), PathBuf::from)
}

/// Where temporary trees go: a disk file system, because a tmpfs lacks holes, user attributes or both.
fn base() -> PathBuf {
    std::env::var_os("ROOTSFS_TEST_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

/// A system Python: one that the ordinary user can run too.
pub fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; −1 for a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Insists on exit code 0 and gives the output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "failed: {self:#?}");
        self.out
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("not JSON ({e}): {self:#?}"))
    }
}

/// Runs a program under `timeout`; running out of time is a panic.
#[track_caller]
pub fn run(seconds: u32, command: &Command) -> Ran {
    let mut limited = Command::new("timeout");
    limited.args(["-k", "2", &seconds.to_string()]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    let output = limited.stdin(Stdio::null()).output().expect("timeout(1) of coreutils is needed");
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(ran.code != 124 && ran.code != 137, "no end within {seconds} s: {command:?}: {ran:#?}");
    ran
}

/// Runs a shell script in `dir`, entered inside the time limit.
#[track_caller]
pub fn sh(dir: &Path, script: &str) -> Ran {
    step(format!("sh in {}: {script}", dir.display()));
    run(15, Command::new("sh").args(["-c", &format!("cd \"$0\" || exit 99\n{script}")]).arg(dir))
}

/// Runs a Python program in `dir`, entered inside the time limit.
#[track_caller]
pub fn py(dir: &Path, program: &str) -> Ran {
    step(format!("python in {}", dir.display()));
    let program = format!("import os, sys\nos.chdir(sys.argv[1])\n{program}");
    run(15, Command::new(python()).args(["-c", &program]).arg(dir))
}

/// `ok`, or the name of the error.
pub fn errno_of<T>(result: io::Result<T>) -> String {
    const NAMES: [(i32, &str); 24] = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (5, "EIO"),
        (6, "ENXIO"),
        (9, "EBADF"),
        (11, "EAGAIN"),
        (13, "EACCES"),
        (16, "EBUSY"),
        (17, "EEXIST"),
        (18, "EXDEV"),
        (20, "ENOTDIR"),
        (21, "EISDIR"),
        (22, "EINVAL"),
        (26, "ETXTBSY"),
        (30, "EROFS"),
        (36, "ENAMETOOLONG"),
        (38, "ENOSYS"),
        (39, "ENOTEMPTY"),
        (40, "ELOOP"),
        (61, "ENODATA"),
        (95, "EOPNOTSUPP"),
        (107, "ENOTCONN"),
        (110, "ETIMEDOUT"),
        (116, "ESTALE"),
    ];
    match result {
        Ok(_) => "ok".into(),
        Err(e) => match e.raw_os_error() {
            Some(code) => {
                NAMES.iter().find(|(n, _)| *n == code).map_or_else(|| format!("E{code}"), |(_, name)| (*name).into())
            }
            None => format!("{e}"),
        },
    }
}

/// Calls `ready` until it is true or `limit` has passed; tells which.
pub fn eventually(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if ready() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The step under way and when it began.
type Progress = Arc<Mutex<(String, Instant)>>;

thread_local! {
    static PROGRESS: RefCell<Option<Progress>> = const { RefCell::new(None) };
}

/// Names the operation under way in the enclosing [`within`], and gives it its own time.
pub fn step(name: impl Into<String>) {
    PROGRESS.with_borrow(|progress| {
        if let Some(progress) = progress {
            *progress.lock().unwrap() = (name.into(), Instant::now());
        }
    });
}

/// Runs `body` on a thread of its own and panics with the name of the step that takes longer than `limit`. The thread is
/// then abandoned: it may sit in the kernel until the mount is detached.
#[track_caller]
pub fn within<T: Send + 'static>(limit: Duration, name: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let progress = Arc::new(Mutex::new((name.to_owned(), Instant::now())));
    let theirs = Arc::clone(&progress);
    let (done, waiting) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            PROGRESS.set(Some(theirs));
            let outcome = body();
            drop(done.send(outcome));
        })
        .unwrap();
    loop {
        match waiting.recv_timeout(Duration::from_millis(50)) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => {
                let Err(panic) = thread.join() else { unreachable!("the body neither returned nor panicked") };
                std::panic::resume_unwind(panic)
            }
            Err(RecvTimeoutError::Timeout) => {
                let (step, since) = progress.lock().unwrap().clone();
                assert!(since.elapsed() < limit, "{name}: no answer within {limit:?}: {step}");
            }
        }
    }
}

/// Whether `path` is a mountpoint, read from the mount table: a `stat` of a dead mount could hang.
pub fn is_mounted(path: &Path) -> bool {
    mount_line(path).is_some()
}

/// The line of `/proc/self/mountinfo` for `path`.
pub fn mount_line(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().find(|line| line.split(' ').nth(4) == path.to_str()).map(str::to_owned)
}

/// Whose paths a body works with. Cheap to clone into [`View::within`].
#[derive(Clone, Debug)]
pub struct Site {
    /// The mountpoint.
    pub mount: PathBuf,
    /// The directory that holds the backing of each root.
    pub back: PathBuf,
    /// A plain directory: what the same call does without rootsfs.
    pub twin: PathBuf,
}

impl Site {
    /// A path in the view.
    pub fn view(&self, path: &str) -> PathBuf {
        self.mount.join(path)
    }

    /// The same path on the backing.
    pub fn native(&self, path: &str) -> PathBuf {
        self.back.join(path)
    }

    /// Does `operation` in root `a` of the view and in the plain twin directory; both must have the same outcome.
    #[track_caller]
    pub fn both<T: PartialEq + std::fmt::Debug>(&self, name: &str, operation: impl Fn(&Path) -> T) {
        step(format!("{name} (plain)"));
        let plain = operation(&self.twin);
        step(format!("{name} (view)"));
        let viewed = operation(&self.view("a"));
        assert_eq!(viewed, plain, "{name}: the view (left) differs from the plain call (right)");
    }

    /// [`Site::both`] for a shell script: exit code and output count.
    #[track_caller]
    pub fn both_sh(&self, script: &str) {
        self.both(script, |dir| {
            let ran = sh(dir, script);
            (ran.code, ran.out)
        });
    }

    /// Root `a`, its twin and the view of it are alike: names, types, modes, links, sizes, targets, contents; between
    /// the view and the backing also owners, times and blocks.
    #[track_caller]
    pub fn assert_alike(&self) {
        let sum = "find . -type f -readable -exec sha256sum {} + | sort -k2";
        let coarse = format!(
            "find . -mindepth 1 -type f -printf '%P f %m %n %s\\n' -o -printf '%P %y %m %n %l\\n' | sort; {sum}"
        );
        let backing = self.native("a");
        assert_eq!(sh(&backing, &coarse).ok(), sh(&self.twin, &coarse).ok(), "backing (left) and twin (right) differ");
        let fine = format!("find . -printf '%P %y %m %n %s %l %U %G %T@ %b\\n' | sort; {sum}");
        assert_eq!(sh(&self.view("a"), &fine).ok(), sh(&backing, &fine).ok(), "view (left) and backing (right) differ");
    }
}

/// Backing trees, a mountpoint and the environment of one test.
pub struct Trees {
    /// The paths.
    pub site: Site,
    dir: TempDir,
}

impl Trees {
    /// Empty directories `names`, each to be a root.
    pub fn new(names: &[&str]) -> Self {
        Self::below(&base(), names)
    }

    /// [`Trees::new`] where other users can reach it, too: the usual place may be in somebody's home.
    pub fn for_others(names: &[&str]) -> Self {
        let trees = Self::below(Path::new("/var/tmp"), names);
        fs::set_permissions(trees.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        trees
    }

    fn below(base: &Path, names: &[&str]) -> Self {
        fs::create_dir_all(base).unwrap();
        let dir = tempfile::Builder::new().prefix("rootsfs-user-").tempdir_in(base).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let site = Site { mount: top.join("M"), back: top.join("back"), twin: top.join("twin") };
        for path in [&site.mount, &site.back, &site.twin, &top.join("run"), &top.join("home")] {
            fs::create_dir(path).unwrap();
        }
        fs::set_permissions(top.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        for name in names {
            fs::create_dir(site.native(name)).unwrap();
        }
        Self { site, dir }
    }

    /// The program with these arguments, in an environment of its own.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(program());
        let top = self.dir.path();
        command.args(args).env("XDG_RUNTIME_DIR", top.join("run")).env("HOME", top.join("home"));
        for home in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"] {
            command.env_remove(home);
        }
        command
    }

    /// Runs the program to its end.
    #[track_caller]
    pub fn rootsfs<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Ran {
        run(20, &self.command(args))
    }

    /// The mountpoint as an argument.
    pub fn m(&self) -> &str {
        self.site.mount.to_str().unwrap()
    }

    /// A file below the test's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Mounts a view of the backing directories `roots`, with further options.
    #[track_caller]
    pub fn mount(self, roots: &[&str], options: &[&str]) -> View {
        self.mount_by(&[], roots, options)
    }

    /// [`Trees::mount`] by a process that may have no more than `limit` descriptors.
    #[track_caller]
    pub fn mount_with_descriptors(self, limit: u32, roots: &[&str], options: &[&str]) -> View {
        self.mount_by(&["prlimit", &format!("--nofile={limit}:{limit}")], roots, options)
    }

    #[track_caller]
    fn mount_by(self, wrapper: &[&str], roots: &[&str], options: &[&str]) -> View {
        let mut args = vec!["mount".to_owned()];
        for root in roots {
            args.extend(["--root".into(), self.site.native(root).to_str().unwrap().into()]);
        }
        args.extend(options.iter().map(|option| (*option).into()));
        args.push(self.m().into());
        let log = self.file("log");
        let mut command = wrapped(wrapper, self.command(&args));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn();
        let mut view = View { child: child.unwrap(), trees: Some(self) };
        view.wait_until_live(&log);
        view
    }
}

/// The command as an argument of another one, which replaces itself by it.
fn wrapped(wrapper: &[&str], command: Command) -> Command {
    let [program, args @ ..] = wrapper else { return command };
    let mut outer = Command::new(program);
    outer.args(args).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// A mounted view and the process that serves it.
pub struct View {
    child: Child,
    trees: Option<Trees>,
}

impl std::ops::Deref for View {
    type Target = Trees;

    fn deref(&self) -> &Trees {
        self.trees.as_ref().unwrap()
    }
}

impl View {
    /// Empty roots `names`, mounted.
    #[track_caller]
    pub fn of(names: &[&str]) -> Self {
        Trees::new(names).mount(names, &[])
    }

    #[track_caller]
    fn wait_until_live(&mut self, log: &Path) {
        let end = Instant::now() + LIVE;
        loop {
            let said = || fs::read_to_string(log).unwrap_or_default();
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("rootsfs ended early ({status}): {}", said());
            }
            if is_mounted(&self.site.mount) && self.rootsfs(&["status", self.m(), "--json"]).code == 0 {
                return;
            }
            assert!(Instant::now() < end, "not live within {LIVE:?}: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The serving process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// `status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        let ran = self.rootsfs(&["status", self.m(), "--json"]);
        assert_eq!(ran.code, 0, "{ran:#?}");
        ran.json()
    }

    /// `rootsfs roots M VERB ROOT...`; returns when publishing is done.
    #[track_caller]
    pub fn roots(&self, verb: &str, roots: &[&str]) -> Ran {
        self.rootsfs(&[&["roots", self.m(), verb], roots].concat())
    }

    /// `rootsfs check M ... --json`: exit code, `decision`, `reason`.
    #[track_caller]
    pub fn check(&self, args: &[&str]) -> (i32, String, String) {
        let ran = self.rootsfs(&[&["check", self.m(), "--json"], args].concat());
        let json = ran.json();
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        (ran.code, text("decision"), text("reason"))
    }

    /// [`within`] with the paths of this view; every [`step`] has its own time.
    #[track_caller]
    pub fn within<T: Send + 'static>(&self, name: &str, body: impl FnOnce(Site) -> T + Send + 'static) -> T {
        let site = self.site.clone();
        within(STEP, name, move || body(site))
    }

    /// Sends a signal to the serving process and waits for its end.
    #[track_caller]
    pub fn end(&mut self, signal: Signal, limit: Duration) -> std::process::ExitStatus {
        kill_process(self.pid(), signal).unwrap();
        self.ended(limit)
    }

    /// Waits for the end of the serving process.
    #[track_caller]
    pub fn ended(&mut self, limit: Duration) -> std::process::ExitStatus {
        let mut status = None;
        eventually(limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("still alive after {limit:?}"))
    }

    /// Gives the trees back without unmounting: the serving process was killed, and somebody else mounts over the corpse.
    pub fn into_trees(mut self) -> Trees {
        self.trees.take().unwrap()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let Some(trees) = self.trees.take() else { return };
        let point = trees.m();
        let mut ladder = vec![
            trees.command(&["unmount", point]),
            command(&["fusermount3", "-uz", point]),
            command(&["umount", "-l", point]),
        ];
        ladder.retain_mut(|rung| {
            is_mounted(&trees.site.mount) && {
                let mut limited = Command::new("timeout");
                limited.args(["-k", "1", "5"]).arg(rung.get_program()).args(rung.get_args());
                limited.envs(rung.get_envs().filter_map(|(name, value)| Some((name, value?))));
                drop(limited.stdin(Stdio::null()).output());
                true
            }
        });
        for signal in [Signal::TERM, Signal::KILL] {
            let pid = self.pid();
            let mut gone = || matches!(self.child.try_wait(), Ok(Some(_)));
            if gone() {
                break;
            }
            let _ = kill_process(pid, signal);
            eventually(Duration::from_secs(3), gone);
        }
        if is_mounted(&trees.site.mount) {
            // Removing the directory would walk into the mount.
            std::mem::forget(trees);
            if !std::thread::panicking() {
                panic!("a mount is left behind");
            }
        }
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}
