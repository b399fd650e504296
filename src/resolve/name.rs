use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

/// The longest name the kernel accepts, in bytes (`NAME_MAX`, `limits.h`).
pub const NAME_MAX: usize = 255;

/// One path component that is safe to hand to a system call: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
///
/// Only [`Name::new`] makes one, and the functions of [`crate::sys`] that create, open or remove below a directory take
/// nothing else, so a name that was not validated cannot reach them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(CString);

/// Why bytes are not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, `.`, `..`, or with `/` or NUL in it.
    #[error("not a plain file name")]
    Unsafe,
    /// Longer than 255 bytes.
    #[error("longer than 255 bytes")]
    TooLong,
}

impl Name {
    /// Validates one component.
    ///
    /// # Errors
    /// [`NameError::TooLong`] over 255 bytes, [`NameError::Unsafe`] for anything that is not a plain name.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
            return Err(NameError::Unsafe);
        }
        if bytes.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        CString::new(bytes).map(Self).map_err(|_| NameError::Unsafe)
    }

    /// What a thing is called that is `/` and has no last component.
    pub(crate) fn root() -> Self {
        Self(c"root".into())
    }

    /// The name as the kernel takes it.
    #[must_use]
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// The name's bytes, without the terminating NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name for display and for paths that are only shown.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(self.0.as_bytes())
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.as_os_str().display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_only() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(NameError::Unsafe), "{bad:?}");
        }
        assert_eq!(Name::new([b'x'; 256]), Err(NameError::TooLong));
        for good in [&b"a"[..], b"...", b".git", b"\xff\x01", b" ", &[b'x'; 255]] {
            assert_eq!(Name::new(good).unwrap().as_bytes(), good);
        }
    }
}
