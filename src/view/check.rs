use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use serde::Serialize;

use super::core::{Core, Current, Retired, errno_name};
use crate::authorize::{Ask, Hides, Op, Place, Reason, Verdict, decide};
use crate::record::{Decision, Outcome};
use crate::resolve::{Found, Last, Name, Spot, Start, walk};
use crate::roots::{ListState, uri};
use crate::sys::Kind;

/// A question of `rootsfs check` or `explain_access`.
#[derive(Clone, Debug)]
pub struct CheckQuery {
    /// Below the mountpoint, relative to it, a backing path, or a `file://` URI.
    pub path: String,
    /// What would be done.
    pub op: Op,
    /// The other end of a rename or link, in any of the same forms.
    pub to: Option<String>,
    /// The generation the asker believes in; any other one is denied as `stale-generation`.
    pub generation: Option<u64>,
    /// Who asks.
    pub uid: u32,
    /// The asking process.
    pub pid: u32,
}

/// The answer: a decision in the record's shape.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// One sentence for people.
    pub detail: String,
}

/// One end of the operation, found.
enum End {
    Top,
    /// On the host, by a link that the policy lets be followed.
    Followed(PathBuf),
    At {
        spot: Spot,
        kind: Option<Kind>,
        parent_exists: bool,
        hidden: bool,
    },
}

/// Why an end is refused before the decision.
struct Refused {
    reason: Reason,
    errno: Errno,
    spot: Option<Spot>,
    detail: String,
}

pub(super) fn explain(core: &Core, query: &CheckQuery) -> Explanation {
    let current = core.current.load_full();
    let mut decision = Decision {
        generation: current.snapshot.generation,
        op: query.op,
        pid: query.pid,
        uid: query.uid,
        path: query.path.clone(),
        object: None,
        to: query.to.clone(),
        to_object: None,
        root: None,
        to_root: None,
        decision: Outcome::Allow,
        reason: None,
        result: "ok".into(),
        query: true,
    };
    let detail = match judge(core, &current, query, &mut decision) {
        Ok(detail) => detail,
        Err(refused) => {
            if let Some(spot) = &refused.spot {
                describe(spot, &mut decision.path, &mut decision.object, &mut decision.root);
            }
            decision.decision = Outcome::Deny;
            decision.reason = Some(refused.reason);
            decision.result = errno_name(refused.errno).into();
            refused.detail
        }
    };
    Explanation { decision, detail }
}

fn judge(core: &Core, current: &Current, query: &CheckQuery, decision: &mut Decision) -> Result<String, Refused> {
    if let Some(generation) = query.generation.filter(|asked| *asked != current.snapshot.generation) {
        return Err(refused(
            Reason::StaleGeneration,
            Errno::STALE,
            format!("the list is at generation {}, not {generation}; ask again", current.snapshot.generation),
        ));
    }
    if current.snapshot.roots.is_empty() {
        let unavailable = *core.list_state.lock() == ListState::Unavailable;
        return Err(if unavailable {
            let detail = "the root list could not be refreshed, so nothing is shown".into();
            refused(Reason::AuthorityUnavailable, Errno::NOENT, detail)
        } else {
            refused(Reason::NoRoots, Errno::NOENT, "the root list is empty".into())
        });
    }
    let follows =
        !matches!(query.op, Op::Readlink | Op::Lookup | Op::Unlink | Op::Rmdir | Op::Rename | Op::Link | Op::Symlink);
    let last = if follows { Last::Follow } else { Last::Keep };
    let from = locate(core, current, query.op, &query.path, last)?;
    if let End::At { spot, .. } = &from {
        describe(spot, &mut decision.path, &mut decision.object, &mut decision.root);
    }
    if let End::Followed(host) = &from {
        decision.object = Some(host.display().to_string());
        return Ok(format!(
            "a link leads to {}, which --follow-outside lets be followed: there only the host's own \
            permissions apply",
            host.display()
        ));
    }
    let mut outward = false;
    let to =
        match (query.op, &query.to, &from) {
            // The other end of a symlink is its text, and means something from the directory that would hold it.
            (Op::Symlink, Some(text), End::At { spot, .. }) => {
                outward = leads_out(core, current, spot, text.as_bytes());
                None
            }
            (_, Some(to), _) => Some(locate(core, current, query.op, to, Last::Keep).map_err(|refused| Refused {
                detail: format!("of the other end, {to}: {}", refused.detail),
                ..refused
            })?),
            (_, None, _) => None,
        };
    if let (Op::Readlink, End::At { spot, kind: Some(Kind::Symlink), .. }) = (query.op, &from) {
        outward = leads_out(core, current, spot, spot.names.last().map_or(&[][..], Name::as_bytes));
    }
    if let Some(End::At { spot, .. }) = &to {
        let mut path = String::new();
        describe(spot, &mut path, &mut decision.to_object, &mut decision.to_root);
        decision.to = Some(path);
    }
    let device = matches!(from, End::At { kind: Some(kind), .. } if kind.is_device());
    let ask = Ask {
        to: to.as_ref().map(|to| place(query.op, to)),
        device,
        outward,
        hides: hides(core, query.op, &from, to.as_ref()),
        unfollowed: core.follows_no_link(),
        ..Ask::new(query.op, place(query.op, &from))
    };
    if let Verdict::Deny(reason, errno) = decide(&core.policy, &ask) {
        return Err(refused(reason, errno, reason_sentence(reason).into()));
    }
    exists_as_needed(query.op, &from)?;
    if let Some(to) = &to {
        exists_as_needed(Op::Create, to)?;
    }
    if let Some((errno, why)) = contradicted(query.op, &from) {
        decision.result = errno_name(errno).into();
        return Ok(format!("the boundary allows it, but {why}"));
    }
    Ok("allowed; the permissions of the file system itself still apply".into())
}

