//! The boundary record: every denial, every snapshot and every granted change, as JSON Lines. Never file contents.
//!
//! An event is serialized once, by the thread that made it, kept in a ring in memory (for `rootsfs log` and the MCP tool
//! `boundary_log`) and written to a [`Sink`]. Writing happens in the decision's own thread, so that a line is in the file
//! before the caller has its answer; a line that cannot be written is counted and does not hold the caller up.

mod decision;
mod line;
mod ring;
mod sink;
mod snapshot_event;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

pub use decision::{Decision, Outcome};
pub use line::LINE_MAX;
pub use sink::{FileSink, Sink};
pub use snapshot_event::{RefusedEvent, SnapshotEvent};

use crate::authorize::Op;
use line::Line;
use ring::Ring;
use sink::Output;

/// Events kept in memory.
pub const RING_LINES: usize = 4096;

/// What the record keeps (`--record`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Level {
    /// Denials and snapshots.
    Denials,
    /// Also granted changes.
    #[default]
    Changes,
    /// Also reads.
    All,
}

/// How a record is kept.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// What is kept.
    pub level: Level,
    /// Where it goes, besides memory.
    pub sink: Sink,
    /// A granted operation that is kept is written before it is done, too, with the result `pending`; one that cannot be
    /// written is refused (`--record-strict`).
    pub strict: bool,
    /// The session named in each line, until [`Record::set_session`].
    pub session: String,
}

/// Figures since the start.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Denials.
    pub denials: u64,
    /// The line of the last denial.
    pub last_denial: Option<Arc<str>>,
    /// Lines that did not reach the sink.
    pub lost: u64,
}

/// The record of one view. Every method may be called from any thread.
#[derive(Debug)]
pub struct Record {
    level: Level,
    strict: bool,
    session: ArcSwap<String>,
    ring: Ring,
    output: Mutex<Output>,
    denials: AtomicU64,
    last_denial: RwLock<Option<Arc<str>>>,
    lost: AtomicU64,
}

impl Default for Record {
    /// In memory only.
    fn default() -> Self {
        Self::with_output(Level::default(), String::new(), Output::None)
    }
}

impl Record {
    /// Opens the sink.
    ///
    /// # Errors
    /// What opening the file, or starting the thread that writes to standard error, answered.
    pub fn new(options: RecordOptions) -> io::Result<Self> {
        let output = Output::open(options.sink)?;
        Ok(Self { strict: options.strict, ..Self::with_output(options.level, options.session, output) })
    }

    fn with_output(level: Level, session: String, output: Output) -> Self {
        Self {
            level,
            strict: false,
            session: ArcSwap::from_pointee(session),
            ring: Ring::new(RING_LINES),
            output: Mutex::new(output),
            denials: AtomicU64::new(0),
            last_denial: RwLock::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// Names the session in all later lines.
    pub fn set_session(&self, session: String) {
        self.session.store(Arc::new(session));
    }

    /// Whether a decision of this kind would be kept; asked before an event is built.
    #[must_use]
    pub fn wants(&self, op: Op, outcome: Outcome) -> bool {
        match (outcome, self.level) {
            (Outcome::Deny, _) | (_, Level::All) => true,
            (Outcome::Allow, Level::Changes) => op.changes(),
            (Outcome::Allow, Level::Denials) => false,
        }
    }

    /// Whether a granted operation of this kind has to be kept before it is done.
    #[must_use]
    pub fn wants_first(&self, op: Op) -> bool {
        self.strict && self.wants(op, Outcome::Allow)
    }

    /// Keeps one decision, if [`Record::wants`] it.
    ///
    /// # Errors
    /// What writing it answered. It is counted as lost, and most callers have nothing better to do about it.
    pub fn decision(&self, decision: &Decision) -> io::Result<()> {
        if !self.wants(decision.op, decision.decision) {
            return Ok(());
        }
        let denied = decision.decision == Outcome::Deny;
        let (line, written) = self.keep("decision", decision, denied);
        if denied {
            self.denials.fetch_add(1, Ordering::Relaxed);
            *self.last_denial.write() = line;
        }
        written
    }

    /// Keeps one change of the root list.
    pub fn snapshot(&self, event: &SnapshotEvent) {
        let _ = self.keep("snapshot", event, false);
    }

    /// The newest events, at most `limit`, oldest of them first, each with its number. Lines end with a newline.
    #[must_use]
    pub fn recent(&self, limit: usize, denied_only: bool) -> Vec<(u64, Arc<str>)> {
        self.ring.recent(limit, denied_only)
    }

    /// The events after number `after_seq`, of those that are still in memory; waits for one, at most `timeout`.
    #[must_use]
    pub fn follow(&self, after_seq: u64, timeout: Duration) -> Vec<(u64, Arc<str>)> {
        self.ring.follow(after_seq, timeout)
    }

    /// The number of the newest event; 0 before the first.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.ring.last()
    }

    /// Figures since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            denials: self.denials.load(Ordering::Relaxed),
            last_denial: self.last_denial.read().clone(),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    fn keep<T: Serialize>(&self, event: &'static str, body: &T, denied: bool) -> (Option<Arc<str>>, io::Result<()>) {
        let session = self.session.load();
        let line = Line { time: format!("{:.6}", Timestamp::now()), session: &session, event, body };
        let line: Arc<str> = match line.render() {
            Ok(line) => line.into(),
            Err(error) => {
                let error = error.into();
                self.lose(&error);
                return (None, Err(error));
            }
        };
        self.ring.push(Arc::clone(&line), denied);
        let written = self.output.lock().write(&line);
        if let Err(error) = &written {
            self.lose(error);
        }
        (Some(line), written)
    }

    fn lose(&self, error: &io::Error) {
        if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%error, "the boundary record cannot be written; further losses are only counted");
        }
    }
}
