//! The mount table, and how a mount of ours is ended from outside its daemon. No mount is stat'ed here but by a thread that
//! can be left behind: one whose daemon hangs would take us with it.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rootsfs::sys::mount;

/// The mountpoints of all rootsfs mounts in this mount namespace, in mount order.
pub(crate) fn ours() -> io::Result<Vec<PathBuf>> {
    Ok(mount::rootsfs_mounts()?.into_iter().map(|mount| mount.mountpoint).collect())
}

/// Whether the table says that a rootsfs mount is at `mountpoint`.
pub(crate) fn is_ours(mountpoint: &Path) -> bool {
    ours().is_ok_and(|mounts| mounts.iter().any(|mount| mount == mountpoint))
}

/// The mountpoint's name in the mount table, for a path that people wrote. Only the parent is resolved; a last
/// component that is a symbolic link is followed by its text.
pub(crate) fn canonical(mountpoint: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(mountpoint) else { return mountpoint.to_owned() };
    let named = |path: &Path| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            parent.canonicalize().map_or_else(|_| path.to_owned(), |parent| parent.join(name))
        }
        // `/`, or a path that ends in `..`, which resolving cannot avoid entering.
        _ => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
    };
    let path = named(&path);
    // readlink(2) of a directory is EINVAL before the file system is asked.
    match (std::fs::read_link(&path), path.parent()) {
        (Ok(target), Some(parent)) => named(&parent.join(target)),
        _ => path,
    }
}

/// Ends a rootsfs mount whatever uses it. Refuses any other mount.
pub(crate) fn end(mountpoint: &Path) -> anyhow::Result<()> {
    if !is_ours(mountpoint) {
        bail!("{} is not a rootsfs mount", mountpoint.display());
    }
    match mount::unmount(mountpoint) {
        // Perhaps somebody else was faster.
        Err(error) if is_ours(mountpoint) => {
            Err(error).with_context(|| format!("cannot unmount {}", mountpoint.display()))
        }
        _ => Ok(()),
    }
}

/// How long a mount may take to answer before it counts as alive, if stuck.
const ANSWER: Duration = Duration::from_secs(2);

/// Whether the daemon of the mount at `mountpoint` is gone: the kernel then answers ENOTCONN without asking anybody. One
/// that is stopped or stuck answers nothing, so the question is put from a thread that can be left behind.
pub(crate) fn is_dead(mountpoint: &Path) -> bool {
    let (sender, answer) = std::sync::mpsc::channel();
    let path = mountpoint.to_owned();
    let asked = std::thread::Builder::new().name("mount-probe".into()).spawn(move || {
        let dead = std::fs::metadata(path).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
        // Nobody waits for a late answer.
        let _ = sender.send(dead);
    });
    asked.is_ok() && answer.recv_timeout(ANSWER).unwrap_or(false)
}

/// A directory to mount on. Dropping it removes the directory if it was made for this.
#[derive(Debug)]
pub(crate) struct Mountpoint {
    pub(crate) path: PathBuf,
    made: bool,
}

impl Mountpoint {
    /// Makes the directory if it is missing, and takes away a dead mount of an earlier run.
    ///
    /// # Errors
    /// A sentence: it is not a directory, not empty, in use by another view, or cannot be made.
    pub(crate) fn prepare(path: &Path) -> anyhow::Result<Self> {
        let path = canonical(path);
        if is_ours(&path) {
            if !is_dead(&path) {
                bail!("{} is a live view already; end it with: rootsfs unmount {}", path.display(), shell(&path));
            }
            end(&path)?;
            tracing::warn!(mountpoint = %path.display(), "took away the dead mount of an earlier run");
        }
        let made = match std::fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => {
                let parent = path.parent().unwrap_or(&path);
                let mend = if error.kind() == io::ErrorKind::NotFound {
                    format!("make its directory first: mkdir -p {}", shell(parent))
                } else {
                    format!("name one in a directory that you may write to, not in {}", parent.display())
                };
                return Err(error).context(format!("cannot make the mountpoint {}; {mend}", path.display()));
            }
        };
        let path = path.canonicalize().with_context(|| format!("cannot use {}", path.display()))?;
        let this = Self { path, made };
        let mut entries = std::fs::read_dir(&this.path)
            .with_context(|| format!("the mountpoint {} must be an empty directory", this.path.display()))?;
        if entries.next().is_some() {
            bail!("the mountpoint {} is not empty; name an empty or a new directory", this.path.display());
        }
        Ok(this)
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        if self.made {
            // Not empty or still mounted: then it is somebody's, and stays.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// A path as a shell takes it.
pub(crate) fn shell(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:,@".contains(byte);
    if path.as_os_str().as_bytes().iter().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_are_made_checked_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("view");
        let made = Mountpoint::prepare(&path).unwrap();
        assert!(path.is_dir());
        drop(made);
        assert!(!path.exists());
        std::fs::create_dir(&path).unwrap();
        drop(Mountpoint::prepare(&path).unwrap());
        assert!(path.is_dir(), "not made by us, so not removed");
        std::fs::write(path.join("x"), "").unwrap();
        assert!(Mountpoint::prepare(&path).unwrap_err().to_string().contains("not empty"));
        assert!(Mountpoint::prepare(&path.join("x")).is_err());
        assert!(Mountpoint::prepare(Path::new("/proc/none")).is_err());
    }

    #[test]
    fn only_our_mounts_are_ended() {
        assert!(end(Path::new("/proc")).unwrap_err().to_string().contains("not a rootsfs mount"));
    }

    #[test]
    fn links_to_a_mountpoint_are_followed_by_their_text() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("view", top.join("link")).unwrap();
        assert_eq!(canonical(&top.join("link")), top.join("view"));
        assert_eq!(shell(Path::new("/a b'c")), r"'/a b'\''c'");
    }
}
