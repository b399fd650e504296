//! The sixteen-case probe, the yardstick of a roots boundary: every case through the mounted view and through
//! `rootsfs check`, which must say the same, with its reason.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, symlink};

use common::{Trees, View, errno_of, step};
use serde_json::Value;

/// `app` is the root; `app-secret` shares its prefix and is none; `app/out` and `app/outdir` point there.
fn mounted() -> View {
    let trees = Trees::new(&["app", "app-secret", "docs"]);
    let site = &trees.site;
    fs::create_dir(site.native("app/sub")).unwrap();
    for file in ["app/f", "app/sub/g", "app-secret/f", "docs/f"] {
        fs::write(site.native(file), file).unwrap();
    }
    symlink("sub/g", site.native("app/in")).unwrap();
    symlink("../app-secret/f", site.native("app/out")).unwrap();
    symlink(site.native("app-secret"), site.native("app/outdir")).unwrap();
    trees.mount(&["app"], &[])
}

#[track_caller]
fn allowed(view: &View, args: &[&str]) {
    let (code, decision, reason) = view.check(args);
    assert_eq!((code, decision.as_str()), (0, "allow"), "check {args:?}: {reason}");
}

#[track_caller]
fn denied(view: &View, args: &[&str], reasons: &[&str]) {
    let (code, decision, reason) = view.check(args);
    assert_eq!((code, decision.as_str()), (10, "deny"), "check {args:?}: {reason}");
    assert!(reasons.contains(&reason.as_str()), "check {args:?}: {reason}, expected one of {reasons:?}");
}

fn refused_reason<'a>(status: &'a Value, uri: &str) -> &'a str {
    let roots = status["roots"].as_array().unwrap();
    let root = roots.iter().find(|root| root["uri"] == uri).unwrap_or_else(|| panic!("{uri} is not in {status:#}"));
    assert!(root.get("entry").is_none_or(Value::is_null), "a refused root has an entry: {root}");
    root["reason"].as_str().unwrap_or_default()
}

/// What `check` foretells and what then happens, by the error's name.
#[track_caller]
fn foretold(view: &View, path: &str, op: &str, to: Option<&str>) {
    let mut args = vec!["check", view.m(), path, "--op", op, "--json"];
    args.extend(to.iter().flat_map(|to| ["--to", *to]));
    let said = view.rootsfs(&args).json()["result"].as_str().unwrap().to_owned();
    let (asked, target) = (path.to_owned(), to.map(str::to_owned));
    let (op_name, what) = (op.to_owned(), format!("{op} {path}"));
    let happened = view.within(&what, move |s| {
        let (path, to) = (s.view(&asked), target.as_deref());
        errno_of(match op_name.as_str() {
            "read" => fs::read(path).map(drop),
            "write" => fs::OpenOptions::new().write(true).open(path).map(drop),
            "create" => fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).map(drop),
            "mkdir" => fs::create_dir(path),
            "unlink" => fs::remove_file(path),
            "rmdir" => fs::remove_dir(path),
            "readlink" => fs::read_link(path).map(drop),
            "rename" => fs::rename(path, s.view(to.unwrap())),
            "symlink" => symlink(to.unwrap(), path),
            other => panic!("no such operation in this test: {other}"),
        })
    });
    assert_eq!(said, happened, "{what} {to:?}");
}

