//! What the operator forbids, whatever the list says: hidden names, links that lead to the host, no links at all. Each holds
//! for every tool, and `rootsfs check` says so beforehand.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{Site, Trees, View, errno_of, mount_line, sh, step};

const HIDE: [&str; 8] = ["--hide", ".env", "--hide", "*.pem", "--hide", "secrets/", "--hide", "/conf/*.key"];

/// A root `a` in which some names are hidden, and one `b`.
fn veiled() -> View {
    let trees = Trees::new(&["a", "b"]);
    let site = &trees.site;
    for dir in ["a/secrets", "a/sub/secrets", "a/conf", "a/plain", "a/other/conf"] {
        fs::create_dir_all(site.native(dir)).unwrap();
    }
    for file in HIDDEN.iter().chain(&SHOWN) {
        fs::write(site.native(&format!("a/{file}")), "word\n").unwrap();
    }
    trees.mount(&["a", "b"], &HIDE)
}

const HIDDEN: [&str; 6] = [".env", "sub/.env", "x.pem", "secrets/f", "sub/secrets/f", "conf/a.key"];
const SHOWN: [&str; 5] = ["f", "sub/f", "conf/f", "plain/secret", "other/conf/a.key"];

/// Every name below `a`, with what it holds.
fn contents(dir: &Path) -> String {
    sh(dir, "find . | sort; find . -type f -exec md5sum {} + | sort").ok()
}

type Attempt<'a> = (&'a str, &'a str, &'a dyn Fn() -> std::io::Result<()>);

fn outcome(act: impl FnOnce() -> std::io::Result<()>) -> String {
    errno_of(act())
}

