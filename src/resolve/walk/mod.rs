#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::authorize::Hidden;
use crate::resolve::{Name, NameError};
use crate::roots::{Root, RootKind, Snapshot};
use crate::sys::{self, Kind, Mounts, Stat};

/// Links followed in one walk, as the kernel's own limit (`path_resolution(7)`, `MAXSYMLINKS`).
pub(super) const MAX_LINKS: u32 = 40;

/// What a walk may stand on: the active roots and where the view itself is mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) mountpoint: &'a Path,
    pub(crate) mounts: Mounts,
    /// What is as good as not there.
    pub(crate) hidden: &'a Hidden,
}

/// A place in the view: a root and the names from it down to an object.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) root: Arc<Root>,
    pub(crate) names: Vec<Name>,
}

/// Where a walk begins, which also says how its `..` is meant.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// The text of a link in this directory: `..` above the root is the root's parent on the backing.
    Link(Spot),
    /// The top directory of the view: `..` above a root is the top.
    Top,
    /// `/` of the host.
    Host,
}

/// Whose `..` a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    View,
    Backing,
}

/// Whether a symbolic link in the last component is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// Where a walk ended.
#[derive(Debug)]
pub(crate) enum Found {
    /// The top directory of the view.
    Top,
    /// An object in a root.
    Object {
        spot: Spot,
        stat: Box<Stat>,
        /// The walk left the root it began in, so the same text means something else in the view.
        left: bool,
    },
    /// Inside a root, but nothing is there.
    Missing {
        spot: Spot,
        /// Only the last name is missing.
        parent_exists: bool,
        left: bool,
        /// It, or a directory on the way to it, is hidden.
        hidden: bool,
    },
    /// Outside every active root, whether or not anything is there.
    Outside {
        /// The last link that was followed before the walk came there.
        through: Option<Spot>,
        /// The path on the host, if it can be told without asking the host.
        host: Option<PathBuf>,
        /// The path given did not itself lead out of its root, but a link that it came to.
        by_link: bool,
    },
    /// Another file system's mount point, perhaps our own.
    Mount(Spot),
    /// A name over 255 bytes, or with NUL in it.
    Unsafe(NameError),
    /// Too many links.
    Loop,
    /// The backing file system refused a step.
    Refused(Spot, Errno),
}

/// Walks a path, one component and one descriptor at a time, as the kernel would, and says where it ends under the
/// current roots.
///
/// | step | goes to |
/// | --- | --- |
/// | a name | below the descriptor in hand, never through a link or (by default) a mount |
/// | `..` | the descriptor before; above a root's own directory see [`Start`] |
/// | a link | its text, from the directory that holds it, in the layout of the backing |
/// | an absolute text, or `..` above a root on the backing | plain names from there until they spell an active root or the mountpoint; anything else is outside |
///
/// The spelling of an active root that counts is its canonical path, which has no links in it, or the one it was given by.
pub(crate) fn walk(ground: Ground<'_>, start: Start, path: &[u8], last: Last) -> Found {
    let mut walker =
        Walker { ground, place: None, pending: VecDeque::new(), links: 0, through: None, left: false, by_link: false };
    walker.push(path, if matches!(start, Start::Top) { Layout::View } else { Layout::Backing });
    let outcome = match start {
        Start::Host => walker.enter_absolute(),
        Start::Link(_) | Start::Top if path.starts_with(b"/") => walker.enter_absolute(),
        Start::Link(spot) => {
            // The kernel has walked these; they are opened only if the walk needs them.
            walker.place = Some((spot.root, spot.names.into_iter().map(|name| (name, None)).collect()));
            Ok(())
        }
        Start::Top => Ok(()),
    };
    match outcome.and_then(|()| walker.run(last)) {
        Ok(found) | Err(found) => found,
    }
}

/// A root and the names of the directories below it, with their descriptors where the walk has come through them.
type Position = (Arc<Root>, Vec<(Name, Option<OwnedFd>)>);

/// A walk in progress; `Err` of its steps is the end of the walk.
struct Walker<'a> {
    ground: Ground<'a>,
    /// Where it stands; None at the top of the view.
    place: Option<Position>,
    pending: VecDeque<(Vec<u8>, Layout)>,
    links: u32,
    /// The last link followed.
    through: Option<Spot>,
    left: bool,
    by_link: bool,
}

