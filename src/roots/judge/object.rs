use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::authorize::Reason;
use crate::resolve::Name;
use crate::roots::{Root, RootKind};
use crate::sys::{ObjectId, anchor};

/// An object that may become a root, and what holds on to it.
pub(super) struct Object {
    /// Its own path, free of symbolic links.
    pub(super) canonical: PathBuf,
    pub(super) kind: RootKind,
    /// The directory, or the file's parent.
    pub(super) anchor: OwnedFd,
    /// What the anchor is.
    pub(super) id: ObjectId,
}

/// What is wrong with an object. `why` goes on after its name: "does not exist".
pub(super) struct Flaw {
    pub(super) reason: Reason,
    pub(super) why: String,
}

impl Flaw {
    pub(super) fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into() }
    }
}

impl From<Errno> for Flaw {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => {
                Self::new(Reason::NotFound, "does not exist; it appears in the view by itself once it does")
            }
            Errno::LOOP => Self::new(
                Reason::SymlinkLoop,
                "goes through too many symbolic links, or through a link of /proc; name the directory itself",
            ),
            Errno::NAMETOOLONG => Self::new(Reason::UnsafeName, "is longer than a path may be"),
            errno => Self::new(Reason::PermissionDenied, format!("cannot be opened: {errno}")),
        }
    }
}

impl Object {
    /// Takes hold of what `fd` is, by a path that has no symbolic links and leads back to the same object.
    pub(super) fn hold(fd: OwnedFd, own_mount: Option<u64>) -> Result<Self, Flaw> {
        let facts = anchor::facts(&fd)?;
        // First of all: any question to the view itself would wait for this process.
        if own_mount == Some(facts.id.mnt) {
            return Err(Flaw::new(Reason::OwnMount, "lies in this very view; name the directory behind it"));
        }
        if anchor::on_procfs(&fd)? {
            return Err(Flaw::new(Reason::SpecialFile, "lies on procfs, whose links lead out of every root"));
        }
        let canonical = anchor::path_of(&fd)?;
        match facts.file_type {
            FileType::Directory => {
                if anchor::facts(anchor::exact(&canonical)?)? != facts {
                    return Err(Errno::NOENT.into());
                }
                Ok(Self { canonical, kind: RootKind::Directory, anchor: fd, id: facts.id })
            }
            FileType::RegularFile => {
                let (parent, name) = split(&canonical).ok_or(Errno::NOENT)?;
                let parent = anchor::exact(parent)?;
                if anchor::facts(anchor::child(&parent, &name)?)? != facts {
                    return Err(Errno::NOENT.into());
                }
                let id = anchor::facts(&parent)?.id;
                Ok(Self { canonical, kind: RootKind::File(name), anchor: parent, id })
            }
            _ => Err(Flaw::new(Reason::SpecialFile, "is neither a directory nor a regular file")),
        }
    }

    /// Two spellings of one object.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.kind == other.kind
    }

    /// The object that `root` shows. The root's anchor pins its inode number, so an equal one is no newcomer.
    pub(super) fn is_shown_by(&self, root: &Root) -> bool {
        self.id == root.id && self.kind == root.kind && self.canonical == root.canonical
    }
}

/// Whether `root` is still what stands at its path. A file may have been replaced; its directory may not.
pub(super) fn stands(root: &Root) -> bool {
    let look = || -> rustix::io::Result<bool> {
        match &root.kind {
            RootKind::Directory => Ok(anchor::facts(anchor::exact(&root.canonical)?)?.id == root.id),
            RootKind::File(name) => {
                let parent = anchor::exact(root.canonical.parent().ok_or(Errno::NOENT)?)?;
                let file = anchor::facts(anchor::child(&parent, name)?)?;
                Ok(anchor::facts(&parent)?.id == root.id && file.file_type == FileType::RegularFile)
            }
        }
    };
    // A moment without descriptors or memory says nothing about the root.
    look().unwrap_or_else(|errno| {
        matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN)
    })
}

fn split(path: &Path) -> Option<(&Path, Name)> {
    Some((path.parent()?, Name::new(path.file_name()?.as_bytes()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_reason() {
        for (errno, reason) in [
            (Errno::NOENT, Reason::NotFound),
            (Errno::NOTDIR, Reason::NotFound),
            (Errno::ACCESS, Reason::PermissionDenied),
            (Errno::PERM, Reason::PermissionDenied),
            (Errno::IO, Reason::PermissionDenied),
            (Errno::LOOP, Reason::SymlinkLoop),
            (Errno::NAMETOOLONG, Reason::UnsafeName),
        ] {
            assert_eq!(Flaw::from(errno).reason, reason, "{errno}");
        }
    }
}
