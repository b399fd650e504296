//! The system calls, table by table, in the view and in a plain directory. A row that differs stands here with its outcome.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{Deviation, View, within};

/// Runs a table in a view of its own.
#[track_caller]
fn table(program: &'static str, deviations: &'static [Deviation]) {
    let view = View::of(&["a"]);
    let site = view.site.clone();
    within(Duration::from_secs(60), "a table of calls", move || common::alike(&site, program, deviations));
}

/// `COLLAPSE_RANGE` and `INSERT_RANGE` end in the kernel: its FUSE takes `KEEP_SIZE`, `PUNCH_HOLE` and `ZERO_RANGE` alone
/// (`fuse_file_fallocate`). The file is as it was.
const SHIFTED: &str = "[('ENOTSUP', 65536, 789020701), ('ENOTSUP', 65536, 789020701), ('ENOTSUP', 65536, 789020701)]";

as_root_and_user! {
    fn opening() {
        table(include_str!("calls/opening.py"), &[("O_TMPFILE", "ENOTSUP"), ("O_DIRECT, not aligned", "100")]);
    }

    fn names() {
        // A whiteout is a device node.
        table(include_str!("calls/names.py"), &[("a whiteout", "EPERM"), ("what is left of it", "['w']")]);
    }

    fn deep_trees() {
        table(include_str!("calls/deep.py"), &[]);
    }

    fn data() {
        table(include_str!("calls/data.py"), &[
            ("fallocate 8", SHIFTED),
            ("fallocate 32", SHIFTED),
            // The size of the largest file of the mount is the kernel's own; writing there is refused by the backing.
            ("lseek beyond what ext4 holds", "4611686018427387904"),
        ]);
    }

    fn attributes() {
        table(include_str!("calls/meta.py"), &[("birth times", "[False, False, False, False]")]);
    }

    fn and_the_rest() {
        table(include_str!("calls/more.py"), &[
            // Both are the kernel's: its FUSE promises no read without waiting, and a file of it can always be polled.
            ("RWF_NOWAIT read", "ENOTSUP"),
            ("epoll", "None"),
        ]);
    }

    /// One call copies 16 MiB at most, however much it is asked for; the loop that every caller needs does the rest.
    fn a_copy_comes_in_pieces() {
        View::of(&["a"]).within("copy", |s| {
            let program = r#"
with opened("from", os.O_CREAT | os.O_RDWR) as source, opened("to", os.O_CREAT | os.O_RDWR) as target:
    os.ftruncate(source, 3 << 30)
    os.pwrite(source, b"end of a piece", (16 << 20) - 14)
    os.pwrite(source, b"next", 16 << 20)
    row("pieces", lambda: [os.copy_file_range(source, target, 3 << 30) for _ in range(2)])
    row("content", lambda: (os.fstat(target).st_size, os.pread(target, 18, (16 << 20) - 14)))
"#;
            let rows = common::rows(&s.view("a"), program);
            assert_eq!(rows["pieces"], "[16777216, 16777216]");
            assert_eq!(rows["content"], "(33554432, b'end of a piecenext')");
        });
    }
}
