use serde::Serialize;

use crate::authorize::Reason;
use crate::roots::Trigger;

/// An element of a list that was left out, as the record tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedEvent {
    /// What was given, raw.
    pub uri: String,
    /// Why it was left out.
    pub reason: Reason,
}

/// One publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotEvent {
    /// The new generation.
    pub generation: u64,
    /// What made it.
    pub trigger: Trigger,
    /// The URIs of the roots before.
    pub old: Vec<String>,
    /// The URIs of the roots now.
    pub new: Vec<String>,
    /// Entries that are gone.
    pub revoked: Vec<String>,
    /// Entries that are new.
    pub added: Vec<String>,
    /// Entries that stayed, undisturbed.
    pub retained: Vec<String>,
    /// What was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedEvent>,
    /// Open handles that were revoked.
    pub handles_revoked: u64,
    /// Requests into revoked roots that were stuck in a slow backing call when publishing was done; their answers are refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub still_draining: u64,
    /// From the decision to publish until it was done, in microseconds.
    pub took_us: u64,
    /// `published`.
    pub result: &'static str,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
