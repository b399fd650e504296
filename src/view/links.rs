//! What a symbolic link means in the view.

use rustix::io::Errno;

use super::core::{Call, Core, Ends};
use crate::authorize::{Op, Reason};
use crate::resolve::{Found, Last, Name, NameError, Spot, Start, walk};

impl Core {
    /// The text under which the call's link works in the view; None when it leads outside.
    ///
    /// A text that stays in its root means the same here as on the backing and is handed out as it is. One that is
    /// absolute, or leaves the root and comes back to an active one, is rewritten relative to the link's place in the
    /// view, because the kernel follows it from there in the caller's own namespace.
    pub(crate) fn judge_text(&self, call: &Call, text: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let (tree, inode) = call.inside()?;
        let mut names = inode.names().ok_or(Errno::STALE)?;
        names.pop();
        let start = Spot { root: std::sync::Arc::clone(&tree.root), names };
        let found = self.walk_with_room(call, &start, text)?;
        let rewritten = |spot: &Spot| Some(relative(&start, Some(spot)));
        let shown = match found {
            Found::Object { left: false, .. } | Found::Missing { left: false, .. } if climbs_first(text) => {
                Some(text.to_vec())
            }
            Found::Object { spot, .. } | Found::Missing { spot, .. } => rewritten(&spot),
            Found::Top => Some(relative(&start, None)),
            Found::Outside { .. } | Found::Mount(_) | Found::Unsafe(NameError::Unsafe) => None,
            // Following these fails by itself, in the kernel's own words.
            Found::Loop | Found::Refused(_, Errno::ACCESS | Errno::NOTDIR) | Found::Unsafe(NameError::TooLong)
                if climbs_first(text) =>
            {
                Some(text.to_vec())
            }
            Found::Unsafe(NameError::TooLong) => return Err(Errno::NAMETOOLONG),
            Found::Loop => return Err(self.refuse(&Ends::of(call), Op::Readlink, Reason::SymlinkLoop, Errno::LOOP)),
            Found::Refused(_, errno) => return Err(errno),
        };
        match shown {
            // Where it can be followed from by the time the kernel does is judged last.
            Some(text) if !inode.may_climb(leading_climbs(&text)) => {
                Err(self.refuse(&Ends::of(call), Op::Readlink, Reason::SymlinkOutside, Errno::STALE))
            }
            shown => Ok(shown),
        }
    }

    fn walk_with_room(&self, call: &Call, start: &Spot, text: &[u8]) -> Result<Found, Errno> {
        self.with_room(|| match walk(self.ground(&call.current), Start::Link(start.clone()), text, Last::Follow) {
            Found::Refused(_, errno @ (Errno::MFILE | Errno::NFILE)) => Err(errno),
            found => Ok(found),
        })
    }

    /// Whether a link with this text, made in the call's directory, would lead outside.
    pub(crate) fn points_outside(&self, call: &Call, text: &[u8]) -> Result<bool, Errno> {
        let (tree, inode) = call.inside()?;
        let names = inode.names().ok_or(Errno::NOENT)?;
        let start = Spot { root: std::sync::Arc::clone(&tree.root), names };
        let found = self.walk_with_room(call, &start, text)?;
        Ok(matches!(found, Found::Outside { .. } | Found::Mount(_)))
    }
}

/// How many `..` a text begins with.
fn leading_climbs(text: &[u8]) -> u32 {
    let parts = text.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    u32::try_from(parts.take_while(|part| *part == b"..").count()).unwrap_or(u32::MAX)
}

/// Whether every `..` of a relative text stands before the first name. After a name it would climb from wherever that name
/// leads when the kernel comes to it.
fn climbs_first(text: &[u8]) -> bool {
    let all = text.split(|byte| *byte == b'/').filter(|part| *part == b"..").count();
    !text.starts_with(b"/") && usize::try_from(leading_climbs(text)).is_ok_and(|leading| leading == all)
}

/// The shortest way from a directory of the view to a place in it: `..` and then names.
fn relative(from: &Spot, to: Option<&Spot>) -> Vec<u8> {
    let same = to.filter(|to| to.root.instance == from.root.instance);
    let shared = same.map(|to| from.names.iter().zip(&to.names).take_while(|(a, b)| a == b).count());
    let climbs = match shared {
        Some(shared) => from.names.len() - shared,
        None => from.names.len() + 1,
    };
    let mut parts: Vec<&[u8]> = vec![b".."; climbs];
    if let Some(to) = to {
        if shared.is_none() {
            parts.push(to.root.entry.as_bytes());
        }
        parts.extend(to.names.iter().skip(shared.unwrap_or(0)).map(Name::as_bytes));
    }
    if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') }
}
