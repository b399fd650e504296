//! The view without a mount: its operations are called as the FUSE adapter would.

mod model;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::ViewOptions;
use super::core::{Core, Entry};
use super::descriptors::Descriptors;
use super::files::{FileAt, WriteMode};
use super::gate::Guest;
use super::names::Make;
use super::node::NodeId;
use crate::authorize::Policy;
use crate::publisher::Manner;
use crate::record::Record;
use crate::roots::{AuthorityPolicy, Judge, JudgeOptions, Lists, Look, RootInput, Snapshot, uri};
use crate::sys::Caller;

const ME: Caller = Caller { uid: 0, gid: 0, pid: 0 };

struct Lab {
    _dir: tempfile::TempDir,
    base: PathBuf,
    core: Core,
    judge: Judge,
    snapshot: Option<Arc<Snapshot>>,
}

fn lab(descriptors: usize) -> Lab {
    lab_with(descriptors, Policy::default())
}

fn lab_with(descriptors: usize, policy: Policy) -> Lab {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let base = dir.path().canonicalize().unwrap();
    for root in ["a", "b"] {
        std::fs::create_dir(base.join(root)).unwrap();
        std::fs::write(base.join(root).join("f"), root).unwrap();
    }
    let options = ViewOptions {
        mountpoint: "/nowhere".into(),
        allow_other: false,
        policy,
        timeout: Duration::from_secs(1),
        threads: 1,
        hold: Duration::ZERO,
    };
    let core = Core::new(&options, "/nowhere".into(), Arc::new(Record::default()), Descriptors::new(descriptors));
    Lab { _dir: dir, base, core, judge: Judge::new(JudgeOptions::default()), snapshot: None }
}

impl Lab {
    fn publish(&mut self, roots: &[&str]) -> crate::publisher::Installed {
        let inputs: Vec<_> = roots
            .iter()
            .map(|root| RootInput {
                uri: uri::to_uri(&self.base.join(root)),
                name: None,
                entry: None,
                path_allowed: false,
            })
            .collect();
        let authority = Lists::new(AuthorityPolicy::default(), Vec::new(), false).effective().0;
        let judged = self.judge.judge(authority, &inputs, self.snapshot.as_deref(), None, Look::Anew);
        let snapshot = Arc::new(judged.snapshot);
        assert!(snapshot.refused.is_empty(), "{:?}", snapshot.refused);
        self.snapshot = Some(Arc::clone(&snapshot));
        self.core.install(snapshot, Manner::Graceful)
    }

    fn find(&self, path: &str) -> Result<Entry, Errno> {
        let mut node = NodeId::TOP;
        let mut found = Err(Errno::NOENT);
        for name in Path::new(path) {
            let answer = self.core.lookup(ME, node, name.as_encoded_bytes())?;
            node = answer.value.attr.node;
            found = Ok(answer.value);
        }
        found
    }

    fn content(&self, node: NodeId) -> Result<Vec<u8>, Errno> {
        let mut buffer = [0; 64];
        let answer = self.core.read(ME, FileAt { node, handle: 0, offset: 0 }, &mut buffer)?;
        Ok(buffer[..answer.value].to_vec())
    }
}

#[test]
fn a_revoked_root_is_stale_and_comes_back_as_another() {
    let mut lab = lab(4096);
    lab.publish(&["a", "b"]);
    let (old, kept) = (lab.find("a/f").unwrap().attr.node, lab.find("b/f").unwrap().attr.node);
    let handle = lab.core.open(ME, old, OFlags::RDONLY).unwrap().value.handle;
    let installed = lab.publish(&["b"]);
    assert_eq!((installed.handles_revoked, installed.still_draining), (1, 0));
    assert_eq!(lab.find("a/f").unwrap_err(), Errno::NOENT);
    assert_eq!(lab.content(old), Err(Errno::STALE));
    assert_eq!(lab.core.read(ME, FileAt { node: old, handle, offset: 0 }, &mut [0; 8]).unwrap_err(), Errno::STALE);
    assert_eq!(lab.content(kept).unwrap(), b"b");
    lab.core.forget(old, 1);
    lab.publish(&["a", "b"]);
    let new = lab.find("a/f").unwrap().attr.node;
    assert_ne!(new, old);
    assert_eq!(lab.content(old), Err(Errno::STALE), "an old nodeid never lives again");
    assert_eq!(lab.content(new).unwrap(), b"a");
    assert_eq!(lab.find("b/f").unwrap().attr.node, kept);
}

