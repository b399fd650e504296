//! From a name to a descriptor: one validated component, one `openat2`, below a descriptor; and from a symbolic link to
//! the place it means, hop by hop.

mod host;
mod name;
mod walk;

pub(crate) use host::canonical;
pub use name::{NAME_MAX, Name, NameError};
pub(crate) use walk::{Found, Ground, Last, Spot, Start, walk};
