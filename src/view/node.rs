use crate::roots::Instance;

/// The kernel's number for an inode of the view (`fuse_entry_out.nodeid`), and what `stat` shows as `st_ino`.
///
/// | bits | meaning |
/// | --- | --- |
/// | 40 to 62 | the root instance, from 1; it never repeats, so neither does a nodeid of a revoked tree |
/// | 0 to 39 | the backing inode number, or a stand-in for one that does not fit or lies on another device |
///
/// The number alone is enough to tell hard links of one root and to keep `st_ino` the same after the kernel forgot it.
/// Keeping the backing number in the low bits also keeps git's 32-bit stat cache valid on both sides of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u64);

const INODE_BITS: u32 = 40;

impl NodeId {
    /// The top directory (`FUSE_ROOT_ID`).
    pub(crate) const TOP: Self = Self(1);
    /// Backing inode numbers from here on get a stand-in; so do stand-ins start here.
    pub(crate) const STAND_INS: u64 = 1 << (INODE_BITS - 1);

    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// `low` is below 2^40.
    pub(crate) const fn new(instance: Instance, low: u64) -> Self {
        Self(((instance.0 as u64) << INODE_BITS) | (low & ((1 << INODE_BITS) - 1)))
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    pub(crate) const fn instance(self) -> Instance {
        Instance((self.0 >> INODE_BITS) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        let node = NodeId::new(Instance(0x7f_ffff), 0xff_ffff_ffff);
        assert_eq!(node.instance(), Instance(0x7f_ffff));
        assert!(i64::try_from(node.raw()).is_ok(), "some tools keep st_ino in a signed number");
        assert_eq!(NodeId::TOP.instance(), Instance(0), "no root has instance 0");
        assert_eq!(NodeId::new(Instance(1), 42).raw() & 0xffff_ffff, 42);
    }
}
