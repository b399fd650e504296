use std::os::fd::AsFd;

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use rustix::fs::{AtFlags, FileType, StatVfs, Statx, StatxAttributes, StatxFlags};
use rustix::io;
use serde::Serialize;

/// What makes two descriptors the same object: mount, device and inode number (`statx(2)`, `STATX_MNT_ID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ObjectId {
    /// The mount the object was reached through; 0 where the kernel does not say (before Linux 5.8).
    pub mnt: u64,
    /// Device number, as `makedev(3)` packs it.
    pub dev: u64,
    /// Inode number on that device.
    pub ino: u64,
}

/// What an object is (`inode(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A Unix-domain socket.
    Socket,
    /// A block device; never opened.
    BlockDevice,
    /// A character device; never opened.
    CharDevice,
}

impl Kind {
    /// The kind in the type bits of a mode; anything unknown counts as a device, which is never opened.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        Self::from_file_type(FileType::from_raw_mode(mode))
    }

    pub(super) fn from_file_type(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::BlockDevice => Self::BlockDevice,
            _ => Self::CharDevice,
        }
    }

    /// Block and character devices.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::BlockDevice | Self::CharDevice)
    }
}

/// A moment: seconds and nanoseconds since the epoch; seconds may be negative.
pub type Moment = (i64, u32);

/// When an object was made, to be compared only: two objects that had one inode number in turn differ in it, where the
/// file system keeps it at all (`statx(2)`, `STATX_BTIME`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth(u64);

impl Birth {
    /// The file system does not keep it.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// Seconds above 30 bits of nanoseconds: exact until the year 2514.
    const fn at((secs, nanos): Moment) -> Self {
        Self((secs.cast_unsigned() << 30) | (nanos as u64 & ((1 << 30) - 1)))
    }
}

/// What tells that file data may have changed: the three things a cached page is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    size: u64,
    mtime: Moment,
    ctime: Moment,
}

/// Attributes of an object, from one `statx(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Which object.
    pub id: ObjectId,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits.
    pub perm: u16,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as the kernel encodes it for user space.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Moment,
    /// Last change of data.
    pub mtime: Moment,
    /// Last change of the inode.
    pub ctime: Moment,
    /// Birth, where the file system keeps it.
    pub birth: Birth,
    /// It may not be written, or only at its end, whatever its mode says (`STATX_ATTR_IMMUTABLE`, `STATX_ATTR_APPEND`).
    pub fixed: bool,
}

impl Stat {
    /// Attributes that say nothing but what kind of object it is.
    pub(crate) const fn unknown(kind: Kind) -> Self {
        Self {
            id: ObjectId { mnt: 0, dev: 0, ino: 0 },
            kind,
            perm: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: (0, 0),
            mtime: (0, 0),
            ctime: (0, 0),
            birth: Birth::UNKNOWN,
            fixed: false,
        }
    }

    /// The version of the file's data.
    #[must_use]
    pub const fn version(&self) -> Version {
        Version { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

/// Attributes of the object behind a descriptor (`O_PATH` is enough).
pub(crate) fn stat(fd: impl AsFd) -> io::Result<Stat> {
    statx(fd, AtFlags::empty())
}

/// Like [`stat`], from what the kernel has at hand: never waits for another file system, our own included.
pub(crate) fn stat_without_sync(fd: impl AsFd) -> io::Result<Stat> {
    statx(fd, AtFlags::STATX_DONT_SYNC)
}

fn statx(fd: impl AsFd, sync: AtFlags) -> io::Result<Stat> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | sync;
    Ok(from_statx(&rustix::fs::statx(fd, c"", flags, wanted)?))
}

fn from_statx(raw: &Statx) -> Stat {
    let moment = |t: &rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
    let has = |flag: StatxFlags| StatxFlags::from_bits_retain(raw.stx_mask).contains(flag);
    Stat {
        id: ObjectId {
            mnt: if has(StatxFlags::MNT_ID) { raw.stx_mnt_id } else { 0 },
            dev: rustix::fs::makedev(raw.stx_dev_major, raw.stx_dev_minor),
            ino: raw.stx_ino,
        },
        kind: Kind::from_mode(u32::from(raw.stx_mode)),
        perm: raw.stx_mode & 0o7777,
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        // The FUSE protocol carries 32 bits in the kernel's "new" encoding (`new_encode_dev`, linux/kdev_t.h).
        rdev: (raw.stx_rdev_minor & 0xff) | (raw.stx_rdev_major << 8) | ((raw.stx_rdev_minor & !0xff) << 12),
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        blksize: raw.stx_blksize,
        atime: moment(&raw.stx_atime),
        mtime: moment(&raw.stx_mtime),
        ctime: moment(&raw.stx_ctime),
        birth: has(StatxFlags::BTIME)
            .then(|| moment(&raw.stx_btime))
            .filter(|_| !births_change(raw.stx_mnt_id))
            .map_or(Birth::UNKNOWN, Birth::at),
        fixed: raw.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND),
    }
}

/// Mounts on which a file's birth is not its own: an overlay tells that of the copy it has made by now.
static BIRTHS_CHANGE: RwLock<Vec<u64>> = RwLock::new(Vec::new());
static ANY_CHANGE: AtomicBool = AtomicBool::new(false);

fn births_change(mount: u64) -> bool {
    ANY_CHANGE.load(Ordering::Relaxed) && BIRTHS_CHANGE.read().contains(&mount)
}

/// Whether an object lies on an overlay, where the first change of a file makes another file of it below
/// (`statfs(2)`, `OVERLAYFS_SUPER_MAGIC`).
pub(crate) fn is_overlay(fd: impl AsFd) -> io::Result<bool> {
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the type differs by architecture")]
    Ok(rustix::fs::fstatfs(fd)?.f_type as u64 == OVERLAYFS_SUPER_MAGIC)
}

/// Learns what kind of mount an object lies on, before objects of that mount are compared by their birth.
pub(crate) fn learn_mount(fd: impl AsFd) -> io::Result<()> {
    let (overlay, mount) = (is_overlay(&fd)?, stat_without_sync(&fd)?.id.mnt);
    if overlay || ANY_CHANGE.load(Ordering::Relaxed) {
        let mut mounts = BIRTHS_CHANGE.write();
        mounts.retain(|known| *known != mount);
        if overlay {
            mounts.push(mount);
            ANY_CHANGE.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Figures of the file system an object lies on (`fstatvfs(3)`).
pub(crate) fn file_system(fd: impl AsFd) -> io::Result<StatVfs> {
    rustix::fs::fstatvfs(fd)
}
