//! The same test as root and as an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::toolchain::toolchain;
use super::{program, run};

/// The ordinary user of the tests; `tests/run` makes it.
const USER: &str = "rootsfs-test";

/// Whether this process is root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Defines each body once and runs it twice: as `root::NAME` and as `user::NAME`.
#[macro_export]
macro_rules! as_root_and_user {
    ($($(#[$meta:meta])* fn $name:ident() $body:block)+) => {
        $($(#[$meta])* fn $name() $body)+

        mod root {
            $(#[test] fn $name() { $crate::common::as_root(super::$name); })+
        }

        mod user {
            $(#[test] fn $name() { $crate::common::as_user(concat!("user::", stringify!($name)), super::$name); })+
        }
    };
}

/// Runs `body` here; only root can.
#[track_caller]
pub fn as_root(body: fn()) {
    assert!(is_root(), "this half of the tests mounts as root: run tests/run as root, or leave it out: --skip root::");
    body();
}

/// Runs `body` as an ordinary user: here, if this process is one, or else by running this very test again through
/// `runuser`, from copies that the user can read.
#[track_caller]
pub fn as_user(test: &str, body: fn()) {
    as_user_with(test, body, &[]);
}

/// [`as_user`] with further variables for the test.
#[track_caller]
pub fn as_user_with(test: &str, body: fn(), variables: &[(&str, &Path)]) {
    if !is_root() {
        return body();
    }
    let known = Command::new("id").args(["-u", USER]).output().unwrap();
    assert!(
        known.status.success(),
        "the user {USER} is missing; tests/run makes it, or: useradd --system --create-home --shell /bin/sh {USER}"
    );
    let stage = tempfile::Builder::new().prefix("rootsfs-user-").tempdir_in("/var/tmp").unwrap();
    let path = |name: &str| stage.path().join(name);
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (from, to) in [(std::env::current_exe().unwrap(), path("tests")), (program(), path("rootsfs"))] {
        fs::copy(&from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir(path("home")).unwrap();
    let owner = format!("{USER}:");
    assert!(Command::new("chown").arg(owner).arg(path("home")).status().unwrap().success());

    let mut again = Command::new("runuser");
    again.args(["-u", USER, "--", "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8"]);
    for (name, value) in [("HOME", "home"), ("ROOTSFS_TEST_DIR", "home"), ("ROOTSFS_TEST_BIN", "rootsfs")] {
        again.arg(format!("{name}={}", path(value).display()));
    }
    for (name, value) in [&[("ROOTSFS_TEST_TOOLCHAIN", toolchain())], variables].concat() {
        again.arg(format!("{name}={}", value.display()));
    }
    again.arg(path("tests")).args(["--exact", test, "--nocapture"]).current_dir("/");
    let ran = run(300, &again);
    let left = mounts_below(stage.path());
    for point in &left {
        drop(Command::new("umount").arg("-l").arg(point).status());
    }
    print!("{}{}", ran.out, ran.err);
    assert!(left.is_empty(), "{test} as {USER} left mounts behind: {left:?}");
    assert!(ran.code == 0 && ran.out.contains("1 passed"), "{test} failed as {USER}; what it said is above");
}

fn mounts_below(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(dir)).map(str::to_owned).collect()
}
