//! Root lists: from what a client or an operator wrote to an immutable, anchored [`Snapshot`].

pub mod entry;
mod judge;
mod lists;
mod snapshot;
pub mod uri;

pub use judge::{Judge, JudgeOptions, Judgement, Look};
pub use lists::{ListEvent, Lists};
pub use snapshot::{Instance, RefusedRoot, Root, RootKind, Snapshot};
pub use uri::Refusal;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Who supplied a root list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authority {
    /// An MCP client.
    Client,
    /// Somebody through `rootsfs roots`.
    Control,
    /// `--root`.
    CommandLine,
}

/// Whose list is in force when there are several (`--authority`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthorityPolicy {
    /// A client that gives a list replaces `--root` wholly.
    #[default]
    Client,
    /// Only `--root` and the control socket count.
    CommandLine,
    /// The client's list is added to `--root`.
    Union,
}

/// What made a new generation, as the record's `trigger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The view started.
    Start,
    /// The client's first list.
    Initialized,
    /// `notifications/roots/list_changed`, or an input-required answer.
    ListChanged,
    /// A verb of `rootsfs roots`.
    Control,
    /// `rootsfs roots refresh` or the tool `refresh_roots`.
    Refresh,
    /// The operator's list file changed.
    RootsFile,
    /// A missing root appeared, or a root's directory was replaced.
    Rescan,
    /// The list could not be refreshed.
    Unavailable,
}

/// One element of a root list as it was given, not yet judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootInput {
    /// A `file://` URI, or (command line, control, `--bare-paths`) an absolute path.
    pub uri: String,
    /// The display name from the wire; decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The entry name the operator asked for (`PATH=ENTRY`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// A plain absolute path is accepted (it came from the command line or the control socket).
    #[serde(default)]
    pub path_allowed: bool,
}

/// The state of the list in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListState {
    /// No list yet.
    Waiting,
    /// The list is in force.
    Active,
    /// A change was announced; the new list is not in force.
    Stale,
    /// The refresh failed; nothing of the client's list is shown.
    Unavailable,
}

impl ListState {
    /// The contract's spelling, e.g. `active`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A source that can be asked for its list again. The command line answers from memory, an MCP client over the wire; a
/// program that embeds the library may bring its own.
pub trait RootSource: Send + Sync {
    /// In whose name the list is given.
    fn authority(&self) -> Authority;

    /// Asks for the list now, waiting at most `timeout`. None: the source turned out to have no lists to give, so whatever
    /// is in force without it stays.
    ///
    /// # Errors
    /// A sentence for people: why no list came.
    fn ask(&self, timeout: Duration) -> Result<Option<Vec<RootInput>>, String>;
}
