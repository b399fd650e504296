//! Operations on names: find, make, remove, move.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use super::core::{Answer, Call, Core, Ends, Entry, child_of};
use super::inodes::{Inode, Place as Found};
use super::node::NodeId;
use super::tree::Tree;
use crate::authorize::{Ask, Hides, Op, Reason};
use crate::resolve::Name;
use crate::sys::{self, Caller, Kind, Stat};

/// What a create or mknod asks for besides the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// The caller's umask.
    pub(crate) umask: u32,
}

impl Core {
    pub(crate) fn lookup(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<Answer<Entry>, Errno> {
        let call = self.admit(caller, Op::Lookup, parent)?;
        let name = self.name(&call, Op::Lookup, name)?;
        if call.is_top() {
            if let Some(entry) = self.burial.grave(&name, caller.pid) {
                return call.answer(entry);
            }
            let (entry, pass) = self.top_lookup(&call, &name)?;
            return call.answer_under(vec![pass], entry);
        }
        self.authorize(&Ends::named(&call, &name), &Ask::new(Op::Lookup, call.place()))?;
        let (inode, stat) = self.find(&call, &name)?;
        call.answer(Entry::of(&inode, stat))
    }

    pub(crate) fn forget(&self, node: NodeId, count: u64) {
        let current = self.current.load();
        let forgotten = match current.trees.get(&node.instance()) {
            Some(tree) => tree.forget(node, count),
            None => self.burial.dying(node.instance()).is_some_and(|tree| tree.forget(node, count)),
        };
        if forgotten {
            self.tidy.freed(1);
        }
    }

    /// Finds a name in the call's directory and counts the lookup.
    pub(crate) fn find(&self, call: &Call, name: &Name) -> Result<(Arc<Inode>, Stat), Errno> {
        let (tree, parent) = call.inside()?;
        let (fd, stat) =
            self.with_room(|| tree.step(&*call.descriptor_in_place()?, name)).map_err(|errno| match errno {
                Errno::XDEV => self.refuse(&Ends::named(call, name), Op::Lookup, Reason::OwnMount, Errno::ACCESS),
                other => other,
            })?;
        if self.veil(call).is_some_and(|veil| veil.hides(name, stat.kind)) {
            let ask = Ask { hides: Hides::Object, ..Ask::new(Op::Lookup, call.place()) };
            self.authorize(&Ends::named(call, name), &ask)?;
        }
        let inode = tree.found(fd, &stat, child_of(parent, name))?;
        Ok((inode, stat))
    }

    pub(crate) fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        make: Make,
    ) -> Result<Answer<Entry>, Errno> {
        let no_more = |_: &Call, _: &mut Ask<'_>| Ok(());
        self.make(caller, (Op::Mkdir, Kind::Directory), (parent, name), no_more, |dir, name| {
            let _acting = sys::act_as(&caller, Some(make.umask))?;
            sys::make_dir(dir, name, make.mode)
        })
    }

