//! Attackers with threads: what they exchange or move while others open, create or change things must never lead out of
//! the view. Each race is run for a fixed time, in the view and on the backing, and must have been won often inside.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Trees, View};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

/// How long each race runs.
const RACE: Duration = Duration::from_millis(1500);

/// What readers saw: content that says `inside`, or that says `SECRET`.
#[derive(Default)]
struct Seen {
    inside: AtomicU64,
    outside: AtomicU64,
}

impl Seen {
    fn note(&self, content: &[u8]) {
        let counter = if content.starts_with(b"SECRET") { &self.outside } else { &self.inside };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs one attacker against four victims.
fn race(attack: impl Fn() + Sync, victim: impl Fn(&Seen) + Sync) -> (u64, u64) {
    let (stop, seen) = (AtomicBool::new(false), Seen::default());
    let again = |act: &dyn Fn()| {
        while !stop.load(Ordering::Relaxed) {
            act();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| again(&attack));
        for _ in 0..4 {
            scope.spawn(|| again(&|| victim(&seen)));
        }
        std::thread::sleep(RACE);
        stop.store(true, Ordering::Relaxed);
    });
    (seen.inside.into_inner(), seen.outside.into_inner())
}

fn exchange(a: &Path, b: &Path) {
    // One that loses against a lookup is tried again.
    let _ = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
}

/// A root `a`; beside it `outside/secret`; below it a decoy at the same path as the secret has from `/`.
fn site() -> (View, PathBuf, String) {
    let trees = Trees::new(&["a"]);
    let base = trees.site.native("");
    let outside = base.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "SECRET").unwrap();
    let from_top = outside.join("secret").strip_prefix("/").unwrap().to_str().unwrap().to_owned();
    let decoy = base.join("a").join(&from_top);
    fs::create_dir_all(decoy.parent().unwrap()).unwrap();
    fs::write(decoy, "inside").unwrap();
    (trees.mount(&["a"], &[]), outside, from_top)
}

as_root_and_user! {
    fn a_directory_becomes_a_link_that_leads_out() {
        let (view, outside, _) = site();
        view.within("the race", move |site| {
            let native = site.native("a");
            fs::create_dir(native.join("d")).unwrap();
            fs::write(native.join("d/secret"), "inside").unwrap();
            symlink(&outside, native.join("out")).unwrap();
            let modes = || fs::metadata(outside.join("secret")).unwrap().permissions().mode();
            let mode = modes();
            let (inside, escaped) = race(
                || exchange(&native.join("d"), &native.join("out")),
                |seen| {
                    let victim = site.view("a/d/secret");
                    if let Ok(content) = fs::read(&victim) {
                        seen.note(&content);
                    }
                    let _ = fs::set_permissions(&victim, fs::Permissions::from_mode(0o640));
                    let _ = fs::write(site.view("a/d/made"), "made");
                    let _ = fs::remove_file(site.view("a/d/made"));
                    let _ = fs::create_dir(site.view("a/d/dir"));
                    let _ = fs::remove_dir(site.view("a/d/dir"));
                },
            );
            assert_eq!(escaped, 0, "of {inside} reads");
            assert!(inside > 100, "{inside} reads");
            assert_eq!(modes(), mode, "its mode was changed");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "something was made outside");
        });
    }

    fn a_link_is_planted_before_a_create() {
        let (view, outside, _) = site();
        view.within("the race", move |site| {
            let planted = site.native("a/f");
            let (made, _) = race(
                || {
                    let _ = fs::remove_file(&planted);
                    let _ = symlink(outside.join("new"), &planted);
                    let _ = fs::remove_file(&planted);
                },
                |seen| {
                    if fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(site.view("a/f")).is_ok() {
                        seen.note(b"inside");
                    }
                },
            );
            assert!(!outside.join("new").exists());
            assert!(made > 100, "{made} creates");
        });
    }

    fn a_name_before_dots_becomes_another_place() {
        let (view, _, from_top) = site();
        view.within("the race", move |site| {
            let top = site.view("a");
            fs::create_dir_all(top.join("1/2/3/4/5/6/7/8")).unwrap();
            fs::create_dir(top.join("other")).unwrap();
            symlink("1/2/3/4/5/6/7/8", top.join("d")).unwrap();
            symlink(format!("d/../../../../../../../../{from_top}"), top.join("l")).unwrap();
            let (inside, escaped) = race(
                || exchange(&top.join("d"), &top.join("other")),
                |seen| {
                    if let Ok(content) = fs::read(top.join("l")) {
                        seen.note(&content);
                    }
                },
            );
            assert_eq!(escaped, 0, "of {inside} reads");
            assert!(inside > 100, "{inside} reads");
        });
    }

    fn a_hard_linked_link_moves_between_depths() {
        let (view, _, from_top) = site();
        view.within("the race", move |site| {
            let top = site.view("a");
            let (deep, moved) = (top.join("1/2/3/4/5/6/7/8/k"), top.join("moved"));
            fs::create_dir_all(deep.parent().unwrap()).unwrap();
            symlink(format!("../../../../../../../../{from_top}"), &deep).unwrap();
            let links = [deep.clone(), moved.clone(), top.join("k"), top.join("1/k")];
            for link in &links[2..] {
                fs::hard_link(&deep, link).unwrap();
            }
            let (inside, escaped) = race(
                || {
                    let _ = fs::rename(&deep, &moved);
                    let _ = fs::rename(&moved, &deep);
                },
                |seen| {
                    for content in links.iter().filter_map(|link| fs::read(link).ok()) {
                        seen.note(&content);
                    }
                },
            );
            assert_eq!(escaped, 0, "of {inside} reads");
        });
    }

    fn a_directory_moves_to_a_shallower_place_through_the_view() {
        let (view, _, from_top) = site();
        view.within("the race", move |site| climb(&site.view("a"), &site.view("a"), &from_top, 100));
    }

    fn a_directory_moves_to_a_shallower_place_on_the_backing() {
        let (view, _, from_top) = site();
        view.within("the race", move |site| climb(&site.native("a"), &site.view("a"), &from_top, 0));
    }
}

/// Moves a directory that holds a climbing link up and down by `mover`, while others follow the link by `reader`, by path
/// and from a descriptor of the directory.
fn climb(mover: &Path, reader: &Path, from_top: &str, at_least: u64) {
    let (deep, shallow) = ("1/2/3/4/5/6/7/8", "8");
    fs::create_dir_all(reader.join(deep)).unwrap();
    symlink(format!("../../../../../../../../{from_top}"), reader.join(deep).join("k")).unwrap();
    let (inside, escaped) = race(
        || {
            let _ = fs::rename(mover.join(deep), mover.join(shallow));
            let _ = fs::rename(mover.join(shallow), mover.join(deep));
        },
        |seen| {
            for place in [deep, shallow] {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let Ok(dir) = openat(CWD, reader.join(place), flags, Mode::empty()) else { continue };
                for _ in 0..8 {
                    let Ok(file) = openat(dir.as_fd(), "k", OFlags::RDONLY, Mode::empty()) else { continue };
                    let mut content = [0; 16];
                    if let Ok(read) = rustix::io::read(&file, &mut content) {
                        seen.note(&content[..read]);
                    }
                }
            }
        },
    );
    assert_eq!(escaped, 0, "of {inside} reads");
    assert!(inside >= at_least, "{inside} reads");
}
