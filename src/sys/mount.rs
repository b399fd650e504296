//! Mount points.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// An `O_PATH` descriptor of a directory on the host, by a path of the operator's.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// The minor number of a device: for a FUSE mount, the number of its connection.
pub(crate) fn minor(dev: u64) -> u64 {
    u64::from(rustix::fs::minor(dev))
}

/// Unmounts, lazily when the mount is busy. An ordinary user goes through `fusermount3`.
///
/// # Errors
/// What the last step said: the kernel's error, or that of `fusermount3`.
pub fn unmount(mountpoint: &Path) -> io::Result<()> {
    match rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => Ok(rustix::mount::unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?),
        Err(Errno::PERM) => unmount_by_helper(mountpoint),
        other => Ok(other?),
    }
}

/// Where the helper is looked for when it is not in `PATH`: fuser finds it there to mount, so unmounting must too.
const HELPER: [&str; 2] = ["fusermount3", "/bin/fusermount3"];

fn unmount_by_helper(mountpoint: &Path) -> io::Result<()> {
    let run =
        |helper| Command::new(helper).args(["-u", "-q", "-z", "--"]).arg(mountpoint).stdin(Stdio::null()).output();
    let [in_path, elsewhere] = HELPER;
    let output = run(in_path)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { run(elsewhere) } else { Err(error) })
        .map_err(|error| io::Error::new(error.kind(), format!("fusermount3 (package fuse3): {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("fusermount3: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Whether the kernel has `openat2(2)` with the flags that the resolver uses (Linux 5.6).
///
/// # Errors
/// `ENOSYS` on an older kernel, or what a seccomp filter answers in its place.
pub fn probe_openat2() -> io::Result<()> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    Ok(())
}
