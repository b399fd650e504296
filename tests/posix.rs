//! Suites that others wrote to judge file systems, on a plain directory and on the view: no difference but the known ones.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use common::{Trees, View, as_root, as_user_with, run, step};

/// Where the suites are, for the half of the tests that runs as another user.
const SUITES: &str = "ROOTSFS_TEST_SUITES";

/// The suites and their versions, fixed so that tomorrow's is not today's surprise.
const VERSIONS: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// What pjdfstest says of one case: `ok`, `FAILED` or `skipped`.
type Verdicts = BTreeMap<String, String>;

/// Builds the suites once, into the target directory.
fn installed() -> PathBuf {
    static ONCE: Once = Once::new();
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools");
    ONCE.call_once(|| {
        for (suite, version) in VERSIONS {
            let mut probe = Command::new(tools.join("bin").join(suite));
            if !probe.arg("--help").output().is_ok_and(|output| output.status.success()) {
                let mut cargo = Command::new("cargo");
                cargo.args(["install", "--locked", "--quiet", suite, "--version", version, "--root"]).arg(&tools);
                // A debug build is there sooner, and the suites spend their time in system calls.
                cargo.args(["--debug", "--config", "profile.dev.debug=0"]);
                run(900, &cargo).ok();
            }
        }
    });
    tools.join("bin")
}

/// The suites where every user can run them.
fn staged() -> tempfile::TempDir {
    let stage = tempfile::Builder::new().prefix("rootsfs-suites-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (suite, _) in VERSIONS {
        fs::copy(installed().join(suite), stage.path().join(suite)).unwrap();
    }
    stage
}

fn suite(name: &str) -> PathBuf {
    std::env::var_os(SUITES).map_or_else(installed, PathBuf::from).join(name)
}

/// A view of one root; as root it is open to the other users that the suite becomes.
fn view() -> View {
    let options: &[&str] = if rustix::process::geteuid().is_root() { &["--allow-other"] } else { &[] };
    Trees::for_others(&["a", "plain"]).mount(&["a"], options)
}

const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Runs pjdfstest in a directory. `second` lies on another file system.
fn pjdfstest(dir: &Path, second: &Path) -> Verdicts {
    let configuration = second.join("pjdfstest.toml");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let mut command = Command::new(suite("pjdfstest"));
    command.arg("-c").arg(&configuration).arg("-p").arg(dir).arg("-s").arg(second);
    step(format!("pjdfstest in {}", dir.display()));
    // It exits with an error when a case fails, also on the plain directory: the verdicts count.
    let ran = run(100, &command);
    let verdicts: Verdicts = ran
        .out
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(case, verdict)| (case.to_owned(), verdict.trim().to_owned()))
        .filter(|(case, verdict)| case.contains("::") && ["ok", "FAILED", "skipped"].contains(&verdict.as_str()))
        .collect();
    assert!(verdicts.len() > 300, "pjdfstest ended early: {}{}", ran.out, ran.err);
    verdicts
}

fn count(verdicts: &Verdicts, verdict: &str) -> usize {
    verdicts.values().filter(|said| *said == verdict).count()
}

/// Runs it in the plain directory and in the view, prints the table, and returns the cases that the view does not pass
/// though the directory does.
fn difference() -> Vec<String> {
    let view = view();
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let plain = pjdfstest(&view.site.native("plain"), other.path());
    let seen = pjdfstest(&view.site.view("a"), other.path());
    for (name, verdicts) in [("plain", &plain), ("view", &seen)] {
        let figures = ["ok", "FAILED", "skipped"].map(|verdict| count(verdicts, verdict));
        println!("pjdfstest {name}: {} ok, {} failed, {} skipped", figures[0], figures[1], figures[2]);
    }
    let lost = plain.iter().filter(|(case, said)| *said == "ok" && seen.get(*case).is_none_or(|seen| seen != "ok"));
    lost.map(|(case, _)| case.clone()).collect()
}

/// The C library knows the link limit of a file system by its type, and not that of FUSE, so the suite cannot ask for it.
const UNKNOWN_LIMIT: &str = "link::link_count_max";

fn conforms() {
    let lost = difference();
    let devices = lost.iter().filter(|case| case.ends_with("::block") || case.ends_with("::char")).count();
    println!("lost by the view: {} of device nodes, which it refuses to make", devices);
    let others: Vec<_> = lost.iter().filter(|case| !case.ends_with("::block") && !case.ends_with("::char")).collect();
    assert_eq!(others, [UNKNOWN_LIMIT]);
}

const EXERCISE: &str = r"
flen = 1048576
[opsize]
max = 131072
min = 0
align = 1
[weights]
close_open = 5
invalidate = 3
truncate = 10
fsync = 2
fdatasync = 2
read = 20
write = 20
mapread = 20
mapwrite = 20
sendfile = 5
posix_fallocate = 5
punch_hole = 5
copy_file_range = 10
posix_fadvise = 1
";

/// Random reads, writes, maps, truncations, holes and copies of one file, each checked against what must be there.
fn exercised() {
    let view = view();
    let configuration = view.site.native("plain").join("fsx.toml");
    fs::write(&configuration, EXERCISE).unwrap();
    for seed in ["1", "2", "3"] {
        let mut fsx = Command::new(suite("fsx"));
        fsx.args(["-q", "-N", "8000", "-S", seed, "-f"]).arg(&configuration);
        fsx.arg("-P").arg(view.site.native("plain")).arg(view.site.view("a").join(seed));
        step(format!("fsx with seed {seed}"));
        run(60, &fsx).ok();
    }
}

mod root {
    #[test]
    fn conforms() {
        super::as_root(super::conforms);
    }

    #[test]
    fn exercised() {
        super::as_root(super::exercised);
    }
}

mod user {
    use super::{SUITES, as_user_with, staged};

    #[test]
    fn conforms() {
        as_user_with("user::conforms", super::conforms, &[(SUITES, staged().path())]);
    }

    #[test]
    fn exercised() {
        as_user_with("user::exercised", super::exercised, &[(SUITES, staged().path())]);
    }
}
