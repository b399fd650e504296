use rustix::io::Errno;

use super::{Op, Reason};
use crate::roots::Root;

/// What the operator allows beyond the root list. Fixed for the life of a view.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// No root may be changed.
    pub read_only: bool,
    /// Rename and link between two roots are allowed where the kernel can do them.
    pub cross_root: bool,
    /// Enter other file systems mounted below a root.
    pub cross_mounts: bool,
}

/// Where in the view an object stands.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// The top directory, or a name directly in it.
    Top,
    /// An object in a root's tree, the root itself included.
    In(&'a Root),
}

/// The established facts of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is wanted.
    pub op: Op,
    /// Where the object, or the directory that holds the name, stands.
    pub place: Place<'a>,
    /// Where the other end of a rename or link stands.
    pub to: Option<Place<'a>>,
    /// The object is, or would be, a block or character device.
    pub device: bool,
    /// The operation reads, follows or makes a symbolic link whose target is outside the active roots.
    pub outward: bool,
}

impl<'a> Ask<'a> {
    /// A question about one object that is neither a device nor an outward link.
    #[must_use]
    pub const fn new(op: Op, place: Place<'a>) -> Self {
        Self { op, place, to: None, device: false, outward: false }
    }
}

/// The answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on; the backing file system has its own say.
    Allow,
    /// Refuse, with the reason for the record and the error for the caller.
    Deny(Reason, Errno),
}

/// Decides one operation. First match wins:
///
/// | condition | verdict |
/// | --- | --- |
/// | a change at the top of the view, at either end | EPERM `outside-root` |
/// | a change, and the view or an end's root is read-only | EROFS `read-only` |
/// | the ends lie in two roots | EXDEV `cross-root`, unless the policy allows it |
/// | making a device node | EPERM `special-file` |
/// | opening or changing through a device node | EACCES `special-file` |
/// | making a link that points outside | EPERM `symlink-outside` |
/// | reading or following such a link | EACCES `symlink-outside` |
/// | anything else | allow |
#[must_use]
pub fn decide(policy: &Policy, ask: &Ask<'_>) -> Verdict {
    let ends = [Some(ask.place), ask.to];
    if ask.op.changes() {
        for end in ends.into_iter().flatten() {
            match end {
                Place::Top => return Verdict::Deny(Reason::OutsideRoot, Errno::PERM),
                Place::In(root) if policy.read_only || root.read_only => {
                    return Verdict::Deny(Reason::ReadOnly, Errno::ROFS);
                }
                Place::In(_) => {}
            }
        }
    }
    if let (Place::In(from), Some(Place::In(to))) = (ask.place, ask.to)
        && from.instance != to.instance
        && !policy.cross_root
    {
        return Verdict::Deny(Reason::CrossRoot, Errno::XDEV);
    }
    if ask.device {
        match ask.op {
            Op::Mknod => return Verdict::Deny(Reason::SpecialFile, Errno::PERM),
            Op::Read | Op::Write => return Verdict::Deny(Reason::SpecialFile, Errno::ACCESS),
            _ => {}
        }
    }
    if ask.outward {
        let errno = if ask.op == Op::Symlink { Errno::PERM } else { Errno::ACCESS };
        return Verdict::Deny(Reason::SymlinkOutside, errno);
    }
    Verdict::Allow
}
