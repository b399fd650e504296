//! From a list as it was given to a [`Snapshot`]: what each element names, whether it may be shown, and under which name.

mod object;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use self::object::{Flaw, Object, stands};
use super::entry::{self, Candidate};
use super::uri::{self, BarePaths, Refusal};
use super::{Authority, Instance, RefusedRoot, Root, RootInput, RootKind, Snapshot};
use crate::authorize::{Hidden, Reason};
use crate::resolve::Name;
use crate::sys::anchor;

/// What the operator fixes for the life of a view.
#[derive(Clone, Debug, Default)]
pub struct JudgeOptions {
    /// The ceiling: a root that is neither this directory nor below it is refused (`--within`).
    pub within: Option<PathBuf>,
    /// `HOST=LOCAL` pairs for the paths of URIs, by whole components, the longest match first (`--map`).
    pub map: Vec<(PathBuf, PathBuf)>,
    /// A plain absolute path is accepted from anybody (`--bare-paths`).
    pub bare_paths: bool,
    /// Roots that may not be changed, each a path, a URI or an entry name (`--read-only-root`).
    pub read_only_roots: Vec<String>,
    /// A root that bears a hidden name itself is refused (`--hide`).
    pub hidden: Hidden,
}

/// How the names of a list are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Through whatever symbolic links there are now: somebody has given or confirmed the list.
    Anew,
    /// Nobody has: a root that was seen before is expected at the place it had then. A link put there meanwhile, perhaps by
    /// the very program that is held to the view, must not lead the root elsewhere.
    Again,
}

/// A judged list.
#[derive(Debug)]
pub struct Judgement {
    /// What is to be published.
    pub snapshot: Snapshot,
    /// For each element of the list, the root it became; several spellings of one object share one.
    pub chosen: Vec<Option<Instance>>,
}

/// The highest instance number: nodeids have 23 bits for it.
const INSTANCE_MAX: u32 = (1 << 23) - 1;

/// [`RefusedRoot::status`] of a root that appears by itself once it exists.
const MISSING: &str = "missing";

/// Judges root lists; the only maker of [`Root`]s and of their [`Instance`] numbers.
#[derive(Debug)]
pub struct Judge {
    options: JudgeOptions,
    /// The ceiling's own path, found once. A ceiling that could not be opened lets nothing through.
    ceiling: Option<Result<PathBuf, Errno>>,
    /// The highest instance number given out.
    last_instance: u32,
    /// Where the elements of the current list were found, by the path they were given by.
    homes: HashMap<PathBuf, PathBuf>,
}

/// What an element says, before the file system is asked.
struct Spelling {
    /// The local path, after `--map`.
    given: PathBuf,
    /// The normalized URI, before it.
    uri: String,
}

/// An element that may become a root.
struct Found {
    spelling: Spelling,
    asked: Option<Name>,
    display: Option<String>,
    object: Object,
}

impl Judge {
    /// A judge that has given out no instance yet.
    #[must_use]
    pub fn new(options: JudgeOptions) -> Self {
        let ceiling = options.within.as_deref().map(own_path);
        Self { options, ceiling, last_instance: 0, homes: HashMap::new() }
    }

