//! A path of the host, outside every root, that the operator lets links be followed to.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Name;
use super::walk::MAX_LINKS;
use crate::sys::{self, Kind, Mounts};

/// The canonical path of what an absolute path leads to.
///
/// It is walked one descriptor at a time rather than by `realpath(3)`, so that no file system of rootsfs is entered: its
/// answer might wait for the very thread that asks.
///
/// # Errors
/// EXDEV at a mount of rootsfs, ELOOP after 40 links, else what a step answered.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, Errno> {
    let top = sys::open_directory(Path::new("/")).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut stack: Vec<(Name, OwnedFd)> = Vec::new();
    let mut pending: VecDeque<Vec<u8>> = components(path.as_os_str().as_bytes()).collect();
    let mut links = 0;
    while let Some(component) = pending.pop_front() {
        if component == b".." {
            stack.pop();
            continue;
        }
        let name = Name::new(component).map_err(|_| Errno::INVAL)?;
        let dir = stack.last().map_or(top.as_fd(), |(_, fd)| fd.as_fd());
        let fd = sys::open_child(dir, &name, Mounts { cross: true })?;
        if sys::stat_without_sync(&fd)?.kind != Kind::Symlink {
            stack.push((name, fd));
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let text = sys::link_text(&fd)?;
        if text.starts_with(b"/") {
            stack.clear();
        }
        for component in components(&text).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(component);
        }
    }
    Ok(Path::new("/").join(stack.iter().map(|(name, _)| name.as_os_str()).collect::<PathBuf>()))
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::write(base.join("a/b/f"), "").unwrap();
        symlink("a/b", base.join("l")).unwrap();
        symlink(base.join("l/../b/f"), base.join("m")).unwrap();
        symlink("o", base.join("o")).unwrap();
        for (path, expected) in [
            ("l/f", Ok("a/b/f")),
            ("m", Ok("a/b/f")),
            ("l/../../a", Ok("a")),
            ("a/b/f/x", Err(Errno::NOTDIR)),
            ("none", Err(Errno::NOENT)),
            ("o", Err(Errno::LOOP)),
        ] {
            assert_eq!(canonical(&base.join(path)), expected.map(|path| base.join(path)), "{path}");
        }
        assert_eq!(canonical(Path::new("/")), Ok("/".into()));
    }
}
