use serde::Serialize;

use crate::authorize::{Op, Reason};

/// How a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Granted.
    Allow,
    /// Refused.
    Deny,
}

/// One decision, as the view or a query made it.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// The generation it was made under.
    pub generation: u64,
    /// What was asked.
    pub op: Op,
    /// The calling process; 0 when the kernel did not say.
    pub pid: u32,
    /// The calling user.
    pub uid: u32,
    /// Path in the view, below the top directory.
    pub path: String,
    /// Path of the backing object, or of its parent for a name that does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The other end of a rename or link, in the view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The other end's backing object or parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_object: Option<String>,
    /// The entry of the root concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The entry of the other end's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_root: Option<String>,
    /// Granted or refused.
    pub decision: Outcome,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// `ok`, or the name of the error the caller got, e.g. `EXDEV`.
    pub result: String,
    /// Nothing was done: somebody asked what would happen.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub query: bool,
}
