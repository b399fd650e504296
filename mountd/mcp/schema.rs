//! What the tools are called, take and return, told to a model that has never seen rootsfs.
//!
//! The shapes are the contract's; they are written out because clients check every result against them.

use std::path::Path;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use rootsfs::authorize::Op;
use serde_json::{Value, json};

/// Most lines of the record in one answer.
pub(super) const MAX_EVENTS: usize = 1000;
/// Lines of the record in one answer when the caller does not say.
pub(super) const DEFAULT_EVENTS: usize = 50;

/// The server's instructions.
pub(super) fn instructions(mountpoint: &Path) -> String {
    format!(
        "rootsfs shows the directories that the user has put in this client's root list as one mounted directory, the \
         view, at {view}. Each entry at its top is one root; read, search, build and edit files there with ordinary \
         tools and absolute paths below {view}. Nothing outside the root list is in the view, and when the user takes a \
         root off the list its entry disappears at once, open files included.\n\
         An operation that fails in the view with EACCES, EPERM, EROFS, EXDEV or ENOENT may have been refused by this \
         boundary: call `explain_access` with the path and the operation to learn whether, and why. A denial is the \
         user's decision: do not look for a way around it; ask the user to add the directory to the client's roots, then \
         call `refresh_roots`. `view_status` lists the roots and those that were refused with the reason; `boundary_log` \
         shows recent decisions.",
        view = mountpoint.display()
    )
}

/// The declared tools.
pub(super) fn tools(mountpoint: &Path) -> Vec<Tool> {
    let view = mountpoint.display();
    let operations: Vec<_> = Op::ALL.iter().map(|op| op.as_str()).collect();
    vec![
        tool(
            "view_status",
            "What the view shows",
            format!(
                "Says where the view is mounted ({view}), its state (waiting: no root list yet; active: the list is in \
                 force; stale: a change was announced and is being fetched; unavailable: the list cannot be had and \
                 nothing is shown), the generation number of the list, and each root with its entry name and backing \
                 path. A root that is left out stands there with its reason."
            ),
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
            status(),
            read_only(),
        ),
        tool(
            "refresh_roots",
            "Fetch the root list again",
            "Asks the client for its root list now, puts it in force, and returns the status of the view. Use it after \
             the user has changed the roots, or when an expected directory is missing. It cannot add a root itself."
                .into(),
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
            status(),
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(false),
        ),
        tool(
            "explain_access",
            "Why an access is allowed or denied",
            format!(
                "Says whether an operation on a path would be allowed in the view under the list in force, and if not, \
                 why and with which error. It does nothing to the file. Operations: {}.",
                operations.join(", ")
            ),
            json!({
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "description": format!("Below {view}, relative to it, a real path, or a file:// URI")
                    },
                    "operation": {"type": "string", "enum": operations, "description": "What would be done"},
                    "to": {"type": "string", "description": "The other end; needed for rename and link"}
                },
                "required": ["path", "operation"],
                "additionalProperties": false
            }),
            explanation(),
            read_only(),
        ),
        tool(
            "boundary_log",
            "Recent decisions at the boundary",
            "Returns the newest events of the boundary record, oldest first: decisions (who wanted what, allowed or \
             denied, with the reason) and changes of the root list. It never holds file contents."
                .into(),
            json!({
                "type": "object",
                "properties": {
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": MAX_EVENTS, "default": DEFAULT_EVENTS,
                        "description": "How many events at most"
                    },
                    "denied_only": {"type": "boolean", "default": false, "description": "Only denials"}
                },
                "additionalProperties": false
            }),
            log(),
            read_only(),
        ),
    ]
}

fn read_only() -> ToolAnnotations {
    ToolAnnotations::new().read_only(true).idempotent(true).open_world(false)
}

fn tool(
    name: &'static str,
    title: &'static str,
    description: String,
    input: Value,
    output: Value,
    hints: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(hints)
}

fn object(schema: Value) -> Arc<JsonObject> {
    Arc::new(if let Value::Object(object) = schema { object } else { JsonObject::new() })
}

fn status() -> Value {
    json!({
        "type": "object",
        "properties": {
            "mountpoint": {"type": "string", "description": "Where the view is mounted"},
            "state": {"enum": ["waiting", "active", "stale", "unavailable"]},
            "why": {"type": "string", "description": "Why the list is not active"},
            "generation": {"type": "integer", "description": "Number of the list in force; grows with each change"},
            "authority": {
                "enum": ["client", "control", "command-line", null],
                "description": "Who supplied the list: this client, an operator, or the command line"
            },
            "session": {
                "type": ["object", "null"],
                "properties": {
                    "id": {"type": "string"},
                    "client": {"type": "string"},
                    "protocol": {"type": "string"},
                    "roots_capability": {"type": "boolean"},
                    "list_changed": {"type": "boolean"}
                }
            },
            "roots": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "entry": {"type": "string", "description": "Name at the top of the view"},
                        "uri": {"type": "string"},
                        "name": {"type": ["string", "null"], "description": "Display name; decides nothing"},
                        "path": {"type": "string", "description": "The real path behind the entry"},
                        "kind": {"enum": ["directory", "file"]},
                        "read_only": {"type": "boolean"},
                        "status": {"enum": ["active", "missing", "refused"]},
                        "reason": {"type": "string", "description": "Why it is left out"}
                    },
                    "required": ["uri", "status"]
                }
            },
            "pid": {"type": "integer"},
            "since": {"type": "string", "description": "RFC 3339"}
        },
        "required": ["mountpoint", "state", "generation", "roots"]
    })
}

fn explanation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "generation": {"type": "integer", "description": "The list the answer holds for"},
            "op": {"type": "string"},
            "path": {"type": "string", "description": "Path in the view"},
            "object": {"type": "string", "description": "The real object, or its parent"},
            "to": {"type": "string"},
            "to_object": {"type": "string"},
            "root": {"type": "string", "description": "Entry of the root concerned"},
            "to_root": {"type": "string"},
            "pid": {"type": "integer"},
            "uid": {"type": "integer"},
            "decision": {"enum": ["allow", "deny"]},
            "reason": {"type": "string", "description": "Why it is denied, e.g. symlink-outside"},
            "result": {"type": "string", "description": "ok, or the error the caller gets, e.g. EXDEV"},
            "detail": {"type": "string", "description": "One sentence"}
        },
        "required": ["generation", "op", "path", "decision", "result", "detail"]
    })
}

fn log() -> Value {
    json!({
        "type": "object",
        "properties": {
            "generation": {"type": "integer", "description": "Number of the list in force"},
            "events": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "time": {"type": "string", "description": "RFC 3339"},
                        "event": {"type": "string", "description": "decision, or snapshot: a change of the list"},
                        "generation": {"type": "integer"}
                    }
                }
            }
        },
        "required": ["generation", "events"]
    })
}
