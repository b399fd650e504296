//! What may happen to an object of the view, and why not.
//!
//! One function, [`decide`], answers the mounted view, `rootsfs check` and the MCP tool `explain_access`. It is pure: it
//! sees facts that the resolver has established and returns a [`Verdict`]; it opens nothing and records nothing.

mod decide;
mod hidden;
mod op;
mod reason;

pub use decide::{Ask, Hides, Links, Place, Policy, Verdict, decide};
pub use hidden::{Hidden, PatternError};
pub use op::Op;
pub use reason::Reason;
