//! What `rootsfs status` and the MCP tool `view_status` say of a view.

use rootsfs::publisher::Published;
use rootsfs::roots::{Authority, ListState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A view, as the contract's `status --json`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Status {
    /// Where the view is mounted.
    pub(crate) mountpoint: String,
    /// `waiting`, `active`, `stale` or `unavailable`.
    #[schemars(with = "String")]
    pub(crate) state: ListState,
    /// Why the list is not active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// The number of the list in force.
    pub(crate) generation: u64,
    /// Who supplied it: `client`, `control` or `command-line`.
    #[schemars(with = "String")]
    pub(crate) authority: Authority,
    /// The MCP client, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionInfo>,
    /// The active roots, then those that were left out.
    pub(crate) roots: Vec<RootStatus>,
    /// The daemon's process.
    pub(crate) pid: u32,
    /// When the daemon started, RFC 3339 in UTC.
    pub(crate) since: String,
    /// Denials since then.
    pub(crate) denials: u64,
    /// The last of them, in the record's shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_denial: Option<Value>,
}

/// An MCP client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionInfo {
    /// The session's name in the boundary record.
    pub(crate) id: String,
    /// Name and version, as the client gave them.
    pub(crate) client: String,
    /// The protocol version that was agreed.
    pub(crate) protocol: String,
    /// The client declared roots.
    pub(crate) roots_capability: bool,
    /// The client says when they change.
    pub(crate) list_changed: bool,
}

/// One element of the list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RootStatus {
    /// The name at the top of the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<String>,
    /// The URI; of an element that was left out, as it was given.
    pub(crate) uri: String,
    /// The display name from the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The object's own path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// `directory` or `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// Nothing in it may be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// `active`, `missing` (it appears by itself once it exists) or `refused`.
    pub(crate) status: String,
    /// Why it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// Inodes of it that the kernel knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inodes: Option<u64>,
    /// Handles of it that are open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handles: Option<u64>,
}

/// A finished publication, as `roots --json` and the MCP tool `refresh_roots` tell it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Change {
    /// The generation in force.
    pub(crate) generation: u64,
    /// Entries that are gone.
    pub(crate) revoked: Vec<String>,
    /// Entries that are new.
    pub(crate) added: Vec<String>,
    /// Entries that stayed.
    pub(crate) retained: Vec<String>,
    /// Open handles that were revoked.
    pub(crate) handles_revoked: u64,
    /// Requests into revoked roots that are stuck in a slow file system; their answers will be refused.
    #[serde(default)]
    pub(crate) still_draining: u64,
    /// Microseconds from the decision to publish until publishing was done.
    pub(crate) took_us: u64,
}

impl From<Published> for Change {
    fn from(published: Published) -> Self {
        Self {
            generation: published.generation,
            revoked: published.revoked,
            added: published.added,
            retained: published.retained,
            handles_revoked: published.handles_revoked,
            still_draining: published.still_draining,
            took_us: u64::try_from(published.took.as_micros()).unwrap_or(u64::MAX),
        }
    }
}
