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
        let depth = names.len() + 1;
        let start = Spot { root: std::sync::Arc::clone(&tree.root), names };
        let found = self.walk_with_room(call, &start, text)?;
        let rewritten = |spot: &Spot| Some(relative(depth, Some(spot)));
        // What could not be walked to its end is handed out only where no `..` could climb out of the view later.
        let climbs = text.starts_with(b"/") || text.split(|byte| *byte == b'/').any(|part| part == b"..");
        Ok(match found {
            Found::Object { left: false, .. } | Found::Missing { left: false, .. } => Some(text.to_vec()),
            Found::Object { spot, .. } | Found::Missing { spot, .. } => rewritten(&spot),
            Found::Top => Some(relative(depth, None)),
            Found::Outside { .. } | Found::Mount(_) | Found::Unsafe(NameError::Unsafe) => None,
            Found::Unsafe(NameError::TooLong) => return Err(Errno::NAMETOOLONG),
            // Following these fails by itself, in the kernel's own words.
            Found::Loop | Found::Refused(_, Errno::ACCESS | Errno::NOTDIR) if !climbs => Some(text.to_vec()),
            Found::Loop => return Err(self.refuse(&Ends::of(call), Op::Readlink, Reason::SymlinkLoop, Errno::LOOP)),
            Found::Refused(_, errno) => return Err(errno),
        })
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

/// The way from a directory `depth` levels below the top of the view to a place in it.
fn relative(depth: usize, to: Option<&Spot>) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = vec![b".."; depth];
    if let Some(spot) = to {
        parts.push(spot.root.entry.as_bytes());
        parts.extend(spot.names.iter().map(Name::as_bytes));
    }
    parts.join(&b'/')
}
