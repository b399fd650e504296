//! Tables of calls: a Python program prints a line for each, and the lines of two places are compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{Site, python, run, step};

/// How long a table may take in one place; it is one step.
const LIMIT: u32 = 50;

const PRELUDE: &str = include_str!("../calls/prelude.py");

/// A row whose outcome in the view is another than the plain one: which, and the outcome.
pub type Deviation = (&'static str, &'static str);

/// The rows that a table printed in a directory, each with its outcome.
#[track_caller]
pub fn rows(dir: &Path, table: &str) -> BTreeMap<String, String> {
    let program = format!("import os, sys\nos.chdir(sys.argv[1])\n{PRELUDE}\n{table}");
    let said = run(LIMIT, Command::new(python()).args(["-Iuc", &program]).arg(dir)).ok();
    let mut rows = BTreeMap::new();
    for line in said.lines() {
        let (name, outcome) = line.split_once('\t').unwrap_or_else(|| panic!("not a row: {line}"));
        assert_eq!(rows.insert(name.into(), outcome.into()), None, "two rows named {name}");
    }
    rows
}

/// Runs a table in the plain directory and in root `a` of the view. Only `deviations` may differ, and all of them must, so
/// that the list stays true.
#[track_caller]
pub fn alike(site: &Site, table: &str, deviations: &[Deviation]) {
    step("a table, plain");
    let plain = rows(&site.twin, table);
    step("a table, in the view");
    let mut viewed = rows(&site.view("a"), table);
    assert_eq!(plain.keys().collect::<Vec<_>>(), viewed.keys().collect::<Vec<_>>(), "the rows themselves differ");
    for (row, outcome) in deviations {
        let viewed = viewed.remove(*row);
        assert_eq!(viewed.as_deref(), Some(*outcome), "{row}: the deviation is another one");
        assert_ne!(plain.get(*row), viewed.as_ref(), "{row}: no deviation any more");
    }
    let differing = viewed.iter().filter(|(row, outcome)| plain.get(*row) != Some(*outcome));
    let differing: Vec<_> =
        differing.map(|(row, view)| format!("{row}\n  plain: {}\n  view:  {view}", plain[row])).collect();
    assert!(differing.is_empty(), "{} rows differ:\n{}", differing.len(), differing.join("\n"));
}