fn place(op: Op, end: &End) -> Place<'_> {
    match end {
        End::Top | End::Followed(_) => Place::Top,
        // A root's own name belongs to the list: making, removing or moving it is a change at the top.
        End::At { spot, .. } if spot.names.is_empty() && (op.makes_name() || op.takes_name()) => Place::Top,
        End::At { spot, .. } => Place::In(&spot.root),
    }
}

/// What of the operation is hidden, with what exists and what would be made.
fn hides(core: &Core, op: Op, from: &End, to: Option<&End>) -> Hides {
    let hidden = &core.policy.hidden;
    let veiled = |end: &End, made: Option<bool>| match end {
        End::At { hidden: true, .. } => true,
        End::At { spot, .. } => made.is_some_and(|directory| hidden.hides(&spot.names, directory)),
        _ => false,
    };
    let moved = matches!(from, End::At { kind: Some(Kind::Directory), .. });
    let made = match op {
        Op::Rename | Op::Link => to.is_some_and(|to| veiled(to, Some(moved))),
        op if op.makes_name() => {
            return if veiled(from, Some(op == Op::Mkdir)) { Hides::Result } else { Hides::Nothing };
        }
        _ => false,
    };
    if veiled(from, None) {
        return Hides::Object;
    }
    let shown = match (op, from, to) {
        (Op::Rename, End::At { spot: from, .. }, Some(End::At { spot: to, .. })) => {
            moved && hidden.shows_by_moving(&from.names, &to.names)
        }
        _ => false,
    };
    if made || shown { Hides::Result } else { Hides::Nothing }
}

/// Whether a link text leads out of the active roots, read from the directory that holds, or would hold, what is at `spot`.
fn leads_out(core: &Core, current: &Current, spot: &Spot, text: &[u8]) -> bool {
    let mut holder = spot.clone();
    holder.names.pop();
    let found = walk(core.ground(current), Start::Link(holder), text, Last::Follow);
    match found {
        Found::Outside { host: Some(host), .. } => !core.follows_outside(&host),
        found => matches!(found, Found::Outside { .. } | Found::Mount(_)),
    }
}

/// Finds one end, in whichever form it was given.
fn locate(core: &Core, current: &Current, op: Op, text: &str, last: Last) -> Result<End, Refused> {
    use std::os::unix::ffi::OsStrExt;
    let path = if text.contains("://") || text.starts_with("file:") {
        let path = uri::parse(text, uri::BarePaths::Refuse);
        path.map_err(|refusal| refused(refusal.reason, Errno::INVAL, refusal.detail))?
    } else {
        text.into()
    };
    let start = if path.is_absolute() { Start::Host } else { Start::Top };
    let found = walk(core.ground(current), start, path.as_os_str().as_bytes(), last);
    match found {
        Found::Top => Ok(End::Top),
        Found::Object { spot, stat, .. } => {
            Ok(End::At { spot, kind: Some(stat.kind), parent_exists: true, hidden: false })
        }
        Found::Missing { spot, parent_exists, hidden, .. } => Ok(End::At { spot, kind: None, parent_exists, hidden }),
        Found::Outside { through: Some(_), host: Some(host), .. } if core.follows_outside(&host) => {
            Ok(End::Followed(host))
        }
        Found::Outside { through: Some(spot), .. } => Err(Refused {
            reason: Reason::SymlinkOutside,
            errno: Errno::ACCESS,
            detail: format!("{} is a symbolic link that leads out of the active roots", shown(&spot)),
            spot: Some(spot),
        }),
        // A name that is no root's, at the top: making it would be a change there.
        Found::Outside { through: None, .. } if op.changes() && below_top(core, &path).is_some_and(is_one_name) => {
            Ok(End::Top)
        }
        Found::Outside { through: None, .. } => Err(match revoked(core, &path) {
            Some(root) => {
                let detail = format!("its root {} has left the list", root.canonical.display());
                refused(Reason::RootRevoked, Errno::NOENT, detail)
            }
            None => refused(Reason::OutsideRoot, Errno::NOENT, "it lies outside every active root".into()),
        }),
        Found::Mount(spot) => Err(Refused {
            reason: Reason::OwnMount,
            errno: Errno::ACCESS,
            detail: format!("another file system is mounted at {}, which is not entered", shown(&spot)),
            spot: Some(spot),
        }),
        Found::Unsafe(error) => Err(refused(Reason::UnsafeName, Errno::INVAL, format!("a component is {error}"))),
        Found::Loop => Err(refused(Reason::SymlinkLoop, Errno::LOOP, "it passes more than 40 symbolic links".into())),
        Found::Refused(spot, errno) => Err(Refused {
            reason: if errno == Errno::NOTDIR { Reason::NotFound } else { Reason::PermissionDenied },
            errno,
            detail: format!("the file system refused {}: {}", shown(&spot), errno_name(errno)),
            spot: Some(spot),
        }),
    }
}

