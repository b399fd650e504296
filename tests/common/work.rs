//! Real programs at work, in an environment that suits every user.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use rustix::process::geteuid;

use super::{Site, View, run, step, within};

/// How long one step of a real program may take: the machine may be busy with other tests.
pub const LONG: Duration = Duration::from_secs(100);

/// [`View::within`] for steps that take up to [`LONG`].
#[track_caller]
pub fn at_work<T: Send + 'static>(view: &View, name: &str, body: impl FnOnce(Site) -> T + Send + 'static) -> T {
    let site = view.site.clone();
    within(LONG, name, move || body(site))
}

/// Runs a shell script in `dir` up to its first failure, which is a panic, and gives what it printed. `git` has a name to
/// commit under; `cargo` works for this user.
#[track_caller]
pub fn work(dir: &Path, script: &str) -> String {
    step(format!("{script} in {}", dir.display()));
    let mut sh = Command::new("sh");
    sh.args(["-ec", &format!("cd \"$0\"\n{script}")]).arg(dir).env_remove("CARGO_TARGET_DIR");
    sh.env("LC_ALL", "C.UTF-8").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        sh.env(format!("GIT_{who}_NAME"), "t").env(format!("GIT_{who}_EMAIL"), "t@example.org");
    }
    // A user cannot reach a toolchain in root's home; the harness then says where a copy is.
    if let Some(toolchain) = std::env::var("ROOTSFS_TEST_TOOLCHAIN").ok().filter(|_| !geteuid().is_root()) {
        sh.env("PATH", format!("{toolchain}/bin:{}", std::env::var("PATH").unwrap()));
        sh.env("RUSTC", format!("{toolchain}/bin/rustc"));
    }
    run(u32::try_from(LONG.as_secs()).unwrap() - 5, &sh).ok()
}

/// Where `tests/install` puts what comes from the registries of npm and PyPI, after running it once.
#[track_caller]
pub fn installed() -> PathBuf {
    static ONCE: Once = Once::new();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    ONCE.call_once(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/install");
        let ran = run(500, Command::new(script).env("CARGO_TARGET_DIR", target));
        assert_eq!(ran.code, 0, "{}", ran.err);
    });
    target.join("clients")
}