#[test]
fn a_request_inside_holds_the_revocation_up_and_is_refused_after_it() {
    let mut lab = lab(4096);
    lab.publish(&["a", "b"]);
    let node = lab.find("a/f").unwrap().attr.node;
    let call = lab.core.admit(ME, crate::authorize::Op::Read, node).unwrap();
    call.inside().unwrap().0.gate.close();
    assert_eq!(call.inside().unwrap().0.gate.wait_empty(Duration::from_millis(5)), 1);
    assert_eq!(call.answer(()).unwrap_err(), Errno::STALE);
}

#[test]
fn descriptors_are_a_cache() {
    let mut lab = lab(64);
    for index in 0..200 {
        std::fs::write(lab.base.join(format!("a/n{index}")), index.to_string()).unwrap();
    }
    lab.publish(&["a"]);
    let nodes: Vec<_> = (0..200).map(|index| lab.find(&format!("a/n{index}")).unwrap().attr.node).collect();
    assert!(lab.core.budget.held() <= 40, "{} descriptors held", lab.core.budget.held());
    for (index, node) in nodes.iter().enumerate() {
        assert_eq!(lab.content(*node).unwrap(), index.to_string().into_bytes());
    }
    // Replaced outside while its descriptor was given up: the kernel is told to look again, and finds another object.
    std::fs::write(lab.base.join("a/new"), "other").unwrap();
    std::fs::rename(lab.base.join("a/new"), lab.base.join("a/n0")).unwrap();
    let again = lab.find("a/n0").unwrap();
    assert_eq!(lab.content(again.attr.node).unwrap(), b"other");
    for node in nodes {
        lab.core.forget(node, 2);
    }
    lab.core.forget(again.attr.node, 2);
    assert!(lab.core.budget.held() <= 8, "{} descriptors held after every forget", lab.core.budget.held());
}

#[test]
fn open_files_are_not_bound_to_descriptors() {
    let mut lab = lab(64);
    lab.publish(&["a"]);
    let root = lab.find("a").unwrap().attr.node;
    let make = Make { mode: 0o100_644, umask: 0o022 };
    let mut open = Vec::new();
    for index in 0..200 {
        let name = format!("n{index}");
        let (entry, handle) = lab.core.create(ME, root, name.as_bytes(), make, OFlags::RDWR).unwrap().value;
        open.push((FileAt { node: entry.attr.node, handle, offset: 0 }, name));
    }
    let listed = lab.core.opendir(ME, root).unwrap().value;
    let plain = WriteMode { guest: Guest::Call, append: false, kill_privileges: false };
    for (at, name) in &open {
        lab.core.write(ME, *at, name.as_bytes(), plain).unwrap();
        lab.core.flush(ME, at.node, at.handle).unwrap();
    }
    // All that is left of this one is what somebody has open, and nothing here is told.
    std::fs::remove_file(lab.base.join("a/n7")).unwrap();
    std::fs::remove_file(lab.base.join("a/n199")).unwrap();
    for round in 0..3 {
        for (at, name) in &open {
            let mut buffer = [0; 8];
            let read = lab.core.read(ME, *at, &mut buffer).map(|answer| answer.value);
            // What was given up before its name went cannot be had again; it is never somebody else's content.
            if name != "n7" || read.is_ok() {
                assert_eq!(&buffer[..read.unwrap()], name.as_bytes(), "round {round}");
            }
        }
    }
    assert!(lab.core.budget.held() <= 40, "{} descriptors held", lab.core.budget.held());
    let mut names = 0;
    lab.core
        .readdir(ME, root, listed, 0, false, &mut |_| {
            names += 1;
            false
        })
        .unwrap();
    assert_eq!(names, 198 + 1 + 2, "all but two, f, and the dots");
}

