use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::burial::Burial;
use super::descriptors::Descriptors;
use super::gate::Guest;
use super::hold::Hold;
use super::inodes::{Inode, Place as Found};
use super::node::NodeId;
use super::seats::Seats;
use super::tidy::Tidy;
use super::top::Listing;
use super::tree::{Pass, Tree};
use crate::authorize::{Ask, Op, Place, Policy, Reason, Verdict, decide};
use crate::record::{Decision, Outcome, Record};
use crate::resolve::{Ground, Name, NameError};
use crate::roots::{Instance, ListState, Snapshot};
use crate::sys::{Caller, Kind, Mounts, Stat};

/// Revoked root instances that are still told apart from ones that never were.
const RETIRED: usize = 1024;

/// Names of a path that the record shows. A deeper tree must not make every line of the record longer and dearer, so what
/// lies between the root and the last names is left out there.
const SHOWN_NAMES: usize = 256;

/// How often the descriptor budget is swept before a request goes on over it.
const SWEEPS: usize = 4;

/// The kernel's caches, as a publication drops them. Calls may block on requests in flight: never from a handler, but for
/// the one that says so.
pub(crate) trait KernelCaches: Send + Sync + std::fmt::Debug {
    /// Forgets what a name means, and everything below it (`FUSE_NOTIFY_INVAL_ENTRY`).
    fn drop_entry(&self, parent: NodeId, name: &Name);
    /// Forgets attributes, pages and maps of an inode (`FUSE_NOTIFY_INVAL_INODE`).
    fn drop_inode(&self, node: NodeId);
    /// Forgets an inode's attributes alone. It waits for nothing, so this one may come from a handler.
    fn drop_attributes(&self, node: NodeId);
}

/// What is remembered of a revoked root: nothing that holds on to its object.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) instance: Instance,
    pub(crate) entry: Name,
    pub(crate) given: PathBuf,
    pub(crate) canonical: PathBuf,
}

/// What every request sees: one snapshot and its trees, swapped as one.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) trees: HashMap<Instance, Arc<Tree>>,
    /// When it was installed: the top directory's times.
    pub(crate) since: SystemTime,
}

/// The view without its mount: everything that answers requests.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) current: ArcSwap<Current>,
    pub(crate) policy: Policy,
    /// How long the kernel may use a name or attributes without asking.
    pub(crate) timeout: Duration,
    pub(crate) mountpoint: PathBuf,
    /// The view's own mount, once it is mounted.
    pub(crate) own_mount: OnceLock<u64>,
    pub(crate) budget: Arc<Descriptors>,
    pub(crate) tidy: Tidy,
    /// Virtual attributes of the top directory by name, without their prefix.
    pub(crate) labels: Mutex<BTreeMap<&'static str, String>>,
    /// How good the list in force is, as the publisher last said.
    pub(crate) list_state: Mutex<ListState>,
    /// Open streams of the top directory.
    pub(crate) listings: Mutex<HashMap<u64, Arc<Listing>>>,
    pub(crate) requests: AtomicU64,
    pub(crate) caches: OnceLock<Arc<dyn KernelCaches>>,
    /// The mount follows no link by itself (`MS_NOSYMFOLLOW`).
    pub(crate) unfollowed_by_kernel: AtomicBool,
    pub(crate) hold: Hold,
    pub(crate) seats: Seats,
    /// Trees whose revocation has not ended, and what it makes the kernel forget.
    pub(crate) burial: Arc<Burial>,
    record: Arc<Record>,
    /// Revoked roots, oldest first.
    retired: Mutex<VecDeque<Arc<Retired>>>,
}

/// A request that was let in: the snapshot it lives under and, below the top directory, its inode and the proof that
/// the tree was not revoked.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) current: Arc<Current>,
    pub(crate) caller: Caller,
    /// On an inode; none at the top.
    inside: Option<Pass>,
}