    pub(crate) fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        make: Make,
    ) -> Result<Answer<Entry>, Errno> {
        let kind = Kind::from_mode(make.mode);
        let device = |_: &Call, ask: &mut Ask<'_>| {
            ask.device = kind.is_device();
            Ok(())
        };
        self.make(caller, (Op::Mknod, kind), (parent, name), device, |dir, name| {
            let _acting = sys::act_as(&caller, Some(make.umask))?;
            sys::make_node(dir, name, make.mode)
        })
    }

    pub(crate) fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Answer<Entry>, Errno> {
        let text = CString::new(target).map_err(|_| Errno::INVAL)?;
        let text_judged = |call: &Call, ask: &mut Ask<'_>| self.judge_new_text(call, target, ask);
        self.make(caller, (Op::Symlink, Kind::Symlink), (parent, name), text_judged, |dir, name| {
            let _acting = sys::act_as(&caller, None)?;
            sys::make_symlink(&text, dir, name)
        })
    }

    /// Makes a name that can have no content yet, and looks it up for the kernel. `facts` adds to what is asked below the top.
    fn make(
        &self,
        caller: Caller,
        (op, kind): (Op, Kind),
        (parent, name): (NodeId, &[u8]),
        facts: impl FnOnce(&Call, &mut Ask<'_>) -> Result<(), Errno>,
        act: impl Fn(&OwnedFd, &Name) -> Result<(), Errno>,
    ) -> Result<Answer<Entry>, Errno> {
        let call = self.admit(caller, op, parent)?;
        let name = self.name(&call, op, name)?;
        let ends = Ends::named(&call, &name);
        let mut ask = Ask::new(op, call.place());
        if !call.is_top() {
            ask.hides = self.hides_new(&call, &name, kind)?;
            facts(&call, &mut ask)?;
        }
        self.authorize(&ends, &ask)?;
        let made = self.with_room(|| act(&*call.descriptor_in_place()?, &name));
        self.done(&ends, op, made)?;
        let (inode, stat) = self.find(&call, &name)?;
        call.answer(Entry::of(&inode, stat))
    }

    /// Creates and opens a file, or opens the one that is there by now unless the caller asked for `O_EXCL`.
    pub(crate) fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        make: Make,
        flags: OFlags,
    ) -> Result<Answer<(Entry, u64)>, Errno> {
        let call = self.admit(caller, Op::Create, parent)?;
        let name = self.name(&call, Op::Create, name)?;
        let hides = self.hides_new(&call, &name, Kind::File)?;
        self.authorize(&Ends::named(&call, &name), &Ask { hides, ..Ask::new(Op::Create, call.place()) })?;
        let (tree, inode) = call.inside()?;
        let kept = flags & Self::KEPT_FLAGS;
        let opened = self.with_room(|| {
            let dir = call.descriptor_in_place()?;
            let _acting = sys::act_as(&caller, Some(make.umask))?;
            // Never follows a link that was planted in between: the name is created, or what is there is opened as found.
            match sys::create_child(&*dir, &name, kept, make.mode).map(|file| (file, kept)) {
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => Self::open_existing(tree, &dir, &name, flags),
                created => created,
            }
        });
        let (file, kept) = self.done(&Ends::named(&call, &name), Op::Create, opened)?;
        let stat = sys::stat(&file)?;
        let fd = self.with_room(|| sys::path_of(&file))?;
        let found = tree.found(fd, &stat, child_of(inode, &name))?;
        let handle = tree.handles.open_file(found.node, kept, file);
        let entry = Entry::of(&found, stat);
        call.answer((entry, handle))
    }

    fn open_existing(tree: &Tree, dir: &OwnedFd, name: &Name, flags: OFlags) -> Result<(OwnedFd, OFlags), Errno> {
        let (fd, stat) = tree.step(dir, name)?;
        match stat.kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR),
            // The kernel looks again and follows it, or opens it itself, by its own rules.
            _ => return Err(Errno::STALE),
        }
        let (file, kept) = Self::open_object(&fd, flags)?;
        if flags.contains(OFlags::TRUNC) {
            sys::truncate(&file, 0)?;
        }
        Ok((file, kept))
    }

    pub(crate) fn link(
        &self,
        caller: Caller,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> Result<Answer<Entry>, Errno> {
        let object = self.admit(caller, Op::Link, node)?;
        let call = self.admit(caller, Op::Link, parent)?;
        let name = self.name(&call, Op::Link, name)?;
        let hides = self.hides_new(&call, &name, Kind::File)?;
        let ask = Ask { to: Some(call.place()), hides, ..Ask::new(Op::Link, object.place()) };
        let ends = Ends::between(&object, None, &call, &name);
        self.authorize(&ends, &ask)?;
        let linked = self.with_room(|| {
            let (from, dir) = (object.descriptor_in_place()?, call.descriptor_in_place()?);
            let _acting = sys::act_as(&caller, None)?;
            sys::link_object(&*from, &*dir, &name)
        });
        self.done(&ends, Op::Link, linked)?;
        let (inode, stat) = self.find(&call, &name)?;
        call.answer_with(object, Entry::of(&inode, stat))
    }

    pub(crate) fn unlink(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<Answer<()>, Errno> {
        self.remove(caller, Op::Unlink, parent, name, sys::unlink_child)
    }

    pub(crate) fn rmdir(&self, caller: Caller, parent: NodeId, name: &[u8]) -> Result<Answer<()>, Errno> {
        self.remove(caller, Op::Rmdir, parent, name, sys::remove_dir)
    }

    fn remove(
        &self,
        caller: Caller,
        op: Op,
        parent: NodeId,
        name: &[u8],
        act: impl Fn(&OwnedFd, &Name) -> Result<(), Errno>,
    ) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, op, parent)?;
        let name = self.name(&call, op, name)?;
        let hides = self.hides_object(&call, &name)?;
        self.authorize(&Ends::named(&call, &name), &Ask { hides, ..Ask::new(op, call.place()) })?;
        let (tree, inode) = call.inside()?;
        let removed = self.with_room(|| {
            let dir = call.descriptor_in_place()?;
            let known = Held::of(tree, inode, &dir, &name)?;
            let _acting = sys::act_as(&caller, None)?;
            act(&dir, &name).map(|()| known)
        });
        self.done(&Ends::named(&call, &name), op, removed)?.moved_to(&Found::Gone);
        call.answer(())
    }

    pub(crate) fn rename(
        &self,
        caller: Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<Answer<()>, Errno> {
        let source = self.admit(caller, Op::Rename, from.0)?;
        let target = self.admit(caller, Op::Rename, to.0)?;
        let from = self.name(&source, Op::Rename, from.1)?;
        let to = self.name(&target, Op::Rename, to.1)?;
        let exchanged = flags.contains(RenameFlags::EXCHANGE);
        let hides = self.hides_of_move((&source, &from), (&target, &to), exchanged)?;
        let ask = Ask { to: Some(target.place()), hides, ..Ask::new(Op::Rename, source.place()) };
        let ends = Ends::between(&source, Some(&from), &target, &to);
        self.authorize(&ends, &ask)?;
        if flags.contains(RenameFlags::WHITEOUT) {
            // A whiteout is a device node.
            return Err(self.refuse(&ends, Op::Rename, Reason::SpecialFile, Errno::PERM));
        }
        let ((source_tree, source_dir), (target_tree, target_dir)) = (source.inside()?, target.inside()?);
        let renamed = self.with_room(|| {
            let (source_fd, target_fd) = (source.descriptor_in_place()?, target.descriptor_in_place()?);
            let moved = Held::of(source_tree, source_dir, &source_fd, &from)?;
            let replaced = Held::of(target_tree, target_dir, &target_fd, &to)?;
            if !moved.may_come_below(target_dir) || (exchanged && !replaced.may_come_below(source_dir)) {
                // Not EXDEV: the copy that mv would make has the same link in the same place, and fails half-way.
                return Err(self.refuse(&ends, Op::Rename, Reason::SymlinkOutside, Errno::BUSY));
            }
            let _acting = sys::act_as(&caller, None)?;
            sys::rename_child((&*source_fd, &from), (&*target_fd, &to), flags)?;
            Ok((moved, replaced))
        });
        let (moved, replaced) = self.done(&ends, Op::Rename, renamed)?;
        let same = moved.is_same_as(&replaced);
        // An inode belongs to the tree it was found in, and dies with that root. What went to another one keeps the place it
        // has left, so that the kernel, told ESTALE, looks it up there.
        let stays = Arc::ptr_eq(source_tree, target_tree);
        // Renaming one hard link over another of the same file does nothing (rename(2)).
        if !same {
            if !exchanged {
                replaced.moved_to(&Found::Gone);
            } else if stays {
                replaced.moved_to(&child_of(source_dir, &from));
            }
            if stays {
                moved.moved_to(&child_of(target_dir, &to));
            }
        }
        source.answer_with(target, ())
    }
}

