//! Where lists come from besides the command line: a file that is followed. And a record that must not miss anything.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use common::{Trees, View, errno_of, eventually};

/// How long a change of the file may take to be in force: a broken one is given half a second to be whole.
const SOON: Duration = Duration::from_secs(5);

/// A view of the roots `a` and `b` of a list file, and the file.
fn followed() -> (View, PathBuf) {
    let trees = Trees::new(&["a", "b", "c"]);
    fs::create_dir(trees.file("lists")).unwrap();
    let file = trees.file("lists/roots.toml");
    fs::write(&file, "roots = ['../back/a', { path = '../back/b', entry = 'beta' }]").unwrap();
    let option = file.to_str().unwrap().to_owned();
    (trees.mount(&[], &["--roots-file", &option]), file)
}

#[track_caller]
fn shows(view: &View, entries: &[&str], state: &str) {
    let now = || {
        let status = view.status();
        let active = status["roots"].as_array().unwrap().iter().filter_map(|root| root["entry"].as_str());
        let mut active: Vec<_> = active.map(str::to_owned).collect();
        active.sort();
        (active, status["state"].as_str().unwrap().to_owned(), status["why"].as_str().unwrap_or_default().to_owned())
    };
    let fits = |(active, is, _): &(Vec<String>, String, String)| active == entries && is == state;
    assert!(eventually(SOON, || fits(&now())), "{:?}, not {entries:?} {state}", now());
}

as_root_and_user! {
    fn a_list_file_is_followed() {
        let (view, file) = followed();
        shows(&view, &["a", "beta"], "active");
        // Written in place.
        fs::write(&file, "roots = ['../back/a', '../back/c']").unwrap();
        shows(&view, &["a", "c"], "active");
        // Saved as an editor does: another file under the same name.
        let saved = file.with_extension("new");
        fs::write(&saved, "roots = ['../back/b']").unwrap();
        fs::rename(&saved, &file).unwrap();
        shows(&view, &["b"], "active");
        // What the operator says by another way holds until the file changes, whatever a refresh finds.
        let c = view.site.native("c").to_str().unwrap().to_owned();
        view.roots("set", &[&c]).ok();
        view.roots("refresh", &[]).ok();
        shows(&view, &["c"], "active");
        fs::write(&file, "roots = ['../back/a']").unwrap();
        shows(&view, &["a"], "active");
        let log = view.rootsfs(&["log", view.m(), "--json"]).ok();
        assert!(log.contains("\"trigger\":\"roots_file\""), "{log}");
    }

    fn a_broken_list_file_is_no_authority() {
        let (view, file) = followed();
        let held = view.within("open", |s| {
            fs::write(s.native("a/f"), "f").unwrap();
            fs::File::open(s.view("a/f")).unwrap()
        });
        fs::write(&file, "roots = ['../back/a'").unwrap();
        shows(&view, &[], "unavailable");
        assert!(view.status()["why"].as_str().unwrap().contains("roots.toml"), "{:#}", view.status());
        view.within("read", move |_| {
            let refused = errno_of(std::os::unix::fs::FileExt::read_at(&held, &mut [0], 0));
            assert!(refused == "ESTALE" || refused == "EIO", "{refused}");
        });
        fs::write(&file, "roots = ['../back/a']").unwrap();
        shows(&view, &["a"], "active");
        fs::remove_file(&file).unwrap();
        shows(&view, &[], "unavailable");
        assert_eq!(view.roots("refresh", &[]).code, 0, "nothing new, and nothing to show");
        fs::write(&file, "roots = ['../back/b']").unwrap();
        shows(&view, &["b"], "active");
    }

    fn a_list_file_that_is_none_is_refused() {
        let trees = Trees::new(&["a"]);
        let file = trees.file("roots.toml");
        let option = file.to_str().unwrap();
        for text in [None, Some("roots = 1")] {
            if let Some(text) = text {
                fs::write(&file, text).unwrap();
            }
            let ran = trees.rootsfs(&["mount", "--roots-file", option, trees.m()]);
            assert_eq!(ran.code, 3, "{ran:?}");
            assert!(ran.err.contains("roots.toml"), "{ran:?}");
        }
    }

    fn what_cannot_be_recorded_is_not_done() {
        for (level, read) in [("changes", "ok"), ("all", "EIO")] {
            let trees = Trees::new(&["a"]);
            fs::write(trees.site.native("a/f"), "f").unwrap();
            let view = trees.mount(&["a"], &["--record-strict", "--record", level, "--record-file", "/dev/full"]);
            view.within("refused", move |s| {
                assert_eq!(errno_of(fs::read(s.view("a/f"))), read, "{level}");
                for outcome in [
                    errno_of(fs::write(s.view("a/new"), "x")),
                    errno_of(fs::write(s.view("a/f"), "x")),
                    errno_of(fs::remove_file(s.view("a/f"))),
                    errno_of(fs::rename(s.view("a/f"), s.view("a/g"))),
                    errno_of(fs::create_dir(s.view("a/d"))),
                ] {
                    assert_eq!(outcome, "EIO", "{level}");
                }
                assert_eq!(fs::read_dir(s.native("a")).unwrap().count(), 1);
                assert_eq!(fs::read(s.native("a/f")).unwrap(), b"f");
            });
        }
    }

    fn what_is_recorded_first_is_told_twice() {
        let trees = Trees::new(&["a"]);
        let file = trees.file("record");
        let view = trees.mount(&["a"], &["--record-strict", "--record-file", file.to_str().unwrap()]);
        view.within("change", |s| fs::create_dir(s.view("a/d")).unwrap());
        let record = fs::read_to_string(&file).unwrap();
        let results: Vec<_> = record
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter(|line| line["op"] == "mkdir")
            .map(|line| line["result"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(results, ["pending", "ok"]);
    }
}
