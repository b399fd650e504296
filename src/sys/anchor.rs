//! The few calls that turn a path into an anchor: each opens with `O_PATH`, which reads nothing and wakes nobody.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, Result};

use super::ObjectId;
use crate::resolve::Name;

/// What an object is and of which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its identity.
    pub id: ObjectId,
    /// Its type, as `stat(2)` tells it.
    pub file_type: FileType,
}

/// Opens `path`, following symbolic links but none of procfs's magic ones (`openat2(2)`, `RESOLVE_NO_MAGICLINKS`).
///
/// # Errors
/// As `openat2(2)`; `ELOOP` for a magic link too.
pub fn follow(path: &Path) -> Result<OwnedFd> {
    rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// Opens `path` on the condition that no component of it is a symbolic link.
///
/// # Errors
/// As `openat2(2)`; `ELOOP` if there is a link.
pub fn exact(path: &Path) -> Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens `name` in `dir`; `name` must not be a symbolic link.
///
/// # Errors
/// As `openat2(2)`; `ELOOP` if it is a link.
pub fn child(dir: impl AsFd, name: &Name) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, name.as_c_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Identity and type of an open object, from what the kernel has at hand: a remote server, or a file system of this very
/// process, is not asked (`statx(2)`, `AT_STATX_DONT_SYNC`).
///
/// # Errors
/// As `statx(2)`; `EOPNOTSUPP` from a kernel older than 5.8, which cannot tell mounts apart.
pub fn facts(fd: impl AsFd) -> Result<Facts> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(fd, c"", flags, wanted)?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(Facts {
        id: ObjectId {
            mnt: stat.stx_mnt_id,
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
        },
        file_type: FileType::from_raw_mode(stat.stx_mode.into()),
    })
}

/// The path of an open object now, free of symbolic links, from `/proc/self/fd` (`proc_pid_fd(5)`). Text, not authority:
/// a deleted object's ends in ` (deleted)`, so whoever trusts it opens it again with [`exact`] and compares.
///
/// # Errors
/// As `readlink(2)`; `ENOENT` if the object has no absolute path in this mount namespace.
pub fn path_of(fd: impl AsFd) -> Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let path = PathBuf::from(OsString::from_vec(rustix::fs::readlink(link, Vec::new())?.into_bytes()));
    if path.is_absolute() { Ok(path) } else { Err(Errno::NOENT) }
}

/// Whether the object lives on procfs (`statfs(2)`, `PROC_SUPER_MAGIC`).
///
/// # Errors
/// As `fstatfs(2)`.
pub fn on_procfs(fd: impl AsFd) -> Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type == rustix::fs::PROC_SUPER_MAGIC)
}