/// What the kernel knows of the object that a name means, with its descriptor in hand: once the name is gone nothing else
/// leads to it. What cannot be opened is not known, and the operation itself says what is wrong.
struct Held {
    /// Every inode of the object: the kernel may have any of them under the name.
    inodes: Vec<Arc<Inode>>,
    /// Where the name stands.
    place: Found,
}

impl Held {
    /// EMFILE, ENFILE, ENOMEM: it may be there and cannot be held, so that its name must not go now.
    fn of(tree: &Tree, directory: &Arc<Inode>, dir: &OwnedFd, name: &Name) -> Result<Self, Errno> {
        let place = child_of(directory, name);
        let (fd, stat) = match tree.step(dir, name) {
            Ok(found) => found,
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
            Err(_) => return Ok(Self { inodes: Vec::new(), place }),
        };
        let inodes = tree.known(&stat);
        for inode in inodes.iter().skip(1) {
            inode.keep(rustix::io::fcntl_dupfd_cloexec(&fd, 0)?);
        }
        if let Some(inode) = inodes.first() {
            inode.keep(fd);
        }
        Ok(Self { inodes, place })
    }

    /// The object may be moved into this directory (see [`super::depth`]).
    fn may_come_below(&self, directory: &Inode) -> bool {
        let depth = directory.least_depth().saturating_add(1);
        self.inodes.iter().all(|inode| inode.may_come_to(depth))
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.inodes.iter().any(|inode| other.inodes.iter().any(|other| other.node == inode.node))
    }

    /// The name was moved, or removed. A link that is known in another directory under another inode stays there, and so does
    /// a file that is known by another name.
    fn moved_to(&self, place: &Found) {
        let concerned = |inode: &Inode| match inode.kind {
            Kind::Symlink => inode.is_held_as(&self.place),
            Kind::Directory => true,
            _ => !matches!(place, Found::Gone) || inode.is_named(&self.place),
        };
        for inode in self.inodes.iter().filter(|inode| concerned(inode)) {
            inode.moved_to(place.clone());
        }
    }
}