impl Call {
    pub(crate) fn place(&self) -> Place<'_> {
        match &self.inside {
            Some(pass) => Place::In(&pass.tree().root),
            None => Place::Top,
        }
    }

    /// The tree and inode; EPERM at the top, where the decision has refused already.
    pub(crate) fn inside(&self) -> Result<(&Arc<Tree>, &Arc<Inode>), Errno> {
        self.inside.as_ref().and_then(|pass| Some((pass.tree(), pass.inode()?))).ok_or(Errno::PERM)
    }

    pub(crate) const fn is_top(&self) -> bool {
        self.inside.is_none()
    }

    /// The inode's `O_PATH` descriptor.
    pub(crate) fn descriptor(&self) -> Result<Arc<OwnedFd>, Errno> {
        let (tree, inode) = self.inside()?;
        tree.descriptor(inode)
    }

    /// The same, of an object that is still below its root: for all that finds, makes, opens or changes something.
    pub(crate) fn descriptor_in_place(&self) -> Result<Arc<OwnedFd>, Errno> {
        let (tree, inode) = self.inside()?;
        tree.descriptor_in_place(inode)
    }

    /// Ends the call with its answer. What was still under way when a tree was revoked is refused.
    pub(crate) fn answer<T>(self, value: T) -> Result<Answer<T>, Errno> {
        self.answer_under(Vec::new(), value)
    }

    /// The same for an operation with a second call.
    pub(crate) fn answer_with<T>(self, other: Self, value: T) -> Result<Answer<T>, Errno> {
        self.answer_under(other.inside.into_iter().collect(), value)
    }

    /// The same with further trees that the answer speaks of.
    pub(crate) fn answer_under<T>(self, mut passes: Vec<Pass>, value: T) -> Result<Answer<T>, Errno> {
        let own = self.inside;
        if own.iter().chain(&passes).any(|pass| pass.tree().gate.is_closed()) {
            return Err(Errno::STALE);
        }
        if passes.is_empty() {
            return Ok(Answer { value, _pass: own, _more: Vec::new() });
        }
        passes.extend(own);
        Ok(Answer { value, _pass: None, _more: passes })
    }
}

/// An answer and the passes it was made under. They are returned when this is dropped: after the reply.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    _pass: Option<Pass>,
    _more: Vec<Pass>,
}

impl Answer<()> {
    /// An answer that speaks of no tree.
    pub(crate) const fn of_nothing() -> Self {
        Self { value: (), _pass: None, _more: Vec::new() }
    }
}

/// An object as the kernel is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) node: NodeId,
    pub(crate) stat: Stat,
}

/// A name's object, counted as looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) attr: Attr,
    pub(crate) generation: u64,
    /// The kernel may use it for the view's timeout; otherwise it asks again before the first use.
    pub(crate) lasting: bool,
}

impl Entry {
    /// Of an object that cannot be had: the kernel asks again before it uses it.
    pub(crate) const fn unseen(node: NodeId, kind: Kind) -> Self {
        Self { attr: Attr { node, stat: Stat::unknown(kind) }, generation: 0, lasting: false }
    }

    pub(crate) fn of(inode: &Inode, stat: Stat) -> Self {
        Self { attr: Attr { node: inode.node, stat }, generation: u64::from(inode.generation), lasting: true }
    }
}

impl Core {
    pub(crate) fn new(
        options: &super::ViewOptions,
        mountpoint: PathBuf,
        record: Arc<Record>,
        budget: Descriptors,
    ) -> Self {
        let empty = Snapshot {
            generation: 0,
            authority: crate::roots::Authority::CommandLine,
            roots: Vec::new(),
            refused: Vec::new(),
        };
        Self {
            current: ArcSwap::from_pointee(Current {
                snapshot: Arc::new(empty),
                trees: HashMap::new(),
                since: SystemTime::now(),
            }),
            policy: options.policy.clone(),
            timeout: options.timeout,
            mountpoint,
            own_mount: OnceLock::new(),
            budget: Arc::new(budget),
            tidy: Tidy::default(),
            labels: Mutex::default(),
            list_state: Mutex::new(ListState::Waiting),
            listings: Mutex::default(),
            requests: AtomicU64::new(0),
            caches: OnceLock::new(),
            unfollowed_by_kernel: AtomicBool::new(false),
            hold: Hold::new(options.hold),
            seats: Seats::new(options.threads),
            burial: Arc::default(),
            record,
            retired: Mutex::default(),
        }
    }

    /// The door: every kernel request comes in here and sees one snapshot from now to its reply.
    ///
    /// ESTALE: the root was revoked, or the kernel names an inode that it has forgotten.
    pub(crate) fn admit(&self, caller: Caller, op: Op, node: NodeId) -> Result<Call, Errno> {
        self.admit_guest(caller, op, node, Guest::Call)
    }

