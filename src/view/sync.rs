//! What the [gate](super::gate) is built of, in one place, so that `tests/model.rs` can build it of parts whose every
//! interleaving is tried.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex};
