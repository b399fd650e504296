//! Locks within the view are those of a plain file; with locks on the backing they have nothing to do.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::time::Duration;

use common::{View, within};
use rustix::fs::{FlockOperation, fcntl_lock, flock};

as_root_and_user! {
    fn within_the_view() {
        let view = View::of(&["a"]);
        let site = view.site.clone();
        within(Duration::from_secs(60), "locks", move || common::alike(&site, include_str!("calls/locks.py"), &[]));
    }

    fn view_and_backing_do_not_meet() {
        View::of(&["a"]).within("locks of both", |s| {
            fs::write(s.native("a/f"), "").unwrap();
            let open = |path| File::options().read(true).write(true).open(path).unwrap();
            let (viewed, backing) = (open(s.view("a/f")), open(s.native("a/f")));
            for lock in [flock::<&File>, fcntl_lock::<&File>] {
                assert_eq!(lock(&viewed, FlockOperation::NonBlockingLockExclusive), Ok(()));
                assert_eq!(lock(&backing, FlockOperation::NonBlockingLockExclusive), Ok(()));
            }
        });
    }
}