#[test]
fn what_only_its_creation_made_writable_stays_open() {
    let mut lab = lab(64);
    lab.publish(&["a"]);
    let root = lab.find("a").unwrap().attr.node;
    let made = |name: &str, mode| {
        let make = Make { mode, umask: 0 };
        let (entry, handle) = lab.core.create(ME, root, name.as_bytes(), make, OFlags::WRONLY).unwrap().value;
        FileAt { node: entry.attr.node, handle, offset: 0 }
    };
    let first = made("first", 0o100_644);
    lab.core.flush(ME, first.node, first.handle).unwrap();
    lab.core.unlink(ME, root, b"first").unwrap();
    for index in 0..100 {
        made(&format!("n{index}"), 0o100_444);
    }
    let plain = WriteMode { guest: Guest::Call, append: false, kill_privileges: false };
    assert_eq!(lab.core.write(ME, first, b"x", plain).unwrap().value, 1, "its last name went while it was open");
    assert_eq!(lab.content(first.node).unwrap(), b"x");
}

#[test]
fn removed_but_known_files_stay_readable() {
    let mut lab = lab(64);
    lab.publish(&["a"]);
    let (root, node) = (lab.find("a").unwrap().attr.node, lab.find("a/f").unwrap().attr.node);
    lab.core.unlink(ME, root, b"f").unwrap();
    let make = Make { mode: 0o100_644, umask: 0o022 };
    for index in 0..200 {
        let name = format!("n{index}");
        let made = lab.core.create(ME, root, name.as_bytes(), make, OFlags::RDWR).unwrap().value;
        lab.core.release(made.0.attr.node, made.1);
    }
    assert_eq!(lab.content(node).unwrap(), b"a");
    assert_eq!(lab.core.getattr(ME, node).unwrap().value.stat.nlink, 0);
}

#[test]
fn a_tree_deeper_than_a_stack() {
    let mut lab = lab(64);
    lab.publish(&["a"]);
    let mut node = lab.find("a").unwrap().attr.node;
    let make = Make { mode: 0o40_755, umask: 0o022 };
    let mut nodes = vec![node];
    for _ in 0..3_000 {
        node = lab.core.mkdir(ME, node, b"d", make).unwrap().value.attr.node;
        nodes.push(node);
    }
    assert_eq!(lab.core.getattr(ME, node).unwrap().value.stat.kind, crate::sys::Kind::Directory);
    assert_eq!(lab.core.lookup(ME, node, b"none").unwrap_err(), Errno::NOENT);
    lab.publish(&["b"]);
    // Removed from below: the temporary directory's own removal recurses.
    lab.publish(&["a"]);
    let mut path = vec![lab.find("a").unwrap().attr.node];
    while let Ok(found) = lab.core.lookup(ME, *path.last().unwrap(), b"d") {
        path.push(found.value.attr.node);
    }
    path.pop();
    for parent in path.iter().rev() {
        lab.core.rmdir(ME, *parent, b"d").unwrap();
    }
}

#[test]
fn names_that_are_none() {
    let mut lab = lab(64);
    lab.publish(&["a"]);
    let root = lab.find("a").unwrap().attr.node;
    for name in [&b"."[..], b"..", b"", b"x/y", b"x\0y"] {
        assert_eq!(lab.core.lookup(ME, root, name).unwrap_err(), Errno::PERM, "{name:?}");
        assert_eq!(lab.core.unlink(ME, root, name).unwrap_err(), Errno::PERM, "{name:?}");
    }
    assert_eq!(lab.core.lookup(ME, root, &[b'x'; 256]).unwrap_err(), Errno::NAMETOOLONG);
    assert_eq!(lab.core.mkdir(ME, NodeId::TOP, b"x", Make { mode: 0o40_755, umask: 0 }).unwrap_err(), Errno::PERM);
}

