//! `rootsfs doctor`: what this machine can do, what is missing, what that costs, and the command that mends it.

use std::fs::OpenOptions;
use std::path::PathBuf;

use rootsfs::sys::mount;
use rustix::process::Resource;
use serde::Serialize;

use crate::mounts;
use crate::mounts::shell;

/// Descriptors below which a large tree is served with misses.
const NOFILE_GOOD: u64 = 16_384;

/// One line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    what: &'static str,
    ok: bool,
    /// Without it nothing can be mounted.
    needed: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, ok: true, needed: false, found: found.into(), costs: None, mend: None }
    }

    fn missing(what: &'static str, found: impl Into<String>, costs: &'static str, mend: impl Into<String>) -> Self {
        Self { what, ok: false, needed: false, found: found.into(), costs: Some(costs), mend: Some(mend.into()) }
    }

    fn needed(self) -> Self {
        Self { needed: true, ..self }
    }

    /// Nothing can be mounted without this, and it is missing.
    pub(crate) fn blocks(&self) -> bool {
        self.needed && !self.ok
    }
}

/// Looks at everything.
pub(crate) fn examine() -> Vec<Finding> {
    let root = rustix::process::geteuid().is_root();
    [device(), helper(root), allow_other(root), kernel(), openat2(), descriptors()].into_iter().chain(stale()).collect()
}

/// The report for people.
pub(crate) fn report(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(|finding| {
            let verdict = if finding.ok { "ok" } else { "missing" };
            let costs = finding.costs.map(|costs| format!("\n         costs: {costs}")).unwrap_or_default();
            let mend = finding.mend.as_ref().map(|mend| format!("\n         mend:  {mend}")).unwrap_or_default();
            format!("{verdict:<7}  {}: {}{costs}{mend}\n", finding.what, finding.found)
        })
        .collect()
}

fn device() -> Finding {
    const WHAT: &str = "/dev/fuse";
    let costs = "nothing can be mounted";
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::ok(WHAT, "can be opened"),
        Err(error) => {
            let mend = match error.kind() {
                std::io::ErrorKind::NotFound => "modprobe fuse (in a container: docker run --device /dev/fuse)",
                std::io::ErrorKind::PermissionDenied => "chmod 666 /dev/fuse (in a container: --device /dev/fuse)",
                _ => "modprobe fuse (in a container: --device /dev/fuse --cap-add SYS_ADMIN)",
            };
            Finding::missing(WHAT, error.to_string(), costs, mend)
        }
    }
    .needed()
}

fn helper(root: bool) -> Finding {
    const WHAT: &str = "fusermount3";
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|directory| directory.join(WHAT)).find(|path| path.is_file()) {
        Some(path) => Finding::ok(WHAT, path.display().to_string()),
        None if root => Finding::ok(WHAT, "not installed; root mounts without it"),
        None => {
            Finding::missing(WHAT, "not in PATH", "an ordinary user cannot mount", "apt-get install fuse3").needed()
        }
    }
}

fn allow_other(root: bool) -> Finding {
    const WHAT: &str = "--allow-other";
    let set = std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
    match (set, root) {
        (true, _) => Finding::ok(WHAT, "user_allow_other is set in /etc/fuse.conf"),
        (false, true) => Finding::ok(WHAT, "root needs no permission for it"),
        (false, false) => Finding::missing(
            WHAT,
            "user_allow_other is not set in /etc/fuse.conf",
            "only you can enter your views",
            "echo user_allow_other | sudo tee -a /etc/fuse.conf",
        ),
    }
}

fn kernel() -> Finding {
    const WHAT: &str = "kernel";
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let fuse = std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|text| text.lines().any(|line| line.trim_start_matches("nodev").trim() == "fuse"));
    if fuse {
        Finding::ok(WHAT, format!("Linux {release} with FUSE"))
    } else {
        Finding::missing(WHAT, format!("Linux {release} without FUSE"), "nothing can be mounted", "modprobe fuse")
            .needed()
    }
}

fn openat2() -> Finding {
    const WHAT: &str = "openat2";
    match mount::probe_openat2() {
        Ok(()) => Finding::ok(WHAT, "works"),
        Err(error) => Finding::missing(
            WHAT,
            error.to_string(),
            "names cannot be resolved safely, so nothing is shown",
            "a kernel of 5.6 or newer, and a seccomp filter that lets openat2 pass",
        )
        .needed(),
    }
}

fn descriptors() -> Finding {
    const WHAT: &str = "open descriptors (RLIMIT_NOFILE)";
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let show = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), |value| value.to_string());
    let found = format!("soft {}, hard {}; rootsfs raises soft to hard", show(limit.current), show(limit.maximum));
    match limit.maximum {
        Some(hard) if hard < NOFILE_GOOD => Finding::missing(
            WHAT,
            found,
            "large trees are served with fewer cached objects",
            format!("ulimit -Hn {NOFILE_GOOD} (systemd: LimitNOFILE={NOFILE_GOOD})"),
        ),
        _ => Finding::ok(WHAT, found),
    }
}

/// Mounts whose daemon is gone.
fn stale() -> Vec<Finding> {
    const WHAT: &str = "mounts";
    let dead: Vec<PathBuf> = match mounts::ours() {
        Ok(ours) => ours.into_iter().filter(|path| mounts::is_dead(path)).collect(),
        Err(error) => return vec![Finding::missing(WHAT, error.to_string(), "views are not found", "mount /proc")],
    };
    if dead.is_empty() {
        return vec![Finding::ok(WHAT, "no dead view")];
    }
    dead.iter()
        .map(|path| {
            let mend = format!("rootsfs unmount {}", shell(path));
            Finding::missing(WHAT, format!("dead view at {}", path.display()), "every access to it fails", mend)
        })
        .collect()
}
