//! Output for people: tables and one-line sentences.

use std::fmt::Write;

use serde_json::Value;

use crate::status::{Change, RootStatus, Status};

/// Columns as wide as their widest cell, two blanks apart.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in all() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // A name from the wire must not steer the terminal.
            let cell: String = cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// All views, a line each.
pub(crate) fn views(views: &[Status]) -> String {
    let rows: Vec<_> = views
        .iter()
        .map(|view| {
            let active = view.roots.iter().filter(|root| root.entry.is_some()).count();
            let client = view.session.as_ref().map(|session| session.client.clone());
            vec![
                view.mountpoint.clone(),
                word(&view.state),
                view.generation.to_string(),
                format!("{active}/{}", view.roots.len()),
                client.unwrap_or_else(|| word(&view.authority)),
                view.denials.to_string(),
                view.pid.to_string(),
                view.since.clone(),
            ]
        })
        .collect();
    table(&["MOUNTPOINT", "STATE", "GENERATION", "ROOTS", "FROM", "DENIALS", "PID", "SINCE"], &rows)
}

/// One view, with its roots.
pub(crate) fn view(status: &Status) -> String {
    let why = status.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let mut out = format!("{}: {}{why}\n", status.mountpoint, word(&status.state));
    let _ = writeln!(out, "generation {}, list from {}", status.generation, word(&status.authority));
    if let Some(session) = &status.session {
        let _ = writeln!(out, "client {}, protocol {}, session {}", session.client, session.protocol, session.id);
    }
    let _ = writeln!(out, "pid {}, since {}, {} denials", status.pid, status.since, status.denials);
    if let Some(denial) = &status.last_denial {
        let _ = writeln!(out, "last denial: {}", event(denial));
    }
    out.push('\n');
    out.push_str(&roots(&status.roots));
    out
}

/// The roots of a view.
pub(crate) fn roots(roots: &[RootStatus]) -> String {
    let rows: Vec<_> = roots
        .iter()
        .map(|root| {
            let mode = root.read_only.map_or("-", |read_only| if read_only { "read-only" } else { "read-write" });
            let count = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
            vec![
                root.entry.clone().unwrap_or_else(|| "-".into()),
                root.path.clone().unwrap_or_else(|| root.uri.clone()),
                mode.to_owned(),
                root.reason.clone().unwrap_or_else(|| root.status.clone()),
                count(root.inodes),
                count(root.handles),
                root.detail.clone().or_else(|| root.name.clone()).unwrap_or_default(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return "no roots: the view is empty\n".to_owned();
    }
    table(&["ENTRY", "PATH", "MODE", "STATUS", "INODES", "HANDLES", "NOTE"], &rows)
}

/// What a verb of `roots` did.
pub(crate) fn change(change: &Change) -> String {
    let list = |word: &str, entries: &[String]| match entries {
        [] => String::new(),
        entries => format!("; {word} {}", entries.join(", ")),
    };
    let stuck = match change.still_draining {
        0 => String::new(),
        calls => format!("; {calls} calls are stuck in a slow file system, and their answers will be refused"),
    };
    format!(
        "generation {}{}{}{}{stuck}",
        change.generation,
        list("added", &change.added),
        list("removed", &change.revoked),
        list("kept", &change.retained)
    )
}

/// One event of the record.
pub(crate) fn event(event: &Value) -> String {
    let text = |field: &str| event.get(field).and_then(Value::as_str);
    let number = |field: &str| event.get(field).and_then(Value::as_u64).unwrap_or(0);
    let time = text("time").unwrap_or("-");
    let line = if text("event") == Some("snapshot") {
        let entries = |field: &str| {
            let entries = event.get(field).and_then(Value::as_array).into_iter().flatten();
            entries.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        };
        format!(
            "{time} list   generation {} by {}: +[{}] -[{}] =[{}] {}",
            number("generation"),
            text("trigger").unwrap_or("-"),
            entries("added"),
            entries("revoked"),
            entries("retained"),
            text("result").unwrap_or("-")
        )
    } else {
        let to = text("to").map(|to| format!(" -> {to}")).unwrap_or_default();
        let reason = text("reason").map(|reason| format!(" {reason}")).unwrap_or_default();
        let query = if event.get("query").is_some() { ", query" } else { "" };
        format!(
            "{time} {:<6} {} {}{to}:{reason} {} (pid {}, uid {}{query})",
            text("decision").unwrap_or("-"),
            text("op").unwrap_or("-"),
            text("path").unwrap_or("-"),
            text("result").unwrap_or("-"),
            number("pid"),
            number("uid")
        )
    };
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The answer of `check`: verdict, reason, object, and the sentence.
pub(crate) fn explanation(answer: &Value) -> String {
    let text = |field: &str| answer.get(field).and_then(Value::as_str);
    let words = [text("decision"), text("reason"), text("object").or_else(|| text("path"))];
    let mut line = words.into_iter().flatten().collect::<Vec<_>>().join("  ");
    if let Some(detail) = text("detail").filter(|detail| !detail.is_empty()) {
        let _ = write!(line, "  ({detail})");
    }
    line
}

/// A unit variant in its wire form.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "long".into()], vec!["wider".into(), "x\u{1b}".into()]];
        assert_eq!(table(&["H", "I"], &rows), "H      I\na      long\nwider  x\u{fffd}\n");
    }

    #[test]
    fn events_are_one_line() {
        let denial = json!({"time":"T","event":"decision","op":"rename","path":"a/\n","to":"b/x","decision":"deny",
            "reason":"cross-root","result":"EXDEV","pid":1,"uid":2});
        assert_eq!(event(&denial), "T deny   rename a/\u{fffd} -> b/x: cross-root EXDEV (pid 1, uid 2)");
        let change = json!({"time":"T","event":"snapshot","generation":3,"trigger":"control","added":["a"],
            "revoked":[],"retained":["b","c"],"result":"published"});
        assert_eq!(event(&change), "T list   generation 3 by control: +[a] -[] =[b,c] published");
        assert_eq!(
            explanation(&json!({"decision":"deny","reason":"not-found","path":"p","detail":"d"})),
            "deny  not-found  p  (d)"
        );
    }
}
