//! File systems of the tests' own.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{base, run};

/// A file system on a directory named `a`, unmounted on drop. Declare it before the view that shows it.
pub struct Mounted {
    dir: TempDir,
}

impl Mounted {
    /// What `mount` puts on an empty directory of its own.
    #[track_caller]
    pub fn by(mount: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::Builder::new().prefix("rootsfs-fs-").tempdir_in(base()).unwrap();
        let mounted = Self { dir };
        std::fs::create_dir(mounted.path()).unwrap();
        mount(&mounted.path());
        mounted
    }

    /// A fresh tmpfs; only root can.
    #[track_caller]
    pub fn tmpfs(options: &str) -> Self {
        Self::by(|point| {
            run(5, Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(point)).ok();
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("a")
    }

    /// As an argument.
    pub fn arg(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    /// Mounts it again with other options.
    #[track_caller]
    pub fn remount(&self, options: &str) {
        run(5, Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path())).ok();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

/// Detaches a mount of the tests' own, busy or not.
pub fn unmount(point: &Path) {
    let mut command = Command::new("timeout");
    command.arg("5");
    if rustix::process::geteuid().is_root() {
        command.args(["umount", "-l"]);
    } else {
        command.args(["fusermount3", "-uz"]);
    }
    drop(command.arg(point).output());
}
