//! A Rust toolchain that the ordinary user can reach: root's home, where rustup puts one, is closed to others.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::run;

/// Copies a tree by hard links, or by contents where that cannot be (another file system).
#[track_caller]
pub fn link_tree(from: &Path, to: &Path) {
    if run(60, Command::new("cp").arg("-al").arg(from).arg(to)).code != 0 {
        let _ = fs::remove_dir_all(to);
        run(120, Command::new("cp").arg("-a").arg(from).arg(to)).ok();
    }
}

/// The directory whose `bin` has `cargo` and `rustc`: `ROOTSFS_TEST_TOOLCHAIN`, or one made once and kept, because hard links cost nothing.
pub fn toolchain() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        if let Some(given) = std::env::var_os("ROOTSFS_TEST_TOOLCHAIN") {
            return given.into();
        }
        let sysroot = run(20, Command::new("rustc").args(["--print", "sysroot"])).ok();
        let sysroot = Path::new(sysroot.trim());
        let name = run(20, Command::new("rustc").arg("-V")).ok().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let made = Path::new("/var/tmp").join(format!("rootsfs-toolchain-{}", name.trim_matches('-')));
        // Others can write in /var/tmp too.
        let ours = || fs::symlink_metadata(&made).is_ok_and(|data| data.is_dir() && data.uid() == 0);
        if !ours() {
            let stage = tempfile::Builder::new().prefix("rootsfs-toolchain-").tempdir_in("/var/tmp").unwrap();
            fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755)).unwrap();
            for part in ["bin", "lib"] {
                link_tree(&sysroot.join(part), &stage.path().join(part));
            }
            // Another test program may have been faster.
            if fs::rename(stage.path(), &made).is_ok() {
                let _ = stage.keep();
            }
            assert!(ours(), "{} is not a directory of root; remove it", made.display());
        }
        made
    })
}