/// A path in the view, from its top; None for one of the host.
fn below_top<'a>(core: &Core, path: &'a Path) -> Option<&'a Path> {
    path.strip_prefix(&core.mountpoint).ok().or_else(|| path.is_relative().then_some(path))
}

fn is_one_name(path: &Path) -> bool {
    let mut components = path.components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

/// The revoked root that a path would lie in. Names are compared, not objects: nothing is opened outside the roots.
fn revoked(core: &Core, path: &Path) -> Option<Arc<Retired>> {
    let entry = below_top(core, path).and_then(|below| below.components().next());
    core.retired(|root| {
        entry.is_some_and(|entry| entry.as_os_str() == root.entry.as_os_str())
            || path.starts_with(&root.canonical)
            || path.starts_with(&root.given)
    })
}

/// What the file system itself will say to a granted operation, as far as the object's kind tells.
const fn contradicted(op: Op, end: &End) -> Option<(Errno, &'static str)> {
    let End::At { kind: Some(kind), .. } = end else { return None };
    match (op, kind) {
        (Op::Write | Op::Create, Kind::Directory) => Some((Errno::ISDIR, "it is a directory")),
        (Op::Mkdir | Op::Mknod | Op::Symlink, _) => Some((Errno::EXIST, "something is there already")),
        (Op::Unlink, Kind::Directory) => Some((Errno::ISDIR, "it is a directory")),
        (Op::Rmdir | Op::List, kind) if !matches!(kind, Kind::Directory) => Some((Errno::NOTDIR, "it is no directory")),
        (Op::Readlink, kind) if !matches!(kind, Kind::Symlink) => Some((Errno::INVAL, "it is no symbolic link")),
        _ => None,
    }
}

/// What the operation needs to be there.
fn exists_as_needed(op: Op, end: &End) -> Result<(), Refused> {
    let End::At { spot, kind: None, parent_exists, .. } = end else { return Ok(()) };
    let deny = |reason, detail: String| Refused { reason, errno: Errno::NOENT, spot: Some(spot.clone()), detail };
    if !parent_exists {
        return Err(deny(
            Reason::ParentMissing,
            format!("the directory that would hold {} does not exist", shown(spot)),
        ));
    }
    if op.makes_name() {
        return Ok(());
    }
    Err(deny(Reason::NotFound, format!("{} does not exist", shown(spot))))
}

fn refused(reason: Reason, errno: Errno, detail: String) -> Refused {
    Refused { reason, errno, spot: None, detail }
}

fn shown(spot: &Spot) -> String {
    let parts: Vec<_> = std::iter::once(&spot.root.entry).chain(&spot.names).map(Name::to_string).collect();
    parts.join("/")
}

fn describe(spot: &Spot, path: &mut String, object: &mut Option<String>, root: &mut Option<String>) {
    *path = shown(spot);
    let mut backing = spot.root.canonical.clone();
    backing.extend(spot.names.iter().map(Name::as_os_str));
    *object = Some(backing.display().to_string());
    *root = Some(spot.root.entry.to_string());
}

const fn reason_sentence(reason: Reason) -> &'static str {
    match reason {
        Reason::ReadOnly => "the root is read-only",
        Reason::CrossRoot => "the two ends lie in different roots",
        Reason::SpecialFile => "device nodes are never opened or made through the view",
        Reason::Hidden => "the operator has hidden such names with --hide",
        Reason::SymlinkLoop => "no link of this view is followed (--links strict)",
        Reason::OutsideRoot => "the top of the view belongs to the root list",
        _ => "the view's rules do not allow it",
    }
}
