//! Attributes, extended attributes and figures.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{StatVfs, Timestamps};
use rustix::io::Errno;

use super::core::{Answer, Attr, Call, Core, Ends};
use super::node::NodeId;
use super::tree::Tree;
use crate::authorize::{Ask, Op, Place, Reason};
use crate::sys::{self, Caller, Kind};

/// What a setattr changes; None leaves things as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) times: Option<Timestamps>,
    /// The open file a truncation came by.
    pub(crate) handle: Option<u64>,
}

/// Virtual attributes live under this prefix; nothing of the backing does.
const VIRTUAL: &[u8] = b"user.rootsfs.";

/// Access control lists (`acl(5)`).
const SYSTEM: &[u8] = b"system.";

/// What only an administrator may know of (`xattr(7)`).
const TRUSTED: &[u8] = b"trusted.";

impl Core {
    pub(crate) fn getattr(&self, caller: Caller, node: NodeId) -> Result<Answer<Attr>, Errno> {
        let call = self.admit(caller, Op::Stat, node)?;
        if call.is_top() {
            let attr = self.top_attr(&call.current);
            return call.answer(attr);
        }
        self.authorize(&Ends::of(&call), &Ask::new(Op::Stat, call.place()))?;
        let stat = self.with_room(|| sys::stat(&*call.descriptor()?))?;
        call.answer(Attr { node, stat })
    }

    pub(crate) fn setattr(&self, caller: Caller, node: NodeId, changes: Changes) -> Result<Answer<Attr>, Errno> {
        let call = self.admit(caller, Op::Setattr, node)?;
        self.authorize(&Ends::of(&call), &Ask::new(Op::Setattr, call.place()))?;
        let result = self.with_room(|| self.change(&call, &changes));
        let stat = self.done(&Ends::of(&call), Op::Setattr, result)?;
        call.answer(Attr { node, stat })
    }

    fn change(&self, call: &Call, changes: &Changes) -> Result<sys::Stat, Errno> {
        let (tree, inode) = call.inside()?;
        // A change through an open file goes on where the file went.
        let object = if changes.handle.is_some() { call.descriptor()? } else { call.descriptor_in_place()? };
        let file = if changes.size.is_some() { Self::to_truncate(call, changes.handle)? } else { None };
        if (changes.mode.is_some() || changes.uid.is_some()) && !sys::may_open_anything() {
            Self::hold_open(tree, inode.node, &object)?;
        }
        {
            let _acting = sys::act_as(&call.caller, None)?;
            if changes.uid.is_some() || changes.gid.is_some() {
                sys::set_owner(&*object, changes.uid, changes.gid)?;
            }
            // After the owner: changing that clears set-id bits which the new mode may set.
            if let Some(mode) = changes.mode {
                sys::set_mode(&*object, mode)?;
            }
            if let Some(size) = changes.size {
                match file {
                    Some(file) => sys::truncate(&*file, size)?,
                    None => sys::truncate_object(&*object, size)?,
                }
            }
            if let Some(times) = &changes.times {
                sys::set_times(&*object, times)?;
            }
        }
        sys::stat(&*object)
    }

    /// Opens again what was open on an inode and given up: what comes now may forbid it.
    pub(super) fn hold_open(tree: &Tree, node: NodeId, object: &Arc<OwnedFd>) -> Result<(), Errno> {
        tree.handles
            .files(node)
            .iter()
            .try_for_each(|handle| handle.file()?.descriptor(|| Ok(Arc::clone(object))).map(drop))
    }

