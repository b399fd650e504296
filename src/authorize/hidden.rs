//! What the operator hides in every root (`--hide`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use globset::{GlobBuilder, GlobMatcher};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::resolve::Name;

/// Patterns in the syntax of `gitignore(5)`, each relative to every root. A later one overrides an earlier one; one that
/// begins with `!` shows what an earlier one hides, unless a directory above it is hidden.
#[derive(Clone, Debug, Default)]
pub struct Hidden {
    /// None when nothing is hidden.
    matcher: Option<Gitignore>,
    patterns: Vec<Pattern>,
}

/// A pattern that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is no pattern of gitignore(5): {detail}")]
pub struct PatternError {
    /// The pattern as it was given.
    pub pattern: String,
    /// What is wrong with it.
    pub detail: String,
}

impl Hidden {
    /// Reads patterns, in the order in which they override each other.
    ///
    /// # Errors
    /// [`PatternError`] for the first that cannot be read, or that can match nothing: an empty one, or a comment.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        // A root's own path plays no part: only what is below it is matched.
        let mut builder = GitignoreBuilder::new("");
        let mut read = Vec::new();
        for pattern in patterns {
            let wrong = |detail: String| PatternError { pattern: pattern.to_owned(), detail };
            if pattern.trim_matches(['!', '/', ' ']).is_empty() || pattern.starts_with('#') {
                return Err(wrong("it matches nothing (a name that begins with # or ! is written \\# or \\!)".into()));
            }
            builder.add_line(None, pattern).map_err(|error| wrong(error.to_string()))?;
            read.push(Pattern::new(pattern).map_err(|error| wrong(error.to_string()))?);
        }
        if read.is_empty() {
            return Ok(Self::default());
        }
        let whole = |error: ignore::Error| PatternError { pattern: String::new(), detail: error.to_string() };
        Ok(Self { matcher: Some(builder.build().map_err(whole)?), patterns: read })
    }

    /// Whether nothing is hidden.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.matcher.is_none()
    }

    /// Whether these names, from a root down, lead to something that is hidden. The directories above it are not judged:
    /// whoever comes here has come through them.
    #[must_use]
    pub fn hides<'a>(&self, names: impl IntoIterator<Item = &'a Name>, directory: bool) -> bool {
        let Some(matcher) = &self.matcher else { return false };
        let path: PathBuf = names.into_iter().map(Name::as_os_str).collect();
        // The root itself is what the list is about.
        !path.as_os_str().is_empty() && matcher.matched(path, directory).is_ignore()
    }

    /// Whether these names cannot be gone through to their end, whatever stands there: something on the way is hidden.
    #[must_use]
    pub fn hides_way(&self, names: &[Name]) -> bool {
        (1..=names.len()).any(|end| self.hides(names.iter().take(end), true)) || self.hides(names, false)
    }

    /// Whether something below a directory that is hidden there might be shown if the directory stood elsewhere.
    #[must_use]
    pub fn shows_by_moving(&self, from: &[Name], to: &[Name]) -> bool {
        let within = |few: &[usize], many: &[usize]| few.iter().all(|state| many.contains(state));
        self.patterns.iter().any(|pattern| {
            let (here, there) = (pattern.after(from), pattern.after(to));
            if pattern.shows { !within(&there, &here) } else { !within(&here, &there) }
        })
    }
}

/// A pattern component by component: what is left of it below a directory says what it can match there.
#[derive(Clone, Debug)]
struct Pattern {
    /// It begins with `!`.
    shows: bool,
    components: Vec<Component>,
}

#[derive(Clone, Debug)]
enum Component {
    /// `**`: any number of names.
    Any,
    One(GlobMatcher),
}

