//! How a view begins and ends: signals, a busy mount, the corpse of a killed daemon, mountpoints and exit codes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use common::{Trees, View, errno_of, is_mounted};
use rustix::process::Signal;

/// How long a view may take to end (the contract's bound).
const END: Duration = Duration::from_secs(3);

fn mounted() -> View {
    let trees = Trees::new(&["a"]);
    fs::write(trees.site.native("a/f"), "text").unwrap();
    trees.mount(&["a"], &[])
}

as_root_and_user! {
    fn signals_end_it_cleanly() {
        for signal in [Signal::TERM, Signal::INT] {
            let mut view = mounted();
            let status = view.end(signal, END);
            assert_eq!(status.code(), Some(0), "{signal:?}: {status}");
            assert!(!is_mounted(&view.site.mount), "{signal:?} left the mount");
            assert!(view.site.mount.exists(), "a mountpoint that was there before must stay");
        }
    }

    fn a_busy_view_ends_too() {
        let mut view = mounted();
        let file = view.within("open", |s| File::options().read(true).write(true).open(s.view("a/f")).unwrap());
        let mut inside = std::process::Command::new("sh");
        let mut inside = inside.args(["-c", "cd \"$0\" && exec sleep 60"]).arg(view.site.view("a")).spawn().unwrap();
        let cwd = format!("/proc/{}/cwd", inside.id());
        let entered = common::eventually(END, || fs::read_link(&cwd).is_ok_and(|cwd| cwd == view.site.view("a")));
        let status = view.end(Signal::TERM, END);
        let (held, mounted) = (common::within(END, "pread", move || errno_of(file.read_at(&mut [0; 4], 0))), is_mounted(&view.site.mount));
        drop((inside.kill(), inside.wait()));
        assert!(entered, "the process never got inside");
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(!mounted, "a process inside kept it mounted");
        assert_ne!(held, "ok", "a descriptor outlived the view");
    }

    fn a_killed_daemon_is_recovered() {
        let mut view = mounted();
        view.end(Signal::KILL, END);
        assert!(is_mounted(&view.site.mount), "the kernel keeps the mount of a killed daemon; this test rests on that");
        let view = view.into_trees().mount(&["a"], &[]);
        view.within("read", |s| assert_eq!(fs::read_to_string(s.view("a/f")).unwrap(), "text"));
    }

    fn unmount_ends_the_daemon() {
        let mut view = mounted();
        view.rootsfs(&["unmount", view.m()]).ok();
        assert!(!is_mounted(&view.site.mount));
        let status = view.ended(END);
        assert_eq!(status.code(), Some(0), "{status}");
        let again = view.rootsfs(&["unmount", view.m()]);
        assert_ne!(again.code, 0, "nothing was mounted: {again:?}");
        assert!(!again.err.is_empty());
    }

    fn detach_returns_with_a_live_view() {
        let trees = Trees::new(&["a"]);
        let root = trees.site.native("a");
        fs::write(root.join("f"), "text").unwrap();
        // The mountpoint is made because it is missing, and removed again.
        fs::remove_dir(&trees.site.mount).unwrap();
        trees.rootsfs(&["mount", "--detach", "--root", root.to_str().unwrap(), trees.m()]).ok();
        let file = trees.site.view("a/f");
        let read = common::within(END, "read", move || fs::read_to_string(file));
        trees.rootsfs(&["unmount", trees.m()]).ok();
        assert_eq!(read.unwrap(), "text");
        assert!(common::eventually(END, || !trees.site.mount.exists()), "the mountpoint that rootsfs made is still there");
    }

    fn refusals() {
        let trees = Trees::new(&["a"]);
        let root = trees.site.native("a");
        let root = root.to_str().unwrap();
        fs::write(trees.site.mount.join("mine"), "").unwrap();
        for (what, code, args) in [
            ("a mountpoint that is not empty", 4, &["mount", "--root", root, trees.m()][..]),
            ("a mountpoint below a file", 4, &["mount", "--root", root, "/dev/null/x"]),
            ("an unknown command", 2, &["nonsense"]),
            ("mount without a mountpoint", 2, &["mount", "--root", root]),
            ("status of what is no view", 1, &["status", root]),
            ("check of what is no view", 1, &["check", root, "x"]),
            ("roots of what is no view", 1, &["roots", root]),
        ] {
            let ran = trees.rootsfs(args);
            assert_eq!(ran.code, code, "{what}: {ran:#?}");
            assert!(!ran.err.trim().is_empty() && ran.out.is_empty(), "{what}: messages go to stderr: {ran:#?}");
        }
        assert!(!is_mounted(&trees.site.mount) && trees.site.mount.join("mine").exists());
    }

    fn roots_that_cannot_be_shown() {
        let trees = Trees::new(&[]);
        let args = ["mount", "--require-root", "--root", "/nonexistent/root", trees.m()];
        let strict = trees.rootsfs(&args);
        assert_eq!(strict.code, 3, "{strict:#?}");
        assert!(strict.err.contains("/nonexistent/root"), "{strict:#?}");

        let late = trees.site.native("late");
        let view = trees.mount(&["late"], &[]);
        let status = view.status();
        assert_eq!(status["roots"][0]["reason"], "not-found", "{status:#}");
        let unknown = view.roots("remove", &["unknown"]);
        assert_eq!((unknown.code, unknown.err.is_empty()), (1, false), "{unknown:#?}");

        fs::create_dir(&late).unwrap();
        fs::write(late.join("f"), "came").unwrap();
        view.within("a root that was missing appears by itself", |s| {
            let came = || fs::read_to_string(s.view("late/f")).is_ok_and(|text| text == "came");
            assert!(common::eventually(Duration::from_secs(10), came), "it did not appear within 10 s");
        });
    }
}