impl Walker<'_> {
    fn push(&mut self, path: &[u8], layout: Layout) {
        if path.ends_with(b"/") || path.ends_with(b"/.") {
            // What stands before it must be a directory (path_resolution(7)).
            self.pending.push_front((b".".to_vec(), layout));
        }
        for component in path.split(|byte| *byte == b'/').rev().filter(|c| !c.is_empty() && *c != b".") {
            self.pending.push_front((component.to_vec(), layout));
        }
    }

    fn outside(&self) -> Found {
        self.outside_at(None)
    }

    fn outside_at(&self, host: Option<PathBuf>) -> Found {
        Found::Outside { through: self.through.clone(), host, by_link: self.by_link }
    }

    fn spot(&self, further: impl IntoIterator<Item = Name>) -> Option<Spot> {
        let (root, stack) = self.place.as_ref()?;
        let names = stack.iter().map(|(name, _)| name.clone()).chain(further).collect();
        Some(Spot { root: Arc::clone(root), names })
    }

    /// The directory in hand.
    fn directory(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        let mounts = self.ground.mounts;
        let Some((root, stack)) = &mut self.place else { return Err(Errno::NOTDIR) };
        if stack.is_empty() {
            return match root.kind {
                RootKind::Directory => Ok(root.anchor.as_fd()),
                RootKind::File(_) => Err(Errno::NOTDIR),
            };
        }
        if let Some((_, None)) = stack.last() {
            let names: Vec<_> = stack.iter().map(|(name, _)| name.clone()).collect();
            let fd = sys::open_below(&root.anchor, &names, mounts)?;
            if let Some((_, slot)) = stack.last_mut() {
                *slot = Some(fd);
            }
        }
        stack.last().and_then(|(_, fd)| fd.as_ref()).map(AsFd::as_fd).ok_or(Errno::NOTDIR)
    }

    fn open(&mut self, name: &Name) -> Result<(OwnedFd, Stat), Found> {
        if self.place.is_none() {
            return Err(self.outside());
        }
        let mounts = self.ground.mounts;
        let opened = self.directory().and_then(|dir| sys::open_child(dir, name, mounts));
        let stat = opened.and_then(|fd| sys::stat(&fd).map(|stat| (fd, stat)));
        if let (Ok((_, stat)), false) = (&stat, self.ground.hidden.is_empty())
            && let Some(spot) = self.spot([name.clone()])
            && self.ground.hidden.hides(&spot.names, stat.kind == Kind::Directory)
        {
            return Err(Found::Missing { spot, parent_exists: true, left: self.left, hidden: true });
        }
        stat.map_err(|errno| match (errno, self.spot([name.clone()])) {
            (Errno::NOENT, Some(spot)) => Found::Missing { spot, parent_exists: true, left: self.left, hidden: false },
            (Errno::XDEV, Some(spot)) => Found::Mount(spot),
            (errno, Some(spot)) => Found::Refused(spot, errno),
            (_, None) => self.outside(),
        })
    }

    fn run(&mut self, last: Last) -> Result<Found, Found> {
        while let Some((component, layout)) = self.pending.pop_front() {
            if component == b"." {
                // The name before it was a directory, or the walk would have ended there.
            } else if self.place.is_none() {
                self.step_from_top(&component)?;
            } else if component == b".." {
                self.step_up(layout)?;
            } else if let Some(end) = self.step_down(&component, last)? {
                return Ok(end);
            }
        }
        self.end_here()
    }

    fn step_from_top(&mut self, component: &[u8]) -> Result<(), Found> {
        // `..` of the mountpoint is the host, and no entry is called that.
        let root = self.ground.snapshot.by_entry(component).ok_or_else(|| self.outside())?;
        self.place = Some((Arc::clone(root), Vec::new()));
        Ok(())
    }

    fn step_up(&mut self, layout: Layout) -> Result<(), Found> {
        let Some((root, stack)) = &mut self.place else { return Err(self.outside()) };
        if stack.pop().is_some() {
            return Ok(());
        }
        if layout == Layout::View {
            self.place = None;
            return Ok(());
        }
        let above = root.canonical.parent().unwrap_or(Path::new("/")).to_path_buf();
        self.left = true;
        self.enter_from(&above)
    }

    /// One name; `Some` when the walk ends at it.
    fn step_down(&mut self, component: &[u8], last: Last) -> Result<Option<Found>, Found> {
        let name = Name::new(component).map_err(Found::Unsafe)?;
        let (fd, stat) = match self.open(&name) {
            Err(Found::Missing { spot, left, hidden, .. }) if self.pending.iter().any(|(rest, _)| rest != b".") => {
                return Err(self.beyond(spot, left, hidden));
            }
            other => other?,
        };
        if stat.kind == Kind::Symlink && (last == Last::Follow || !self.pending.is_empty()) {
            self.links += 1;
            self.by_link |= self.links == 1 && !self.left;
            if self.links > MAX_LINKS {
                return Err(Found::Loop);
            }
            self.through = self.spot([name.clone()]);
            let text = sys::link_text(&fd).map_err(|errno| self.refused(&name, errno))?;
            self.push(&text, Layout::Backing);
            if text.starts_with(b"/") {
                self.enter_absolute()?;
            }
            return Ok(None);
        }
        if stat.kind == Kind::Directory {
            if let Some((_, stack)) = &mut self.place {
                stack.push((name, Some(fd)));
            }
            return Ok(None);
        }
        if !self.pending.is_empty() {
            return Err(self.refused(&name, Errno::NOTDIR));
        }
        match self.spot([name]) {
            Some(spot) => Ok(Some(Found::Object { spot, stat: Box::new(stat), left: self.left })),
            None => Err(self.outside()),
        }
    }

    fn refused(&self, name: &Name, errno: Errno) -> Found {
        self.spot([name.clone()]).map_or_else(|| self.outside(), |spot| Found::Refused(spot, errno))
    }

    /// The rest of a path below a name that does not exist. Nothing can be opened there, so the names alone are weighed, and
    /// one `..` too many is outside. The path ends before the first `..`, for nothing is followed up from there.
    fn beyond(&mut self, mut spot: Spot, left: bool, hidden: bool) -> Found {
        let mut end = None;
        while let Some((component, _)) = self.pending.pop_front() {
            if component == b".." {
                end = end.or_else(|| Some(spot.names.clone()));
                if spot.names.pop().is_none() {
                    return self.outside();
                }
                continue;
            }
            if component == b"." {
                continue;
            }
            match Name::new(&component) {
                Ok(name) => spot.names.push(name),
                Err(error) => return Found::Unsafe(error),
            }
        }
        spot.names = end.unwrap_or(spot.names);
        Found::Missing { spot, parent_exists: false, left, hidden }
    }

    fn end_here(&mut self) -> Result<Found, Found> {
        let Some(spot) = self.spot([]) else { return Ok(Found::Top) };
        let stat = match &spot.root.kind {
            RootKind::File(name) => {
                sys::open_child(&spot.root.anchor, name, Mounts::default()).and_then(|file| sys::stat(&file))
            }
            RootKind::Directory => self.directory().and_then(sys::stat),
        };
        match stat {
            Ok(stat) => Ok(Found::Object { spot, stat: Box::new(stat), left: self.left }),
            Err(Errno::NOENT) => Ok(Found::Missing { spot, parent_exists: true, left: self.left, hidden: false }),
            Err(errno) => Err(Found::Refused(spot, errno)),
        }
    }

    fn enter_absolute(&mut self) -> Result<(), Found> {
        self.left = true;
        self.enter_from(Path::new("/"))
    }

    /// Goes down from a directory on the host that is known to be free of links, by the pending components, until they
    /// spell the mountpoint or an active root. Once a name was taken on trust, `..` cannot be: it may be a link.
    fn enter_from(&mut self, known: &Path) -> Result<(), Found> {
        let mut at: Vec<Vec<u8>> = bytes_of(known);
        let mut trusted = at.len();
        loop {
            if at == bytes_of(self.ground.mountpoint) {
                // What is left is walked by the kernel in the view.
                self.place = None;
                self.pending.iter_mut().for_each(|(_, layout)| *layout = Layout::View);
                return Ok(());
            }
            let spelled = |path: &Path| bytes_of(path) == at;
            let mut roots = self.ground.snapshot.roots.iter();
            if let Some(root) = roots.find(|root| spelled(&root.canonical) || spelled(&root.given)) {
                self.place = Some((Arc::clone(root), Vec::new()));
                return Ok(());
            }
            match self.pending.pop_front() {
                None => return Err(self.outside_at(Some(path_of(&at)))),
                Some((component, _)) if component == b".." => {
                    if at.len() > trusted {
                        return Err(self.outside());
                    }
                    at.pop();
                    trusted = at.len();
                }
                Some((component, _)) if component == b"." => {}
                Some((component, _)) => at.push(component),
            }
        }
    }
}

fn path_of(components: &[Vec<u8>]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let names = components.iter().map(|component| std::ffi::OsStr::from_bytes(component));
    Path::new("/").join(names.collect::<PathBuf>())
}

fn bytes_of(path: &Path) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.as_bytes().to_vec()),
            _ => None,
        })
        .collect()
}
