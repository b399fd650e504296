use std::path::PathBuf;

use rustix::io::Errno;

use super::{Hidden, Op, Reason};
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
    /// What is hidden in every root.
    pub hidden: Hidden,
    /// Directories of the host: a symbolic link whose target lies below one may be read and followed, though that is outside.
    pub follow_outside: Vec<PathBuf>,
    /// Whether symbolic links are followed at all.
    pub links: Links,
}

/// What becomes of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Each is judged by its target.
    #[default]
    Judged,
    /// None is followed.
    Strict,
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
    /// The operation reads, follows or makes a symbolic link whose target is outside the active roots, and not where the
    /// policy follows links nevertheless.
    pub outward: bool,
    /// What of the operation the policy hides.
    pub hides: Hides,
    /// Links are not followed, and nobody but the daemon is there to see to it.
    pub unfollowed: bool,
}

/// What of an operation is hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hides {
    /// Nothing.
    #[default]
    Nothing,
    /// The object itself: to the caller it does not exist.
    Object,
    /// A name that would be made or replaced, what a new link would lead to, or what a move would bring to light.
    Result,
}

impl<'a> Ask<'a> {
    /// A question about one object that is neither a device nor an outward link.
    #[must_use]
    pub const fn new(op: Op, place: Place<'a>) -> Self {
        Self { op, place, to: None, device: false, outward: false, hides: Hides::Nothing, unfollowed: false }
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
/// | the object is hidden | ENOENT `hidden` |
/// | what would come of it is hidden, or hidden no longer | EPERM `hidden` |
/// | the ends lie in two roots | EXDEV `cross-root`, unless the policy allows it |
/// | making a device node | EPERM `special-file` |
/// | opening or changing through a device node | EACCES `special-file` |
/// | making a link that points outside | EPERM `symlink-outside` |
/// | reading or following such a link | EACCES `symlink-outside` |
/// | reading any link, and with that following it, where no link is followed | ELOOP `symlink-loop` |
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
    match ask.hides {
        Hides::Nothing => {}
        Hides::Object => return Verdict::Deny(Reason::Hidden, Errno::NOENT),
        Hides::Result => return Verdict::Deny(Reason::Hidden, Errno::PERM),
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
    if ask.unfollowed && ask.op == Op::Readlink {
        return Verdict::Deny(Reason::SymlinkLoop, Errno::LOOP);
    }
    Verdict::Allow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::Name;
    use crate::roots::{Instance, RootKind};
    use crate::sys::ObjectId;

    fn root(instance: u32, read_only: bool) -> Root {
        let anchor = std::fs::File::open("/").unwrap().into();
        Root {
            instance: Instance(instance),
            entry: Name::new("r").unwrap(),
            uri: String::new(),
            display: None,
            given: "/r".into(),
            canonical: "/r".into(),
            kind: RootKind::Directory,
            anchor,
            id: ObjectId { mnt: 0, dev: 0, ino: 0 },
            read_only,
        }
    }

    #[test]
    fn the_table() {
        let (a, b, fixed) = (root(1, false), root(2, false), root(3, true));
        let (a, b, fixed) = (Place::In(&a), Place::In(&b), Place::In(&fixed));
        let open = Policy::default();
        let everywhere = Policy { cross_root: true, ..Policy::default() };
        let frozen = Policy { read_only: true, ..Policy::default() };
        let deny = Verdict::Deny;
        let ask = Ask::new;
        let cases = [
            (&open, ask(Op::Lookup, Place::Top), Verdict::Allow),
            (&open, ask(Op::Create, Place::Top), deny(Reason::OutsideRoot, Errno::PERM)),
            (&open, ask(Op::Setattr, Place::Top), deny(Reason::OutsideRoot, Errno::PERM)),
            (&open, Ask { to: Some(Place::Top), ..ask(Op::Rename, a) }, deny(Reason::OutsideRoot, Errno::PERM)),
            (&open, ask(Op::Write, a), Verdict::Allow),
            (&open, ask(Op::Read, fixed), Verdict::Allow),
            (&open, ask(Op::Write, fixed), deny(Reason::ReadOnly, Errno::ROFS)),
            (&frozen, ask(Op::Unlink, a), deny(Reason::ReadOnly, Errno::ROFS)),
            (&frozen, ask(Op::Stat, a), Verdict::Allow),
            (&open, Ask { to: Some(a), ..ask(Op::Rename, a) }, Verdict::Allow),
            (&open, Ask { to: Some(b), ..ask(Op::Rename, a) }, deny(Reason::CrossRoot, Errno::XDEV)),
            (&open, Ask { to: Some(b), ..ask(Op::Link, a) }, deny(Reason::CrossRoot, Errno::XDEV)),
            (&everywhere, Ask { to: Some(b), ..ask(Op::Rename, a) }, Verdict::Allow),
            (&everywhere, Ask { to: Some(fixed), ..ask(Op::Rename, a) }, deny(Reason::ReadOnly, Errno::ROFS)),
            (&open, Ask { device: true, ..ask(Op::Mknod, a) }, deny(Reason::SpecialFile, Errno::PERM)),
            (&open, Ask { device: true, ..ask(Op::Read, a) }, deny(Reason::SpecialFile, Errno::ACCESS)),
            (&open, Ask { device: true, ..ask(Op::Unlink, a) }, Verdict::Allow),
            (&open, Ask { outward: true, ..ask(Op::Symlink, a) }, deny(Reason::SymlinkOutside, Errno::PERM)),
            (&open, Ask { outward: true, ..ask(Op::Readlink, a) }, deny(Reason::SymlinkOutside, Errno::ACCESS)),
            (&open, Ask { unfollowed: true, ..ask(Op::Readlink, a) }, deny(Reason::SymlinkLoop, Errno::LOOP)),
            (&open, Ask { unfollowed: true, ..ask(Op::Stat, a) }, Verdict::Allow),
            (&open, Ask { hides: Hides::Object, ..ask(Op::Lookup, a) }, deny(Reason::Hidden, Errno::NOENT)),
            (&open, Ask { hides: Hides::Object, ..ask(Op::Unlink, a) }, deny(Reason::Hidden, Errno::NOENT)),
            (&frozen, Ask { hides: Hides::Object, ..ask(Op::Unlink, a) }, deny(Reason::ReadOnly, Errno::ROFS)),
            (&open, Ask { hides: Hides::Result, ..ask(Op::Create, a) }, deny(Reason::Hidden, Errno::PERM)),
            (
                &open,
                Ask { to: Some(b), hides: Hides::Object, ..ask(Op::Rename, a) },
                deny(Reason::Hidden, Errno::NOENT),
            ),
        ];
        for (policy, ask, expected) in cases {
            assert_eq!(decide(policy, &ask), expected, "{policy:?} {ask:?}");
        }
    }

    #[test]
    fn nothing_changes_in_a_read_only_root() {
        let fixed = root(1, true);
        for op in Op::ALL {
            let verdict = decide(&Policy::default(), &Ask::new(op, Place::In(&fixed)));
            assert_eq!(verdict == Verdict::Allow, !op.changes(), "{op}");
        }
    }
}
