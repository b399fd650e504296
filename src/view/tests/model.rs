//! Random operations under random lists, against a model of what they must come to.
//!
//! The model knows which instance of a root every nodeid and handle came from, and every file's content. With a budget of few
//! descriptors, so that most of what is used was given up before.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const ROOTS: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 4] = ["f", "g", "h", "i"];
const PLAIN: WriteMode = WriteMode { guest: Guest::Call, append: false, kill_privileges: false };

#[derive(Clone, Debug)]
enum Step {
    /// The list has the roots whose bits are set.
    Publish(u8),
    Find(usize, usize),
    Create(usize, usize),
    Unlink(usize, usize),
    Rename(usize, usize, usize),
    /// The same on the backing, without the view.
    RenameOutside(usize, usize, usize),
    List(usize),
    /// Of a node or handle that was got before, of whatever instance.
    Open(usize),
    Stat(usize),
    Read(usize),
    Write(usize, u8),
    Flush(usize),
    Release(usize),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (root, name, any, byte) = (0..ROOTS.len(), 0..NAMES.len(), 0..64_usize, 0..=255_u8);
    prop_oneof![
        2 => (0..8_u8).prop_map(Step::Publish),
        4 => (root.clone(), name.clone()).prop_map(|(r, n)| Step::Find(r, n)),
        3 => (root.clone(), name.clone()).prop_map(|(r, n)| Step::Create(r, n)),
        2 => (root.clone(), name.clone()).prop_map(|(r, n)| Step::Unlink(r, n)),
        2 => (root.clone(), name.clone(), name.clone()).prop_map(|(r, n, m)| Step::Rename(r, n, m)),
        1 => (root.clone(), name.clone(), name).prop_map(|(r, n, m)| Step::RenameOutside(r, n, m)),
        1 => root.prop_map(Step::List),
        4 => any.clone().prop_map(Step::Open),
        3 => any.clone().prop_map(Step::Stat),
        5 => any.clone().prop_map(Step::Read),
        5 => (any.clone(), byte).prop_map(|(h, byte)| Step::Write(h, byte)),
        2 => any.clone().prop_map(Step::Flush),
        2 => any.clone().prop_map(Step::Release),
        2 => any.prop_map(Step::Forget),
    ]
}

/// A file of the model, by number, for as long as anybody may hold it.
type File = usize;

struct Node {
    node: NodeId,
    root: usize,
    /// Which life of the root it belongs to.
    life: u32,
    file: File,
    lookups: u64,
}

struct Handle {
    node: usize,
    handle: u64,
}

struct Model {
    lab: Lab,
    /// Of each root, its life if it is in the list.
    lives: [Option<u32>; 3],
    next_life: u32,
    names: HashMap<(usize, usize), File>,
    contents: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    handles: Vec<Handle>,
}

impl Model {
    fn new() -> Self {
        let lab = lab(16);
        std::fs::create_dir(lab.base.join("c")).unwrap();
        std::fs::write(lab.base.join("c/f"), "c").unwrap();
        let names = (0..3).map(|root| ((root, 0), root)).collect();
        let contents = ROOTS.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self { lab, lives: [None; 3], next_life: 0, names, contents, nodes: Vec::new(), handles: Vec::new() }
    }

    fn lives(&self, node: &Node) -> bool {
        self.lives[node.root] == Some(node.life)
    }

    fn root(&self, root: usize) -> Option<NodeId> {
        let found = self.lab.core.lookup(ME, NodeId::TOP, ROOTS[root].as_bytes());
        assert_eq!(found.is_ok(), self.lives[root].is_some(), "the top shows the list");
        let node = found.ok()?.value.attr.node;
        self.lab.core.forget(node, 1);
        Some(node)
    }