#[test]
fn a_directory_moved_out_of_its_root_is_left_alone() {
    let mut lab = lab(64);
    std::fs::create_dir_all(lab.base.join("a/d/e")).unwrap();
    std::fs::create_dir(lab.base.join("out")).unwrap();
    std::fs::write(lab.base.join("a/d/e/f"), "inside").unwrap();
    lab.publish(&["a"]);
    let (dir, file) = (lab.find("a/d/e").unwrap().attr.node, lab.find("a/d/e/f").unwrap().attr.node);
    let make = Make { mode: 0o100_644, umask: 0o022 };
    // Sideways is no way out.
    std::fs::rename(lab.base.join("a/d"), lab.base.join("a/moved")).unwrap();
    lab.core.lookup(ME, dir, b"f").unwrap();
    lab.core.create(ME, dir, b"g", make, OFlags::RDWR).unwrap();
    std::fs::rename(lab.base.join("a/moved"), lab.base.join("out/moved")).unwrap();
    std::fs::write(lab.base.join("out/moved/e/secret"), "outside").unwrap();
    assert_eq!(lab.core.lookup(ME, dir, b"secret").unwrap_err(), Errno::STALE);
    assert_eq!(lab.core.create(ME, dir, b"new", make, OFlags::RDWR).unwrap_err(), Errno::STALE);
    assert_eq!(lab.core.unlink(ME, dir, b"secret").unwrap_err(), Errno::STALE);
    assert_eq!(lab.core.opendir(ME, dir).unwrap_err(), Errno::STALE);
    assert_eq!(lab.core.open(ME, file, OFlags::RDONLY).unwrap_err(), Errno::STALE);
    let changes = super::attrs::Changes { mode: Some(0o600), ..Default::default() };
    assert_eq!(lab.core.setattr(ME, file, changes).unwrap_err(), Errno::STALE);
    assert!(lab.base.join("out/moved/e/secret").exists() && !lab.base.join("out/moved/e/new").exists());
}

/// A link eight levels down that climbs to the root, and the directory that holds it.
fn climbing(lab: &Lab) -> (NodeId, NodeId) {
    std::fs::create_dir_all(lab.base.join("a/1/2/3/4/5/6/7")).unwrap();
    std::os::unix::fs::symlink("../../../../../../../f", lab.base.join("a/1/2/3/4/5/6/7/k")).unwrap();
    let link = lab.find("a/1/2/3/4/5/6/7/k").unwrap().attr.node;
    (lab.find("a/1/2/3/4/5/6/7").unwrap().attr.node, link)
}

#[test]
fn a_directory_stays_as_deep_as_a_text_that_was_read_in_it_climbs() {
    let mut lab = lab(4096);
    lab.publish(&["a"]);
    let (dir, link) = climbing(&lab);
    let (root, six) = (lab.find("a").unwrap().attr.node, lab.find("a/1/2/3/4/5/6").unwrap().attr.node);
    let five = lab.find("a/1/2/3/4/5").unwrap().attr.node;
    let flags = rustix::fs::RenameFlags::empty();
    // Before the text is read nothing stands in the way, nor do moves sideways or deeper afterwards.
    lab.core.rename(ME, (six, b"7"), (six, b"x"), flags).unwrap();
    lab.core.rename(ME, (six, b"x"), (six, b"7"), flags).unwrap();
    assert_eq!(lab.core.readlink(ME, link).unwrap().value, b"../../../../../../../f");
    lab.core.rename(ME, (six, b"7"), (six, b"y"), flags).unwrap();
    lab.core.rename(ME, (six, b"y"), (six, b"7"), flags).unwrap();
    assert_eq!(lab.core.rename(ME, (six, b"7"), (root, b"7"), flags).unwrap_err(), Errno::BUSY);
    assert_eq!(lab.core.rename(ME, (five, b"6"), (root, b"6"), flags).unwrap_err(), Errno::BUSY);
    // Moved on the backing, it is another inode where it is now, and the old one never comes there.
    std::fs::rename(lab.base.join("a/1/2/3/4/5/6/7"), lab.base.join("a/7")).unwrap();
    let moved = lab.find("a/7").unwrap().attr.node;
    assert_ne!(moved, dir);
    // There the text leads out.
    let there = lab.core.lookup(ME, moved, b"k").unwrap().value.attr.node;
    assert_eq!(lab.core.readlink(ME, there).unwrap_err(), Errno::ACCESS);
}

