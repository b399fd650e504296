//! # rootsfs: a root list as a place
//!
//! An AI client names the directories that matter (MCP *roots*). This crate turns such a list into a mounted view whose
//! top-level entries are exactly the active roots, and takes a tree away again the moment it leaves the list.
//!
//! ## The model
//!
//! 1. **The list is authority, the view is its shape.** A [`Snapshot`](roots::Snapshot) is a judged, immutable root list
//!    with a generation number and an open directory descriptor (the *anchor*) for each root. One
//!    [`Publisher`](publisher::Publisher) makes snapshots and installs them. Every kernel request takes the current
//!    snapshot at the door and carries it to the reply; nothing else reads it.
//! 2. **One component, one descriptor, one decision.** FUSE hands over one name at a time. The name becomes a
//!    [`Name`](resolve::Name), the only thing the system-call layer takes, and is opened below its parent's descriptor
//!    with `openat2`. No path string is walked again. What may happen to the object is said by one function,
//!    [`authorize::decide`]; the view, `rootsfs check` and the MCP tool `explain_access` all ask it.
//! 3. **Revocation has a moment.** A publication is *done* when requests see the new snapshot, requests that entered
//!    under the old one have left, the kernel's caches of every revoked inode are gone, and no old handle can live again.
//!
//! ```text
//! kernel request → fuse (translate) → view::admit (snapshot) → authorize → resolve → act → record → reply
//! client | control | command line → publisher → roots (judge) → Snapshot → view::install → view::revoke → kernel caches
//! ```
//!
//! ## Glossary
//!
//! | word | meaning |
//! | --- | --- |
//! | root | one entry of the list: a `file://` URI or a path, judged and anchored |
//! | entry | the name under which a root stands at the top of the view |
//! | snapshot, generation | a judged list; its number, which grows by one a publication and never repeats |
//! | tree | a root *instance* in the view: its inodes and handles. A root that leaves and comes back is a new tree |
//! | nodeid | the kernel's name for an inode: the tree's instance in the high bits, the backing inode number in the low |
//! | lookup count | how many times the kernel was told of a nodeid and has not forgotten it |
//! | entry / attribute timeout | how long the kernel may answer from its caches without asking |
//! | pass | proof that a request entered a tree that was not revoked; revocation waits until every pass is returned |
//!
//! ## How opens are served
//!
//! Inodes, not handles, are what the kernel's caches and a revocation speak of, so every operation is addressed by nodeid
//! and a handle is an optional accelerator: [`view`] finds the descriptor for a read or write in the handle if the kernel
//! sent one, else it opens one by inode. Neither an inode nor a handle owns its descriptor: both have a slot that is emptied
//! when descriptors are short and filled again, by name and verified, when it is wanted (`view/descriptors.rs`). `OPEN` and
//! `OPENDIR` are messages, because they are the moment at which cached pages are compared with the backing file. Warm reading
//! without any message (`FUSE_NO_OPEN_SUPPORT`) would need nothing here but a slot for data in the inode, once a watch on the
//! backing makes the comparison unnecessary.
//!
//! ## How a root is revoked
//!
//! The publisher's thread makes the new snapshot current and closes the gates of the trees that are not in it; a thread of
//! the revocation's own then waits for the requests inside, has the kernel forget names, attributes and pages, and at last
//! makes the kernel give up the inodes themselves. The steps stand in a table in `view/revoke.rs`. What is stuck in a slow
//! backing is waited for by that thread alone. Between the announcement of a client's list and its arrival, calls into that
//! client's roots are put aside without a thread (`view/hold.rs`).
//!
//! ## How links are followed
//!
//! The kernel walks a link's text by itself, in the caller's namespace. [`view`] therefore hands out a text only if its
//! target, found hop by hop with descriptors, lies in an active root, and only in a form and at a depth from which no move
//! can make it climb out of the mount; the rules stand at the head of `view/depth.rs`.
//!
//! ## Lock order
//!
//! A thread that holds a lock may take only locks further down. None of them is held across a backing system call that
//! can block, a kernel notification, or a reply.
//!
//! 1. `publisher::Publisher` is an actor: one thread owns the lists; it has no lock.
//! 2. `view::Current` (arc-swap): no lock; readers take a reference.
//! 3. `view::inodes` shard lock (find, insert, forget).
//! 4. `view::inodes::Inode`: one of its place, slot, version or holders locks at a time; never two inodes' at once.
//! 5. `view::handles` table lock; then one directory handle's stream lock (held across `getdents`, which is that
//!    stream's own and blocks nobody else).
//! 6. Leaves, held for a few instructions: `view::tree` stand-ins, `view::descriptors` slot and then queue, `view::hold` room,
//!    `view::burial` dying trees and graves, `view::gate`, `view::core` labels, state, listings and retired roots, `record`
//!    ring; and `record` output, held while one line is written.
#![deny(unsafe_code)]

pub mod authorize;
pub mod publisher;
pub mod record;
pub mod resolve;
pub mod roots;
pub mod sys;
pub mod view;

mod fuse;
