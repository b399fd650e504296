//! The only place with raw system calls and `unsafe`: descriptors go in as `AsFd` and come out as `OwnedFd`.
//!
//! Functions that find, make or remove something below a directory take a [`Name`](crate::resolve::Name), never bytes or
//! a path. All of them return the kernel's errno unchanged.

pub mod anchor;
mod at;
mod caller;
mod dir;
mod flags;
mod io;
mod memory;
pub mod mount;
mod stat;
mod xattr;

pub(crate) use at::*;
pub use caller::Caller;
pub(crate) use caller::{act_as, may_list_trusted, thread_id};
pub(crate) use dir::{DirEntry, read_dir, seek_dir};
pub(crate) use flags::*;
pub(crate) use io::*;
pub(crate) use memory::give_memory_back;
pub(crate) use mount::{follow_no_links, minor, open_directory};
pub use stat::{Birth, Kind, Moment, ObjectId, Stat, Version};
pub(crate) use stat::{file_system, is_overlay, learn_mount, stat, stat_without_sync};
pub(crate) use xattr::*;
