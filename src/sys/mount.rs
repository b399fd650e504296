//! Mount points.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// A rootsfs mount in the mount table (`proc_pid_mountinfo(5)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootsfsMount {
    /// The mount's id, as `statx(2)` gives it in `stx_mnt_id`.
    pub id: u64,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
}

/// All rootsfs mounts of this mount namespace, in mount order. The table is read; no mount is asked anything.
///
/// # Errors
/// What reading `/proc/self/mountinfo` answered.
pub fn rootsfs_mounts() -> io::Result<Vec<RootsfsMount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Whether a mount is a rootsfs.
pub(super) fn is_rootsfs(id: u64) -> io::Result<bool> {
    Ok(rootsfs_mounts()?.iter().any(|mount| mount.id == id))
}

/// The first field is the id, the fifth the mountpoint; after a lone `-` come the type and the source.
fn parse(table: &[u8]) -> Vec<RootsfsMount> {
    let ours = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let mountpoint = fields.nth(3)?;
        fields.find(|field| *field == b"-")?;
        let (kind, source) = (fields.next()?, fields.next()?);
        // A kernel or helper that did not take the subtype leaves the source to tell.
        let ours = kind == b"fuse.rootsfs" || (kind == b"fuse" && source == b"rootsfs");
        ours.then(|| RootsfsMount { id, mountpoint: PathBuf::from(unescape(mountpoint)) })
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

/// Makes a mount follow no symbolic link (`MS_NOSYMFOLLOW`, Linux 5.10); a path that meets one is ELOOP, `readlink(2)` works.
///
/// EPERM for an ordinary user.
pub(crate) fn follow_no_links(mountpoint: &Path, read_only: bool) -> io::Result<()> {
    /// `linux/mount.h`; the libc crate does not have it.
    const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);
    // What the mount is otherwise stays only if it is said again (mount(2), MS_BIND with MS_REMOUNT).
    let kept = MountFlags::NOSUID | MountFlags::NODEV;
    let kept = if read_only { kept | MountFlags::RDONLY } else { kept };
    Ok(rustix::mount::mount_remount(mountpoint, MountFlags::BIND | kept | NOSYMFOLLOW, c"")?)
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
        let parsed: Vec<_> = parse(table).into_iter().map(|mount| mount.mountpoint).collect();
        assert_eq!(parsed, expected);
        assert_eq!(parse(table)[0].id, 40);
    }
}