#[test]
fn a_text_is_refused_where_its_directory_was_too_shallow_before() {
    let mut lab = lab(4096);
    lab.publish(&["a"]);
    std::fs::create_dir_all(lab.base.join("a/1/2/3/4/5/6")).unwrap();
    std::fs::create_dir(lab.base.join("a/7")).unwrap();
    let shallow = lab.find("a/7").unwrap().attr.node;
    let (root, six) = (lab.find("a").unwrap().attr.node, lab.find("a/1/2/3/4/5/6").unwrap().attr.node);
    lab.core.rename(ME, (root, b"7"), (six, b"7"), rustix::fs::RenameFlags::empty()).unwrap();
    let (dir, link) = climbing(&lab);
    assert_eq!(dir, shallow, "a move alone changes no number");
    assert_eq!(lab.core.readlink(ME, link).unwrap_err(), Errno::STALE);
    // The kernel then looks everything up again.
    let (dir, link) = climbing_again(&lab);
    assert_ne!(dir, shallow);
    assert_eq!(lab.core.readlink(ME, link).unwrap().value, b"../../../../../../../f");
}

fn climbing_again(lab: &Lab) -> (NodeId, NodeId) {
    let dir = lab.find("a/1/2/3/4/5/6/7").unwrap().attr.node;
    (dir, lab.find("a/1/2/3/4/5/6/7/k").unwrap().attr.node)
}

#[test]
fn no_text_climbs_after_a_name() {
    let mut lab = lab(4096);
    lab.publish(&["a"]);
    std::fs::create_dir_all(lab.base.join("a/d/e")).unwrap();
    for (text, shown) in [
        ("../f", "../f"),
        ("./../d/e", "./../d/e"),
        ("e/../../f", "../f"),
        ("../d/e/../e", "e"),
        ("e/..", "."),
        ("e/../new", "new"),
    ] {
        let link = lab.base.join("a/d/l");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(text, &link).unwrap();
        let node = lab.find("a/d/l").unwrap().attr.node;
        let read = lab.core.readlink(ME, node).unwrap().value;
        assert_eq!(String::from_utf8(read).unwrap(), shown, "{text}");
    }
}

#[test]
fn every_change_of_data_drops_set_id_bits() {
    use std::os::unix::fs::PermissionsExt;
    let mut lab = lab(4096);
    lab.publish(&["a"]);
    let (file, source) = (lab.base.join("a/suid"), lab.base.join("a/f"));
    std::fs::write(&file, "program").unwrap();
    std::fs::write(&source, "other").unwrap();
    let (node, from) = (lab.find("a/suid").unwrap().attr.node, lab.find("a/f").unwrap().attr.node);
    let nobody = Caller { uid: 65534, gid: 65534, pid: 0 };
    let at = |node| FileAt { node, handle: 0, offset: 0 };
    let kill = super::files::WriteMode { guest: Guest::Call, append: false, kill_privileges: true };
    let changes: [(&str, &dyn Fn()); 3] = [
        ("write", &|| drop(lab.core.write(nobody, at(node), b"x", kill).unwrap())),
        ("fallocate", &|| drop(lab.core.fallocate(nobody, at(node), 10_000, 0).unwrap())),
        ("copy_file_range", &|| drop(lab.core.copy_range(nobody, at(from), at(node), 5).unwrap())),
    ];
    for (name, change) in changes {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o6777)).unwrap();
        change();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o777, "{name}");
    }
}

