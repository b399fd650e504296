use serde::{Deserialize, Serialize};

/// What a caller wants to do, in the words of the record and of `rootsfs check --op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Op {
    /// Find a name in a directory.
    Lookup,
    /// Read attributes (`stat`).
    Stat,
    /// Read the text of a symbolic link.
    Readlink,
    /// Open or read a file.
    Read,
    /// List a directory.
    List,
    /// Open for writing, or write.
    Write,
    /// Make a file.
    Create,
    /// Make a directory.
    Mkdir,
    /// Make a FIFO, socket or device node.
    Mknod,
    /// Make a symbolic link.
    Symlink,
    /// Make a hard link.
    Link,
    /// Remove a file.
    Unlink,
    /// Remove a directory.
    Rmdir,
    /// Rename or move.
    Rename,
    /// Change mode, owner, times or size.
    Setattr,
    /// Change extended attributes.
    Setxattr,
}

impl Op {
    /// Every operation, in the order of the declaration.
    pub const ALL: [Self; 16] = [
        Self::Lookup,
        Self::Stat,
        Self::Readlink,
        Self::Read,
        Self::List,
        Self::Write,
        Self::Create,
        Self::Mkdir,
        Self::Mknod,
        Self::Symlink,
        Self::Link,
        Self::Unlink,
        Self::Rmdir,
        Self::Rename,
        Self::Setattr,
        Self::Setxattr,
    ];

    /// The spelling of the record, e.g. `rename`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Stat => "stat",
            Self::Readlink => "readlink",
            Self::Read => "read",
            Self::List => "list",
            Self::Write => "write",
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Mknod => "mknod",
            Self::Symlink => "symlink",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::Setattr => "setattr",
            Self::Setxattr => "setxattr",
        }
    }

    /// Whether the operation changes the tree or an object of it.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Lookup | Self::Stat | Self::Readlink | Self::Read | Self::List)
    }

    /// Whether the operation has a second path: the new name of a rename or link.
    #[must_use]
    pub const fn needs_other_end(self) -> bool {
        matches!(self, Self::Rename | Self::Link)
    }

    /// Whether a second path may be given: also the text of a symbolic link, without which only its place is judged.
    #[must_use]
    pub const fn takes_other_end(self) -> bool {
        self.needs_other_end() || matches!(self, Self::Symlink)
    }

    /// Whether the operation takes the last component of the path away.
    #[must_use]
    pub const fn takes_name(self) -> bool {
        matches!(self, Self::Unlink | Self::Rmdir | Self::Rename)
    }

    /// Whether the last component of the path need not exist yet.
    #[must_use]
    pub const fn makes_name(self) -> bool {
        matches!(self, Self::Create | Self::Mkdir | Self::Mknod | Self::Symlink | Self::Link)
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Op {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|op| op.as_str() == s).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|op| op.as_str()).collect();
            format!("unknown operation {s:?}; known: {}", known.join(", "))
        })
    }
}