    /// The same for the kernel itself, too, with a page that a program wrote through a map.
    pub(crate) fn admit_guest(&self, caller: Caller, op: Op, node: NodeId, guest: Guest) -> Result<Call, Errno> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.keep_budget();
        let current = self.current.load_full();
        if node == NodeId::TOP {
            return Ok(Call { current, caller, inside: None });
        }
        let pass = current.trees.get(&node.instance()).and_then(|tree| Pass::into_tree(tree, guest));
        let Some(pass) = pass else {
            self.record_revoked(&current, caller, op, node);
            return Err(Errno::STALE);
        };
        let inside = Some(pass.onto(node)?);
        Ok(Call { current, caller, inside })
    }

    pub(crate) const fn mounts(&self) -> Mounts {
        Mounts { cross: self.policy.cross_mounts }
    }

    pub(crate) fn ground<'a>(&'a self, current: &'a Current) -> Ground<'a> {
        Ground {
            snapshot: &current.snapshot,
            mountpoint: &self.mountpoint,
            mounts: self.mounts(),
            hidden: &self.policy.hidden,
        }
    }

    /// Asks the one decision function, and records a refusal. EIO: the record cannot take what must be in it.
    pub(crate) fn authorize(&self, ends: &Ends<'_>, ask: &Ask<'_>) -> Result<(), Errno> {
        match decide(&self.policy, ask) {
            Verdict::Deny(reason, errno) => Err(self.refuse(ends, ask.op, reason, errno)),
            Verdict::Allow if self.record.wants_first(ask.op) => {
                let pending = ends.decision(ask.op, Outcome::Allow, None, "pending");
                self.record.decision(&pending).map_err(|_| Errno::IO)
            }
            Verdict::Allow => Ok(()),
        }
    }

    /// Records a refusal and hands back the error for the caller.
    pub(crate) fn refuse(&self, ends: &Ends<'_>, op: Op, reason: Reason, errno: Errno) -> Errno {
        let _ = self.record.decision(&ends.decision(op, Outcome::Deny, Some(reason), errno_name(errno)));
        errno
    }

    /// Records what a granted operation came to.
    pub(crate) fn done<T>(&self, ends: &Ends<'_>, op: Op, result: Result<T, Errno>) -> Result<T, Errno> {
        if self.record.wants(op, Outcome::Allow) {
            let text = result.as_ref().err().map_or("ok", |errno| errno_name(*errno));
            let _ = self.record.decision(&ends.decision(op, Outcome::Allow, None, text));
        }
        result
    }

    /// A name from the kernel as a [`Name`].
    pub(crate) fn name(&self, call: &Call, op: Op, bytes: &[u8]) -> Result<Name, Errno> {
        Name::new(bytes).map_err(|error| match error {
            NameError::TooLong => Errno::NAMETOOLONG,
            NameError::Unsafe => self.refuse(&Ends::of(call), op, Reason::UnsafeName, Errno::PERM),
        })
    }

    /// Runs a step that opens something; when descriptors have run out, gives some back and tries once more.
    pub(crate) fn with_room<T>(&self, mut step: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        match step() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.sweep(true);
                step()
            }
            done => done,
        }
    }

    /// Brings the descriptor budget back to its limit.
    fn keep_budget(&self) {
        if self.budget.over_budget() {
            self.sweep(false);
        }
    }

    fn sweep(&self, ran_out: bool) {
        let current = self.current.load();
        for _ in 0..SWEEPS {
            for holder in self.budget.candidates(ran_out) {
                let tree = current.trees.get(&holder.node().instance());
                if tree.is_some_and(|tree| !tree.give_up(holder, ran_out)) {
                    self.budget.spare(holder);
                }
            }
            if ran_out || !self.budget.over_budget() {
                break;
            }
        }
    }

    pub(crate) fn show_state(&self, state: ListState) {
        *self.list_state.lock() = state;
    }

    pub(crate) fn retire(&self, tree: &Tree) {
        let mut retired = self.retired.lock();
        if retired.len() == RETIRED {
            retired.pop_front();
        }
        let root = &tree.root;
        retired.push_back(Arc::new(Retired {
            instance: root.instance,
            entry: root.entry.clone(),
            given: root.given.clone(),
            canonical: root.canonical.clone(),
        }));
    }

    /// The last revoked root that fits.
    pub(crate) fn retired(&self, fits: impl Fn(&Retired) -> bool) -> Option<Arc<Retired>> {
        self.retired.lock().iter().rev().find(|root| fits(root)).cloned()
    }

    fn record_revoked(&self, current: &Current, caller: Caller, op: Op, node: NodeId) {
        let entry = self.retired(|root| root.instance == node.instance()).map(|root| root.entry.to_string());
        if let Some(entry) = entry {
            self.record_top(current, caller, op, entry, Reason::RootRevoked, Errno::STALE);
        }
    }

    /// A name at the top that is not there: worth a line when it was a root, or when there are no roots at all.
    pub(crate) fn no_such_entry(&self, call: &Call, op: Op, name: &Name) -> Errno {
        let entry = name.to_string();
        if self.retired(|root| root.entry == *name).is_some() {
            self.record_top(&call.current, call.caller, op, entry, Reason::RootRevoked, Errno::NOENT);
        } else if call.current.snapshot.roots.is_empty() {
            self.record_top(&call.current, call.caller, op, entry, Reason::NoRoots, Errno::NOENT);
        }
        Errno::NOENT
    }

    fn record_top(&self, current: &Current, caller: Caller, op: Op, entry: String, reason: Reason, errno: Errno) {
        let _ = self.record.decision(&Decision {
            generation: current.snapshot.generation,
            op,
            pid: caller.pid,
            uid: caller.uid,
            path: entry,
            object: None,
            to: None,
            to_object: None,
            root: None,
            to_root: None,
            decision: Outcome::Deny,
            reason: Some(reason),
            result: errno_name(errno).to_owned(),
            query: false,
        });
    }
}

