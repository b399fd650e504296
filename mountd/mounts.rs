//! The mount table, and how a mount of ours is ended from outside its daemon. No mount is ever stat'ed here: one whose
//! daemon hangs would take us with it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rootsfs::sys::mount;

/// The type of our mounts in the mount table. fuser mounts as root without the subtype: then the source tells.
const FS_TYPE: &[u8] = b"fuse.rootsfs";
const BARE_TYPE: &[u8] = b"fuse";
const SOURCE: &[u8] = b"rootsfs";

/// The mountpoints of all rootsfs mounts in this mount namespace, in mount order.
pub(crate) fn ours() -> io::Result<Vec<PathBuf>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Whether the table says that a rootsfs mount is at `mountpoint`.
pub(crate) fn is_ours(mountpoint: &Path) -> bool {
    ours().is_ok_and(|mounts| mounts.iter().any(|mount| mount == mountpoint))
}

/// proc_pid_mountinfo(5): the fifth field is the mountpoint; after a lone `-` come the type and the source.
fn parse(table: &[u8]) -> Vec<PathBuf> {
    let ours = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let mountpoint = fields.nth(4)?;
        fields.find(|field| *field == b"-")?;
        let (kind, source) = (fields.next()?, fields.next()?);
        (kind == FS_TYPE || (kind == BARE_TYPE && source == SOURCE)).then(|| PathBuf::from(unescape(mountpoint)))
    };
    table.split(|byte| *byte == b'\n').filter_map(ours).collect()
}

/// Undoes the kernel's `\ooo` for blanks, tabs, newlines and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(decoded) => {
                out.push(decoded);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
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

/// Whether the daemon of the mount at `mountpoint` is gone: the kernel then answers ENOTCONN without asking anybody.
pub(crate) fn is_dead(mountpoint: &Path) -> bool {
    std::fs::metadata(mountpoint).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
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
    fn the_mount_table_is_read_with_its_escapes() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:50 / /tmp/a\\040b\\134c rw,nosuid - fuse.rootsfs rootsfs rw,user_id=0\n\
            41 22 0:51 / /tmp/plain rw shared:5 master:2 - fuse.rootsfs rootsfs rw\n\
            42 22 0:52 / /tmp/other rw - fuse.sshfs rootsfs rw\n\
            44 22 0:54 / /tmp/by-root rw - fuse rootsfs rw,user_id=0\n\
            45 22 0:55 / /tmp/another rw - fuse portal rw,user_id=0\n\
            43 22 0:53 / /tmp/\\04 rw - fuse.rootsfs x rw\n\
            garbage\n";
        let expected: Vec<PathBuf> =
            vec!["/tmp/a b\\c".into(), "/tmp/plain".into(), "/tmp/by-root".into(), "/tmp/\\04".into()];
        assert_eq!(parse(table), expected);
    }

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