    /// Judges `inputs` into the snapshot after `previous`. A root of `previous` whose object, place, kind and rights are
    /// unchanged stays the same instance, with the same entry and an anchor of the same open file description; if only what
    /// it is called by (URI, given path, display name) has changed, a new [`Root`] carries the instance on. Elements that
    /// cannot be shown are left out, each with its own reason.
    ///
    /// `own_mount` is the mount id of the view, in which no root may lie.
    #[must_use]
    pub fn judge(
        &mut self,
        authority: Authority,
        inputs: &[RootInput],
        previous: Option<&Snapshot>,
        own_mount: Option<u64>,
        look: Look,
    ) -> Judgement {
        let mut found: Vec<Found> = Vec::new();
        let mut refused: Vec<(usize, Refusal)> = Vec::new();
        // Which of `found` each element is.
        let mut became: Vec<Option<usize>> = Vec::with_capacity(inputs.len());
        let mut homes = HashMap::new();
        for (index, input) in inputs.iter().enumerate() {
            match self.examine(input, own_mount, look, &mut homes) {
                Ok(new) => became.push(Some(join(&mut found, new))),
                Err(refusal) => {
                    became.push(None);
                    refused.push((index, refusal));
                }
            }
        }
        self.homes = homes;

        let old: &[Arc<Root>] = previous.map_or(&[], |snapshot| &snapshot.roots);
        let names = names(&found, old);
        let read_only = self.read_only_paths();
        let admitted: Vec<Result<Arc<Root>, Flaw>> = found
            .into_iter()
            .zip(names)
            .map(|(found, entry)| {
                let read_only = self.is_read_only(&found, &entry, &read_only);
                self.admit(found, entry, read_only, old)
            })
            .collect();
        let mut chosen = Vec::with_capacity(inputs.len());
        for (index, (input, became)) in inputs.iter().zip(became).enumerate() {
            chosen.push(match became.and_then(|at| admitted.get(at)) {
                Some(Ok(root)) => Some(root.instance),
                Some(Err(flaw)) => {
                    refused.push((index, refusal(input, flaw)));
                    None
                }
                None => None,
            });
        }

        let mut roots: Vec<Arc<Root>> = admitted.into_iter().filter_map(Result::ok).collect();
        roots.sort_by(|a, b| a.entry.cmp(&b.entry));
        refused.sort_by_key(|(index, _)| *index);
        // The same element twice is left out once.
        let mut told = HashSet::new();
        let refused = refused
            .into_iter()
            .filter_map(|(index, why)| inputs.get(index).map(|input| left_out(input, why)))
            .filter(|root| told.insert((root.uri.clone(), root.reason)))
            .collect();
        let generation = previous.map_or(0, |snapshot| snapshot.generation) + 1;
        Judgement { snapshot: Snapshot { generation, authority, roots, refused }, chosen }
    }

    /// Whether judging `inputs` with [`Look::Again`] may come to something other than `snapshot`: a missing root is there
    /// now, or an active one is gone or was replaced. Opens each of them once and reads nothing.
    #[must_use]
    pub fn changed(&self, inputs: &[RootInput], snapshot: &Snapshot) -> bool {
        let missing: HashSet<&str> =
            snapshot.refused.iter().filter(|root| root.status == MISSING).map(|root| root.uri.as_str()).collect();
        !snapshot.roots.iter().all(|root| stands(root))
            || inputs.iter().filter(|input| missing.contains(input.uri.as_str())).any(|input| {
                self.spelling(input).is_ok_and(|spelling| {
                    !matches!(self.open(&spelling.given, Look::Again), Err(Errno::NOENT | Errno::NOTDIR))
                })
            })
    }

    /// The `--read-only-root`s that name nothing in a list: what they were meant for can be written.
    #[must_use]
    pub fn unmatched_read_only(&self, inputs: &[RootInput], snapshot: &Snapshot) -> Vec<&str> {
        let matches = |key: &str| {
            let active = |root: &Arc<Root>| root.entry.as_bytes() == key.as_bytes() || self.leads_to(key, root);
            snapshot.roots.iter().any(active) || inputs.iter().any(|input| self.spells(key, input))
        };
        self.options.read_only_roots.iter().map(String::as_str).filter(|key| !matches(key)).collect()
    }

    /// Whether `key`, a path or a URI, is a spelling of `input`. Nothing is opened.
    #[must_use]
    pub fn spells(&self, key: &str, input: &RootInput) -> bool {
        let key = spoken(key);
        key.uri == input.uri
            || match (self.spelling(&key), self.spelling(input)) {
                (Ok(key), Ok(input)) => key.given == input.given || key.uri == input.uri,
                _ => false,
            }
    }

    /// Whether `key`, a path or a URI, is what `root` was called or its own path. Nothing is opened.
    #[must_use]
    pub fn leads_to(&self, key: &str, root: &Root) -> bool {
        self.spelling(&spoken(key))
            .is_ok_and(|key| key.given == root.given || key.given == root.canonical || key.uri == root.uri)
    }