/// What an operation is about, for the record: an inode or a name in it, and perhaps the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    call: &'a Call,
    name: Option<&'a Name>,
    to: Option<(&'a Call, &'a Name)>,
}

impl<'a> Ends<'a> {
    pub(crate) const fn of(call: &'a Call) -> Self {
        Self { call, name: None, to: None }
    }

    pub(crate) const fn named(call: &'a Call, name: &'a Name) -> Self {
        Self { call, name: Some(name), to: None }
    }

    pub(crate) const fn between(call: &'a Call, name: Option<&'a Name>, to: &'a Call, to_name: &'a Name) -> Self {
        Self { call, name, to: Some((to, to_name)) }
    }

    fn decision(&self, op: Op, decision: Outcome, reason: Option<Reason>, result: &str) -> Decision {
        let (path, object, root) = Self::shown(self.call, self.name);
        let other = self.to.map(|(call, name)| Self::shown(call, Some(name)));
        let (to, to_object, to_root) = match other {
            Some((path, object, root)) => (Some(path), object, root),
            None => (None, None, None),
        };
        Decision {
            generation: self.call.current.snapshot.generation,
            op,
            pid: self.call.caller.pid,
            uid: self.call.caller.uid,
            path,
            object,
            to,
            to_object,
            root,
            to_root,
            decision,
            reason,
            result: result.to_owned(),
            query: false,
        }
    }

    /// Path in the view, backing path and entry, for people.
    fn shown(call: &Call, name: Option<&Name>) -> (String, Option<String>, Option<String>) {
        let Ok((tree, inode)) = call.inside() else {
            return (name.map(Name::to_string).unwrap_or_default(), None, None);
        };
        let entry = tree.root.entry.to_string();
        let Some((names, cut)) = inode.last_names(SHOWN_NAMES) else {
            return (format!("{entry} (removed)"), None, Some(entry));
        };
        let (mut path, mut object) = (PathBuf::from(&entry), tree.root.canonical.clone());
        if cut {
            path.push("…");
            object.push("…");
        }
        for name in names.iter().chain(name) {
            path.push(name.as_os_str());
            object.push(name.as_os_str());
        }
        (path.display().to_string(), Some(object.display().to_string()), Some(entry))
    }
}

/// A place below a directory.
pub(crate) fn child_of(parent: &Arc<Inode>, name: &Name) -> Found {
    Found::Child(Arc::clone(parent), name.clone())
}

/// The symbolic name of an errno, as `errno(3)` spells it.
pub(crate) fn errno_name(errno: Errno) -> &'static str {
    macro_rules! names {
        ($($name:ident => $text:literal),* $(,)?) => {
            match errno { $(Errno::$name => $text,)* _ => "EIO" }
        };
    }
    names! {
        PERM => "EPERM", NOENT => "ENOENT", INTR => "EINTR", IO => "EIO", NXIO => "ENXIO", TOOBIG => "E2BIG",
        BADF => "EBADF", AGAIN => "EAGAIN", NOMEM => "ENOMEM", ACCESS => "EACCES", BUSY => "EBUSY", EXIST => "EEXIST",
        XDEV => "EXDEV", NODEV => "ENODEV", NOTDIR => "ENOTDIR", ISDIR => "EISDIR", INVAL => "EINVAL",
        NFILE => "ENFILE", MFILE => "EMFILE", TXTBSY => "ETXTBSY", FBIG => "EFBIG", NOSPC => "ENOSPC",
        SPIPE => "ESPIPE", ROFS => "EROFS", MLINK => "EMLINK", RANGE => "ERANGE", DEADLK => "EDEADLK",
        NAMETOOLONG => "ENAMETOOLONG", NOSYS => "ENOSYS", NOTEMPTY => "ENOTEMPTY", LOOP => "ELOOP",
        NODATA => "ENODATA", OVERFLOW => "EOVERFLOW", OPNOTSUPP => "EOPNOTSUPP", STALE => "ESTALE",
        DQUOT => "EDQUOT", TIMEDOUT => "ETIMEDOUT", NOTTY => "ENOTTY",
    }
}
