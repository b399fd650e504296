//! Real clients, the examples of this repository, offer real source trees: work in the view, then one is taken away.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use common::{Trees, eventually, installed, is_mounted, link_tree, program, run, step, within};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long the tools may take for one step.
const WORK: Duration = Duration::from_secs(60);
/// Within this a dropped root is gone.
const GONE: Duration = Duration::from_secs(5);
/// Where the staged clients and sources are, for the half of the tests that runs as another user.
const KIT: &str = "ROOTSFS_TEST_KIT";
/// A crate without dependencies, so that it builds offline.
const CRATE: &str = "strsim";

/// Clients, and sources for roots, where every user can read them.
struct Kit {
    path: PathBuf,
    _made: Option<TempDir>,
}

impl Kit {
    fn new() -> Self {
        if let Some(path) = std::env::var_os(KIT) {
            return Self { path: path.into(), _made: None };
        }
        let clients = installed();
        let made = tempfile::Builder::new().prefix("rootsfs-kit-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = |name: &str| made.path().join(name);
        for client in ["typescript", "python"] {
            link_tree(&clients.join(client), &path(client));
        }
        for client in ["typescript/client.mjs", "python/client.py"] {
            fs::copy(checkout.join("examples").join(client), path(client)).unwrap();
        }
        // A bundle, because git refuses to clone a repository of another user.
        let mut bundle = Command::new("git");
        run(60, bundle.args(["bundle", "create"]).arg(path("repository")).arg("HEAD").current_dir(checkout)).ok();
        let manifest =
            run(60, Command::new("cargo").args(["metadata", "--offline", "--format-version=1"]).current_dir(checkout))
                .json();
        let found = manifest["packages"].as_array().unwrap().iter().find(|package| package["name"] == CRATE).unwrap();
        let source = Path::new(found["manifest_path"].as_str().unwrap()).parent().unwrap();
        run(20, Command::new("cp").arg("-r").arg(source).arg(path(CRATE))).ok();
        Self { path: made.path().to_owned(), _made: Some(made) }
    }
}

/// A running client; one line in, one JSON line out.
struct Client {
    child: Child,
    answers: Receiver<Value>,
    mount: PathBuf,
    log: PathBuf,
}

impl Client {
    fn start(trees: &Trees, mut command: Command, mount: &Path, roots: &[PathBuf]) -> Self {
        let log = trees.file("log");
        let environment = trees.command(&[""; 0]);
        command.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("ROOTSFS", program()).arg(mount).args(roots);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                drop(sender.send(serde_json::from_str(&line).unwrap_or_else(|e| panic!("no JSON ({e}): {line}"))));
            }
        });
        Self { child, answers, mount: mount.to_owned(), log }
    }

    #[track_caller]
    fn answer(&self) -> Value {
        let answer = self.answers.recv_timeout(Duration::from_secs(30));
        answer.unwrap_or_else(|_| panic!("the client does not answer: {}", fs::read_to_string(&self.log).unwrap()))
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let answer = self.answer();
        assert!(answer.get("error").is_none(), "{line}: {answer}");
        answer
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !eventually(GONE, || matches!(self.child.try_wait(), Ok(Some(_)))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for (program, flag) in [("fusermount3", "-uz"), ("umount", "-l")] {
            if is_mounted(&self.mount) {
                drop(Command::new("timeout").args(["5", program, flag]).arg(&self.mount).output());
            }
        }
    }
}

/// `tail -f` from the first line on.
struct Tail {
    child: Child,
    seen: std::sync::Arc<Mutex<String>>,
}

