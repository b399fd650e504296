//! The only place with raw system calls and `unsafe`: descriptors go in as `AsFd` and come out as `OwnedFd`.

pub mod anchor;

use serde::Serialize;

/// What makes two descriptors the same object: mount, device and inode number (`statx(2)`, `STATX_MNT_ID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ObjectId {
    /// The mount the object was reached through.
    pub mnt: u64,
    /// Device number, as `makedev(3)` packs it.
    pub dev: u64,
    /// Inode number on that device.
    pub ino: u64,
}
