//! `file://` URIs to absolute byte paths and back (RFC 8089, RFC 3986).
//!
//! Lenient where nothing can be misread (case, blanks, UTF-8, superfluous slashes), strict where dropping or decoding
//! something would name another object than the sender meant.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::authorize::Reason;

/// Why an element of a list is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    /// The contract's word for it.
    pub reason: Reason,
    /// One sentence for people.
    pub detail: String,
}

/// Whether a plain absolute path may stand where a URI belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarePaths {
    /// Only a URI will do.
    Refuse,
    /// A path is taken as it is, without decoding.
    Accept,
}

/// What RFC 3986 does not let stand in a path (`pchar` and `/` stay); bytes beyond ASCII are always escaped.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The absolute path that `text` names: decoded once, without `.` components, repeated or trailing slashes.
///
/// | input | answer |
/// | --- | --- |
/// | `file:///p`, `FILE://LocalHost/p`, `file:/p` | `/p` |
/// | `/p` | `/p` with [`BarePaths::Accept`], else `non-file-uri` |
/// | `p`, `file:p` | `relative-path` |
/// | `{…}`, `[…]`, `"…"`: an element of a list that is not what it should be | `malformed-uri` |
/// | `https://…` | `non-file-uri` |
/// | `file://host/p`, `file://localhost:80/p`, `file://me@/p` | `remote-authority` |
/// | `%2F`, `%00`, `%zz`, raw `#` or `?`, `..`, `%2e%2e`, no path | `malformed-uri` |
///
/// # Errors
/// [`Refusal`], as above.
pub fn parse(text: &str, bare: BarePaths) -> Result<PathBuf, Refusal> {
    let refuse = |reason, why: &str| Err(Refusal { reason, detail: format!("{text:?} {why}") });
    if text.starts_with('/') {
        if bare == BarePaths::Refuse {
            return refuse(Reason::NonFileUri, "is a path, not a file:// URI; --bare-paths accepts it");
        }
        return match normalize(text.bytes()) {
            Ok(path) => Ok(path),
            Err(why) => refuse(Reason::MalformedUri, why),
        };
    }
    let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        if text.starts_with(['{', '[', '"']) {
            // An element of a list that is no object with a URI reaches the judge as its JSON.
            return refuse(Reason::MalformedUri, "has no uri that is a string");
        }
        return refuse(Reason::RelativePath, "is not absolute; give a file:// URI or an absolute path");
    };
    if !scheme.eq_ignore_ascii_case("file") {
        return refuse(Reason::NonFileUri, "is not a file:// URI");
    }
    if rest.contains(['#', '?']) {
        // Dropping a fragment or a query would grant a shorter path than the one that was meant.
        return refuse(Reason::MalformedUri, "has a raw # or ?; in a file name write %23 or %3F");
    }
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                return refuse(
                    Reason::RemoteAuthority,
                    "names a host, port or user; only this machine's files are served",
                );
            }
            path
        }
    };
    if path.is_empty() {
        return refuse(Reason::MalformedUri, "names no path");
    }
    if !path.starts_with('/') {
        return refuse(Reason::RelativePath, "has no leading slash in its path; write file:///…");
    }
    match decode(path.as_bytes()).and_then(normalize) {
        Ok(path) => Ok(path),
        Err(why) => refuse(Reason::MalformedUri, why),
    }
}

/// The normalized URI of an absolute path, `file:///…`, in ASCII. [`parse`] gives the path back unless it has `..`
/// components, which are kept here and refused there.
#[must_use]
pub fn to_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for component in components(path.as_os_str().as_bytes()) {
        uri.push('/');
        uri.extend(percent_encode(component, ESCAPED));
    }
    if uri.len() == "file://".len() {
        uri.push('/');
    }
    uri
}

/// RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// Undoes percent escapes, once. An escaped slash or NUL has no meaning in a path: refused, not decoded.
fn decode(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match (digit(), digit()) {
            (Some(high), Some(low)) => match high << 4 | low {
                b'/' => return Err("has an escaped slash (%2F)"),
                byte => decoded.push(byte),
            },
            _ => return Err("has a % that is not followed by two hexadecimal digits"),
        }
    }
    Ok(decoded)
}

/// The components that name something.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|component| !component.is_empty() && *component != b".")
}

