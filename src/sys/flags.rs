//! Inode flags: what `chattr(1)` and `lsattr(1)` speak of (`ioctl_iflags(2)`, `FS_IOC_FSGETXATTR`).

use std::os::fd::AsFd;

use rustix::fs::IFlags;
use rustix::io;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};

/// `struct fsxattr` of `linux/fs.h`, which nothing here looks into.
pub(crate) type ExtendedFlags = [u32; 7];

pub(crate) fn inode_flags(file: impl AsFd) -> io::Result<u32> {
    rustix::fs::ioctl_getflags(file).map(|flags| flags.bits())
}

pub(crate) fn set_inode_flags(file: impl AsFd, flags: u32) -> io::Result<()> {
    rustix::fs::ioctl_setflags(file, IFlags::from_bits_retain(flags))
}

#[allow(unsafe_code)]
pub(crate) fn extended_flags(file: impl AsFd) -> io::Result<ExtendedFlags> {
    // SAFETY: FS_IOC_FSGETXATTR writes one `struct fsxattr`: 28 bytes of integers, of which every pattern is valid.
    unsafe { ioctl(file, Getter::<{ opcode::read::<ExtendedFlags>(b'X', 31) }, ExtendedFlags>::new()) }
}

#[allow(unsafe_code)]
pub(crate) fn set_extended_flags(file: impl AsFd, flags: ExtendedFlags) -> io::Result<()> {
    // SAFETY: FS_IOC_FSSETXATTR reads one `struct fsxattr` and keeps no pointer to it.
    unsafe { ioctl(file, Setter::<{ opcode::write::<ExtendedFlags>(b'X', 32) }, ExtendedFlags>::new(flags)) }
}
