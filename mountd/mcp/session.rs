//! One client on the wire: performs what the [`Refresher`] decides.
//!
//! An event steps the machine under the lock and only starts work there: a timer, a request, a publication. Publications
//! run on one worker in the order in which they were decided; requests and timers come back as numbered events. Nothing
//! waits while it holds the lock.

use std::sync::{Arc, Weak, mpsc as blocking};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ClientResult, ErrorCode, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions, RoleServer, ServiceError};
use rootsfs::roots::{Authority, RootInput, RootSource, Trigger};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::host::{Change, Host};
use super::raw::split_list;
use super::refresher::{Action, Answer, Attempt, Event, Pace, Refresher, State};

/// Why a request brought no list.
#[derive(Clone, Debug)]
enum Miss {
    /// JSON-RPC error −32601.
    NotSupported,
    /// Late, refused, or malformed as a whole.
    Failed(String),
}

/// A publication, and the attempt that waits for it.
type Job = (Change, Option<Attempt>);
type Reply = Result<Option<Vec<RootInput>>, String>;

pub(super) struct Session<H> {
    host: Arc<H>,
    timeout: Duration,
    runtime: Handle,
    settled: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

struct Inner {
    machine: Refresher,
    pace: Pace,
    /// Set once the client has declared roots; without it nothing is ever asked.
    peer: Option<Peer<RoleServer>>,
    /// None once the session has ended.
    jobs: Option<mpsc::UnboundedSender<Job>>,
    /// The list of the attempt in hand.
    list: Vec<RootInput>,
    /// The list in force, if it is the client's and not in doubt.
    in_force: Option<Vec<RootInput>>,
    /// Why the last request brought no list.
    why: String,
    /// Blocked callers of [`RootSource::ask`].
    askers: Vec<blocking::Sender<Reply>>,
}

impl<H: Host> Session<H> {
    /// Must be called on the runtime, which also runs the publications.
    pub(super) fn start(host: Arc<H>, timeout: Duration) -> Arc<Self> {
        let (jobs, queue) = mpsc::unbounded_channel();
        let inner = Inner {
            machine: Refresher::new(),
            pace: Pace::default(),
            peer: None,
            jobs: Some(jobs),
            list: Vec::new(),
            in_force: None,
            why: String::new(),
            askers: Vec::new(),
        };
        let session = Arc::new(Self {
            host,
            timeout,
            runtime: Handle::current(),
            settled: watch::Sender::new(true),
            inner: Mutex::new(inner),
        });
        tokio::spawn(Arc::clone(&session).publish_in_order(queue));
        session
    }

    /// The client declared roots: it may be asked from now on, and `rootsfs roots M refresh` reaches it.
    pub(super) fn connect(self: &Arc<Self>, peer: Peer<RoleServer>) {
        self.inner.lock().peer = Some(peer);
        self.host.add_source(Arc::new(ClientSource(Arc::downgrade(self))));
    }

    /// Queues a change that no attempt waits for.
    pub(super) fn change(&self, change: Change) {
        self.inner.lock().publish(change, None);
    }

    /// No further request, timer or publication; whoever waits is let go.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.peer = None;
        inner.jobs = None;
        inner.askers.clear();
        self.settled.send_replace(true);
    }

    /// Waits until no round is on, at most the refresh timeout.
    pub(super) async fn settled(&self) {
        let mut settled = self.settled.subscribe();
        let _ = tokio::time::timeout(self.timeout, settled.wait_for(|settled| *settled)).await;
    }

    /// Asks again if a list is in force: for a client that does not announce its changes.
    pub(super) fn look_again(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        if inner.machine.state() == State::Active {
            self.step(&mut inner, Event::Wanted);
        }
    }

    pub(super) fn event(self: &Arc<Self>, event: Event) {
        self.step(&mut self.inner.lock(), event);
    }

    fn step(self: &Arc<Self>, inner: &mut Inner, event: Event) {
        let Some(peer) = inner.peer.clone() else { return };
        let mut actions = inner.machine.step(event);
        while !actions.is_empty() {
            let mut next = Vec::new();
            for action in actions {
                if let Some(event) = self.perform(inner, &peer, action) {
                    next.extend(inner.machine.step(event));
                }
            }
            actions = next;
        }
        self.settled.send_replace(inner.machine.settled());
    }

