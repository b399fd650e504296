//! What a symbolic link means in the view.

use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::core::{Call, Core, Ends};
use crate::authorize::{Ask, Hides, Links, Op, Reason};
use crate::resolve::{self, Found, Last, Name, NameError, Spot, Start, walk};

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
            Found::Outside { host: Some(host), by_link, .. } if self.follows_outside(&host) => {
                // By a link that the kernel comes to on its way, it is that one which leads out.
                let as_it_is = by_link && climbs_first(text);
                Some(if as_it_is { text.to_vec() } else { host.into_os_string().into_vec() })
            }
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

    /// Adds to what is asked where a link with this text, made in the call's directory, would lead.
    pub(crate) fn judge_new_text(&self, call: &Call, text: &[u8], ask: &mut Ask<'_>) -> Result<(), Errno> {
        let (tree, inode) = call.inside()?;
        let names = inode.names().ok_or(Errno::NOENT)?;
        let start = Spot { root: std::sync::Arc::clone(&tree.root), names };
        let found = self.walk_with_room(call, &start, text)?;
        match found {
            Found::Outside { host: Some(host), .. } if self.follows_outside(&host) => {}
            Found::Outside { .. } | Found::Mount(_) => ask.outward = true,
            found if self.is_hidden(&found) => ask.hides = Hides::Result,
            _ => {}
        }
        Ok(())
    }

    /// Whether what a walk came to is hidden, or would be if it were there.
    pub(super) fn is_hidden(&self, found: &Found) -> bool {
        match found {
            Found::Missing { hidden: true, .. } => true,
            Found::Missing { spot, .. } => self.policy.hidden.hides_way(&spot.names),
            _ => false,
        }
    }

    /// No link is to be followed, and the kernel does not see to it: then none can be read.
    pub(super) fn follows_no_link(&self) -> bool {
        self.policy.links == Links::Strict && !self.unfollowed_by_kernel.load(Ordering::Relaxed)
    }

    /// Whether the policy lets links be followed to this path of the host: it is spelled, and leads, below a directory of
    /// `follow_outside`. One that leads nowhere fails by itself.
    pub(super) fn follows_outside(&self, host: &Path) -> bool {
        let below = |path: &Path| self.policy.follow_outside.iter().any(|prefix| path.starts_with(prefix));
        below(host)
            && match resolve::canonical(host) {
                Ok(object) => below(&object),
                Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
            }
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