    /// The open file that a truncation came by, if it can be cut.
    fn to_truncate(call: &Call, handle: Option<u64>) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let (tree, inode) = call.inside()?;
        if inode.kind != Kind::File {
            return Err(Errno::INVAL);
        }
        let open = handle.and_then(|number| tree.handles.get(number, inode.node).ok());
        let file = open.as_deref().and_then(|handle| handle.file().ok()).filter(|file| file.writable());
        file.map(|file| file.descriptor(|| call.descriptor())).transpose()
    }

    pub(crate) fn statfs(&self, caller: Caller, node: NodeId) -> Result<Answer<Option<StatVfs>>, Errno> {
        let call = self.admit(caller, Op::Stat, node)?;
        let figures =
            if call.is_top() { None } else { Some(self.with_room(|| sys::file_system(&*call.descriptor()?))?) };
        call.answer(figures)
    }

    pub(crate) fn getxattr(&self, caller: Caller, node: NodeId, name: &OsStr) -> Result<Answer<Vec<u8>>, Errno> {
        let call = self.admit(caller, Op::Stat, node)?;
        let value = if let Some(name) = name.as_bytes().strip_prefix(VIRTUAL) {
            self.virtual_value(&call, name)?
        } else if call.is_top() {
            return Err(Errno::NODATA);
        } else {
            self.authorize(&Ends::of(&call), &Ask::new(Op::Stat, call.place()))?;
            self.with_room(|| sys::get_xattr(&*call.descriptor()?, name))?
        };
        call.answer(value)
    }

    fn virtual_value(&self, call: &Call, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let Ok((tree, inode)) = call.inside() else {
            return match name {
                b"state" => Ok(self.list_state.lock().as_str().into()),
                b"generation" => Ok(call.current.snapshot.generation.to_string().into_bytes()),
                other => {
                    let labels = self.labels.lock();
                    let found = labels.iter().find(|(label, _)| label.as_bytes() == other);
                    found.map(|(_, value)| value.clone().into_bytes()).ok_or(Errno::NODATA)
                }
            };
        };
        if !matches!(inode.place(), super::inodes::Place::Root) {
            return Err(Errno::NODATA);
        }
        // A retained root may be spelled otherwise by a later list: the snapshot has the spelling in force.
        let roots = &call.current.snapshot.roots;
        let root = roots.iter().find(|root| root.instance == tree.root.instance).unwrap_or(&tree.root);
        match name {
            b"uri" => Ok(root.uri.clone().into_bytes()),
            b"name" => root.display.clone().map(String::into_bytes).ok_or(Errno::NODATA),
            _ => Err(Errno::NODATA),
        }
    }

    pub(crate) fn listxattr(&self, caller: Caller, node: NodeId) -> Result<Answer<Vec<u8>>, Errno> {
        let call = self.admit(caller, Op::Stat, node)?;
        let list = if call.is_top() {
            Vec::new()
        } else {
            self.authorize(&Ends::of(&call), &Ask::new(Op::Stat, call.place()))?;
            let list = self.with_room(|| sys::list_xattrs(&*call.descriptor()?))?;
            let names = || list.split_inclusive(|byte| *byte == 0);
            let hides_trusted = names().any(|name| name.starts_with(TRUSTED)) && !sys::may_list_trusted(&caller);
            // Names of ours on the backing would be taken for virtual ones.
            let hidden = |name: &[u8]| name.starts_with(VIRTUAL) || (hides_trusted && name.starts_with(TRUSTED));
            names().filter(|name| !hidden(name)).flatten().copied().collect()
        };
        call.answer(list)
    }

    pub(crate) fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
    ) -> Result<Answer<()>, Errno> {
        self.change_xattr(caller, node, name, |object| sys::set_xattr(object, name, value, flags))
    }

    pub(crate) fn removexattr(&self, caller: Caller, node: NodeId, name: &OsStr) -> Result<Answer<()>, Errno> {
        self.change_xattr(caller, node, name, |object| sys::remove_xattr(object, name))
    }

    fn change_xattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &OsStr,
        act: impl Fn(&std::os::fd::OwnedFd) -> Result<(), Errno>,
    ) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, Op::Setxattr, node)?;
        let ends = Ends::of(&call);
        self.authorize(&ends, &Ask::new(Op::Setxattr, call.place()))?;
        if name.as_bytes().starts_with(VIRTUAL) {
            return Err(self.refuse(&ends, Op::Setxattr, Reason::UnsafeName, Errno::PERM));
        }
        let changed = self.with_room(|| {
            let object = call.descriptor_in_place()?;
            if let (Ok((tree, inode)), true) = (call.inside(), name.as_bytes().starts_with(SYSTEM)) {
                // An access control list.
                Self::hold_open(tree, inode.node, &object)?;
            }
            let _acting = sys::act_as(&caller, None)?;
            act(&object)
        });
        self.done(&ends, Op::Setxattr, changed)?;
        call.answer(())
    }

    /// The text of a link as it works in the view.
    pub(crate) fn readlink(&self, caller: Caller, node: NodeId) -> Result<Answer<Vec<u8>>, Errno> {
        let call = self.admit(caller, Op::Readlink, node)?;
        let Place::In(_) = call.place() else { return Err(Errno::INVAL) };
        let text = self.with_room(|| sys::link_text(&*call.descriptor_in_place()?))?;
        let shown = self.judge_text(&call, &text)?;
        let ask = Ask {
            outward: shown.is_none(),
            unfollowed: self.follows_no_link(),
            ..Ask::new(Op::Readlink, call.place())
        };
        self.authorize(&Ends::of(&call), &ask)?;
        call.answer(shown.unwrap_or_default())
    }
}
