//! The only place with fuser's types: requests are decoded into plain values, the view is called, and its answer is
//! encoded. Nothing is decided here.
//!
//! Each handler keeps the view's [`Answer`] until the reply was sent, so that a revocation waits for it; the reply itself
//! is the last thing done with the request, because the kernel may send the next one on it at once.

mod convert;
mod handlers;
mod session;

pub(crate) use handlers::Adapter;
pub(crate) use session::{MountOptions, Session};
