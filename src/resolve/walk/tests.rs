//! One layout, many paths and link texts; where the kernel could say, its answer is compared.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;
use crate::roots::{Instance, RootKind};

struct Lab {
    _dir: tempfile::TempDir,
    base: PathBuf,
    snapshot: Snapshot,
    hidden: Hidden,
}

/// `app` and `docs` are roots, `docs` under the entry `papers`; `app-secret` and `out` are not.
fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    for path in ["app/src/deep", "docs/d", "app-secret", "out", "view"] {
        std::fs::create_dir_all(base.join(path)).unwrap();
    }
    for file in ["app/f", "app/src/g", "docs/d/h", "app-secret/s", "out/s"] {
        std::fs::write(base.join(file), file).unwrap();
    }
    let root = |instance, path: &str, entry: &str| {
        let canonical = base.join(path);
        let anchor: OwnedFd = std::fs::File::open(&canonical).unwrap().into();
        let id = sys::stat(&anchor).unwrap().id;
        Arc::new(Root {
            instance: Instance(instance),
            entry: Name::new(entry).unwrap(),
            uri: String::new(),
            display: None,
            given: canonical.clone(),
            canonical,
            kind: RootKind::Directory,
            anchor,
            id,
            read_only: false,
        })
    };
    let snapshot = Snapshot {
        generation: 1,
        authority: crate::roots::Authority::CommandLine,
        roots: vec![root(1, "app", "app"), root(2, "docs", "papers")],
        refused: Vec::new(),
    };
    Lab { _dir: dir, base, snapshot, hidden: Hidden::new([".env", "secrets/"]).unwrap() }
}

impl Lab {
    fn link(&self, text: &str, at: &str) {
        symlink(text.replace("BASE", self.base.to_str().unwrap()), self.base.join(at)).unwrap();
    }

    fn walk(&self, start: Start, path: &str) -> String {
        let mountpoint = self.base.join("view");
        let (snapshot, mounts, hidden) = (&self.snapshot, Mounts::default(), &self.hidden);
        let ground = Ground { snapshot, mountpoint: &mountpoint, mounts, hidden };
        let path = path.replace("BASE", self.base.to_str().unwrap());
        let shown = |spot: &Spot| {
            let names: Vec<_> = std::iter::once(&spot.root.entry).chain(&spot.names).map(Name::to_string).collect();
            names.join("/")
        };
        match walk(ground, start, path.as_bytes(), Last::Follow) {
            Found::Top => "top".into(),
            Found::Object { spot, left, .. } => format!("{}{}", if left { "left " } else { "" }, shown(&spot)),
            Found::Missing { spot, hidden: true, .. } => format!("hidden {}", shown(&spot)),
            Found::Missing { spot, parent_exists: true, .. } => format!("missing {}", shown(&spot)),
            Found::Missing { spot, .. } => format!("no parent {}", shown(&spot)),
            Found::Outside { host: Some(host), by_link, .. } if host.starts_with("/usr") => {
                format!("{} {}", if by_link { "link to" } else { "out to" }, host.display())
            }
            Found::Outside { .. } => "outside".into(),
            Found::Mount(_) => "mount".into(),
            Found::Unsafe(_) => "unsafe".into(),
            Found::Loop => "loop".into(),
            Found::Refused(_, errno) => format!("refused {errno}"),
        }
    }

    /// The text of a link in `app/src`.
    fn text_in_src(&self, text: &str) -> String {
        let names = vec![Name::new("src").unwrap()];
        self.walk(Start::Link(Spot { root: Arc::clone(&self.snapshot.roots[0]), names }), text)
    }
}

