//! Which views run: one JSON file and one socket per view in a private directory of the user.
//!
//! `ID.sock` is the claim on an ID, `ID.json` says that the view is live, `ID` may be its mountpoint. Commands look here
//! before they touch a mount, because a mount may hang and a file in this directory does not.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::mounts;

/// The longest path that `bind(2)` takes, without the NUL (`unix(7)`), less what an ID needs.
const DIRECTORY_MAX: usize = 107 - 16;

/// What the registry says of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) v: u32,
    pub(crate) id: String,
    /// For display and comparison; bytes that are not UTF-8 are replaced.
    pub(crate) mountpoint: String,
    pub(crate) pid: u32,
    /// Where it listens. Not believed from the file: it follows from where the file is.
    #[serde(skip)]
    pub(crate) socket: PathBuf,
}

impl Entry {
    fn read(path: &Path) -> Option<Self> {
        let mut entry: Self = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        entry.socket = path.with_extension("sock");
        Some(entry)
    }

    /// Gone are a view whose process is gone and one whose socket nobody listens on.
    fn is_gone(&self) -> bool {
        !Path::new("/proc").join(self.pid.to_string()).exists() || refused(&self.socket)
    }
}

/// Whether a socket was left behind. A full backlog or a missing permission is not a refusal.
fn refused(socket: &Path) -> bool {
    UnixStream::connect(socket)
        .is_err_and(|error| matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
}

/// The directory of this user's views.
#[derive(Debug)]
pub(crate) struct Runtime {
    directory: PathBuf,
}

impl Runtime {
    /// Finds or makes the directory: `$XDG_RUNTIME_DIR/rootsfs`, `/run/user/UID/rootsfs`, or `rootsfs-UID` in the
    /// temporary directory; mode 0700 and ours, or it is not used.
    ///
    /// # Errors
    /// A sentence: none of them can be used.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let uid = rustix::process::getuid().as_raw();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for directory in candidates(uid) {
            match Self::at(directory, uid) {
                Ok(runtime) => return Ok(runtime),
                Err(error) => last = error,
            }
        }
        Err(last).context("no private directory for the control socket; set XDG_RUNTIME_DIR to one of yours, mode 0700")
    }

    fn at(directory: PathBuf, uid: u32) -> io::Result<Self> {
        if directory.as_os_str().len() > DIRECTORY_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, "the path is too long for a socket"));
        }
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if !is_private(&directory, uid) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a private directory of this user"));
        }
        Ok(Self { directory })
    }

    /// Claims the first free ID and listens on its socket. Leftovers of views that died are taken away first.
    ///
    /// # Errors
    /// What the file system answered.
    pub(crate) fn claim(&self) -> io::Result<Claim> {
        // Held while an ID is chosen: two starts must not both take the place of a dead view.
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.path("lock"))?;
        lock.lock()?;
        self.clean();
        let mut number = 1_u32;
        loop {
            let id = format!("s{number}");
            let socket = self.path(&format!("{id}.sock"));
            match UnixListener::bind(&socket) {
                Ok(listener) => {
                    let claim = Claim { mountpoint: self.path(&id), id, socket, listener: Some(listener) };
                    std::fs::set_permissions(&claim.socket, PermissionsExt::from_mode(0o600))?;
                    return Ok(claim);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Takes away what dead views left: their dead mounts, mountpoints made here, sockets and entries.
    fn clean(&self) {
        for socket in files(&self.directory, "sock").filter(|socket| refused(socket)) {
            let path = socket.with_extension("json");
            let mountpoint = socket.with_extension("");
            for mountpoint in
                [Some(mountpoint), Entry::read(&path).map(|entry| entry.mountpoint.into())].into_iter().flatten()
            {
                if mounts::is_ours(&mountpoint)
                    && mounts::is_dead(&mountpoint)
                    && let Err(error) = mounts::end(&mountpoint)
                {
                    tracing::warn!(mountpoint = %mountpoint.display(), error = %format!("{error:#}"), "a dead mount stays");
                }
            }
            for path in [path, socket.clone()] {
                let _ = std::fs::remove_file(path);
            }
            let _ = std::fs::remove_dir(socket.with_extension(""));
        }
    }
}

/// An ID in use. Dropping it removes the socket and the entry.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) id: String,
    pub(crate) socket: PathBuf,
    /// Where the view may be mounted if nobody said where.
    pub(crate) mountpoint: PathBuf,
    listener: Option<UnixListener>,
}

impl Claim {
    /// The listening socket; there is one.
    pub(crate) fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }

    /// Says that the view is live.
    ///
    /// # Errors
    /// What the file system answered.
    pub(crate) fn announce(&self, mountpoint: &Path) -> io::Result<()> {
        let entry = Entry {
            v: 1,
            id: self.id.clone(),
            mountpoint: mountpoint.to_string_lossy().into_owned(),
            pid: std::process::id(),
            socket: PathBuf::new(),
        };
        let (new, path) = (self.socket.with_extension("new"), self.socket.with_extension("json"));
        let mut file = private_file(&new)?;
        file.write_all(&serde_json::to_vec(&entry)?)?;
        std::fs::rename(new, path)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The entry first: a socket that refuses is what marks a leftover.
        let _ = std::fs::remove_file(self.socket.with_extension("json"));
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The running views of this user; for root, of every user.
pub(crate) fn running() -> Vec<Entry> {
    let uid = rustix::process::getuid().as_raw();
    let mut directories: Vec<(PathBuf, u32)> = candidates(uid).into_iter().map(|path| (path, uid)).collect();
    if uid == 0 {
        directories.extend(everybody());
    }
    directories.retain(|(directory, uid)| is_private(directory, *uid));
    directories.sort();
    directories.dedup();
    let mut entries: Vec<_> = directories
        .iter()
        .flat_map(|(directory, _)| files(directory, "json"))
        .filter_map(|path| Entry::read(&path))
        .filter(|entry| !entry.is_gone())
        .collect();
    entries.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    entries
}

/// The running view at `mountpoint`, as the mount table names it.
pub(crate) fn at(mountpoint: &Path) -> Option<Entry> {
    running().into_iter().find(|entry| entry.mountpoint == mountpoint.to_string_lossy())
}

fn candidates(uid: u32) -> Vec<PathBuf> {
    let xdg = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_login = PathBuf::from(format!("/run/user/{uid}"));
    let mut directories: Vec<_> = xdg
        .into_iter()
        .chain([of_login])
        .filter(|path| path.metadata().is_ok_and(|metadata| metadata.uid() == uid))
        .map(|path| path.join("rootsfs"))
        .collect();
    directories.push(std::env::temp_dir().join(format!("rootsfs-{uid}")));
    directories
}

fn everybody() -> Vec<(PathBuf, u32)> {
    let numbered = |parent: PathBuf, prefix: &'static str| {
        std::fs::read_dir(parent).into_iter().flatten().flatten().filter_map(move |entry| {
            let uid = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((entry.path(), uid))
        })
    };
    let of_login = numbered("/run/user".into(), "").map(|(path, uid)| (path.join("rootsfs"), uid));
    of_login.chain(numbered(std::env::temp_dir(), "rootsfs-")).collect()
}

fn is_private(directory: &Path, uid: u32) -> bool {
    directory
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid && metadata.mode().trailing_zeros() >= 6)
}