as_root_and_user! {
    fn hidden_names_are_not_there() {
        let view = veiled();
        view.within("look", |s| {
            for file in HIDDEN {
                assert_eq!(errno_of(fs::read(s.view("a").join(file))), "ENOENT", "{file}");
                assert_eq!(errno_of(fs::symlink_metadata(s.view("a").join(file))), "ENOENT", "{file}");
            }
            for file in SHOWN {
                assert_eq!(fs::read_to_string(s.view("a").join(file)).unwrap(), "word\n", "{file}");
            }
        });
        let (dir, shown) = (view.site.view("a"), SHOWN.len());
        for script in ["find . -type f | wc -l", "rg -uu --files | wc -l", "grep -r word . | wc -l", "tar c . | tar t | grep -vc '/$'"] {
            assert_eq!(sh(&dir, script).ok().trim(), shown.to_string(), "{script}");
        }
        assert_eq!(sh(&dir, "ls -A . sub conf | tr '\\n' ' '").ok(), ".: conf f other plain sub  conf: f  sub: f ");
        for (path, op, reason) in [
            ("a/.env", "read", "hidden"),
            ("a/secrets/f", "read", "hidden"),
            ("a/x.pem", "unlink", "hidden"),
            ("a/new.pem", "create", "hidden"),
            ("a/secrets", "mkdir", "hidden"),
            ("a/plain/secret", "read", ""),
        ] {
            let (code, _, said) = view.check(&[path, "--op", op]);
            assert_eq!((code == 10, said.as_str()), (!reason.is_empty(), reason), "{op} {path}");
        }
        let log = view.rootsfs(&["log", view.m(), "--denied", "--json"]).ok();
        assert!(log.lines().any(|line| line.contains("\"hidden\"") && line.contains("a/.env")), "{log}");
    }

    fn hidden_names_are_neither_made_nor_met() {
        let view = veiled();
        let before = contents(&view.site.native("a"));
        view.within("make", |s| {
            let a = |name: &str| s.view("a").join(name);
            let attempts: [Attempt<'_>; 18] = [
                ("create", "EPERM", &|| fs::write(a("new.pem"), "x")),
                ("create what is there", "EPERM", &|| fs::write(a(".env"), "x")),
                ("create where a directory is", "EPERM", &|| fs::write(a("secrets"), "x")),
                ("mkdir", "EPERM", &|| fs::create_dir(a("plain/secrets"))),
                ("mkdir what is there", "EPERM", &|| fs::create_dir(a("secrets"))),
                ("mkdir below", "ENOENT", &|| fs::create_dir(a("secrets/new"))),
                ("link", "EPERM", &|| fs::hard_link(a("f"), a("g.pem"))),
                ("link from", "ENOENT", &|| fs::hard_link(a(".env"), a("g"))),
                ("rename to", "EPERM", &|| fs::rename(a("f"), a("conf/f.key"))),
                ("rename over", "EPERM", &|| fs::rename(a("f"), a("sub/.env"))),
                ("rename a directory to", "EPERM", &|| fs::rename(a("plain"), a("sub/secrets"))),
                ("rename from", "ENOENT", &|| fs::rename(a(".env"), a("env"))),
                ("rename what would show", "EPERM", &|| fs::rename(a("conf"), a("open"))),
                ("symlink named", "EPERM", &|| symlink("f", a("l.pem"))),
                ("symlink to", "EPERM", &|| symlink("../.env", a("sub/l"))),
                ("symlink through", "EPERM", &|| symlink("secrets/f", a("l"))),
                ("unlink", "ENOENT", &|| fs::remove_file(a("x.pem"))),
                ("rmdir", "ENOTEMPTY", &|| fs::remove_dir(a("other")).and(fs::remove_dir(a("sub")))),
            ];
            for (name, expected, act) in attempts {
                step(name);
                assert_eq!(outcome(act), expected, "{name}");
            }
        });
        assert_eq!(contents(&view.site.native("a")), before);
        // What can be removed goes; what is hidden stays, and the directories that hold it.
        assert_ne!(sh(&view.site.view("a"), "rm -r sub plain").code, 0);
        for kept in ["sub/.env", "sub/secrets/f"] {
            assert!(view.site.native("a").join(kept).exists(), "{kept}");
        }
        assert!(!view.site.native("a/sub/f").exists() && !view.site.native("a/plain").exists());
        // What is hidden nowhere in particular moves along.
        view.within("move", |s| {
            fs::rename(s.view("a/sub"), s.view("a/bus")).unwrap();
            assert_eq!(errno_of(fs::read(s.view("a/bus/.env"))), "ENOENT");
            fs::rename(s.view("a/other"), s.view("a/another")).unwrap();
        });
    }

    fn links_to_hidden_names_lead_nowhere() {
        let trees = Trees::new(&["a"]);
        let native = trees.site.native("a");
        fs::create_dir(native.join("secrets")).unwrap();
        for file in [".env", "secrets/f", "f"] {
            fs::write(native.join(file), "word").unwrap();
        }
        for (text, link) in [(".env", "to"), ("secrets/f", "below"), ("secrets/../f", "through"), ("to", "twice")] {
            symlink(text, native.join(link)).unwrap();
        }
        symlink(native.join(".env"), native.join("absolute")).unwrap();
        let view = trees.mount(&["a"], &HIDE);
        view.within("follow", |s| {
            for link in ["to", "below", "through", "twice", "absolute"] {
                assert_eq!(errno_of(fs::read(s.view("a").join(link))), "ENOENT", "{link}");
                assert!(fs::read_link(s.view("a").join(link)).is_ok(), "{link}");
            }
        });
    }

    fn a_hidden_object_is_no_root() {
        let view = veiled();
        let root = |name: &str| view.site.native("a").join(name).to_str().unwrap().to_owned();
        let (file, dir, shown) = (root(".env"), root("sub/secrets"), root("sub"));
        view.roots("set", &[&file, &dir, &shown]).ok();
        let status = view.status();
        let reasons: Vec<_> = status["roots"].as_array().unwrap().iter().map(|root| &root["reason"]).collect();
        assert_eq!(reasons.iter().filter(|reason| **reason == "hidden").count(), 2, "{status:#}");
        assert_eq!(sh(&view.site.mount, "ls -A . sub | tr '\\n' ' '").ok(), ".: sub  sub: f ");
    }

    fn links_to_the_host_are_followed_where_the_operator_says() {
        let trees = Trees::new(&["a"]);
        let (native, lib, other) = (trees.site.native("a"), trees.file("lib"), trees.file("other"));
        for dir in [&lib, &other] {
            fs::create_dir_all(dir.join("deep")).unwrap();
            fs::write(dir.join("deep/f"), "host").unwrap();
        }
        symlink(other.join("deep"), lib.join("out")).unwrap();
        symlink(lib.join("deep"), native.join("d")).unwrap();
        for (text, link) in [("d/f", "by"), ("../../lib/deep/f", "relative"), ("by", "again")] {
            symlink(text, native.join(link)).unwrap();
        }
        for (target, link) in [(lib.join("deep/f"), "absolute"), (other.join("deep/f"), "no"), (lib.join("out/f"), "beyond"),
            (lib.join("none"), "dangling"), (lib.join("deep/../../other/deep/f"), "dots")] {
            symlink(target, native.join(link)).unwrap();
        }
        let target = lib.join("deep/f").to_str().unwrap().to_owned();
        let view = trees.mount(&["a"], &["--follow-outside", lib.to_str().unwrap()]);
        view.within("follow", move |s| {
            let (read, text) = (|l: &str| errno_of(fs::read(s.view("a").join(l))), |l: &str| fs::read_link(s.view("a").join(l)));
            for link in ["by", "relative", "again", "absolute", "d/f"] {
                assert_eq!(read(link), "ok", "{link}");
            }
            for (link, errno) in [("no", "EACCES"), ("beyond", "EACCES"), ("dots", "EACCES"), ("dangling", "ENOENT")] {
                assert_eq!(read(link), errno, "{link}");
            }
            for (link, expected) in [("by", "d/f"), ("again", "by"), ("absolute", &target), ("relative", &target)] {
                assert_eq!(text(link).unwrap().to_str().unwrap(), expected, "{link}");
            }
            symlink(&target, s.view("a/made")).unwrap();
            assert_eq!(outcome(|| symlink(other.join("deep"), s.view("a/refused"))), "EPERM");
        });
        for (path, code) in [("a/by", 0), ("a/made", 0), ("a/no", 10), ("a/beyond", 10)] {
            assert_eq!(view.check(&[path]).0, code, "{path}");
        }
    }

    fn a_virtual_environment_runs() {
        let trees = Trees::new(&["a"]);
        let view = trees.mount(&["a"], &["--follow-outside", "/usr"]);
        let ran = sh(&view.site.view("a"), "/usr/bin/python3 -m venv --without-pip env && env/bin/python -c 'import sys; print(sys.prefix)'");
        assert_eq!(ran.ok().trim(), view.site.view("a/env").to_str().unwrap());
    }
}

