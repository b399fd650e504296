//! Roots as people write them: `PATH|URI[=ENTRY]`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rootsfs::resolve::Name;
use rootsfs::roots::RootInput;

/// What a path may not hold as it is when it becomes a URI (RFC 3986, section 3.3).
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// Reads one root. A path becomes absolute here, because the daemon has another current directory.
///
/// The last `=` separates the entry name, unless the whole text is the path of something that exists or what follows is
/// not a file name.
///
/// # Errors
/// The current directory cannot be told.
pub(crate) fn root(text: &OsStr) -> io::Result<RootInput> {
    let bytes = text.as_bytes();
    let split = bytes.iter().rposition(|byte| *byte == b'=').filter(|_| !exists(bytes)).and_then(|at| {
        let (path, entry) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        let entry = Name::new(entry).ok()?.as_os_str().to_str()?.to_owned();
        (!path.is_empty()).then_some((path, entry))
    });
    let (target, entry) = match split {
        Some((target, entry)) => (target, Some(entry)),
        None => (bytes, None),
    };
    Ok(RootInput { uri: location(target)?, name: None, entry, path_allowed: true })
}

/// Reads a ROOT or an ENTRY: a URI and a bare name stay as they are, a path becomes absolute.
///
/// # Errors
/// The current directory cannot be told.
pub(crate) fn selector(text: &str) -> io::Result<String> {
    let path = text.contains('/') || text == "." || text == "..";
    if path { location(text.as_bytes()) } else { Ok(text.to_owned()) }
}

/// A URI as it is; a path made absolute, as a URI if it is not UTF-8.
fn location(bytes: &[u8]) -> io::Result<String> {
    let text = OsString::from_vec(bytes.to_vec());
    if is_uri(bytes) {
        return Ok(text.to_string_lossy().into_owned());
    }
    let path = absolute(Path::new(&text))?;
    Ok(match path.into_os_string().into_string() {
        Ok(path) => path,
        Err(path) => format!("file://{}", percent_encode(path.as_bytes(), PATH)),
    })
}

/// Absolute, without `.` and `..`: `..` is taken away by words, as a shell does with `cd`.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    Ok(clean)
}

/// A path from a file: `~/` is the user's home, and a relative one begins at `base`.
///
/// # Errors
/// A sentence: the home is not known.
pub(crate) fn below(base: &Path, path: &str) -> Result<String, String> {
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = std::env::var_os("HOME").ok_or_else(|| format!("{path}: HOME is not set"))?;
            Path::new(&home).join(rest.trim_start_matches('/'))
        }
        Some(_) => return Err(format!("{path}: only ~/ is known, not another user's home; write the whole path")),
        None => base.join(path),
    };
    location(path.as_os_str().as_bytes()).map_err(|error| error.to_string())
}

pub(crate) fn is_uri(bytes: &[u8]) -> bool {
    let scheme = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
    let rest = bytes.get(scheme..).unwrap_or_default();
    rest.starts_with(b"://") || bytes.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"file:"))
}

fn exists(bytes: &[u8]) -> bool {
    let path = bytes.strip_prefix(b"file://").unwrap_or(bytes);
    Path::new(OsStr::from_bytes(path)).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: impl AsRef<OsStr>) -> (String, Option<String>) {
        let root = root(text.as_ref()).unwrap();
        (root.uri, root.entry)
    }

    #[test]
    fn entries_are_split_off() {
        assert_eq!(read("/no/such=x"), ("/no/such".into(), Some("x".into())));
        assert_eq!(read("file:///no/such=x"), ("file:///no/such".into(), Some("x".into())));
        assert_eq!(read("/no/a=b/c"), ("/no/a=b/c".into(), None));
        assert_eq!(read("/no/a=.."), ("/no/a=..".into(), None));
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("a=b");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(read(&odd), (odd.to_str().unwrap().into(), None));
    }

    #[test]
    fn paths_become_absolute_and_uris_stay() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(read("src/../no-such").0, here.join("no-such").to_str().unwrap());
        assert_eq!(read("https://host/p").0, "https://host/p");
        assert_eq!(read("FILE:relative").0, "FILE:relative");
        assert_eq!(read(OsStr::from_bytes(b"/no/\xff %")).0, "file:///no/%FF%20%25");
        assert_eq!(selector("app").unwrap(), "app");
        assert_eq!(selector("./app").unwrap(), here.join("app").to_str().unwrap());
        assert_eq!(selector("file:///a").unwrap(), "file:///a");
    }
}
