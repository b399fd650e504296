use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::Authority;
use crate::authorize::Reason;
use crate::resolve::Name;
use crate::sys::ObjectId;

/// The number of a root instance. It never repeats in the life of a mount and stands in the high bits of every nodeid of
/// the instance's tree, so that an old handle can never mean a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Instance(pub u32);

/// What a root is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// A directory; the anchor is that directory.
    Directory,
    /// A single file; the anchor is its parent, so that a file replaced by an atomic save is still the root.
    File(Name),
}

/// An active root: judged, canonical and anchored.
///
/// From one snapshot to the next, the same [`Instance`] means the same object, entry, rights and open file description of
/// the anchor. Only what it is called by (`uri`, `given`, `display`) may differ, in a new `Root`.
#[derive(Debug)]
pub struct Root {
    /// Which instance this is.
    pub instance: Instance,
    /// The name at the top of the view.
    pub entry: Name,
    /// The URI, normalized (`file:///…`).
    pub uri: String,
    /// The display name from the wire.
    pub display: Option<String>,
    /// The path that was given, decoded; differs from `canonical` when it went through a symbolic link.
    pub given: PathBuf,
    /// The object's own path, free of symbolic links, when it was judged.
    pub canonical: PathBuf,
    /// Directory or file.
    pub kind: RootKind,
    /// `O_PATH` descriptor of the directory, or of a file root's parent.
    pub anchor: OwnedFd,
    /// What the anchor is.
    pub id: ObjectId,
    /// No change is allowed below this root.
    pub read_only: bool,
}

/// An element of the list that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedRoot {
    /// What was given.
    pub uri: String,
    /// The display name from the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `missing` (it appears by itself once it exists) or `refused`.
    pub status: &'static str,
    /// Why.
    pub reason: Reason,
    /// One sentence for people.
    pub detail: String,
}

/// A judged root list. Immutable; the generation grows by one at each publication.
#[derive(Debug)]
pub struct Snapshot {
    /// The number of this snapshot, from 1.
    pub generation: u64,
    /// Who supplied the list.
    pub authority: Authority,
    /// The active roots, in the order of their entry names.
    pub roots: Vec<Arc<Root>>,
    /// What was left out, in list order.
    pub refused: Vec<RefusedRoot>,
}

impl Snapshot {
    /// The root with this entry name.
    #[must_use]
    pub fn by_entry(&self, entry: &[u8]) -> Option<&Arc<Root>> {
        self.roots.iter().find(|root| root.entry.as_bytes() == entry)
    }
}
