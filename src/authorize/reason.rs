use serde::{Deserialize, Serialize};

/// Why something was refused. The wire form (kebab-case) is part of the public contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The URI's scheme is not `file`.
    NonFileUri,
    /// The URI names a host other than this one.
    RemoteAuthority,
    /// The URI cannot be read, or reads ambiguously (`%2F`, `%00`, a fragment, a query, `..`).
    MalformedUri,
    /// A path that is not absolute where a URI or an absolute path belongs.
    RelativePath,
    /// No such object.
    NotFound,
    /// The operating system refused access to the object.
    PermissionDenied,
    /// The object lies outside every active root.
    OutsideRoot,
    /// The root lies outside the operator's ceiling (`--within`).
    OutsideCeiling,
    /// A symbolic link whose target lies outside the active roots.
    SymlinkOutside,
    /// More symbolic links than the kernel would follow.
    SymlinkLoop,
    /// The parent directory does not exist.
    ParentMissing,
    /// The name is empty, `.`, `..`, too long, or holds `/` or NUL.
    UnsafeName,
    /// The operation would span two roots.
    CrossRoot,
    /// The root or the view is read-only.
    ReadOnly,
    /// A device node, or another object that is never opened through the view.
    SpecialFile,
    /// Hidden by policy.
    Hidden,
    /// A mount of rootsfs itself, or another file system mounted below a root.
    OwnMount,
    /// The root has left the list.
    RootRevoked,
    /// The question was asked of an earlier generation.
    StaleGeneration,
    /// The list is empty.
    NoRoots,
    /// The list could not be refreshed.
    AuthorityUnavailable,
}

impl Reason {
    /// The contract's spelling, e.g. `symlink-outside`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NonFileUri => "non-file-uri",
            Self::RemoteAuthority => "remote-authority",
            Self::MalformedUri => "malformed-uri",
            Self::RelativePath => "relative-path",
            Self::NotFound => "not-found",
            Self::PermissionDenied => "permission-denied",
            Self::OutsideRoot => "outside-root",
            Self::OutsideCeiling => "outside-ceiling",
            Self::SymlinkOutside => "symlink-outside",
            Self::SymlinkLoop => "symlink-loop",
            Self::ParentMissing => "parent-missing",
            Self::UnsafeName => "unsafe-name",
            Self::CrossRoot => "cross-root",
            Self::ReadOnly => "read-only",
            Self::SpecialFile => "special-file",
            Self::Hidden => "hidden",
            Self::OwnMount => "own-mount",
            Self::RootRevoked => "root-revoked",
            Self::StaleGeneration => "stale-generation",
            Self::NoRoots => "no-roots",
            Self::AuthorityUnavailable => "authority-unavailable",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
