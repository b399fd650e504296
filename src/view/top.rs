//! The top directory: synthetic, its entries exactly the active roots.

use std::sync::{Arc, Weak};
use std::time::UNIX_EPOCH;

use rustix::io::Errno;

use super::core::{Attr, Call, Core, Current, Entry};
use super::gate::Guest;
use super::node::NodeId;
use super::tree::{Pass, Tree};
use crate::authorize::Op;
use crate::resolve::Name;
use crate::roots::RootKind;
use crate::sys::{Kind, Stat};

/// One stream of the top directory. It keeps the set it began with, so a listing never mixes two generations.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Shown>,
}

/// One entry of it. It does not hold on to a root that was revoked since.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    pub(crate) node: NodeId,
    pub(crate) tree: Weak<Tree>,
}

impl Listing {
    pub(crate) fn of(current: &Current) -> Self {
        let trees = current.snapshot.roots.iter().filter_map(|root| current.trees.get(&root.instance));
        let shown = |tree: &Arc<Tree>| Shown {
            name: tree.root.entry.clone(),
            kind: if tree.root.kind == RootKind::Directory { Kind::Directory } else { Kind::File },
            node: tree.face.as_ref().map_or(NodeId::TOP, |(inode, _)| inode.node),
            tree: Arc::downgrade(tree),
        };
        Self { entries: trees.map(shown).collect() }
    }
}

impl Core {
    pub(crate) fn top_attr(&self, current: &Current) -> Attr {
        let directories = current.snapshot.roots.iter().filter(|root| root.kind == RootKind::Directory).count();
        let since = current.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = (since.as_secs().cast_signed(), since.subsec_nanos());
        let stat = Stat {
            perm: 0o755,
            nlink: u32::try_from(directories).unwrap_or(u32::MAX).saturating_add(2),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            atime: time,
            mtime: time,
            ctime: time,
            ..Stat::unknown(Kind::Directory)
        };
        Attr { node: NodeId::TOP, stat }
    }

    pub(crate) fn top_lookup(&self, call: &Call, name: &Name) -> Result<(Entry, Pass), Errno> {
        let root = call.current.snapshot.by_entry(name.as_bytes());
        let tree = root.and_then(|root| call.current.trees.get(&root.instance));
        match tree {
            Some(tree) => self.enter(tree),
            None => Err(self.no_such_entry(call, Op::Lookup, name)),
        }
    }

    /// A root's own inode, counted as looked up. ENOENT when the root was revoked in between, or its object is gone.
    pub(crate) fn enter(&self, tree: &Arc<Tree>) -> Result<(Entry, Pass), Errno> {
        let pass = Pass::into_tree(tree, Guest::Call).ok_or(Errno::NOENT)?;
        let (inode, stat) = self.with_room(|| tree.enter_root())?;
        Ok((Entry::of(&inode, stat), pass))
    }
}