    /// Starts an action; an event if it is done at once.
    fn perform(self: &Arc<Self>, inner: &mut Inner, peer: &Peer<RoleServer>, action: Action) -> Option<Event> {
        match action {
            Action::Announce => {
                inner.in_force = None;
                inner.publish(Change::Announce, None);
            }
            Action::Wake(attempt, pause) => {
                let pause = pause.max(inner.pace.delay(Instant::now()));
                let session = Arc::clone(self);
                self.runtime.spawn(async move {
                    tokio::time::sleep(pause).await;
                    session.event(Event::Due(attempt));
                });
            }
            Action::Ask(attempt) => {
                let (session, peer) = (Arc::clone(self), peer.clone());
                self.runtime.spawn(async move {
                    let answer = ask(&peer, session.timeout).await;
                    session.answered(attempt, answer);
                });
            }
            Action::Publish(attempt, trigger) => {
                let list = std::mem::take(&mut inner.list);
                let taken = inner.reply(&Ok(Some(list.clone())));
                // Whoever asked through the publisher gets it published there; a list that is in force needs nothing.
                if trigger == Trigger::Refresh && (taken || inner.in_force.as_ref() == Some(&list)) {
                    inner.in_force = Some(list);
                    return Some(Event::Published(attempt));
                }
                inner.in_force = Some(list.clone());
                inner.publish(Change::List(list, trigger), Some(attempt));
            }
            Action::Unsupported => {
                inner.reply(&Ok(None));
                inner.publish(Change::Unsupported, None);
            }
            Action::Unavailable => {
                inner.in_force = None;
                let why = inner.why.clone();
                inner.publish(Change::Unavailable(why), None);
            }
        }
        None
    }

    fn answered(self: &Arc<Self>, attempt: Attempt, answer: Result<Vec<RootInput>, Miss>) {
        let mut inner = self.inner.lock();
        let answer = match answer {
            Ok(list) => {
                inner.list = list;
                Answer::List
            }
            Err(Miss::NotSupported) => {
                inner.missed(Answer::NotSupported, "the client answers roots/list with −32601".into())
            }
            Err(Miss::Failed(why)) => inner.missed(Answer::Failed, why),
        };
        self.step(&mut inner, Event::Answered(attempt, answer));
        if inner.machine.state() == State::Unavailable {
            // A round of the background failed again.
            let why = inner.why.clone();
            inner.reply(&Err(why));
        }
    }

    async fn publish_in_order(self: Arc<Self>, mut queue: mpsc::UnboundedReceiver<Job>) {
        while let Some((change, attempt)) = queue.recv().await {
            let host = Arc::clone(&self.host);
            match tokio::task::spawn_blocking(move || host.apply(change)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("cannot publish the client's list: {error}"),
                Err(error) => tracing::error!("the publication was cut off: {error}"),
            }
            if let Some(attempt) = attempt {
                self.event(Event::Published(attempt));
            }
        }
    }
}

impl Inner {
    fn publish(&self, change: Change, attempt: Option<Attempt>) {
        if let Some(jobs) = &self.jobs {
            // The worker ends only after this sender is gone.
            let _ = jobs.send((change, attempt));
        }
    }

    fn missed(&mut self, answer: Answer, why: String) -> Answer {
        tracing::warn!("no root list: {why}");
        self.why = why;
        answer
    }

    /// Answers everybody who waits; whether anybody was still there.
    fn reply(&mut self, reply: &Reply) -> bool {
        let mut taken = false;
        for asker in self.askers.drain(..) {
            taken |= asker.send(reply.clone()).is_ok();
        }
        taken
    }
}

#[expect(deprecated, reason = "roots are deprecated by SEP-2577 and in use; they are what this program is about")]
async fn ask(peer: &Peer<RoleServer>, timeout: Duration) -> Result<Vec<RootInput>, Miss> {
    let request = ServerRequest::ListRootsRequest(rmcp::model::ListRootsRequest::default());
    let failed = |error: ServiceError| match error {
        ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => Miss::NotSupported,
        error => Miss::Failed(error.to_string()),
    };
    let options = PeerRequestOptions::with_timeout(timeout);
    let handle = peer.send_request_with_option(request, options).await.map_err(failed)?;
    let result = match handle.await_response().await.map_err(failed)? {
        // Not a typed list, because an element is none: the value as it came.
        ClientResult::CustomResult(raw) => raw.0,
        typed => serde_json::to_value(typed).map_err(|error| Miss::Failed(error.to_string()))?,
    };
    split_list(&result).map_err(Miss::Failed)
}

/// The connected client as a source that `rootsfs roots M refresh` and the tool `refresh_roots` ask.
struct ClientSource<H>(Weak<Session<H>>);

impl<H: Host> RootSource for ClientSource<H> {
    fn authority(&self) -> Authority {
        Authority::Client
    }

    fn ask(&self, timeout: Duration) -> Reply {
        let gone = || "the client is gone".to_owned();
        let session = self.0.upgrade().ok_or_else(gone)?;
        let answer = {
            let mut inner = session.inner.lock();
            if inner.machine.publishing()
                && let Some(list) = &inner.in_force
            {
                return Ok(Some(list.clone()));
            }
            if inner.peer.is_none() {
                return Err(gone());
            }
            let (asker, answer) = blocking::channel();
            inner.askers.push(asker);
            session.step(&mut inner, Event::Wanted);
            answer
        };
        answer.recv_timeout(timeout).unwrap_or_else(|error| match error {
            blocking::RecvTimeoutError::Timeout => Err(format!("the client did not answer within {timeout:?}")),
            blocking::RecvTimeoutError::Disconnected => Err(gone()),
        })
    }
}
