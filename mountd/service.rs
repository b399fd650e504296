//! One running view with everything around it: its mountpoint, its record, its publisher and its control socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use rootsfs::authorize::{Op, Policy};
use rootsfs::publisher::{Publisher, PublisherOptions, Stage};
use rootsfs::record::{Record, RecordOptions};
use rootsfs::roots::{Judge, ListState, RefusedRoot, Root, RootInput, RootKind};
use rootsfs::view::{CheckQuery, Explanation, TreeFigures, View, ViewOptions};

use crate::control;
use crate::handler::Control;
use crate::mounts::Mountpoint;
use crate::runtime::{Claim, Runtime};
use crate::status::{RootStatus, SessionInfo, Status};

/// How long the kernel may answer from its caches. An outside change to the backing tree is seen within this time.
const CACHE_TIMEOUT: Duration = Duration::from_secs(1);

/// How a service is started.
#[derive(Debug)]
pub(crate) struct ServiceOptions {
    /// Where; none for a private directory.
    pub(crate) mountpoint: Option<PathBuf>,
    pub(crate) policy: Policy,
    pub(crate) allow_other: bool,
    pub(crate) record: RecordOptions,
    /// How long a call may wait for a list that the client announced.
    pub(crate) hold: Duration,
    pub(crate) publisher: PublisherOptions,
    /// Whether to go on when no root is usable and no client may bring one.
    pub(crate) require_root: bool,
    /// Told when the view has ended other than by [`Service::shutdown`] from this process's own main thread.
    pub(crate) ended: Sender<End>,
}

/// Why a service came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A signal asked for it.
    Signal,
    /// Somebody unmounted, through the control socket or the kernel.
    Unmounted,
}

/// Why a service did not start, in a sentence for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The view cannot be mounted.
    #[error("{0}")]
    Mount(String),
    /// `--require-root`, and there is none.
    #[error("no usable root; {0}")]
    NoRoots(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
    /// A thread or a file that the control socket needs.
    #[error("the control socket cannot be served: {0}")]
    Control(#[from] std::io::Error),
}

impl StartError {
    /// The exit code of the contract.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Mount(_) => 4,
            Self::NoRoots(_) => 3,
            Self::Failed(_) | Self::Control(_) => 1,
        }
    }
}

/// A running view.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) view: Arc<View>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) record: Arc<Record>,
    ended: Sender<End>,
    since: Timestamp,
    session: RwLock<Option<SessionInfo>>,
    /// What is taken away at the end, in the order of the fields' drop; none once that is done.
    holdings: Mutex<Option<Holdings>>,
}

#[derive(Debug)]
struct Holdings {
    claim: Claim,
    mountpoint: Mountpoint,
}

impl Service {
    /// Mounts the view, publishes the command line's roots and opens the control socket.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left mounted.
    pub(crate) fn start(options: ServiceOptions) -> Result<Arc<Self>, StartError> {
        let runtime = Runtime::open().map_err(|error| StartError::Failed(format!("{error:#}")))?;
        let mut claim = runtime.claim().map_err(|error| StartError::Failed(format!("no control socket: {error}")))?;
        let path = options.mountpoint.unwrap_or_else(|| claim.mountpoint.clone());
        let mountpoint = Mountpoint::prepare(&path).map_err(|error| StartError::Mount(format!("{error:#}")))?;
        let mut record = options.record;
        if record.session.is_empty() {
            record.session.clone_from(&claim.id);
        }
        let record = Record::new(record)
            .map_err(|error| StartError::Failed(format!("the record's file cannot be opened: {error}")))?;
        let record = Arc::new(record);
        let view = View::mount(
            &ViewOptions {
                mountpoint: mountpoint.path.clone(),
                allow_other: options.allow_other,
                policy: options.policy,
                timeout: CACHE_TIMEOUT,
                hold: options.hold,
                threads: std::thread::available_parallelism().map_or(8, |cpus| cpus.get().clamp(8, 16)),
            },
            Arc::clone(&record),
        );
        let view = Arc::new(view.map_err(|error| StartError::Mount(error.to_string()))?);
        let expects_client = options.publisher.expects_client;
        let judge = Judge::new(options.publisher.judge.clone());
        let command_line = options.publisher.command_line.clone();
        let stage: Arc<dyn Stage> = Arc::clone(&view) as _;
        let publisher = Arc::new(Publisher::start(stage, Arc::clone(&record), options.publisher));
        let listener = claim.take_listener();
        view.set_label("control", claim.socket.to_string_lossy().into_owned());
        let service = Arc::new(Self {
            view,
            publisher,
            record,
            ended: options.ended,
            since: Timestamp::now(),
            session: RwLock::default(),
            holdings: Mutex::new(Some(Holdings { claim, mountpoint })),
        });
        let live = service.go_live(listener, options.require_root && !expects_client, &judge, &command_line);
        if live.is_err() {
            service.shutdown();
        }
        live.map(|()| service)
    }

