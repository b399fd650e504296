//! What the daemon does when the control socket asks.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rootsfs::publisher::{Manner, Published};
use serde::Serialize;
use serde_json::Value;

use crate::control::{Events, Failure, Handler, Peer, Request};
use crate::service::{Question, Service};
use crate::status::Change;

/// How often a follower that gets no events is asked whether it is still there.
const HANGUP_POLL: Duration = Duration::from_secs(1);

/// The control socket's handler of a [`Service`].
pub(crate) struct Control {
    service: Arc<Service>,
}

impl Control {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service }
    }

    fn log(&self, limit: usize, denied: bool, follow: bool, events: &mut dyn Events) -> std::io::Result<()> {
        let record = &self.service.record;
        let mut seen = record.last_seq();
        for (_, line) in record.recent(limit, denied).into_iter().filter(|(seq, _)| *seq <= seen) {
            events.send(&line)?;
        }
        while follow && !events.gone() {
            for (seq, line) in record.follow(seen, HANGUP_POLL) {
                events.send(&line)?;
                seen = seq;
            }
        }
        Ok(())
    }
}

impl Handler for Control {
    fn handle(&self, peer: Peer, request: Request, events: &mut dyn Events) -> Result<Value, Failure> {
        let publisher = &self.service.publisher;
        match request {
            Request::RootsList | Request::Status => value(&self.service.status()),
            Request::RootsSet { roots } => published(publisher.control_set(roots)),
            Request::RootsAdd { roots } => published(publisher.control_add(roots)),
            Request::RootsRemove { roots, now } => {
                let manner = if now { Manner::Now } else { Manner::Graceful };
                published(publisher.control_remove(&roots, manner))
            }
            Request::RootsRefresh { timeout_ms } => published(publisher.refresh(Duration::from_millis(timeout_ms))),
            Request::Check { path, op, to, generation } => {
                value(&self.service.check(Question { path, op, to, generation }, peer.uid, peer.pid))
            }
            Request::Log { limit, denied, follow } => {
                let sent = self.log(limit.unwrap_or(usize::MAX), denied, follow, events);
                sent.map(|()| Value::Null).map_err(|error| Failure::new(error.to_string()))
            }
            Request::Unmount => {
                self.service.end();
                Ok(Value::Null)
            }
        }
    }
}

fn published<E: Display>(result: Result<Published, E>) -> Result<Value, Failure> {
    result.map_err(|error| Failure::new(error.to_string())).and_then(|published| value(&Change::from(published)))
}

fn value(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new(error.to_string()))
}
