//! Directory streams.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::fs::{RawDir, SeekFrom};
use rustix::io;

use super::stat::Kind;

/// One entry of a directory stream, `.` and `..` included.
#[derive(Clone, Debug)]
pub(crate) struct DirEntry {
    pub(crate) name: Box<[u8]>,
    pub(crate) ino: u64,
    pub(crate) kind: Option<Kind>,
    /// The cookie at which the stream goes on after this entry; the backing file system's own.
    pub(crate) next: u64,
}

/// Reads one batch with `getdents64(2)`; empty at the end.
pub(crate) fn read_dir(dir: impl AsFd, buffer: &mut [MaybeUninit<u8>]) -> io::Result<Vec<DirEntry>> {
    let mut stream = RawDir::new(dir, buffer);
    let mut entries = Vec::new();
    while let Some(entry) = stream.next() {
        let entry = entry?;
        let file_type = entry.file_type();
        entries.push(DirEntry {
            name: entry.file_name().to_bytes().into(),
            ino: entry.ino(),
            kind: (file_type != rustix::fs::FileType::Unknown).then(|| Kind::from_file_type(file_type)),
            next: entry.next_entry_cookie(),
        });
        if stream.is_buffer_empty() {
            break;
        }
    }
    Ok(entries)
}

/// Puts a stream at a cookie that [`read_dir`] gave, or at 0.
pub(crate) fn seek_dir(dir: impl AsFd, cookie: u64) -> io::Result<()> {
    rustix::fs::seek(dir, SeekFrom::Start(cookie)).map(drop)
}
