//! Directory streams.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::core::{Answer, Call, Core, Ends, Entry, child_of};
use super::handles::DirStream;
use super::inodes::Place as Found;
use super::node::NodeId;
use super::top::{Listing, Shown};
use super::tree::Tree;
use super::veil::Veil;
use crate::authorize::{Ask, Op};
use crate::resolve::Name;
use crate::sys::{self, Caller, DirEntry, Kind, ObjectId};

/// One entry for a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) node: NodeId,
    pub(crate) kind: Kind,
    pub(crate) name: &'a [u8],
    /// Where the stream goes on after it.
    pub(crate) next: u64,
    /// The object, counted as looked up, where the kernel asked for it and can take it.
    pub(crate) entry: Option<Entry>,
}

/// Takes entries until it is full; true means that the one just offered did not fit.
pub(crate) type Sink<'a> = dyn FnMut(&Item<'_>) -> bool + 'a;

impl Core {
    pub(crate) fn opendir(&self, caller: Caller, node: NodeId) -> Result<Answer<u64>, Errno> {
        let call = self.admit(caller, Op::List, node)?;
        self.authorize(&Ends::of(&call), &Ask::new(Op::List, call.place()))?;
        let Ok((tree, inode)) = call.inside() else {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            self.listings.lock().insert(number, Arc::new(Listing::of(&call.current)));
            return call.answer(number);
        };
        if inode.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        let dir = self.with_room(|| sys::reopen(&*call.descriptor_in_place()?, OFlags::RDONLY | OFlags::DIRECTORY))?;
        let number = tree.handles.open_directory(node, dir);
        call.answer(number)
    }

