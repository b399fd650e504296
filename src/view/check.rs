use std::path::PathBuf;

use serde::Serialize;

use crate::authorize::Op;
use crate::record::{Decision, Outcome};

/// A question of `rootsfs check` or `explain_access`.
#[derive(Clone, Debug)]
pub struct CheckQuery {
    /// Below the mountpoint, relative to it, a backing path, or a `file://` URI.
    pub path: String,
    /// What would be done.
    pub op: Op,
    /// The other end of a rename or link.
    pub to: Option<String>,
    /// The generation the asker believes in; any other one is denied as `stale-generation`.
    pub generation: Option<u64>,
    /// Who asks.
    pub uid: u32,
    /// The asking process.
    pub pid: u32,
    /// What relative paths are relative to when they do not name an entry; usually none.
    pub directory: Option<PathBuf>,
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

impl Default for Explanation {
    fn default() -> Self {
        Self {
            decision: Decision {
                generation: 0,
                op: Op::Stat,
                pid: 0,
                uid: 0,
                path: String::new(),
                object: None,
                to: None,
                to_object: None,
                root: None,
                to_root: None,
                decision: Outcome::Deny,
                reason: None,
                result: String::new(),
            },
            detail: String::new(),
        }
    }
}
