//! Acting with a caller's credentials, for one thread and one operation.

use std::cell::Cell;

use rustix::fs::Mode;
use rustix::io;
use rustix::process::Gid;

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process id in the daemon's pid namespace; 0 when it has none there.
    pub pid: u32,
}

/// This thread, as the kernel names it in a request that the thread causes (`gettid(2)`).
pub(crate) fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

const OWN_MASK: Mode = Mode::RWXG.union(Mode::RWXO);

/// The thread has a caller's file-system ids, groups and umask until this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct ActAs {
    masked: bool,
    switched: bool,
    // Credentials belong to the thread that changed them.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Takes on the caller's ids and supplementary groups where the daemon is root and the caller is not the daemon's own
/// user, and the caller's umask always, so that the backing file system applies it exactly once and lets a default ACL
/// win (`umask(2)`, `acl(5)`).
///
/// An ordinary user's daemon has no other ids to give: it acts as itself, and only its own user reaches the mount.
pub(crate) fn act_as(caller: &Caller, umask: Option<u32>) -> io::Result<ActAs> {
    own_umask()?;
    let masked = umask.is_some();
    if let Some(mask) = umask {
        rustix::process::umask(Mode::from_raw_mode(mask & 0o777));
    }
    let root = rustix::process::geteuid().is_root();
    if !root || (caller.uid == 0 && caller.gid == 0) {
        return Ok(ActAs { masked, switched: false, _not_send: std::marker::PhantomData });
    }
    let acting = ActAs { masked, switched: true, _not_send: std::marker::PhantomData };
    rustix::thread::set_thread_groups(&groups_of(caller))?;
    set_ids(caller.uid, caller.gid)?;
    Ok(acting)
}

impl Drop for ActAs {
    fn drop(&mut self) {
        if self.masked {
            // What the daemon makes on its own account, a new file of the record perhaps, is its user's alone.
            rustix::process::umask(OWN_MASK);
        }
        if self.switched {
            // A thread that kept a caller's ids would act for the next caller with them: it must not go on.
            if set_ids(0, 0).is_err() || rustix::thread::set_thread_groups(&[]).is_err() {
                std::process::abort();
            }
        }
    }
}

/// `setfsuid(2)` and `setfsgid(2)` report nothing, so each is asked again with an id that cannot be set.
#[allow(unsafe_code)]
fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: both calls take plain numbers and change only this thread's credentials. The group goes first: giving up
    // uid 0 gives up the capability to change it; on the way back the user goes first for the same reason.
    let taken = unsafe {
        if uid == 0 {
            libc::setfsuid(uid);
        }
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(u32::MAX) as u32, libc::setfsgid(u32::MAX) as u32)
    };
    if taken == (uid, gid) { Ok(()) } else { Err(io::Errno::PERM) }
}

/// The caller's supplementary groups (`proc_pid_status(5)`). FUSE does not send them; a process that has gone since has
/// none, which refuses more, never less.
fn groups_of(caller: &Caller) -> Vec<Gid> {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", caller.pid)) else {
        return Vec::new();
    };
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or("");
    line.split_whitespace().filter_map(|gid| gid.parse().ok()).map(Gid::from_raw).collect()
}

/// Whether the caller may know of `trusted.` attributes (`xattr(7)`: `CAP_SYS_ADMIN`, in the initial user namespace). The
/// kernel itself guards their values, but not their names in a list. A process that has gone since may not.
pub(crate) fn may_list_trusted(caller: &Caller) -> bool {
    /// `CAP_SYS_ADMIN` (`linux/capability.h`).
    const SYS_ADMIN: u64 = 1 << 21;
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let pid = caller.pid.to_string();
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    // Capabilities are those of a namespace; in one of its own everybody has all of them.
    effective & SYS_ADMIN != 0 && namespace(&pid).is_some_and(|theirs| namespace("self") == Some(theirs))
}

/// Gives this thread a umask of its own: it is a property of the process otherwise (`unshare(2)`, `CLONE_FS`).
#[allow(unsafe_code)]
fn own_umask() -> io::Result<()> {
    thread_local!(static OWN: Cell<bool> = const { Cell::new(false) });
    if OWN.get() {
        return Ok(());
    }
    // SAFETY: CLONE_FS takes no pointer; it only stops sharing umask, working directory and root with other threads.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Errno::from_raw_os_error(
            std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM),
        ));
    }
    OWN.set(true);
    Ok(())
}