#[test]
fn a_hard_linked_link_is_judged_where_it_is_found() {
    let mut lab = lab(4096);
    lab.publish(&["a"]);
    std::fs::create_dir_all(lab.base.join("a/p/q")).unwrap();
    std::os::unix::fs::symlink(lab.base.join("a/f"), lab.base.join("a/p/q/l")).unwrap();
    std::fs::hard_link(lab.base.join("a/p/q/l"), lab.base.join("a/l")).unwrap();
    for _ in 0..3 {
        let (deep, shallow) = (lab.find("a/p/q/l").unwrap().attr.node, lab.find("a/l").unwrap().attr.node);
        assert_eq!(lab.core.readlink(ME, deep).unwrap().value, b"../../f");
        assert_eq!(lab.core.readlink(ME, shallow).unwrap().value, b"f");
    }
}

#[test]
fn a_revoked_root_holds_no_descriptor() {
    let mut lab = lab(4096);
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let held = |lab: &Lab| {
        let below = |fd: &std::fs::DirEntry| std::fs::read_link(fd.path()).is_ok_and(|at| at.starts_with(&lab.base));
        open().filter(below).count()
    };
    for _ in 0..20 {
        lab.publish(&["a", "b"]);
        lab.find("a/f").unwrap();
        lab.publish(&[]);
    }
    lab.snapshot = None;
    // Descriptors are closed behind the publication's back.
    for _ in 0..100 {
        if held(&lab) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} descriptors of revoked roots are still open", held(&lab));
}

#[test]
fn what_moves_to_another_root_is_that_roots_from_then_on() {
    let mut lab = lab_with(4096, Policy { cross_root: true, ..Policy::default() });
    std::fs::create_dir(lab.base.join("a/d")).unwrap();
    std::fs::write(lab.base.join("a/d/g"), "g").unwrap();
    lab.publish(&["a", "b"]);
    let old = [lab.find("a/f").unwrap(), lab.find("a/d").unwrap(), lab.find("a/d/g").unwrap()];
    let (a, b) = (lab.find("a").unwrap().attr.node, lab.find("b").unwrap().attr.node);
    let flags = rustix::fs::RenameFlags::empty();
    lab.core.rename(ME, (a, b"f"), (b, b"moved"), flags).unwrap();
    lab.core.rename(ME, (a, b"d"), (b, b"d"), flags).unwrap();
    // The kernel still has the old numbers under the new names; it is told to look again.
    for entry in old {
        let node = entry.attr.node;
        let opened = match entry.attr.stat.kind {
            crate::sys::Kind::Directory => lab.core.opendir(ME, node).map(drop),
            _ => lab.core.open(ME, node, OFlags::RDONLY).map(drop),
        };
        assert_eq!(opened.unwrap_err(), Errno::STALE);
    }
    let moved = lab.find("b/moved").unwrap().attr.node;
    assert_eq!(lab.content(moved).unwrap(), b"a");
    lab.publish(&["a"]);
    assert_eq!(lab.content(moved), Err(Errno::STALE), "it was revoked with the root it had come to");
}

#[test]
fn a_gate_closes_behind_the_last_one() {
    let gate = Arc::new(super::gate::Gate::default());
    assert!(gate.enter(Guest::Call) && gate.enter(Guest::Call));
    gate.empty();
    assert!(!gate.is_closed() && !gate.enter(Guest::Call) && gate.enter(Guest::WriteBack));
    gate.leave();
    gate.close();
    assert!(gate.is_closed() && !gate.enter(Guest::Call) && !gate.enter(Guest::WriteBack));
    assert_eq!(gate.wait_empty(Duration::from_millis(10)), 2);
    let inside = Arc::clone(&gate);
    let leaver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        inside.leave();
        inside.leave();
    });
    assert_eq!(gate.wait_empty(Duration::from_secs(5)), 0);
    leaver.join().unwrap();
}
