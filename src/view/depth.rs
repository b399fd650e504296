//! How far a link's text may climb, so that it cannot lead out of the mount.
//!
//! The kernel walks a link's text by itself, from the directory in which it found the link, wherever that directory is by
//! then. A text `../../x` that stays inside when it is read climbs above the mountpoint if the directory is moved to a
//! shallower place in between. So a text is handed out only in the form `..` × *k* and then names, each of which is looked
//! up through the view again, and two numbers are kept with every inode:
//!
//! * `shallowest`: the least depth below the top of the view at which the kernel can have it. It only falls.
//! * `needed`: the least depth it must keep, because a text that climbs from below it was handed out. It only rises.
//!
//! | event | rule |
//! | --- | --- |
//! | a text with *k* `..` is read in directory *D* | raise `needed` of each ancestor *j* levels above *D* to *k* − *j*; then refuse unless every `shallowest` + *j* is at least *k* |
//! | a directory is moved through the view to depth *e* | refuse (EBUSY) if `needed` > *e*; lower `shallowest`; look at `needed` again |
//! | a lookup finds a known directory at depth *e*, moved on the backing | if `needed` > *e*, it becomes another inode for the kernel, which then moves nothing; else as above |
//! | a text was refused only because a directory was in a shallower place before | the refusal is ESTALE, upon which the kernel looks everything up again; the directory and the link then become other inodes, without that past |
//!
//! Both sides write their own number before they read the other's, so one of two that race sees the other. A directory below
//! a root has a depth of at least 2, so texts with one or two `..`, which nearly all have, restrict nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use super::inodes::{Inode, Place};
use crate::sys::Kind;

/// More directories than this in which one link is known are not told apart: its text may not climb then.
const MOST_HOLDERS: usize = 16;

/// The directories, one box away because few inodes have any.
#[derive(Clone, Debug, Default)]
struct Holders(Vec<Arc<Inode>>);

/// The depths of one inode. A root's own is 1, that of the top of the view 0.
#[derive(Debug)]
pub(super) struct Depths {
    shallowest: AtomicU32,
    needed: AtomicU32,
    /// The next lookup gives the directory another inode, because its past is in the way.
    outdated: AtomicBool,
    /// Directories other than the inode's place in which the kernel may still have it: of links only.
    holders: Mutex<Option<Box<Holders>>>,
}

impl Depths {
    pub(super) fn at(depth: u32) -> Self {
        Self {
            shallowest: AtomicU32::new(depth),
            needed: AtomicU32::new(0),
            outdated: AtomicBool::new(false),
            holders: Mutex::default(),
        }
    }
}

/// The depth of what stands at a place, by the least depth of its directory. It matters for directories and links only.
pub(super) fn depth_at(kind: Kind, place: &Place) -> u32 {
    match place {
        Place::Root => 1,
        Place::Child(..) if !matches!(kind, Kind::Directory | Kind::Symlink) => 0,
        Place::Child(parent, _) => parent.least_depth().saturating_add(1),
        // Nothing is found below a removed name.
        Place::Gone => 0,
    }
}

impl Inode {
    /// The inode may come to `depth`; false if a text that was handed out forbids it.
    pub(super) fn may_come_to(&self, depth: u32) -> bool {
        if self.depths.needed.load(Ordering::SeqCst) > depth {
            return false;
        }
        self.depths.shallowest.fetch_min(depth, Ordering::SeqCst);
        self.depths.needed.load(Ordering::SeqCst) <= depth
    }

    /// Keeps what the ancestors' moves meant for this inode, before it gets other ancestors.
    pub(super) fn remember_depth(&self) {
        self.depths.shallowest.fetch_min(self.least_depth(), Ordering::SeqCst);
    }

    /// The least depth at which the kernel can have this directory, its ancestors' moves included.
    pub(super) fn least_depth(&self) -> u32 {
        let mut least = self.depths.shallowest.load(Ordering::SeqCst);
        self.ancestors(|inode, above| {
            least = least.min(inode.depths.shallowest.load(Ordering::SeqCst).saturating_add(above));
        });
        least
    }

    /// A link that is known in one more directory.
    pub(super) fn also_held_by(&self, directory: Arc<Inode>) {
        let mut holders = self.depths.holders.lock();
        let Holders(holders) = &mut **holders.get_or_insert_default();
        if holders.len() == MOST_HOLDERS {
            self.depths.shallowest.store(0, Ordering::SeqCst);
        } else if !holders.iter().any(|holder| Arc::ptr_eq(holder, &directory)) {
            holders.push(directory);
        }
    }

    /// Whether a text with this many leading `..` may be handed out for this link; if so, no directory that holds it will
    /// come to a place from which it climbs out.
    pub(super) fn may_climb(&self, levels: u32) -> bool {
        let mut holders = self.depths.holders.lock().as_deref().cloned().unwrap_or_default().0;
        if let Place::Child(directory, _) = self.place() {
            holders.push(directory);
        }
        for holder in &holders {
            holder.depths.needed.fetch_max(levels, Ordering::SeqCst);
            holder.ancestors(|inode, above| {
                inode.depths.needed.fetch_max(levels.saturating_sub(above), Ordering::SeqCst);
            });
        }
        let own = self.depths.shallowest.load(Ordering::SeqCst);
        let may = levels < own.max(1) && holders.iter().all(|holder| holder.least_depth() >= levels);
        if !may {
            self.depths.outdated.store(true, Ordering::SeqCst);
            holders.iter().for_each(|holder| holder.outdate(levels));
        }
        may
    }

    /// Marks this directory and its ancestors, as far as a past in a shallower place is what forbids a text to climb.
    fn outdate(&self, levels: u32) {
        let past = |inode: &Self, above: u32| {
            if inode.depths.shallowest.load(Ordering::SeqCst).saturating_add(above) < levels {
                inode.depths.outdated.store(true, Ordering::SeqCst);
            }
        };
        past(self, 0);
        self.ancestors(past);
    }

    /// Whether a lookup that finds this directory or link at `depth` should make it another inode.
    pub(super) fn is_outdated(&self, depth: u32) -> bool {
        let shallower = || self.depths.shallowest.load(Ordering::SeqCst) < depth;
        self.depths.outdated.load(Ordering::SeqCst) && (self.kind == Kind::Symlink || shallower())
    }

    /// Calls with each ancestor and how many levels above this inode it is.
    fn ancestors(&self, mut visit: impl FnMut(&Self, u32)) {
        let mut place = self.place();
        let mut above = 1;
        while let Place::Child(parent, _) = place {
            visit(&parent, above);
            above = above.saturating_add(1);
            place = parent.place();
        }
    }
}
