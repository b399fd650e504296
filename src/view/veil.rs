//! What the policy hides of an operation: facts for the one decision.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::core::{Call, Core};
use super::tree::Tree;
use crate::authorize::{Hidden, Hides};
use crate::resolve::Name;
use crate::sys::Kind;

/// What is hidden of the names in one directory.
pub(super) struct Veil<'a> {
    hidden: &'a Hidden,
    /// From the root down to the directory.
    above: Vec<Name>,
}

impl Veil<'_> {
    pub(super) fn hides(&self, name: &Name, kind: Kind) -> bool {
        self.hidden.hides(self.above.iter().chain([name]), kind == Kind::Directory)
    }

    fn path(&self, name: &Name) -> Vec<Name> {
        self.above.iter().chain([name]).cloned().collect()
    }
}

impl Core {
    /// None where nothing is hidden.
    pub(super) fn veil(&self, call: &Call) -> Option<Veil<'_>> {
        if self.policy.hidden.is_empty() {
            return None;
        }
        let (_, directory) = call.inside().ok()?;
        // Below a name that was removed only what is hidden anywhere can be told; nothing can be made there.
        Some(Veil { hidden: &self.policy.hidden, above: directory.names().unwrap_or_default() })
    }

    /// What would be hidden of a name that is made for an object of this kind, or of what stands there by now.
    pub(super) fn hides_new(&self, call: &Call, name: &Name, kind: Kind) -> Result<Hides, Errno> {
        let Some(veil) = self.veil(call) else { return Ok(Hides::Nothing) };
        let hidden = veil.hides(name, kind) || self.stands_hidden(call, &veil, name)?;
        Ok(if hidden { Hides::Result } else { Hides::Nothing })
    }

    /// Whether what stands under this name is hidden.
    pub(super) fn hides_object(&self, call: &Call, name: &Name) -> Result<Hides, Errno> {
        let Some(veil) = self.veil(call) else { return Ok(Hides::Nothing) };
        Ok(if self.stands_hidden(call, &veil, name)? { Hides::Object } else { Hides::Nothing })
    }

    /// What is hidden of a move, at either end, or would be shown by it.
    pub(super) fn hides_of_move(&self, from: (&Call, &Name), to: (&Call, &Name), both: bool) -> Result<Hides, Errno> {
        let (Some(source), Some(target)) = (self.veil(from.0), self.veil(to.0)) else { return Ok(Hides::Nothing) };
        let (moved, met) = (self.kind_at(from.0, from.1)?, self.kind_at(to.0, to.1)?);
        if moved.is_some_and(|kind| source.hides(from.1, kind)) {
            return Ok(Hides::Object);
        }
        let shows = |kind: Option<Kind>, from: Vec<Name>, to: Vec<Name>| {
            kind == Some(Kind::Directory) && self.policy.hidden.shows_by_moving(&from, &to)
        };
        let result = moved.into_iter().chain(met).any(|kind| target.hides(to.1, kind))
            || shows(moved, source.path(from.1), target.path(to.1))
            || (both
                && (met.is_some_and(|kind| source.hides(from.1, kind))
                    || shows(met, target.path(to.1), source.path(from.1))));
        Ok(if result { Hides::Result } else { Hides::Nothing })
    }

    /// Whether an entry of a listing is hidden.
    pub(super) fn hides_entry(
        &self,
        (tree, dir): (&Tree, &OwnedFd),
        veil: &Veil<'_>,
        name: &[u8],
        kind: Option<Kind>,
    ) -> Result<bool, Errno> {
        let Ok(name) = Name::new(name) else { return Ok(false) };
        let other = || Ok(self.with_room(|| tree.step(dir, &name))?.1.kind);
        match kind.map_or_else(other, Ok) {
            Ok(kind) => Ok(veil.hides(&name, kind)),
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(errno),
            // Whatever it is.
            Err(_) => Ok(veil.hides(&name, Kind::File) || veil.hides(&name, Kind::Directory)),
        }
    }

    fn stands_hidden(&self, call: &Call, veil: &Veil<'_>, name: &Name) -> Result<bool, Errno> {
        let (file, directory) = (veil.hides(name, Kind::File), veil.hides(name, Kind::Directory));
        if file == directory {
            return Ok(file);
        }
        Ok(self.kind_at(call, name)?.is_some_and(|kind| veil.hides(name, kind)))
    }

    /// What stands under a name; None if nothing, or nothing that can be had: then the operation itself says why.
    fn kind_at(&self, call: &Call, name: &Name) -> Result<Option<Kind>, Errno> {
        let (tree, _) = call.inside()?;
        match self.with_room(|| tree.step(&*call.descriptor_in_place()?, name)) {
            Ok((_, stat)) => Ok(Some(stat.kind)),
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(errno),
            Err(_) => Ok(None),
        }
    }
}
