//! The tools. They run off the async threads, because a check opens files.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use rootsfs::authorize::Op;
use serde::Deserialize;
use serde_json::{Value, json};

use super::host::Host;
use super::schema::{DEFAULT_EVENTS, MAX_EVENTS};
use crate::service::Question;

/// A tool, by its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    ViewStatus,
    RefreshRoots,
    ExplainAccess,
    BoundaryLog,
}

impl Tool {
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "view_status" => Self::ViewStatus,
            "refresh_roots" => Self::RefreshRoots,
            "explain_access" => Self::ExplainAccess,
            "boundary_log" => Self::BoundaryLog,
            _ => return None,
        })
    }

    /// Runs the tool; [`Self::RefreshRoots`] only says what is in force, the asking is the caller's.
    pub(super) fn run(self, host: &impl Host, arguments: Option<JsonObject>) -> CallToolResult {
        let arguments = Value::Object(arguments.unwrap_or_default());
        let answer = match self {
            Self::ViewStatus | Self::RefreshRoots => nothing(arguments).map(|()| host.status()),
            Self::ExplainAccess => explain(host, arguments),
            Self::BoundaryLog => log(host, arguments),
        };
        answer.map_or_else(|why| error(&why), CallToolResult::structured)
    }
}

/// A tool error the model can act on.
pub(super) fn error(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

fn nothing(arguments: Value) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    serde_json::from_value(arguments)
        .map(|Nothing {}| ())
        .map_err(|error| format!("{error}; this tool takes no arguments"))
}

fn explain(host: &impl Host, arguments: Value) -> Result<Value, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Explain {
        path: String,
        operation: String,
        #[serde(default)]
        to: Option<String>,
    }
    let known = || Op::ALL.map(Op::as_str).join(", ");
    let Explain { path, operation, to } = serde_json::from_value(arguments).map_err(|error| {
        format!(
            "{error}; explain_access takes `path`, `operation` and, for rename, link and symlink, `to`; known operations: {}",
            known()
        )
    })?;
    let op: Op = operation.parse()?;
    if to.is_some() && !op.takes_other_end() {
        return Err(format!("{op} takes no `to`; known operations: {}", known()));
    }
    if to.is_none() && op.needs_other_end() {
        return Err(format!("{op} needs `to`, the other end; known operations: {}", known()));
    }
    serde_json::to_value(host.check(Question { path, op, to, generation: None })).map_err(|error| error.to_string())
}

fn log(host: &impl Host, arguments: Value) -> Result<Value, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Log {
        #[serde(default)]
        limit: Option<usize>,
        #[serde(default)]
        denied_only: Option<bool>,
    }
    let Log { limit, denied_only } = serde_json::from_value(arguments)
        .map_err(|error| format!("{error}; boundary_log takes `limit` (1 to {MAX_EVENTS}) and `denied_only`"))?;
    let limit = limit.unwrap_or(DEFAULT_EVENTS);
    if !(1..=MAX_EVENTS).contains(&limit) {
        return Err(format!("`limit` is {limit}; it must be between 1 and {MAX_EVENTS}"));
    }
    let lines = host.recent(limit, denied_only.unwrap_or(false));
    let events: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let generation = host.status().get("generation").cloned().unwrap_or_default();
    Ok(json!({"generation": generation, "events": events}))
}
