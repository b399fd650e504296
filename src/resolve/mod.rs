//! From a name to a descriptor: one validated component, one `openat2`, below a descriptor.

mod name;

pub use name::{NAME_MAX, Name, NameError};