    fn spelling(&self, input: &RootInput) -> Result<Spelling, Refusal> {
        let accept = self.options.bare_paths || input.path_allowed;
        let path = uri::parse(&input.uri, if accept { BarePaths::Accept } else { BarePaths::Refuse })?;
        let uri = uri::to_uri(&path);
        // A plain path from the operator is a local one already.
        let local = input.path_allowed && input.uri.starts_with('/');
        Ok(Spelling { given: if local { path } else { self.mapped(path) }, uri })
    }

    fn mapped(&self, path: PathBuf) -> PathBuf {
        let matching =
            self.options.map.iter().filter_map(|(host, local)| Some((host, local, path.strip_prefix(host).ok()?)));
        match matching.max_by_key(|(host, ..)| host.components().count()) {
            Some((_, local, rest)) => local.components().chain(rest.components()).collect(),
            None => path,
        }
    }

    fn open(&self, given: &Path, look: Look) -> rustix::io::Result<OwnedFd> {
        match (look, self.homes.get(given)) {
            // A link in its place is not the root: as good as missing, until the root is back.
            (Look::Again, Some(home)) => {
                anchor::exact(home).map_err(|errno| if errno == Errno::LOOP { Errno::NOENT } else { errno })
            }
            _ => anchor::follow(given),
        }
    }

    /// Finds what one element names, and notes in `homes` where.
    fn examine(
        &self,
        input: &RootInput,
        own_mount: Option<u64>,
        look: Look,
        homes: &mut HashMap<PathBuf, PathBuf>,
    ) -> Result<Found, Refusal> {
        let spelling = self.spelling(input)?;
        if let Some(home) = self.homes.get(&spelling.given) {
            homes.insert(spelling.given.clone(), home.clone());
        }
        let object = self
            .open(&spelling.given, look)
            .map_err(Flaw::from)
            .and_then(|fd| Object::hold(fd, own_mount))
            .and_then(|object| self.below_ceiling(&object.canonical).map(|()| object))
            .and_then(|object| self.is_shown(&object).map(|()| object))
            .map_err(|flaw| refusal(input, &flaw))?;
        homes.insert(spelling.given.clone(), object.canonical.clone());
        let asked = input.entry.as_ref().map(Name::new).transpose().map_err(|error| {
            let why = format!("cannot stand under {:?}: {error}", input.entry.as_deref().unwrap_or_default());
            refusal(input, &Flaw::new(Reason::UnsafeName, why))
        })?;
        Ok(Found { spelling, asked, display: input.name.clone(), object })
    }

    fn below_ceiling(&self, canonical: &Path) -> Result<(), Flaw> {
        match &self.ceiling {
            None => Ok(()),
            Some(Ok(ceiling)) if canonical.starts_with(ceiling) => Ok(()),
            Some(Ok(ceiling)) => {
                let why = format!("is {}, outside --within {}", canonical.display(), ceiling.display());
                Err(Flaw::new(Reason::OutsideCeiling, why))
            }
            Some(Err(errno)) => {
                let why =
                    format!("is refused as every root is, because the directory of --within cannot be opened: {errno}");
                Err(Flaw::new(Reason::OutsideCeiling, why))
            }
        }
    }

    /// Whoever names a hidden object as a root must not see it so.
    fn is_shown(&self, object: &Object) -> Result<(), Flaw> {
        let name = object.canonical.file_name().and_then(|name| Name::new(name.as_bytes()).ok());
        if name.is_some_and(|name| self.options.hidden.hides([&name], object.kind == RootKind::Directory)) {
            return Err(Flaw::new(Reason::Hidden, format!("is {}, which --hide hides", object.canonical.display())));
        }
        Ok(())
    }

    /// Every path by which the operator may have meant a read-only root: as written, mapped, and the object's own.
    fn read_only_paths(&self) -> HashSet<PathBuf> {
        let mut paths = HashSet::new();
        for uri in &self.options.read_only_roots {
            if let Ok(Spelling { given, .. }) = self.spelling(&spoken(uri)) {
                paths.extend(own_path(&given));
                paths.insert(given);
            }
        }
        paths
    }

