//! Package managers in the view, without a network: each installs twice, and what it installed runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use common::{Trees, View, at_work, installed, link_tree, step, work};
use tempfile::TempDir;

/// Where the staged packages are, for the half of the tests that runs as another user.
const KIT: &str = "ROOTSFS_TEST_KIT";
/// What the packages can do.
const NPM_RUNS: &str = "node_modules/.bin/semver -r '>=1' 1.2.3; node -p 'require(\"semver\").inc(\"1.2.3\", \"minor\") + typeof require(\"express\")'\n\
    mkdir -p gone/d; node_modules/.bin/rimraf gone; test ! -e gone";
const NPM_PRINTS: &str = "1.2.3\n1.3.0function\n";

/// Packages and the programs that install them, where every user can read them.
fn kit() -> (PathBuf, Option<TempDir>) {
    if let Some(path) = std::env::var_os(KIT) {
        return (path.into(), None);
    }
    let from = installed();
    let made = tempfile::Builder::new().prefix("rootsfs-kit-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for part in ["npm", "wheels"] {
        link_tree(&from.join(part), &made.path().join(part));
    }
    (made.path().to_owned(), Some(made))
}

/// Runs a script of npm or pnpm, which must not look beyond the view for settings, caches or news.
#[track_caller]
fn npm(dir: &Path, script: &str) -> String {
    let quiet = "export npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false npm_config_offline=true\n\
        HOME=$PWD/home; export HOME XDG_CACHE_HOME=$HOME/c XDG_STATE_HOME=$HOME/s XDG_DATA_HOME=$HOME/d; mkdir -p home\n";
    work(dir, &format!("{quiet}{script}"))
}

/// Every file below `node_modules`, with its mode and its sum.
fn modules(project: &Path) -> String {
    work(
        project,
        "find node_modules ! -name '.*.json' ! -name '.*.yaml' -printf '%P %y %m %l\\n' | sort; find node_modules -type f ! -name '.*.json' ! -name '.*.yaml' -exec sha256sum {} + | sort -k2",
    )
}

fn npm_twice() {
    let (kit, _made) = kit();
    at_work(&View::of(&["a"]), "npm", move |s| {
        let prepare = format!("cp -r {0}/npm/cache . && cp -r {0}/npm/project .", kit.display());
        let install = "cd project; npm install --cache ../cache --no-progress 2>&1 | grep -E '^(added|up to date)'";
        let [plain, view] = [&s.twin, &s.view("a")].map(|dir| {
            npm(dir, &prepare);
            assert!(npm(dir, install).starts_with("added "), "the first installation, in {}", dir.display());
            modules(&dir.join("project"))
        });
        assert_eq!(view, plain, "view (left), plain (right)");
        assert_eq!(modules(&s.native("a/project")), plain, "backing (left), plain (right)");
        assert!(npm(&s.view("a"), install).starts_with("up to date"));
        for _ in 0..2 {
            npm(&s.view("a"), "cd project; npm ci --cache ../cache --no-progress");
            assert_eq!(modules(&s.view("a/project")), plain, "npm ci installs the same");
        }
        assert_eq!(npm(&s.view("a/project"), NPM_RUNS), NPM_PRINTS);
        let link = fs::read_link(s.view("a/project/node_modules/.bin/semver"));
        assert!(link.is_ok_and(|to| to.starts_with("../semver")));
    });
}

fn pnpm_twice() {
    let (kit, _made) = kit();
    at_work(&Trees::new(&["a", "b"]).mount(&["a", "b"], &[]), "pnpm", move |s| {
        let project = s.view("a/project");
        let pnpm = format!("node {}/npm/pnpm/node_modules/pnpm/bin/pnpm.cjs", kit.display());
        // Hard links where link(2) can make them, copies where it says EXDEV.
        for (store, linked) in [("a/store", true), ("b/store", false)] {
            let store = s.view(store);
            let (kit, at) = (kit.display(), store.display());
            npm(&s.view("a"), &format!("rm -rf project; cp -r {kit}/npm/project . && cp -r {kit}/npm/store {at}"));
            let install = format!("{pnpm} install --offline --frozen-lockfile --store-dir {at} 2>&1");
            npm(&project, &install);
            let first = modules(&project);
            assert_eq!(npm(&project, NPM_RUNS), NPM_PRINTS);
            step(format!("again, with the store at {at}"));
            assert!(npm(&project, &install).contains("Already up to date"));
            if linked {
                npm(&project, &format!("rm -rf node_modules; {install}; {pnpm} store status --store-dir {at}"));
                assert_eq!(modules(&project), first);
            }
            let package = fs::metadata(s.native("a/project/node_modules/semver/package.json")).unwrap();
            assert_eq!(package.nlink() > 1, linked, "{} links with the store at {at}", package.nlink());
        }
    });
}