/// A link, and a file that it leads to.
fn linked(options: &[&str]) -> View {
    let trees = Trees::new(&["a"]);
    fs::write(trees.site.native("a/f"), "word").unwrap();
    symlink("f", trees.site.native("a/l")).unwrap();
    trees.mount(&["a"], options)
}

fn follow(s: &Site) -> (String, String, String) {
    let link = s.view("a/l");
    (errno_of(fs::read(&link)), errno_of(fs::read_link(&link)), errno_of(fs::symlink_metadata(&link)))
}

fn no_link_is_followed(readlink: &str) {
    for options in [&["--links", "strict"][..], &["--links", "strict", "--read-only"]] {
        let view = linked(options);
        let expected = ("ELOOP".to_owned(), readlink.to_owned(), "ok".to_owned());
        assert_eq!(view.within("follow", |s| follow(&s)), expected, "{options:?}");
        let line = mount_line(&view.site.mount).unwrap();
        assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
        assert_eq!(line.contains(" ro,"), options.len() > 2, "{line}");
    }
}

#[test]
fn root_follows_no_link_but_reads_them() {
    common::as_root(|| no_link_is_followed("ok"));
}

#[test]
fn a_user_neither_follows_nor_reads_links() {
    common::as_user("a_user_neither_follows_nor_reads_links", || no_link_is_followed("ELOOP"));
}
