//! `--roots-file`: the operator's list in a TOML file, followed as it changes.
//!
//! ```toml
//! roots = [
//!     "~/src/app",
//!     { path = "../notes", entry = "papers" },
//!     { uri = "file:///srv/data", name = "shown in status" },
//! ]
//! ```
//!
//! Paths are relative to the directory of the file. A file that is gone, or that cannot be read as such a list for longer
//! than an editor takes to save, is no authority: its roots go until it is good again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use parking_lot::Mutex;
use rootsfs::publisher::Publisher;
use rootsfs::roots::{Authority, RootInput, RootSource};
use serde::Deserialize;

use crate::inputs;

/// How long a file may be missing or malformed before that counts: editors and tools take it away for a moment.
const SAVING: Duration = Duration::from_millis(500);

/// After an event, what else belongs to the same change is waited for.
const SETTLE: Duration = Duration::from_millis(50);

/// The file is read this often whether or not an event came: some file systems send none.
const POLL: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    roots: Vec<Element>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a path, a URI, or { path or uri, entry, name }")]
enum Element {
    Text(String),
    Table(Table),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    path: Option<String>,
    uri: Option<String>,
    entry: Option<String>,
    name: Option<String>,
}

/// A list file as it was last read.
#[derive(Debug)]
pub(crate) struct RootsFile {
    path: PathBuf,
    last: Mutex<Result<Vec<RootInput>, String>>,
}

impl RootsFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// A sentence for people: why it is no list.
    pub(crate) fn open(path: &Path) -> Result<(Arc<Self>, Vec<RootInput>), String> {
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let file = Self { last: Mutex::new(Err(String::new())), path };
        let list = file.read()?;
        *file.last.lock() = Ok(list.clone());
        Ok((Arc::new(file), list))
    }

    fn read(&self) -> Result<Vec<RootInput>, String> {
        let wrong = |error: &dyn std::fmt::Display| {
            let error = error.to_string();
            format!("the list file {}: {}", self.path.display(), error.trim())
        };
        let text = std::fs::read_to_string(&self.path).map_err(|error| wrong(&error))?;
        let contents: Contents = toml::from_str(&text).map_err(|error| wrong(&error))?;
        let base = self.path.parent().unwrap_or(Path::new("/"));
        contents.roots.into_iter().map(|element| root(element, base).map_err(|why| wrong(&why))).collect()
    }

    /// Follows the file until the publisher has gone.
    ///
    /// # Errors
    /// What starting a thread answered. Where the kernel has no watch left, the file is read every two seconds.
    pub(crate) fn follow(self: &Arc<Self>, publisher: &Arc<Publisher>) -> io::Result<()> {
        let (file, publisher) = (Arc::clone(self), Arc::downgrade(publisher));
        std::thread::Builder::new().name("roots-file".into()).spawn(move || file.run(&publisher)).map(drop)
    }

    fn run(&self, publisher: &Weak<Publisher>) {
        let (sender, events) = channel();
        // The directory: a file that is saved by renaming is another file each time.
        let watch = || {
            let mut watcher = notify::recommended_watcher(sender)?;
            watcher.watch(self.path.parent().unwrap_or(Path::new("/")), RecursiveMode::NonRecursive)?;
            Ok::<_, notify::Error>(watcher)
        };
        let _watcher = watch().inspect_err(|error| tracing::debug!(%error, "no watch on the list file")).ok();
        loop {
            wait(&events, POLL);
            let Some(publisher) = publisher.upgrade() else { return };
            let mut list = self.read();
            if list.is_err() && *self.last.lock() != list {
                std::thread::sleep(SAVING);
                list = self.read();
            }
            if let Some(list) = self.news(list)
                && publisher.operator(list).is_err()
            {
                return;
            }
        }
    }

    /// What was read, if it is not what was read last.
    fn news(&self, list: Result<Vec<RootInput>, String>) -> Option<Result<Vec<RootInput>, String>> {
        let mut last = self.last.lock();
        if *last == list {
            return None;
        }
        if let Err(why) = &list {
            tracing::warn!("no root list: {why}");
        }
        last.clone_from(&list);
        Some(list)
    }
}

/// Waits for an event and what follows it at once, at most `limit` for the first.
fn wait<T>(events: &Receiver<T>, limit: Duration) {
    match events.recv_timeout(limit) {
        Ok(_) => while events.recv_timeout(SETTLE).is_ok() {},
        Err(RecvTimeoutError::Timeout) => {}
        // No watch.
        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(limit),
    }
}

impl RootSource for RootsFile {
    fn authority(&self) -> Authority {
        Authority::CommandLine
    }

    fn ask(&self, _: Duration) -> Result<Option<Vec<RootInput>>, String> {
        // What has not changed takes nothing away that was set since by `rootsfs roots`.
        self.news(self.read()).transpose()
    }
}

fn root(element: Element, base: &Path) -> Result<RootInput, String> {
    let table = match element {
        Element::Text(text) if inputs::is_uri(text.as_bytes()) => Table { uri: Some(text), ..Table::default() },
        Element::Text(text) => Table { path: Some(text), ..Table::default() },
        Element::Table(table) => table,
    };
    let uri = match (table.path, table.uri) {
        (Some(path), None) => inputs::below(base, &path)?,
        (None, Some(uri)) => uri,
        _ => return Err("a root has either a path or a uri".into()),
    };
    Ok(RootInput { uri, name: table.name, entry: table.entry, path_allowed: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<RootInput>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roots.toml");
        std::fs::write(&path, text).unwrap();
        RootsFile::open(&path).map(|(_, list)| list).map_err(|why| why.replace(dir.path().to_str().unwrap(), "DIR"))
    }

    #[test]
    fn elements_in_every_form() {
        let text = r#"roots = ["/a/b", "file:///c%20d", "x", { path = "/e", entry = "f" }, { uri = "file:///g", name = "h" }]"#;
        let list = read(text).unwrap();
        let shown: Vec<_> =
            list.iter().map(|root| (root.uri.rsplit('/').next().unwrap(), root.entry.as_deref())).collect();
        assert_eq!(shown, [("b", None), ("c%20d", None), ("x", None), ("e", Some("f")), ("g", None)]);
        assert!(list[2].uri.starts_with('/') && list[4].name.as_deref() == Some("h"));
        assert!(read("roots = []").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_list_says_why() {
        for (text, why) in [
            ("", "missing field `roots`"),
            ("roots = [", "DIR/roots.toml"),
            ("roots = [1]", "a path, a URI"),
            ("roots = [{ path = \"/a\", uri = \"file:///a\" }]", "either a path or a uri"),
            ("root = []", "unknown field `root`"),
            ("roots = [\"~somebody/a\"]", "~somebody"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why) && said.contains("the list file"), "{text}: {said}");
        }
    }
}