as_root_and_user! {
    fn check_foretells_what_the_view_does() {
        let view = mounted();
        for (path, op, to) in [
            ("app/f", "read", None),
            ("app/f/", "read", None),
            ("app/in", "read", None),
            ("app/out", "read", None),
            ("app/out", "readlink", None),
            ("app/in", "readlink", None),
            ("app/none", "read", None),
            ("none/f", "read", None),
            ("app/sub", "write", None),
            ("app/sub", "mkdir", None),
            ("app/none/new", "create", None),
            ("app/outdir/new", "create", None),
            ("new", "mkdir", None),
            ("app", "rmdir", None),
            ("app", "rename", Some("zz")),
            ("app/f", "rename", Some("new")),
            ("app/sub/l", "symlink", Some("/etc/passwd")),
            ("app/sub/l", "symlink", Some("../f")),
            ("app/sub", "unlink", None),
            ("app/f", "rmdir", None),
            ("app/f", "rename", Some("app/sub/f")),
        ] {
            foretold(&view, path, op, to);
        }
    }

    fn accepted() {
        let view = mounted();
        let uri = |path: &str| format!("file://{}", view.site.native(path).display());

        // 1 A local file URI.
        let added = view.roots("add", &[&uri("docs")]);
        assert_eq!(added.code, 0, "{added:#?}");
        allowed(&view, &[&uri("docs/f"), "--op", "read"]);
        // 2 An existing path in a root; 3 a link in a root whose target is in the root.
        for path in ["app/f", "app/in"] {
            allowed(&view, &[path, "--op", "read"]);
        }
        // 4 A create below an existing parent; 5 a rename inside a root.
        allowed(&view, &["app/sub/new", "--op", "create"]);
        allowed(&view, &["app/f", "--op", "rename", "--to", "app/sub/moved"]);

        view.within("accepted", |s| {
            for (path, holds) in [("docs/f", "docs/f"), ("app/f", "app/f"), ("app/in", "app/sub/g")] {
                step(format!("read {path}"));
                assert_eq!(fs::read_to_string(s.view(path)).unwrap(), holds);
            }
            step("create");
            File::create_new(s.view("app/sub/new")).unwrap().write_all(b"new").unwrap();
            assert_eq!(fs::read(s.native("app/sub/new")).unwrap(), b"new");
            step("rename");
            fs::rename(s.view("app/f"), s.view("app/sub/moved")).unwrap();
            assert_eq!(fs::read(s.native("app/sub/moved")).unwrap(), b"app/f");
            assert!(!s.native("app/f").exists());
        });
    }

    fn denied_uris() {
        let view = mounted();
        // 6 A URI that is not file:; 7 a file URI of another machine. They are left out; the good root stays.
        for (uri, reason) in
            [("https://example.org/app", "non-file-uri"), ("file://example.org/etc", "remote-authority")]
        {
            view.roots("add", &[uri]);
            let status = view.status();
            assert_eq!(refused_reason(&status, uri), reason);
            denied(&view, &[uri, "--op", "read"], &[reason]);
        }
        view.within("the good root stays, alone", |s| {
            let names: Vec<_> = fs::read_dir(&s.mount).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["app"]);
        });
    }

    fn denied_paths() {
        let view = mounted();
        let outside = view.site.native("app-secret");
        let outside = outside.to_str().unwrap();

        // 8 A sibling that shares the prefix.
        denied(&view, &[&format!("{outside}/f"), "--op", "read"], &["outside-root"]);
        denied(&view, &[&format!("file://{outside}/f"), "--op", "read"], &["outside-root"]);
        // 9 An escape by `..`.
        denied(&view, &["app/../../app-secret/f", "--op", "read"], &["outside-root", "unsafe-name"]);
        denied(&view, &[&format!("{}/../app-secret/f", view.site.native("app").display()), "--op", "read"], &[
            "outside-root",
            "unsafe-name",
        ]);
        // 10 An outward link; 12 a create through one.
        denied(&view, &["app/out", "--op", "read"], &["symlink-outside"]);
        denied(&view, &["app/outdir/new", "--op", "create"], &["symlink-outside"]);
        // 11 A create whose parent is missing.
        denied(&view, &["app/missing/new", "--op", "create"], &["parent-missing"]);
        // 13 A rename to outside.
        denied(&view, &["app/f", "--op", "rename", "--to", &format!("{outside}/taken")], &["outside-root"]);

        view.within("denied paths", |s| {
            let read = |path: &str| {
                step(format!("read {path}"));
                errno_of(fs::read(s.view(path)))
            };
            assert_eq!(read("app-secret/f"), "ENOENT");
            assert_eq!(read("app/../app-secret/f"), "ENOENT");
            assert_eq!(read("app/out"), "EACCES");
            assert_eq!(read("app/outdir/f"), "EACCES");
            step("lstat of an outward link works");
            assert!(fs::symlink_metadata(s.view("app/out")).unwrap().is_symlink());
            step("create through an outward link");
            assert_eq!(errno_of(File::create(s.view("app/outdir/new"))), "EACCES");
            step("create below a missing parent");
            assert_eq!(errno_of(File::create(s.view("app/missing/new"))), "ENOENT");
            step("rename to outside");
            assert_eq!(errno_of(fs::rename(s.view("app/f"), s.native("app-secret/taken"))), "EXDEV");
            let top = errno_of(fs::rename(s.view("app/f"), s.view("taken")));
            assert!(top == "EPERM" || top == "EXDEV", "{top}");
            let mut outside: Vec<_> = fs::read_dir(s.native("app-secret")).unwrap().map(|e| e.unwrap().file_name()).collect();
            outside.sort();
            assert_eq!(outside, ["f"], "something was made outside the root");
            assert_eq!(fs::read(s.native("app/f")).unwrap(), b"app/f");
        });
    }

    fn denied_by_change() {
        let view = mounted();
        let docs = view.site.native("docs");
        view.roots("add", &[docs.to_str().unwrap()]).ok();
        let before = view.status()["generation"].as_u64().unwrap();
        let old = view.within("open before the change", |s| {
            let file = File::options().read(true).write(true).open(s.view("docs/f")).unwrap();
            let mut text = String::new();
            (&file).read_to_string(&mut text).unwrap();
            assert_eq!(text, "docs/f");
            file
        });

        // 14 A removed root.
        view.roots("remove", &["docs"]).ok();
        denied(&view, &["docs/f", "--op", "read"], &["root-revoked"]);
        view.within("removed", |s| assert_eq!(errno_of(fs::read(s.view("docs/f"))), "ENOENT"));

        // 15 A stale generation: the path fits the new list again, the decision and the handle are from before.
        view.roots("add", &[docs.to_str().unwrap()]).ok();
        let after = view.status()["generation"].as_u64().unwrap();
        assert!(after >= before + 2, "{before} to {after}");
        denied(&view, &["docs/f", "--op", "read", "--generation", &before.to_string()], &["stale-generation"]);
        allowed(&view, &["docs/f", "--op", "read", "--generation", &after.to_string()]);
        view.within("a stale handle", move |s| {
            for outcome in [errno_of(old.read_at(&mut [0; 4], 0)), errno_of(old.write_at(b"no", 0))] {
                assert!(outcome == "ESTALE" || outcome == "EIO", "{outcome}");
            }
            assert_eq!(fs::read(s.view("docs/f")).unwrap(), b"docs/f");
        });

        // 16 An empty root set.
        view.roots("remove", &["docs", "app"]).ok();
        denied(&view, &["/etc/hostname", "--op", "read"], &["no-roots"]);
        denied(&view, &["app/f", "--op", "read"], &["no-roots", "root-revoked"]);
        assert_eq!(view.status()["state"], "active");
        view.within("empty", |s| assert_eq!(fs::read_dir(&s.mount).unwrap().count(), 0));
    }
}