    fn learn(&mut self, node: NodeId, root: usize, file: File) {
        let life = self.lives[root].unwrap();
        match self.nodes.iter_mut().find(|known| known.node == node) {
            Some(known) => {
                assert_eq!((known.life, known.file), (life, file), "one nodeid, two objects");
                known.lookups += 1;
            }
            None => self.nodes.push(Node { node, root, life, file, lookups: 1 }),
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Publish(bits) => {
                let list: Vec<usize> = (0..3).filter(|root| bits & (1 << root) != 0).collect();
                self.lab.publish(&list.iter().map(|root| ROOTS[*root]).collect::<Vec<_>>());
                for root in 0..3 {
                    match (list.contains(&root), self.lives[root]) {
                        (true, None) => {
                            self.lives[root] = Some(self.next_life);
                            self.next_life += 1;
                        }
                        (false, _) => self.lives[root] = None,
                        (true, Some(_)) => {}
                    }
                }
            }
            Step::Find(root, name) => {
                let Some(dir) = self.root(root) else { return };
                let found = self.lab.core.lookup(ME, dir, NAMES[name].as_bytes());
                match self.names.get(&(root, name)) {
                    Some(file) => self.learn(found.unwrap().value.attr.node, root, *file),
                    None => assert_eq!(found.unwrap_err(), Errno::NOENT),
                }
            }
            Step::Create(root, name) => self.create(root, name),
            Step::Unlink(root, name) => {
                let Some(dir) = self.root(root) else { return };
                let done = self.lab.core.unlink(ME, dir, NAMES[name].as_bytes()).map(drop);
                let expected = self.names.remove(&(root, name)).map(drop).ok_or(Errno::NOENT);
                assert_eq!(done, expected);
            }
            Step::Rename(root, from, to) => {
                let Some(dir) = self.root(root) else { return };
                let ends = ((dir, NAMES[from].as_bytes()), (dir, NAMES[to].as_bytes()));
                let done = self.lab.core.rename(ME, ends.0, ends.1, rustix::fs::RenameFlags::empty()).map(drop);
                assert_eq!(done.is_ok(), self.names.contains_key(&(root, from)));
                self.renamed(root, from, to);
            }
            Step::RenameOutside(root, from, to) => {
                // What is open and known would be lost for want of descriptors; that is documented, and tested elsewhere.
                let known = |name| {
                    self.names.get(&(root, name)).is_some_and(|file| self.nodes.iter().any(|node| node.file == *file))
                };
                if known(from) || known(to) {
                    return;
                }
                let path = |name: usize| self.lab.base.join(ROOTS[root]).join(NAMES[name]);
                let done = std::fs::rename(path(from), path(to));
                assert_eq!(done.is_ok(), self.names.contains_key(&(root, from)));
                self.renamed(root, from, to);
            }
            Step::List(root) => {
                let Some(dir) = self.root(root) else { return };
                let handle = self.lab.core.opendir(ME, dir).unwrap().value;
                let mut names = Vec::new();
                let mut sink = |item: &crate::view::dirs::Item<'_>| {
                    names.push(String::from_utf8(item.name.to_vec()).unwrap());
                    false
                };
                self.lab.core.readdir(ME, dir, handle, 0, false, &mut sink).unwrap();
                self.lab.core.release(dir, handle);
                names.retain(|name| !name.starts_with('.'));
                names.sort();
                let there = (0..4).filter(|name| self.names.contains_key(&(root, *name)));
                assert_eq!(names, there.map(|name| NAMES[name]).collect::<Vec<_>>());
            }
            Step::Open(any) => {
                let Some(index) = any.checked_rem(self.nodes.len()) else { return };
                let opened = self.lab.core.open(ME, self.nodes[index].node, OFlags::RDWR);
                if self.lives(&self.nodes[index]) {
                    self.handles.push(Handle { node: index, handle: opened.unwrap().value.handle });
                } else {
                    assert_eq!(opened.unwrap_err(), Errno::STALE);
                }
            }
            Step::Stat(any) => {
                let Some(index) = any.checked_rem(self.nodes.len()) else { return };
                let node = &self.nodes[index];
                let attr = self.lab.core.getattr(ME, node.node).map(|answer| answer.value);
                if self.lives(node) {
                    let stat = attr.unwrap().stat;
                    assert_eq!(stat.size, self.contents[node.file].len() as u64);
                    assert_eq!(stat.nlink > 0, self.names.values().any(|file| *file == node.file));
                } else {
                    assert_eq!(attr.unwrap_err(), Errno::STALE);
                }
            }
            Step::Read(any) => {
                let Some((node, at)) = self.at(any) else { return };
                let mut buffer = [0; 64];
                let read = self.lab.core.read(ME, at, &mut buffer).map(|answer| answer.value);
                if self.lives(node) {
                    assert_eq!(&buffer[..read.unwrap()], self.contents[node.file]);
                } else {
                    assert_eq!(read, Err(Errno::STALE));
                }
            }
            Step::Write(any, byte) => {
                let Some((node, at)) = self.at(any) else { return };
                let (lives, file) = (self.lives(node), node.file);
                let written = self.lab.core.write(ME, at, &[byte], PLAIN).map(|answer| answer.value);
                if lives {
                    assert_eq!(written, Ok(1));
                    self.contents[file][0] = byte;
                } else {
                    assert_eq!(written, Err(Errno::STALE));
                }
            }
            Step::Flush(any) => {
                let Some((_, at)) = self.at(any) else { return };
                self.lab.core.flush(ME, at.node, at.handle).unwrap();
            }
            Step::Release(any) => {
                let Some(index) = any.checked_rem(self.handles.len()) else { return };
                let Handle { node, handle } = self.handles.swap_remove(index);
                self.lab.core.release(self.nodes[node].node, handle);
            }
            Step::Forget(any) => {
                let Some(index) = any.checked_rem(self.nodes.len()) else { return };
                // The kernel forgets nothing that is open.
                if self.handles.iter().any(|handle| handle.node == index) {
                    return;
                }
                let Node { node, lookups, .. } = self.nodes.swap_remove(index);
                let moved = self.nodes.len();
                self.handles.iter_mut().filter(|handle| handle.node == moved).for_each(|handle| handle.node = index);
                self.lab.core.forget(node, lookups);
            }
        }
        assert!(self.lab.core.budget.held() <= 8 + 8 + self.pinned(), "{} descriptors", self.lab.core.budget.held());
    }

    fn create(&mut self, root: usize, name: usize) {
        let Some(dir) = self.root(root) else { return };
        let make = Make { mode: 0o100_644, umask: 0 };
        let made = self.lab.core.create(ME, dir, NAMES[name].as_bytes(), make, OFlags::RDWR | OFlags::EXCL);
        if self.names.contains_key(&(root, name)) {
            assert_eq!(made.unwrap_err(), Errno::EXIST);
            return;
        }
        let (entry, handle) = made.unwrap().value;
        let file = self.contents.len();
        self.contents.push(format!("file {file}").into_bytes());
        self.names.insert((root, name), file);
        self.learn(entry.attr.node, root, file);
        let at = FileAt { node: entry.attr.node, handle, offset: 0 };
        self.lab.core.write(ME, at, &self.contents[file], PLAIN).unwrap();
        let node = self.nodes.iter().position(|node| node.node == entry.attr.node).unwrap();
        self.handles.push(Handle { node, handle });
    }

    fn renamed(&mut self, root: usize, from: usize, to: usize) {
        if let Some(file) = self.names.remove(&(root, from)) {
            self.names.insert((root, to), file);
        }
    }

    fn at(&self, any: usize) -> Option<(&Node, FileAt)> {
        let Handle { node, handle } = &self.handles[any.checked_rem(self.handles.len())?];
        let node = &self.nodes[*node];
        Some((node, FileAt { node: node.node, handle: *handle, offset: 0 }))
    }

    /// Files without a name that somebody holds: they cost a descriptor or two each.
    fn pinned(&self) -> usize {
        2 * self.nodes.iter().filter(|node| !self.names.values().any(|file| *file == node.file)).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_under_changing_lists(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
        }
    }
}
