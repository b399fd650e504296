//! One component below a directory descriptor.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, Timestamps};
use rustix::io::{self, Errno};

use crate::resolve::Name;

/// How often a lookup that lost against a rename anywhere on the system is tried again (`openat2(2)`, `EAGAIN`).
const RENAME_RETRIES: u32 = 64;

/// Bytes of a path with its NUL (`limits.h`).
const PATH_MAX: usize = 4096;

/// Which mount points below a root may be entered. By default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Other file systems, but never one of rootsfs: its answer might wait for the very thread that asks.
    pub(crate) cross: bool,
}

/// What every step below a directory obeys.
fn beneath(mounts: Mounts) -> ResolveFlags {
    let flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if mounts.cross { flags } else { flags | ResolveFlags::NO_XDEV }
}

/// Refuses (EXDEV) what lies on another mount than the directory it was found from, if that mount is a rootsfs. The kernel
/// is asked for what it has at hand only, so that the question itself waits for nobody.
fn enter(dir: impl AsFd, found: OwnedFd, mounts: Mounts) -> io::Result<OwnedFd> {
    if mounts.cross {
        let (from, to) = (super::stat_without_sync(dir)?.id.mnt, super::stat_without_sync(&found)?.id.mnt);
        if from != to && super::mount::is_rootsfs(to).unwrap_or(true) {
            return Err(Errno::XDEV);
        }
        if from != to {
            super::learn_mount(&found)?;
        }
    }
    Ok(found)
}

fn retry<T>(mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..RENAME_RETRIES {
        match step() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    step()
}

/// Opens one name below a directory as an `O_PATH` descriptor; a symbolic link is opened itself.
///
/// EXDEV: the name is a mount point that `mounts` does not let in.
pub(crate) fn open_child(dir: impl AsFd, name: &Name, mounts: Mounts) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = retry(|| rustix::fs::openat2(&dir, name.as_c_str(), flags, Mode::empty(), beneath(mounts)))?;
    enter(dir, found, mounts)
}

/// Opens what several names in turn lead to below a directory: one call for each `PATH_MAX` bytes of them.
pub(crate) fn open_below(dir: impl AsFd, names: &[Name], mounts: Mounts) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut below: Option<OwnedFd> = None;
    let mut rest = names;
    loop {
        let mut length = 0;
        let fits = |name: &&Name| {
            length += name.as_bytes().len() + 1;
            length < PATH_MAX
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
        let path = now.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/');
        let path = if path.is_empty() { b".".to_vec() } else { path };
        let from = below.as_ref().map_or_else(|| dir.as_fd(), AsFd::as_fd);
        let opened = retry(|| rustix::fs::openat2(from, path.as_slice(), flags, Mode::empty(), beneath(mounts)))?;
        let opened = enter(from, opened, mounts)?;
        if later.is_empty() {
            return Ok(opened);
        }
        below = Some(opened);
        rest = later;
    }
}

/// Looks a name up, for the sake of the lookup.
pub(crate) fn look_up(dir: impl AsFd, name: &Name) -> io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(dir, name.as_c_str(), flags, rustix::fs::StatxFlags::empty()).map(drop)
}

/// The directory above a directory, on the same mount unless others may be entered.
pub(crate) fn open_parent(dir: impl AsFd, mounts: Mounts) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = if mounts.cross { ResolveFlags::NO_MAGICLINKS } else { ResolveFlags::NO_XDEV };
    retry(|| rustix::fs::openat2(&dir, c"..", flags, Mode::empty(), resolve))
}

/// Creates a file that did not exist (EEXIST otherwise) and opens it.
pub(crate) fn create_child(dir: impl AsFd, name: &Name, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    retry(|| {
        rustix::fs::openat2(
            &dir,
            name.as_c_str(),
            flags,
            Mode::from_raw_mode(mode & 0o7777),
            beneath(Mounts::default()),
        )
    })
}

pub(crate) fn make_dir(dir: impl AsFd, name: &Name, mode: u32) -> io::Result<()> {
    rustix::fs::mkdirat(dir, name.as_c_str(), Mode::from_raw_mode(mode & 0o7777))
}

/// Makes a regular file, FIFO or socket; the caller has refused devices.
pub(crate) fn make_node(dir: impl AsFd, name: &Name, mode: u32) -> io::Result<()> {
    let kind = rustix::fs::FileType::from_raw_mode(mode);
    rustix::fs::mknodat(dir, name.as_c_str(), kind, Mode::from_raw_mode(mode & 0o7777), 0)
}

pub(crate) fn make_symlink(target: &CStr, dir: impl AsFd, name: &Name) -> io::Result<()> {
    rustix::fs::symlinkat(target, dir, name.as_c_str())
}

pub(crate) fn unlink_child(dir: &OwnedFd, name: &Name) -> io::Result<()> {
    rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::empty())
}

