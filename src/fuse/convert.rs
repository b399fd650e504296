//! Plain values of the view to and from fuser's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, Request, TimeOrNow};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use crate::sys::{Caller, Kind, Moment};
use crate::view::wire::{Attr, FlagsRequest, NodeId};

/// `_IOR('X', 31, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

pub(super) const fn node(ino: INodeNo) -> NodeId {
    NodeId::from_raw(ino.0)
}

pub(super) fn errno(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

pub(super) const fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::CharDevice => FileType::CharDevice,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    let stat = &attr.stat;
    FileAttr {
        ino: INodeNo(attr.node.raw()),
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.atime),
        mtime: system_time(stat.mtime),
        ctime: system_time(stat.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(stat.kind),
        perm: stat.perm,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        blksize: stat.blksize,
        flags: 0,
    }
}

fn system_time((secs, nanos): Moment) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let second = if secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|second| second.checked_add(Duration::from_nanos(u64::from(nanos)))).unwrap_or(UNIX_EPOCH)
}

/// The times of a setattr; None when it changes neither.
pub(super) fn times(atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>) -> Option<Timestamps> {
    if atime.is_none() && mtime.is_none() {
        return None;
    }
    Some(Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) })
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timespec { tv_sec: after.as_secs().cast_signed(), tv_nsec: i64::from(after.subsec_nanos()) },
            // Before the epoch fuser 0.18 subtracts the nanoseconds that the kernel means to be added; undone here.
            Err(before) => {
                let before = before.duration();
                Timespec { tv_sec: -before.as_secs().cast_signed(), tv_nsec: i64::from(before.subsec_nanos()) }
            }
        },
    }
}

/// The ioctls about inode flags (`linux/fs.h`). The kernel has taken them apart and sends the values, not pointers.
pub(super) fn flags_request(cmd: u32, data: &[u8]) -> Option<FlagsRequest> {
    let mut words = data.chunks_exact(4).filter_map(|word| word.try_into().ok()).map(u32::from_ne_bytes);
    match u64::from(cmd) {
        libc::FS_IOC_GETFLAGS => Some(FlagsRequest::Get),
        libc::FS_IOC_SETFLAGS => words.next().map(FlagsRequest::Set),
        FS_IOC_FSGETXATTR => Some(FlagsRequest::GetExtended),
        FS_IOC_FSSETXATTR => {
            let mut flags = [0; 7];
            flags.iter_mut().zip(words.by_ref()).for_each(|(flag, word)| *flag = word);
            (data.len() >= 28).then_some(FlagsRequest::SetExtended(flags))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch() {
        assert_eq!(system_time((-1, 0)), UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(system_time((-1, 250_000_000)), UNIX_EPOCH - Duration::from_millis(750));
        // The kernel's -2 s + 0.25 s arrives from fuser as the epoch less 2.25 s.
        let sent = timespec(Some(TimeOrNow::SpecificTime(UNIX_EPOCH - Duration::from_millis(2250))));
        assert_eq!((sent.tv_sec, sent.tv_nsec), (-2, 250_000_000));
    }
}