#[test]
fn link_texts() {
    let lab = lab();
    lab.link("BASE/out", "app/outdir");
    lab.link("deep", "app/src/in");
    lab.link(".", "app/src/dot");
    lab.link("loop2", "app/loop1");
    lab.link("loop1", "app/loop2");
    lab.link("/usr/bin/x", "app/src/x");
    for hidden in ["app/src/.env", "app/secrets", "app/src/secrets/deep"] {
        std::fs::create_dir_all(lab.base.join(hidden)).unwrap();
    }
    for (text, expected) in [
        ("g", "app/src/g"),
        ("./deep/../g", "app/src/g"),
        ("../f", "app/f"),
        (".env", "hidden app/src/.env"),
        ("../secrets/a/b", "hidden app/secrets/a/b"),
        ("secrets/deep/../../g", "hidden app/src/secrets/deep"),
        ("in/../secrets", "hidden app/src/secrets"),
        ("x", "link to /usr/bin/x"),
        ("/usr/./bin/y/", "out to /usr/bin/y"),
        ("/usr/../usr/bin/y", "outside"),
        ("x/../../tmp", "outside"),
        ("..", "app"),
        ("in/../../src", "app/src"),
        ("dot/dot/../f", "app/f"),
        ("../..", "outside"),
        ("../../docs/d/h", "left papers/d/h"),
        ("../../docs/../app/f", "left app/f"),
        ("../../app/src/g", "left app/src/g"),
        ("../../app-secret/s", "outside"),
        ("../../out/../app/f", "outside"),
        ("../../../../../../../../etc/passwd", "outside"),
        ("BASE/app/f", "left app/f"),
        ("BASE/app", "left app"),
        ("BASE/app-secret/s", "outside"),
        ("BASE/view", "top"),
        ("BASE/view/papers/d", "left papers/d"),
        ("BASE/view/papers/../app/f", "left app/f"),
        ("BASE/view/../out/s", "outside"),
        ("/etc/passwd", "outside"),
        ("/", "outside"),
        ("/proc/self/root/etc", "outside"),
        ("../outdir/s", "outside"),
        ("../outdir", "outside"),
        ("../loop1", "loop"),
        ("new", "missing app/src/new"),
        ("new/er", "no parent app/src/new/er"),
        ("new/../g", "no parent app/src/new"),
        ("new/../../../x", "outside"),
        ("g/x", "refused Not a directory (os error 20)"),
        ("dot/../../..", "outside"),
    ] {
        assert_eq!(lab.text_in_src(text), expected, "{text}");
    }
}

#[test]
fn paths_of_the_view_and_of_the_host() {
    let lab = lab();
    for (path, expected) in [
        ("", "top"),
        ("app/f", "app/f"),
        ("app/../papers/d/h", "papers/d/h"),
        ("app/..", "top"),
        ("app/../..", "outside"),
        ("nothing/f", "outside"),
        ("app//src/./g", "app/src/g"),
        ("app/src/g/", "refused Not a directory (os error 20)"),
        ("app/src/g/.", "refused Not a directory (os error 20)"),
        ("app/src/", "app/src"),
        ("app/new/", "missing app/new"),
    ] {
        assert_eq!(lab.walk(Start::Top, path), expected, "{path}");
    }
    for (path, expected) in [
        ("BASE/app/f", "left app/f"),
        ("BASE/app/../out/s", "outside"),
        ("BASE/app/../docs/d/h", "left papers/d/h"),
        ("BASE/view/app/f", "left app/f"),
        ("BASE/view/app/../papers", "left papers"),
        ("BASE/app-secret/s", "outside"),
        ("BASE", "outside"),
    ] {
        assert_eq!(lab.walk(Start::Host, path), expected, "{path}");
    }
}

#[test]
fn forty_links_and_no_more() {
    let lab = lab();
    lab.link("f", "app/l1");
    for hop in 2..=41 {
        lab.link(&format!("l{}", hop - 1), &format!("app/l{hop}"));
    }
    assert_eq!(lab.walk(Start::Top, "app/l40"), "app/f");
    assert_eq!(lab.walk(Start::Top, "app/l41"), "loop");
    assert!(std::fs::read(Path::new(&lab.base).join("app/l40")).is_ok(), "the kernel follows 40 too");
    assert!(std::fs::read(Path::new(&lab.base).join("app/l41")).is_err());
}
