use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::roots::RootKind;

/// A judge, what it said last, and a directory to be judged.
struct Bench {
    dir: TempDir,
    judge: Judge,
    last: Option<Snapshot>,
    chosen: Vec<Option<Instance>>,
    own_mount: Option<u64>,
}

impl Bench {
    fn new(options: impl FnOnce(&Path) -> JudgeOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["a/app", "b/app", "b/docs"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        fs::write(top.join("b/note.md"), "x").unwrap();
        let judge = Judge::new(options(&top));
        Self { dir, judge, last: None, chosen: Vec::new(), own_mount: None }
    }

    fn plain() -> Self {
        Self::new(|_| JudgeOptions::default())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn input(&self, name: &str) -> RootInput {
        spoken(self.at(name).to_str().unwrap())
    }

    fn inputs(&self, names: &[&str]) -> Vec<RootInput> {
        names.iter().map(|name| self.input(name)).collect()
    }

    fn judge(&mut self, inputs: &[RootInput], look: Look) -> &Snapshot {
        let judgement = self.judge.judge(Authority::Control, inputs, self.last.as_ref(), self.own_mount, look);
        self.chosen = judgement.chosen;
        self.last.insert(judgement.snapshot)
    }

    fn anew(&mut self, names: &[&str]) -> &Snapshot {
        self.judge(&self.inputs(names), Look::Anew)
    }

    fn changed(&self, names: &[&str]) -> bool {
        self.judge.changed(&self.inputs(names), self.last.as_ref().unwrap())
    }
}

fn entries(snapshot: &Snapshot) -> Vec<String> {
    snapshot.roots.iter().map(|root| root.entry.to_string()).collect()
}

fn reasons(snapshot: &Snapshot) -> Vec<(&'static str, Reason)> {
    snapshot.refused.iter().map(|root| (root.status, root.reason)).collect()
}

#[test]
fn directory_and_file() {
    let mut bench = Bench::plain();
    let snapshot = bench.anew(&["b/docs", "b/note.md"]);
    assert_eq!((snapshot.generation, entries(snapshot)), (1, vec!["docs".into(), "note.md".into()]));
    assert_eq!(snapshot.roots[0].kind, RootKind::Directory);
    assert_eq!(snapshot.roots[1].kind, RootKind::File(Name::new("note.md").unwrap()));
    assert_eq!(anchor::facts(&snapshot.roots[1].anchor).unwrap().id, snapshot.roots[1].id);
    let parent = snapshot.roots[1].canonical.parent().unwrap().to_owned();
    assert_eq!(anchor::path_of(&snapshot.roots[1].anchor).unwrap(), parent);
}

#[test]
fn bad_ones_are_left_out_one_by_one() {
    let mut bench = Bench::plain();
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.at("fifo"), 0o600.into()).unwrap();
    symlink("loop", bench.at("loop")).unwrap();
    let mut inputs = bench.inputs(&["gone", "b/docs", "fifo", "loop", "b/note.md/x"]);
    for uri in ["/proc", "/proc/self/cwd", "/proc/self", "https://x/", "rel", "file://host/p", "file:///a%2Fb"] {
        inputs.push(spoken(uri));
    }
    inputs.push(RootInput { path_allowed: false, ..bench.input("b/docs") });
    inputs.push(RootInput { entry: Some("a/b".into()), ..bench.input("b/docs") });
    let snapshot = bench.judge(&inputs, Look::Anew);
    assert_eq!(entries(snapshot), ["docs"]);
    assert_eq!(
        reasons(snapshot),
        [
            ("missing", Reason::NotFound),
            ("refused", Reason::SpecialFile),
            ("refused", Reason::SymlinkLoop),
            ("missing", Reason::NotFound),
            ("refused", Reason::SpecialFile),
            ("refused", Reason::SymlinkLoop),
            ("refused", Reason::SpecialFile),
            ("refused", Reason::NonFileUri),
            ("refused", Reason::RelativePath),
            ("refused", Reason::RemoteAuthority),
            ("refused", Reason::MalformedUri),
            ("refused", Reason::NonFileUri),
            ("refused", Reason::UnsafeName),
        ]
    );
    assert_eq!(snapshot.refused[4].uri, "/proc", "raw and in list order");
}

#[test]
fn spellings_of_one_object_are_one_root() {
    let mut bench = Bench::plain();
    symlink(bench.at("b/docs"), bench.at("link")).unwrap();
    let uri = RootInput { name: Some("Docs".into()), ..spoken(&uri::to_uri(&bench.at("b/docs"))) };
    let inputs = [bench.input("link"), uri, bench.input("b/./docs/"), bench.input("gone")];
    let snapshot = bench.judge(&inputs, Look::Anew);
    assert_eq!(entries(snapshot), ["link"]);
    let root = &snapshot.roots[0];
    assert_eq!(root.display.as_deref(), Some("Docs"));
    assert!(root.given.ends_with("link") && root.canonical.ends_with("b/docs") && root.uri.ends_with("/link"));
    assert_eq!(bench.chosen, [Some(Instance(1)), Some(Instance(1)), Some(Instance(1)), None]);
}

#[test]
fn who_stays_stays_the_same() {
    let mut bench = Bench::plain();
    let first = Arc::clone(&bench.anew(&["b/app"]).roots[0]);
    let snapshot = bench.anew(&["a/app", "b/app"]);
    assert_eq!(snapshot.generation, 2);
    assert!(Arc::ptr_eq(&first, snapshot.by_entry(b"app").unwrap()), "the newcomer takes the suffix");
    bench.anew(&["a/app"]);
    let back = bench.anew(&["b/app"]).roots[0].instance;
    assert_eq!(back, Instance(3), "a root that comes back is a new one");
}

#[test]
fn a_directory_made_again_keeps_the_entry() {
    let mut bench = Bench::plain();
    let before = entries(bench.anew(&["a/app", "b/app"]));
    bench.anew(&["b/app"]);
    fs::remove_dir(bench.at("b/app")).unwrap();
    fs::create_dir(bench.at("b/app")).unwrap();
    let root = &bench.anew(&["b/app"]).roots[0];
    assert_eq!((root.instance, root.entry.to_string()), (Instance(3), before[1].clone()));
}

#[test]
fn new_words_for_the_same_instance() {
    let mut bench = Bench::plain();
    let before = Arc::clone(&bench.anew(&["b/app"]).roots[0]);
    let input = RootInput { name: Some("Application".into()), ..bench.input("b/app") };
    let after = &bench.judge(&[input], Look::Anew).roots[0];
    assert_eq!((after.instance, after.display.as_deref()), (before.instance, Some("Application")));
    let asked = RootInput { entry: Some("tool".into()), ..bench.input("b/app") };
    let renamed = &bench.judge(&[asked], Look::Anew).roots[0];
    assert_eq!(renamed.entry.as_bytes(), b"tool");
    assert_ne!(renamed.instance, before.instance, "another entry is another tree");
    assert_eq!(entries(bench.anew(&["b/app"])), ["tool"], "which stays");
}

#[test]
fn ceiling_is_judged_on_the_object() {
    let mut bench = Bench::new(|top| JudgeOptions { within: Some(top.join("b")), ..JudgeOptions::default() });
    fs::create_dir(bench.at("bb")).unwrap();
    symlink(bench.at("a"), bench.at("b/out")).unwrap();
    symlink(bench.at("b/docs"), bench.at("in")).unwrap();
    let snapshot = bench.anew(&["b", "b/docs", "in", "bb", "b/out", "a/app", "", "b/note.md"]);
    assert_eq!(entries(snapshot), ["b", "docs", "note.md"]);
    assert_eq!(reasons(snapshot), [("refused", Reason::OutsideCeiling); 4]);
    let mut bench = Bench::new(|top| JudgeOptions { within: Some(top.join("gone")), ..JudgeOptions::default() });
    assert_eq!(reasons(bench.anew(&["b"])), [("refused", Reason::OutsideCeiling)], "closed, not open");
}

#[test]
fn paths_are_mapped_by_components() {
    let mut bench = Bench::new(|top| JudgeOptions {
        map: vec![("/host".into(), top.join("a")), ("/host/src/".into(), top.join("b"))],
        bare_paths: true,
        ..JudgeOptions::default()
    });
    let wire = |uri: &str| RootInput { path_allowed: false, ..spoken(uri) };
    let inputs = [wire("file:///host/app"), wire("/host/src/docs"), wire("file:///hostile"), spoken("/host/app")];
    let snapshot = bench.judge(&inputs, Look::Anew);
    assert_eq!(entries(snapshot), ["app", "docs"]);
    assert_eq!(snapshot.roots[0].uri, "file:///host/app");
    assert_eq!(reasons(snapshot), [("missing", Reason::NotFound); 2]);
    assert!(bench.judge.spells("file:///host/app", &inputs[0]));
    assert!(bench.judge.spells(bench.at("a/app").to_str().unwrap(), &inputs[0]));
}

#[test]
fn read_only_by_any_name() {
    let mut bench = Bench::new(|top| JudgeOptions {
        read_only_roots: vec![
            "docs".into(),
            top.join("link").to_str().unwrap().into(),
            uri::to_uri(&top.join("b/note.md")),
        ],
        ..JudgeOptions::default()
    });
    symlink(bench.at("a/app"), bench.at("link")).unwrap();
    let snapshot = bench.anew(&["a/app", "b/app", "b/docs", "b/note.md"]);
    let read_only: Vec<_> = snapshot.roots.iter().map(|root| (root.canonical.clone(), root.read_only)).collect();
    for (path, read_only) in read_only {
        assert_eq!(read_only, !path.ends_with("b/app"), "{}", path.display());
    }
}

#[test]
fn own_mount_is_refused() {
    let mut bench = Bench::plain();
    bench.own_mount = Some(anchor::facts(anchor::follow(&bench.at("b")).unwrap()).unwrap().id.mnt);
    assert_eq!(reasons(bench.anew(&["b"])), [("refused", Reason::OwnMount)]);
}

#[test]
fn rescan_sees_what_came_went_and_was_replaced() {
    let mut bench = Bench::plain();
    let names = ["b/docs", "b/note.md", "gone"];
    bench.anew(&names);
    assert!(!bench.changed(&names));
    fs::write(bench.at("b/docs/x"), "x").unwrap();
    fs::write(bench.at("b/new"), "y").unwrap();
    fs::rename(bench.at("b/new"), bench.at("b/note.md")).unwrap();
    assert!(!bench.changed(&names), "an atomic save leaves a file root alone");
    fs::create_dir(bench.at("gone")).unwrap();
    assert!(bench.changed(&names));
    bench.anew(&names);
    assert!(!bench.changed(&names));
    fs::remove_file(bench.at("b/note.md")).unwrap();
    assert!(bench.changed(&names));
    bench.anew(&names);
    fs::remove_dir_all(bench.at("b/docs")).unwrap();
    fs::create_dir(bench.at("b/docs")).unwrap();
    assert!(bench.changed(&names));
    let before = bench.last.as_ref().unwrap().by_entry(b"docs").unwrap().instance;
    let after = bench.judge(&bench.inputs(&names), Look::Again).by_entry(b"docs").unwrap().instance;
    assert_ne!(before, after);
}

#[test]
fn a_link_put_in_a_roots_place_leads_nowhere_until_asked() {
    let mut bench = Bench::plain();
    let names = ["b/docs"];
    bench.anew(&names);
    fs::remove_dir(bench.at("b/docs")).unwrap();
    assert_eq!(reasons(bench.judge(&bench.inputs(&names), Look::Again)), [("missing", Reason::NotFound)]);
    symlink(bench.at("a"), bench.at("b/docs")).unwrap();
    let snapshot = bench.judge(&bench.inputs(&names), Look::Again);
    assert_eq!(reasons(snapshot), [("missing", Reason::NotFound)]);
    assert!(!bench.changed(&names), "nor is it looked at again and again");
    fs::remove_file(bench.at("b/docs")).unwrap();
    fs::create_dir(bench.at("b/docs")).unwrap();
    assert!(bench.changed(&names));
    assert_eq!(entries(bench.judge(&bench.inputs(&names), Look::Again)), ["docs"]);
    fs::remove_dir(bench.at("b/docs")).unwrap();
    symlink(bench.at("a"), bench.at("b/docs")).unwrap();
    assert!(bench.anew(&names).roots[0].canonical.ends_with("a"), "a list given anew follows links");
}

#[test]
fn instances_run_out_with_a_sentence() {
    let mut bench = Bench::plain();
    bench.anew(&["b/docs"]);
    bench.judge.last_instance = INSTANCE_MAX - 1;
    let snapshot = bench.anew(&["b/docs", "a/app", "b/app"]);
    assert_eq!(snapshot.roots.iter().map(|root| root.instance.0).max(), Some(INSTANCE_MAX));
    assert_eq!(snapshot.roots.len(), 2, "who stays needs no number");
    assert!(snapshot.refused[0].detail.contains("mount it again"), "{}", snapshot.refused[0].detail);
}