fn pip_in_a_venv() {
    let (kit, _made) = kit();
    at_work(&View::of(&["a"]), "pip", move |s| {
        let install = format!(
            "venv/bin/pip --disable-pip-version-check --no-cache-dir install -q --no-index --find-links {}/wheels flask 2>&1",
            kit.display()
        );
        work(&s.view("a"), &format!("/usr/bin/python3 -m venv venv && {install}"));
        let runs = "venv/bin/flask --version | sed -n 's/^Flask //p'; venv/bin/python -c 'import markupsafe._speedups, sys; print(sys.prefix)'; venv/bin/pip check";
        let prefix = s.view("a/venv");
        assert_eq!(work(&s.view("a"), runs), format!("3.1.2\n{}\nNo broken requirements found.\n", prefix.display()));
        step("compiled files are taken as fresh");
        let cached = "find venv -name '*.pyc' -newermt 2000-01-01 | wc -l";
        let before = work(&s.view("a"), cached);
        work(&s.view("a"), "venv/bin/python -v -c 'import flask' 2>&1 | grep -c 'wrote .*flask' || true");
        assert_eq!(work(&s.view("a"), cached), before);
        assert!(before.trim().parse::<u32>().unwrap() > 100, "{before}");
        step("again, and removed");
        assert_eq!(work(&s.view("a"), &install), "");
        work(&s.view("a"), "venv/bin/pip uninstall -qy flask && test ! -e venv/bin/flask");
    });
}

fn cargo_eight_jobs() {
    at_work(&View::of(&["a"]), "cargo", |s| {
        let here = s.view("a");
        // A workspace wide enough for eight jobs, with build scripts that write what the crates include.
        work(
            &here,
            "mkdir crates; for n in $(seq 8); do cargo init -q --vcs none --lib --name c$n crates/c$n 2>/dev/null\n\
            echo 'fn main() { let out = std::env::var(\"OUT_DIR\").unwrap(); std::fs::write(out + \"/v\", \"1\").unwrap(); }' >crates/c$n/build.rs\n\
            printf 'pub const V: &str = include_str!(concat!(env!(\"OUT_DIR\"), \"/v\"));\\n#[test]\\nfn right() { assert_eq!(V, \"1\"); }\\n' >crates/c$n/src/lib.rs; done\n\
            printf '[workspace]\\nmembers = [\"crates/*\"]\\nresolver = \"2\"\\n' >Cargo.toml",
        );
        work(&here, "cargo test -q -j8 --offline 2>&1");
        for round in 0..3 {
            step(format!("cargo build -j8, round {round}"));
            work(&here, "cargo build -q -j8 --offline --target-dir target/again 2>&1 && rm -r target/again");
        }
        let again = work(&here, "cargo build -v -j8 --offline 2>&1; cargo build -v -j8 --offline 2>&1 | grep -c Fresh");
        assert!(again.ends_with("8\n"), "{again}");
        step("what the view built is fresh for a cargo on the backing");
        work(&s.native("a"), "test -x $(ls -d target/debug/build/c1-*/build-script-build | head -n 1)");
        work(&here, "cargo clean -q && test ! -e target");
    });
}

/// The same four as root and as the ordinary user, who needs the packages where he can read them.
macro_rules! with_kit {
    ($($name:ident)+) => {
        mod root {
            $(#[test] fn $name() { crate::common::as_root(super::$name); })+
        }

        mod user {
            $(#[test] fn $name() {
                let (kit, _made) = super::kit();
                crate::common::as_user_with(concat!("user::", stringify!($name)), super::$name, &[(super::KIT, &kit)]);
            })+
        }
    };
}

with_kit! { npm_twice pnpm_twice pip_in_a_venv cargo_eight_jobs }