pub(crate) fn remove_dir(dir: &OwnedFd, name: &Name) -> io::Result<()> {
    rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::REMOVEDIR)
}

pub(crate) fn rename_child(from: (impl AsFd, &Name), to: (impl AsFd, &Name), flags: RenameFlags) -> io::Result<()> {
    rustix::fs::renameat_with(from.0, from.1.as_c_str(), to.0, to.1.as_c_str(), flags)
}

/// Makes another name for the object behind an `O_PATH` descriptor. It goes through the descriptor's magic link, because
/// `AT_EMPTY_PATH` asks for a capability that an ordinary user lacks.
pub(crate) fn link_object(object: impl AsFd, dir: impl AsFd, name: &Name) -> io::Result<()> {
    let magic = Magic::of(&object);
    rustix::fs::linkat(proc_self_fd()?, magic.as_c_str(), dir, name.as_c_str(), AtFlags::SYMLINK_FOLLOW)
}

/// The text of the symbolic link behind an `O_PATH` descriptor.
pub(crate) fn link_text(link: impl AsFd) -> io::Result<Vec<u8>> {
    rustix::fs::readlinkat(link, c"", Vec::with_capacity(256)).map(std::ffi::CString::into_bytes)
}

/// Opens the object behind an `O_PATH` descriptor for I/O: the same object, whatever its name means by now. The caller
/// has made sure that it is a regular file or a directory, so nothing here can block or act on a device.
pub(crate) fn reopen(object: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    let magic = Magic::of(&object);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::openat(proc_self_fd()?, magic.as_c_str(), flags, Mode::empty())
}

/// Whether [`reopen`] with these flags would be let in, as far as permissions go.
pub(crate) fn may_reopen(object: impl AsFd, flags: OFlags) -> io::Result<bool> {
    let magic = Magic::of(&object);
    let access = match flags & OFlags::RWMODE {
        OFlags::WRONLY => Access::WRITE_OK,
        OFlags::RDWR => Access::READ_OK | Access::WRITE_OK,
        _ => Access::READ_OK,
    };
    match rustix::fs::accessat(proc_self_fd()?, magic.as_c_str(), access, AtFlags::EACCESS) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Permissions keep this process from nothing, so that no change of a mode can.
pub(crate) fn may_open_anything() -> bool {
    rustix::process::geteuid().is_root()
}

/// An `O_PATH` descriptor of the object behind any descriptor.
pub(crate) fn path_of(object: impl AsFd) -> io::Result<OwnedFd> {
    reopen(object, OFlags::PATH)
}

pub(crate) fn set_mode(object: impl AsFd, mode: u32) -> io::Result<()> {
    let magic = Magic::of(&object);
    rustix::fs::chmodat(proc_self_fd()?, magic.as_c_str(), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
}

/// Cuts or extends the file behind an `O_PATH` descriptor, which `ftruncate(2)` does not take.
#[allow(unsafe_code)]
pub(crate) fn truncate_object(object: impl AsFd, size: u64) -> io::Result<()> {
    let path = Magic::of(object).path();
    let size = libc::off_t::try_from(size).map_err(|_| Errno::FBIG)?;
    // SAFETY: the path is a NUL-terminated string that lives until the call returns.
    if unsafe { libc::truncate(path.as_ptr(), size) } == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

pub(crate) fn set_owner(object: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let uid = uid.map(rustix::fs::Uid::from_raw);
    let gid = gid.map(rustix::fs::Gid::from_raw);
    rustix::fs::chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH)
}

pub(crate) fn set_times(object: impl AsFd, times: &Timestamps) -> io::Result<()> {
    rustix::fs::utimensat(object, c"", times, AtFlags::EMPTY_PATH)
}

/// `/proc/self/fd`, opened once, so that a later mount over `/proc` changes nothing.
pub(super) fn proc_self_fd() -> io::Result<BorrowedFd<'static>> {
    static DIRECTORY: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = DIRECTORY.get() {
        return Ok(fd.as_fd());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/self/fd", flags, Mode::empty())?;
    if !super::anchor::on_procfs(&fd)? {
        return Err(Errno::NOSYS);
    }
    Ok(DIRECTORY.get_or_init(|| fd).as_fd())
}

/// The decimal name of a descriptor in `/proc/self/fd`, without allocating.
pub(super) struct Magic {
    text: [u8; 12],
}

impl Magic {
    pub(super) fn of(fd: impl AsFd) -> Self {
        use std::io::Write;
        let mut text = [0; 12];
        // A descriptor is a non-negative int: at most ten digits, so a NUL always stays.
        let _ = write!(text.as_mut_slice(), "{}", fd.as_fd().as_raw_fd());
        Self { text }
    }

    /// The whole path, for calls that take no directory descriptor.
    pub(super) fn path(&self) -> CString {
        let path = [b"/proc/self/fd/", self.as_c_str().to_bytes()].concat();
        CString::new(path).unwrap_or_default()
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }
}