impl Tail {
    fn follow(file: &Path) -> Self {
        let mut tail = Command::new("tail");
        tail.env("LC_ALL", "C").args(["-n", "+1", "-s", "0.1", "-f"]).arg(file).stdin(Stdio::null());
        let mut child = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let seen = std::sync::Arc::new(Mutex::new(String::new()));
        let theirs = std::sync::Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut line = String::new();
            while out.read_line(&mut line).is_ok_and(|n| n > 0) {
                theirs.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        Self { child, seen }
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        assert!(eventually(GONE, || self.seen.lock().unwrap().contains(text)), "tail does not show {text:?}");
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a script in `dir`, with a toolchain that works for this user.
#[track_caller]
fn work(dir: &Path, script: &str) -> String {
    step(script);
    let mut sh = Command::new("sh");
    sh.args(["-ec", &format!("cd \"$0\"\n{script}")]).arg(dir);
    if !rustix::process::geteuid().is_root() {
        let toolchain = common::toolchain().display();
        sh.env("PATH", format!("{toolchain}/bin:{}", std::env::var("PATH").unwrap()));
        sh.env("RUSTC", format!("{toolchain}/bin/rustc"));
    }
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        sh.env(name, "test@example.org");
    }
    run(50, sh.env("GIT_CONFIG_GLOBAL", "/dev/null").env_remove("CARGO_TARGET_DIR")).ok()
}

/// A working day in the view of both roots.
fn work_in_view(view: &Path, back: &Path) {
    assert!(work(view, "rg -l --no-config 'struct Publisher' repository/src").contains("publisher"));
    for tree in ["repository", CRATE] {
        let (seen, native) = (view.join(tree), back.join(tree));
        assert_eq!(work(&seen, "git status --porcelain"), "", "{tree}");
        let commits = work(&seen, "git rev-list --count HEAD").trim().parse::<u32>().unwrap();
        work(&seen, "echo '# changed' >>Cargo.toml; git commit -qam 'Change through the view'");
        assert_eq!(
            work(&native, "git log -1 --format=%s; git status --porcelain"),
            "Change through the view\n",
            "{tree}"
        );
        assert_eq!(work(&native, "git rev-list --count HEAD").trim(), (commits + 1).to_string());
    }
    work(&view.join(CRATE), "CARGO_TARGET_DIR=$PWD/target cargo build -q --offline; test -d target/debug");
    work(&back.join(CRATE), "ls target/debug/*.rlib");
}

fn drop_one(client: &str) {
    let kit = Kit::new();
    let trees = Trees::new(&[]);
    let back = trees.site.back.clone();
    work(
        &back,
        &format!(
            "git clone -q {kit}/repository repository\ncp -r {kit}/{CRATE} {CRATE}\ncd {CRATE}\nprintf 'target\\n' >.gitignore\n\
         git init -q -b main .\ngit add -f .\ngit commit -qm first",
            kit = kit.path.display()
        ),
    );
    let command = match client {
        "typescript" => {
            let mut node = Command::new("node");
            node.arg(kit.path.join("typescript/client.mjs"));
            node
        }
        _ => {
            let mut python = Command::new(kit.path.join("python/bin/python"));
            python.arg(kit.path.join("python/client.py"));
            python
        }
    };
    let view = trees.file("V");
    let mut client = Client::start(&trees, command, &view, &[back.join("repository"), back.join(CRATE)]);

    let status = client.answer();
    let entries: Vec<_> = status["roots"].as_array().unwrap().iter().map(|root| root["entry"].clone()).collect();
    assert_eq!((&status["state"], entries), (&json!("active"), vec![json!("repository"), json!(CRATE)]), "{status:#}");
    let paths = (view.clone(), back.clone());
    within(WORK, "work in the view", move || work_in_view(&paths.0, &paths.1));

    for tree in ["repository", CRATE] {
        fs::write(back.join(tree).join("log"), "first\n").unwrap();
    }
    let (stays, goes) = (view.join("repository/log"), view.join(CRATE).join("log"));
    let (path, opened) = (stays.clone(), goes.clone());
    let (mut kept, mut lost) = within(GONE, "open", move || (File::open(path).unwrap(), File::open(opened).unwrap()));
    let (going_on, mut ending) = (Tail::follow(&stays), Tail::follow(&goes));
    going_on.shows("first");
    ending.shows("first");

    client.ask("drop 2");
    let path = view.join(CRATE);
    within(GONE * 2, "the tree disappears", move || {
        assert!(eventually(GONE, || fs::symlink_metadata(&path).is_err()), "still there");
    });
    let ended = || ending.child.try_wait().unwrap().is_some();
    assert!(eventually(GONE, ended), "tail -f goes on in a tree that was taken away");
    let mut said = String::new();
    ending.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    // tail's exit code does not tell: when no file remains it may be 0.
    let errors = ["Stale file handle", "Input/output error"];
    assert!(errors.iter().any(|error| said.contains(error)), "tail ended without an error: {said}");

    let (path, through) = (stays, back.join("repository/log"));
    within(GONE, "the other goes on", move || {
        let append = |path: &Path, line: &str| {
            step(format!("append {line} to {}", path.display()));
            File::options().append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
        };
        append(&path, "through the view\n");
        append(&through, "beside it\n");
        step("read the open files");
        let mut text = String::new();
        kept.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("first\nthrough the view\n"), "{text}");
        lost.read_to_string(&mut text).unwrap_err();
    });
    going_on.shows("through the view");
    going_on.shows("beside it");
    let status = client.ask("call view_status {}");
    assert_eq!(status["roots"].as_array().unwrap().len(), 1, "{status:#}");

    drop(going_on);
    drop(client.child.stdin.take());
    let mut ended = None;
    eventually(Duration::from_secs(8), || {
        ended = client.child.try_wait().unwrap();
        ended.is_some()
    });
    let log = fs::read_to_string(&client.log).unwrap();
    assert_eq!(ended.and_then(|status| status.code()), Some(0), "{log}");
    assert!(!is_mounted(&view), "still mounted: {log}");
    assert!(!view.exists(), "the mountpoint that rootsfs made is left behind: {log}");
}

fn typescript() {
    drop_one("typescript");
}

fn python() {
    drop_one("python");
}

mod root {
    #[test]
    fn typescript() {
        crate::common::as_root(super::typescript);
    }

    #[test]
    fn python() {
        crate::common::as_root(super::python);
    }
}

mod user {
    use super::{KIT, Kit};

    #[test]
    fn typescript() {
        let kit = Kit::new();
        crate::common::as_user_with("user::typescript", super::typescript, &[(KIT, &kit.path)]);
    }

    #[test]
    fn python() {
        let kit = Kit::new();
        crate::common::as_user_with("user::python", super::python, &[(KIT, &kit.path)]);
    }
}