/// Lists by name only: an entry may be a mountpoint, and is not stat'ed.
fn files(directory: &Path, extension: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(move |path| path.extension().is_some_and(|found| found == extension))
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(directory: &Path) -> Runtime {
        Runtime::at(directory.join("rootsfs"), rustix::process::getuid().as_raw()).unwrap()
    }

    fn entries(runtime: &Runtime) -> Vec<Entry> {
        files(&runtime.directory, "json")
            .filter_map(|path| Entry::read(&path))
            .filter(|entry| !entry.is_gone())
            .collect()
    }

    #[test]
    fn a_claim_lives_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = runtime(directory.path());
        let (first, second) = (runtime.claim().unwrap(), runtime.claim().unwrap());
        assert_eq!((first.id.as_str(), second.id.as_str()), ("s1", "s2"));
        assert!(entries(&runtime).is_empty(), "not live before it is announced");
        second.announce(Path::new("/somewhere")).unwrap();
        let found = entries(&runtime);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].mountpoint.as_str(), found[0].pid), ("/somewhere", std::process::id()));
        assert_eq!(found[0].socket, second.socket);
        for name in ["s2.json", "s2.sock", "lock"] {
            assert_eq!(runtime.path(name).metadata().unwrap().mode() & 0o777, 0o600, "{name}");
        }
        drop(second);
        assert!(entries(&runtime).is_empty());
        assert_eq!(runtime.claim().unwrap().id, "s2");
    }

    #[test]
    fn leftovers_are_not_running_and_are_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = runtime(directory.path());
        let mut claim = runtime.claim().unwrap();
        claim.announce(Path::new("/somewhere")).unwrap();
        std::fs::create_dir(&claim.mountpoint).unwrap();
        drop(claim.take_listener());
        assert!(entries(&runtime).is_empty(), "nobody listens");
        std::mem::forget(claim);
        assert_eq!(runtime.claim().unwrap().id, "s1");
        assert!(!runtime.path("s1").exists() && !runtime.path("s1.json").exists());
    }

    #[test]
    fn a_directory_that_others_may_enter_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::getuid().as_raw();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(Runtime::at(open, uid).is_err());
        std::os::unix::fs::symlink("elsewhere", directory.path().join("link")).unwrap();
        assert!(Runtime::at(directory.path().join("link"), uid).is_err());
        assert!(Runtime::at("/tmp".into(), uid).is_err());
    }
}