fn normalize(path: impl IntoIterator<Item = u8>) -> Result<PathBuf, &'static str> {
    let path: Vec<u8> = path.into_iter().collect();
    if path.contains(&0) {
        return Err("has a NUL byte");
    }
    let mut normal = Vec::with_capacity(path.len());
    for component in components(&path) {
        if component == b".." {
            return Err("has a .. component, which means different things before and after a symbolic link");
        }
        normal.push(b'/');
        normal.extend_from_slice(component);
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    Ok(PathBuf::from(OsString::from_vec(normal)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepted() {
        for (text, path) in [
            ("file:///p", &b"/p"[..]),
            ("FILE://LocalHost/p", b"/p"),
            ("file://localhost/p/", b"/p"),
            ("file:/p", b"/p"),
            ("file:///", b"/"),
            ("file:////", b"/"),
            ("file:///a//b///", b"/a/b"),
            ("file:////server/share", b"/server/share"),
            ("file:///./a/./%2e/b/.", b"/a/b"),
            ("file:///a%20b%C3%a4", b"/a b\xc3\xa4"),
            ("file:///a b\u{e4}", b"/a b\xc3\xa4"),
            ("file:///%ff%FE", b"/\xff\xfe"),
            ("file:///a%2520b", b"/a%20b"),
            ("file:///a%23b%3fc", b"/a#b?c"),
            ("file:///C:/Users", b"/C:/Users"),
            ("file:///c%3A/Users", b"/c:/Users"),
            ("file:///a...b/...", b"/a...b/..."),
            ("file:///a:b@c", b"/a:b@c"),
        ] {
            for bare in [BarePaths::Refuse, BarePaths::Accept] {
                assert_eq!(parse(text, bare).unwrap().as_os_str().as_bytes(), path, "{text}");
            }
        }
        for (text, path) in [("/p//q/", "/p/q"), ("/", "/"), ("/a%20b", "/a%20b"), ("/a#b?c", "/a#b?c"), ("/./a", "/a")]
        {
            assert_eq!(parse(text, BarePaths::Accept).unwrap(), Path::new(path), "{text}");
        }
    }

    #[test]
    fn refused() {
        use Reason::{MalformedUri, NonFileUri, RelativePath, RemoteAuthority};
        for (text, reason) in [
            ("https://example.org/p", NonFileUri),
            ("C:\\Users", NonFileUri),
            ("vscode-remote://x/p", NonFileUri),
            ("", RelativePath),
            ("p", RelativePath),
            ("{\"uri\":3}", MalformedUri),
            ("[]", MalformedUri),
            ("./p", RelativePath),
            ("../p", RelativePath),
            (" file:///p", RelativePath),
            ("file:p", RelativePath),
            ("file:./p", RelativePath),
            ("file://server/p", RemoteAuthority),
            ("file://server", RemoteAuthority),
            ("file://localhost:80/p", RemoteAuthority),
            ("file://user@localhost/p", RemoteAuthority),
            ("file://@/p", RemoteAuthority),
            ("file://:/p", RemoteAuthority),
            ("file://127.0.0.1/p", RemoteAuthority),
            ("file://./p", RemoteAuthority),
            ("file://%6cocalhost/p", RemoteAuthority),
            ("file:", MalformedUri),
            ("file://", MalformedUri),
            ("file://localhost", MalformedUri),
            ("file:///a%2Fb", MalformedUri),
            ("file:///a%2fb", MalformedUri),
            ("file:///a%00", MalformedUri),
            ("file:///a\0", MalformedUri),
            ("file:///a%", MalformedUri),
            ("file:///a%4", MalformedUri),
            ("file:///a%zz", MalformedUri),
            ("file:///a%+1", MalformedUri),
            ("file:///a#b", MalformedUri),
            ("file:///a?b", MalformedUri),
            ("file:///a/../b", MalformedUri),
            ("file:///a/%2e%2E/b", MalformedUri),
            ("file:///a/.%2e", MalformedUri),
            ("file:///..", MalformedUri),
        ] {
            for bare in [BarePaths::Refuse, BarePaths::Accept] {
                let error = parse(text, bare).unwrap_err();
                assert_eq!(error.reason, reason, "{text}: {error}");
            }
        }
        assert_eq!(parse("/p", BarePaths::Refuse).unwrap_err().reason, NonFileUri);
        assert_eq!(parse("/p/../q", BarePaths::Accept).unwrap_err().reason, MalformedUri);
        assert_eq!(parse("/p\0", BarePaths::Accept).unwrap_err().reason, MalformedUri);
    }

    proptest! {
        #[test]
        fn path_to_uri_and_back(names in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..12), 0..6)) {
            let names: Vec<Vec<u8>> = names
                .into_iter()
                .map(|name| name.into_iter().map(|b| if matches!(b, 0 | b'/') { b'x' } else { b }).collect())
                .filter(|name: &Vec<u8>| name != b"." && name != b"..")
                .collect();
            let bytes = [b"/", names.join(&b'/').as_slice()].concat();
            let path = PathBuf::from(OsString::from_vec(bytes));
            let uri = to_uri(&path);
            prop_assert!(uri.is_ascii());
            prop_assert_eq!(parse(&uri, BarePaths::Refuse).unwrap(), path);
        }

        #[test]
        fn any_string_is_judged(text in "(file:|FILE://|file:///|/)?(\\PC|%2[eEfF]|%0|\\.|/|[#?@:])*", accept: bool) {
            let bare = if accept { BarePaths::Accept } else { BarePaths::Refuse };
            if let Ok(path) = parse(&text, bare) {
                prop_assert!(path.is_absolute());
                prop_assert!(!components(path.as_os_str().as_bytes()).any(|c| c == b".."));
                prop_assert!(!path.as_os_str().as_bytes().contains(&0));
                prop_assert_eq!(parse(&to_uri(&path), BarePaths::Refuse).unwrap(), path);
            }
        }
    }
}