    fn is_read_only(&self, found: &Found, entry: &Name, paths: &HashSet<PathBuf>) -> bool {
        paths.contains(&found.spelling.given)
            || paths.contains(&found.object.canonical)
            || self.options.read_only_roots.iter().any(|root| root.as_bytes() == entry.as_bytes())
    }

    /// The root of `old` that `found` still is, or a new instance.
    fn admit(&mut self, found: Found, entry: Name, read_only: bool, old: &[Arc<Root>]) -> Result<Arc<Root>, Flaw> {
        let Found { spelling: Spelling { given, uri }, display, object, .. } = found;
        let retained =
            old.iter().find(|root| object.is_shown_by(root) && root.entry == entry && root.read_only == read_only);
        let (instance, anchor) = match retained {
            Some(root) if root.uri == uri && root.given == given && root.display == display => {
                return Ok(Arc::clone(root));
            }
            // Not the new descriptor: the view's own are relative to the first one. Out of descriptors, the old words stand.
            Some(root) => match root.anchor.try_clone() {
                Ok(anchor) => (root.instance, anchor),
                Err(_) => return Ok(Arc::clone(root)),
            },
            None => (self.next_instance()?, object.anchor),
        };
        let (canonical, kind, id) = (object.canonical, object.kind, object.id);
        Ok(Arc::new(Root { instance, entry, uri, display, given, canonical, kind, anchor, id, read_only }))
    }

    fn next_instance(&mut self) -> Result<Instance, Flaw> {
        if self.last_instance >= INSTANCE_MAX {
            let why =
                format!("cannot be numbered: this view has shown {INSTANCE_MAX} roots; unmount it and mount it again");
            return Err(Flaw::new(Reason::PermissionDenied, why));
        }
        self.last_instance += 1;
        Ok(Instance(self.last_instance))
    }
}

/// What the operator calls a root: a URI or a local path.
fn spoken(key: &str) -> RootInput {
    RootInput { uri: key.to_owned(), name: None, entry: None, path_allowed: true }
}

fn own_path(path: &Path) -> rustix::io::Result<PathBuf> {
    anchor::path_of(anchor::follow(path)?)
}

/// Adds `new` to `found`, or what it says to the earlier spelling of the same object; returns where it is.
fn join(found: &mut Vec<Found>, new: Found) -> usize {
    match found.iter_mut().enumerate().find(|(_, old)| old.object.is(&new.object)) {
        Some((at, old)) => {
            old.asked = old.asked.take().or(new.asked);
            old.display = old.display.take().or(new.display);
            at
        }
        None => {
            found.push(new);
            found.len() - 1
        }
    }
}

/// Entry names for `found`. What stands at a root's path, be it a new object, keeps the name the root had, unless the
/// operator now asks for another.
fn names(found: &[Found], old: &[Arc<Root>]) -> Vec<Name> {
    let candidates: Vec<Candidate<'_>> = found
        .iter()
        .map(|found| {
            let before = old.iter().find(|root| root.canonical == found.object.canonical).map(|root| &root.entry);
            Candidate {
                given: &found.spelling.given,
                canonical: &found.object.canonical,
                asked: found.asked.as_ref(),
                retained: before.filter(|entry| found.asked.as_ref().is_none_or(|asked| asked == *entry)),
            }
        })
        .collect();
    entry::assign(&candidates)
}

fn refusal(input: &RootInput, flaw: &Flaw) -> Refusal {
    Refusal { reason: flaw.reason, detail: format!("{:?} {}", input.uri, flaw.why) }
}

fn left_out(input: &RootInput, refusal: Refusal) -> RefusedRoot {
    RefusedRoot {
        uri: input.uri.clone(),
        name: input.name.clone(),
        status: if refusal.reason == Reason::NotFound { MISSING } else { "refused" },
        reason: refusal.reason,
        detail: refusal.detail,
    }
}