impl Pattern {
    fn new(text: &str) -> Result<Self, globset::Error> {
        let (shows, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let text = text.strip_suffix('/').unwrap_or(text);
        let mut components = Vec::new();
        // Without a slash but at its end it matches at any depth (gitignore(5)).
        if !text.contains('/') {
            components.push(Component::Any);
        }
        for part in text.split('/').filter(|part| !part.is_empty()) {
            components.push(match part {
                "**" => Component::Any,
                part => Component::One(
                    GlobBuilder::new(part).literal_separator(true).backslash_escape(true).build()?.compile_matcher(),
                ),
            });
        }
        Ok(Self { shows, components })
    }

    /// The components from which the pattern may go on below these names.
    fn after(&self, names: &[Name]) -> Vec<usize> {
        let mut states = self.with_skipped(vec![0]);
        for name in names {
            let name = OsStr::from_bytes(name.as_bytes());
            let step = |state: usize| match self.components.get(state)? {
                Component::Any => Some(state),
                Component::One(glob) => glob.is_match(name).then_some(state + 1),
            };
            states = self.with_skipped(states.into_iter().filter_map(step).collect());
        }
        states.retain(|state| *state < self.components.len());
        states
    }

    /// A `**` may match no name at all.
    fn with_skipped(&self, mut states: Vec<usize>) -> Vec<usize> {
        let mut at = 0;
        while let Some(state) = states.get(at).copied() {
            if matches!(self.components.get(state), Some(Component::Any)) && !states.contains(&(state + 1)) {
                states.push(state + 1);
            }
            at += 1;
        }
        states.sort_unstable();
        states.dedup();
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<Name> {
        path.split('/').filter(|name| !name.is_empty()).map(|name| Name::new(name).unwrap()).collect()
    }

    fn hidden(patterns: &[&str]) -> Hidden {
        Hidden::new(patterns.iter().copied()).unwrap()
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let some = hidden(&[".env", "*.pem", "!public.pem", "secrets/", "/top", "/conf/*.key", "a/**/z"]);
        for (path, directory, expected) in [
            ("", true, false),
            (".env", false, true),
            ("deep/down/.env", false, true),
            ("x.pem", false, true),
            ("public.pem", false, false),
            ("secrets", true, true),
            ("secrets", false, false),
            ("deep/secrets", true, true),
            ("top", false, true),
            ("deep/top", false, false),
            ("conf/a.key", false, true),
            ("a.key", false, false),
            ("deep/conf/a.key", false, false),
            ("a/b/c/z", false, true),
            ("a/z", false, true),
            ("z", false, false),
        ] {
            assert_eq!(some.hides(&names(path), directory), expected, "{path}");
        }
        assert!(!Hidden::default().hides(&names("a"), false));
    }

    #[test]
    fn a_move_must_not_show_what_is_below() {
        for (patterns, from, to, expected) in [
            (&[".env", "secrets/", "**/deep"][..], "a", "b/c", false),
            (&["/conf/*.key"], "conf", "open", true),
            (&["/conf/*.key"], "x", "y", false),
            (&["/conf/*.key"], "open", "conf", false),
            (&["/conf/sub/x"], "conf/sub", "conf/other", true),
            (&["/conf/sub/x"], "conf/tub", "conf/other", false),
            (&["**/conf/*.key"], "a/conf", "a/open", true),
            (&["**/conf/*.key"], "a", "b", false),
            (&["**/conf/*.key"], "a/conf", "b/conf", false),
            (&["a/**/z"], "a", "b", true),
            (&["a/**/z"], "a/b", "a/c", false),
            (&["a/**"], "b", "c", false),
            (&["*.env", "!/public/*.env"], "conf", "public", true),
            (&["*.env", "!/public/*.env"], "conf", "private", false),
        ] {
            assert_eq!(
                hidden(patterns).shows_by_moving(&names(from), &names(to)),
                expected,
                "{patterns:?} {from} {to}"
            );
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["", "  ", "# comment", "a{b", "x[", "/", "!", "!/"] {
            let result = Hidden::new([pattern]);
            assert!(result.is_err(), "{pattern:?}: {result:?}");
        }
    }
}
