//! Whose rights count: those of the caller, whoever he is, and nobody else's.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use common::{Deviation, Trees, errno_of, within};

/// What differs for other users of a mount of root's.
///
/// The daemon takes on a caller's ids and groups. It does not take on his capabilities: one who has some beyond his ids is
/// refused what they would allow, and root keeps set-id bits even where he gave up the right to.
const OTHERS: &[Deviation] = &[
    ("an ordinary user with one capability", "((1, ''), (2001, 3001, '0o100666'))"),
    ("root without the right to keep set-id bits", "((0, ''), (2001, 3001, '0o106777'))"),
    // The mount is nosuid and nodev.
    ("a set-user-ID program", "((0, ''), None, \"(0, '2001')\")"),
    ("device nodes", "[\"['EPERM']\", \"['EPERM']\"]"),
];

as_root_and_user! {
    /// The view of a directory that is somebody else's gives its reader what the directory itself gives him.
    fn own_rights_and_no_more() {
        Trees::new(&[]).mount(&["/etc"], &[]).within("own rights", |s| {
            for name in ["hostname", "passwd", "shadow", "missing"] {
                let ask = |top: &Path| {
                    let path = top.join(name);
                    let seen = fs::symlink_metadata(&path).map(|meta| (meta.uid(), meta.mode(), meta.len()));
                    let writes = File::options().append(true).open(&path);
                    (errno_of(fs::read(&path)), errno_of(writes), seen.ok())
                };
                assert_eq!(ask(&s.view("etc")), ask(Path::new("/etc")), "{name}");
            }
            if !rustix::process::geteuid().is_root() {
                assert_eq!(errno_of(fs::read(s.view("etc/shadow"))), "EACCES");
                assert_eq!(errno_of(fs::write(s.view("etc/rootsfs-made-this"), "")), "EACCES");
                assert_eq!(errno_of(fs::rename(s.view("etc/passwd"), s.view("etc/rootsfs-made-this"))), "EACCES");
                assert_eq!(errno_of(fs::remove_file(s.view("etc/hostname"))), "EACCES");
            }
        });
    }
}

/// What only root can try.
mod only_root {
    use super::*;

    #[test]
    fn other_users_act_as_themselves() {
        common::as_root(|| {
            let view = Trees::new(&["a"]).mount(&["a"], &["--allow-other"]);
            let site = view.site.clone();
            let table = include_str!("calls/credentials.py");
            within(Duration::from_secs(60), "credentials", move || common::alike(&site, table, OTHERS));
        });
    }

    /// Many callers at once: each request has the ids of its own caller, on whatever thread it is served.
    #[test]
    fn callers_do_not_mix() {
        common::as_root(|| {
            let view = Trees::new(&["a"]).mount(&["a"], &["--allow-other"]);
            let site = view.site.clone();
            let table = r#"
os.chmod(".", 0o1777)
def worker(uid):
    os.setgroups([uid + 1000])
    os.setgid(uid)
    os.setuid(uid)
    wrong = 0
    for n in range(60):
        name = f"{uid}-{n}"
        os.mkdir(name, 0o700)
        os.close(os.open(f"{name}/f", os.O_CREAT | os.O_RDWR, 0o600))
        os.chown(f"{name}/f", -1, uid + 1000)
        os.symlink("f", f"{name}/l")
        owners = [os.lstat(path)[4:6] for path in (name, f"{name}/f", f"{name}/l")]
        other = 6000 + (uid + 1) % 8
        wrong += owners != [(uid, uid), (uid, uid + 1000), (uid, uid)]
        wrong += outcome(get, f"{other}-{n}/f") not in ("EACCES", "ENOENT")
    os._exit(min(wrong, 100))
pids = []
for uid in range(6000, 6008):
    pid = os.fork()
    if pid == 0:
        worker(uid)
    pids.append(pid)
row("wrong", lambda: [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"#;
            let rows = within(Duration::from_secs(60), "callers", move || common::rows(&site.view("a"), table));
            assert_eq!(rows["wrong"], "[0, 0, 0, 0, 0, 0, 0, 0]");
        });
    }
}