    /// The last steps, after which a failure has a mount to take away.
    fn go_live(
        self: &Arc<Self>,
        listener: Option<std::os::unix::net::UnixListener>,
        require_root: bool,
        judge: &Judge,
        command_line: &[RootInput],
    ) -> Result<(), StartError> {
        let snapshot = self.publisher.status().snapshot;
        for key in judge.unmatched_read_only(command_line, &snapshot) {
            tracing::warn!("--read-only-root {key}: no root of the list is called that, so it protects nothing");
        }
        for refused in &snapshot.refused {
            tracing::warn!("root left out: {}: {} ({})", refused.uri, refused.detail, refused.reason);
        }
        if require_root && snapshot.roots.is_empty() {
            let why = snapshot.refused.first().map_or("give one with --root PATH", |refused| refused.detail.as_str());
            return Err(StartError::NoRoots(why.to_owned()));
        }
        if let Some(listener) = listener {
            control::serve(listener, Arc::new(Control::new(Arc::clone(self))))?;
        }
        if let Some(holdings) = &*self.holdings.lock() {
            holdings.claim.announce(self.view.mountpoint())?;
        }
        let (view, ended) = (Arc::clone(&self.view), self.ended.clone());
        std::thread::Builder::new().name("view-end".into()).spawn(move || {
            view.wait();
            // Nobody listens any more when the main thread made the end.
            let _ = ended.send(End::Unmounted);
        })?;
        Ok(())
    }

    /// Names the MCP client, in the status and in the record.
    pub(crate) fn set_session(&self, session: Option<SessionInfo>) {
        if let Some(session) = &session {
            self.record.set_session(session.id.clone());
        }
        *self.session.write() = session;
    }

    /// Answers "what would happen if", and records the answer as a decision.
    pub(crate) fn check(&self, question: Question, uid: u32, pid: u32) -> Explanation {
        let Question { path, op, to, generation } = question;
        let explanation = self.view.check(&CheckQuery { path, op, to, generation, uid, pid });
        let _ = self.record.decision(&explanation.decision);
        explanation
    }

    /// The view now.
    pub(crate) fn status(&self) -> Status {
        let list = self.publisher.status();
        let figures = self.view.figures();
        let roots = list.snapshot.roots.iter().map(|root| {
            let figures = figures.iter().find(|(instance, _)| *instance == root.instance).map(|(_, figures)| *figures);
            active(root, figures.unwrap_or_default())
        });
        let counters = self.record.counters();
        Status {
            mountpoint: self.view.mountpoint().to_string_lossy().into_owned(),
            state: list.state,
            why: Some(list.why).filter(|why| !why.is_empty() && list.state != ListState::Active),
            generation: list.snapshot.generation,
            authority: list.authority,
            session: self.session.read().clone(),
            roots: roots.chain(list.snapshot.refused.iter().map(left_out)).collect(),
            pid: std::process::id(),
            since: format!("{:.0}", self.since),
            denials: counters.denials,
            last_denial: counters.last_denial.and_then(|line| serde_json::from_str(&line).ok()),
        }
    }

    /// Unmounts, also when busy, and takes the socket, the registry's entry and a mountpoint that was made away. A second
    /// call waits for the first.
    pub(crate) fn shutdown(&self) {
        let mut holdings = self.holdings.lock();
        if let Some(Holdings { claim, mountpoint }) = holdings.take() {
            self.view.unmount();
            drop(mountpoint);
            drop(claim);
        }
    }

    /// As [`Service::shutdown`], and ends the process's main thread.
    pub(crate) fn end(&self) {
        self.shutdown();
        let _ = self.ended.send(End::Unmounted);
    }
}

/// What `rootsfs check` and the MCP tool `explain_access` ask.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Below the mountpoint, relative to it, a backing path, or a `file://` URI.
    pub(crate) path: String,
    pub(crate) op: Op,
    /// The other end of a rename or link.
    pub(crate) to: Option<String>,
    /// The generation the asker believes in.
    pub(crate) generation: Option<u64>,
}

fn active(root: &Root, figures: TreeFigures) -> RootStatus {
    RootStatus {
        entry: Some(root.entry.to_string()),
        uri: root.uri.clone(),
        name: root.display.clone(),
        path: Some(root.canonical.to_string_lossy().into_owned()),
        kind: Some(if root.kind == RootKind::Directory { "directory" } else { "file" }.to_owned()),
        read_only: Some(root.read_only),
        status: "active".to_owned(),
        inodes: Some(figures.inodes),
        handles: Some(figures.handles),
        ..RootStatus::default()
    }
}

fn left_out(root: &RefusedRoot) -> RootStatus {
    RootStatus {
        uri: root.uri.clone(),
        name: root.name.clone(),
        status: root.status.to_owned(),
        reason: Some(root.reason.to_string()),
        detail: Some(root.detail.clone()),
        ..RootStatus::default()
    }
}