    /// Lists from a cookie; `plus` also looks every entry up (`FUSE_READDIRPLUS`).
    pub(crate) fn readdir(
        &self,
        caller: Caller,
        node: NodeId,
        handle: u64,
        cookie: u64,
        plus: bool,
        sink: &mut Sink<'_>,
    ) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, Op::List, node)?;
        let Ok((tree, inode)) = call.inside() else {
            let listing = self.listings.lock().get(&handle).cloned().ok_or(Errno::BADF)?;
            Self::list_top(&listing, cookie, plus, sink);
            return call.answer(());
        };
        let handle = tree.handles.get(handle, inode.node)?;
        let mut stream = handle.stream()?.lock();
        let dir = self.with_room(|| stream.dir(|| call.descriptor()))?;
        stream.seek(&dir, cookie)?;
        let veil = self.veil(&call);
        let mut offered = 0_u64;
        loop {
            // After the first entry an error is the next request's to report: what was offered is whole.
            let full = match self.offer(&call, (tree, &dir), &mut stream, (veil.as_ref(), plus), sink) {
                Ok(Some(full)) => full,
                Ok(None) => break,
                Err(_) if offered > 0 => break,
                Err(errno) => return Err(errno),
            };
            if full {
                break;
            }
            stream.taken();
            offered += 1;
        }
        drop(stream);
        call.answer(())
    }

    /// Offers the stream's next entry: `Some(true)` when it did not fit, None at the end.
    fn offer(
        &self,
        call: &Call,
        (tree, dir): (&Tree, &OwnedFd),
        stream: &mut DirStream,
        (veil, plus): (Option<&Veil<'_>>, bool),
        sink: &mut Sink<'_>,
    ) -> Result<Option<bool>, Errno> {
        let (_, inode) = call.inside()?;
        let Some(next) = stream.peek(dir)?.cloned() else { return Ok(None) };
        let plain = |node| Item {
            node,
            kind: next.kind.unwrap_or(Kind::CharDevice),
            name: &next.name,
            next: next.next,
            entry: None,
        };
        if &*next.name == b"." {
            return Ok(Some(sink(&plain(inode.node))));
        }
        if &*next.name == b".." {
            let above = match inode.place() {
                Found::Child(parent, _) => parent.node,
                Found::Root | Found::Gone => NodeId::TOP,
            };
            return Ok(Some(sink(&plain(above))));
        }
        if let Some(veil) = veil
            && self.hides_entry((tree, dir), veil, &next.name, next.kind)?
        {
            return Ok(Some(false));
        }
        let dev = inode.dev;
        if !plus {
            return Ok(Some(sink(&plain(tree.node(ObjectId { mnt: 0, dev, ino: next.ino })))));
        }
        let unseen = |node| Entry::unseen(node, next.kind.unwrap_or(Kind::CharDevice));
        let looked = match self.look_at(call, tree, dir, &next) {
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
            // A name is in the directory even if its object cannot be had (EIO, say); whoever uses it is told why. The kernel
            // asks again before it does.
            Err(_) => Some(unseen(tree.node(ObjectId { mnt: 0, dev, ino: next.ino }))),
            Ok(looked) => looked,
        };
        match looked {
            Some(entry) => {
                let item = Item { entry: Some(entry), kind: entry.attr.stat.kind, ..plain(entry.attr.node) };
                let full = sink(&item);
                if full {
                    tree.inodes.forget(entry.attr.node, 1);
                }
                Ok(Some(full))
            }
            // Gone since it was read, or a mount that is not entered: nothing to show.
            None => Ok(Some(false)),
        }
    }

    fn look_at(&self, call: &Call, tree: &Tree, dir: &OwnedFd, next: &DirEntry) -> Result<Option<Entry>, Errno> {
        let (_, parent) = call.inside()?;
        let Ok(name) = Name::new(&next.name) else { return Ok(None) };
        let (fd, stat) = match self.with_room(|| tree.step(dir, &name)) {
            Err(Errno::NOENT | Errno::XDEV) => return Ok(None),
            other => other?,
        };
        let inode = tree.found(fd, &stat, child_of(parent, &name))?;
        Ok(Some(Entry::of(&inode, stat)))
    }

    fn list_top(listing: &Listing, cookie: u64, plus: bool, sink: &mut Sink<'_>) {
        let dots = [&b"."[..], b".."];
        for (index, name) in (1_u64..).zip(dots).filter(|(index, _)| *index > cookie) {
            let item = Item { node: NodeId::TOP, kind: Kind::Directory, name, next: index, entry: None };
            if sink(&item) {
                return;
            }
        }
        for (index, shown) in (3_u64..).zip(&listing.entries).filter(|(index, _)| *index > cookie) {
            let Shown { name, kind, node, tree } = shown;
            let mut item = Item { node: *node, kind: *kind, name: name.as_bytes(), next: index, entry: None };
            let tree = tree.upgrade();
            if plus {
                // Nothing is asked of the backing here, so that the top always answers at once. The stream shows the set it
                // began with even where a root was revoked since; the kernel asks before it uses such an entry.
                item.entry = match tree.as_deref().map(|tree| (tree, &tree.face)) {
                    Some((tree, Some((inode, stat)))) => {
                        tree.inodes.found_again(inode);
                        Some(Entry { lasting: false, ..Entry::of(inode, *stat) })
                    }
                    Some((_, None)) => continue,
                    None => Some(Entry::unseen(*node, *kind)),
                };
            }
            if sink(&item) {
                if let (Some(entry), Some(tree)) = (item.entry, tree) {
                    tree.inodes.forget(entry.attr.node, 1);
                }
                break;
            }
        }
    }

    pub(crate) fn fsyncdir(
        &self,
        caller: Caller,
        node: NodeId,
        handle: u64,
        data_only: bool,
    ) -> Result<Answer<()>, Errno> {
        let call = self.admit(caller, Op::Stat, node)?;
        if let Ok((tree, inode)) = call.inside() {
            let handle = tree.handles.get(handle, inode.node)?;
            let dir = self.with_room(|| handle.stream()?.lock().dir(|| call.descriptor()))?;
            sys::sync(&*dir, data_only)?;
        }
        call.answer(())
    }
}
