use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;
use crate::authorize::Reason;
use crate::roots::Trigger;

fn denial() -> Decision {
    Decision {
        generation: 8,
        op: Op::Rename,
        pid: 99,
        uid: 1000,
        path: "app/a".into(),
        object: Some("/workspace/app/a".into()),
        to: Some("docs/b".into()),
        to_object: Some("/workspace/docs".into()),
        root: Some("app".into()),
        to_root: Some("docs".into()),
        decision: Outcome::Deny,
        reason: Some(Reason::CrossRoot),
        result: "EXDEV".into(),
        query: false,
    }
}

fn allowed(op: Op) -> Decision {
    Decision { op, decision: Outcome::Allow, reason: None, result: "ok".into(), ..denial() }
}

fn change(uris: usize) -> SnapshotEvent {
    let uris: Vec<_> = (0..uris).map(|n| format!("file:///workspace/a-rather-long-name/{n}")).collect();
    SnapshotEvent {
        generation: 9,
        trigger: Trigger::ListChanged,
        old: uris.clone(),
        new: uris.clone(),
        revoked: vec!["app".into()],
        added: vec![],
        retained: uris,
        refused: vec![],
        handles_revoked: 3,
        still_draining: 0,
        took_us: 412,
        result: "published",
    }
}

/// A line without its time, which must be RFC 3339 in UTC with microseconds.
fn parsed(line: &str) -> Value {
    assert_eq!(line.matches('\n').count(), 1, "one line: {line}");
    let mut value: Value = serde_json::from_str(line).unwrap();
    let time = value.as_object_mut().unwrap().remove("time").unwrap();
    let time = time.as_str().unwrap();
    assert_eq!(time.len(), "2026-11-30T12:00:00.000000Z".len(), "{time}");
    let _: Timestamp = time.parse().unwrap();
    value
}

#[test]
fn lines_have_the_shape_of_the_contract() {
    let record = Record::new(RecordOptions { session: "s1".into(), ..RecordOptions::default() }).unwrap();
    let _ = record.decision(&denial());
    record.set_session("s2".into());
    let _ = record.decision(&allowed(Op::Write));
    record.snapshot(&change(1));
    let lines = record.recent(10, false);
    let lines: Vec<_> = lines.iter().map(|(_, line)| parsed(line)).collect();
    let denial = serde_json::json!({
        "session":"s1","generation":8,"event":"decision","op":"rename","pid":99,"uid":1000,
        "path":"app/a","object":"/workspace/app/a","to":"docs/b","to_object":"/workspace/docs","root":"app",
        "to_root":"docs","decision":"deny","reason":"cross-root","result":"EXDEV"});
    assert_eq!(lines[0], denial);
    assert_eq!(lines[1]["session"], "s2");
    assert_eq!(lines[1]["decision"], "allow");
    assert!(lines[1].get("reason").is_none());
    let change = serde_json::json!({
        "session":"s2","event":"snapshot","generation":9,"trigger":"list_changed",
        "old":["file:///workspace/a-rather-long-name/0"],"new":["file:///workspace/a-rather-long-name/0"],
        "revoked":["app"],"added":[],"retained":["file:///workspace/a-rather-long-name/0"],"handles_revoked":3,
        "took_us":412,"result":"published"});
    assert_eq!(lines[2], change);
}

#[test]
fn the_level_decides_what_is_kept() {
    for (level, kept) in [(Level::Denials, 1), (Level::Changes, 2), (Level::All, 3)] {
        let record = Record::new(RecordOptions { level, ..RecordOptions::default() }).unwrap();
        let _ = record.decision(&denial());
        let _ = record.decision(&allowed(Op::Write));
        let _ = record.decision(&allowed(Op::Read));
        assert_eq!(record.recent(10, false).len(), kept, "{level:?}");
        assert_eq!(record.recent(10, true).len(), 1, "{level:?}");
        let counters = record.counters();
        assert_eq!(counters.denials, 1);
        assert!(counters.last_denial.unwrap().contains("cross-root"));
    }
}

#[test]
fn the_file_rotates_and_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let sink = Sink::File(FileSink { path: path.clone(), max_bytes: 2000, old_files: 2 });
    let record = Record::new(RecordOptions { sink, ..RecordOptions::default() }).unwrap();
    for _ in 0..40 {
        let _ = record.decision(&denial());
    }
    let mut names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["record", "record.1", "record.2"]);
    for name in names {
        let path = directory.path().join(name);
        let metadata = path.metadata().unwrap();
        assert!(metadata.len() <= 2000);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        for line in std::fs::read_to_string(path).unwrap().split_inclusive('\n') {
            parsed(line);
        }
    }
    assert_eq!(record.counters().lost, 0);
}

#[test]
fn a_write_error_is_counted_and_the_ring_goes_on() {
    let sink = Sink::File(FileSink::new("/dev/full"));
    let record = Record::new(RecordOptions { sink, ..RecordOptions::default() }).unwrap();
    let _ = record.decision(&denial());
    let _ = record.decision(&denial());
    assert_eq!(record.counters().lost, 2);
    assert_eq!(record.recent(10, true).len(), 2);
}

#[test]
fn following_waits_and_misses_nothing_in_the_ring() {
    let record = Arc::new(Record::default());
    assert!(record.follow(0, Duration::from_millis(10)).is_empty());
    let writer = Arc::clone(&record);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        let _ = writer.decision(&denial());
    });
    let lines = record.follow(0, Duration::from_secs(10));
    thread.join().unwrap();
    assert_eq!(lines.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1]);
    for _ in 0..RING_LINES + 5 {
        let _ = record.decision(&denial());
    }
    let lines = record.follow(1, Duration::ZERO);
    assert_eq!(lines.len(), RING_LINES);
    assert_eq!(lines.last().unwrap().0, record.last_seq());
    assert_eq!(record.follow(record.last_seq() - 2, Duration::ZERO).len(), 2);
}

#[test]
fn no_line_is_longer_than_promised() {
    let record = Record::default();
    // The worst a path can do to JSON: 4096 bytes that each become six.
    let path = "\u{1}".repeat(4096);
    let end = || Some(path.clone());
    let root = end();
    let _ =
        record.decision(&Decision { path: path.clone(), object: end(), to: end(), to_object: end(), root, ..denial() });
    record.snapshot(&change(15_000));
    for (_, line) in record.recent(2, false) {
        assert!(line.len() <= LINE_MAX, "{} bytes", line.len());
        assert_eq!(parsed(&line)["truncated"], true);
    }
}
