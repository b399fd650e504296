//! Data of open files.

use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{self, Errno, ReadWriteFlags};

/// Fills `buffer` from `offset` as far as the file goes; fewer bytes only at its end.
pub(crate) fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(&file, rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Writes all of `data`, or says how much went before the error.
pub(crate) fn write_at(file: impl AsFd, data: &[u8], offset: u64, append: bool) -> io::Result<usize> {
    let flags = if append { ReadWriteFlags::APPEND } else { ReadWriteFlags::empty() };
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwritev2(&file, &[IoSlice::new(rest)], offset + done as u64, flags) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

pub(crate) fn truncate(file: impl AsFd, size: u64) -> io::Result<()> {
    rustix::fs::ftruncate(file, size)
}

pub(crate) fn sync(file: impl AsFd, data_only: bool) -> io::Result<()> {
    if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
}

pub(crate) fn allocate(file: impl AsFd, mode: u32, offset: u64, len: u64) -> io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode), offset, len)
}

/// `SEEK_DATA` or `SEEK_HOLE`; EINVAL for anything else, which the kernel answers without asking.
pub(crate) fn seek_extent(file: impl AsFd, offset: u64, whence: i32) -> io::Result<u64> {
    match whence {
        libc::SEEK_DATA => rustix::fs::seek(file, SeekFrom::Data(offset)),
        libc::SEEK_HOLE => rustix::fs::seek(file, SeekFrom::Hole(offset)),
        _ => Err(Errno::INVAL),
    }
}

pub(crate) fn copy_range(from: (impl AsFd, u64), to: (impl AsFd, u64), len: usize) -> io::Result<usize> {
    let (mut in_offset, mut out_offset) = (from.1, to.1);
    rustix::fs::copy_file_range(from.0, Some(&mut in_offset), to.0, Some(&mut out_offset), len)
}

/// What closing a program's descriptor would report, of one that stays open: errors that a network or quota file system
/// kept until then (`close(2)`).
pub(crate) fn flush(file: impl AsFd) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    let copy = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
    // SAFETY: the raw descriptor was just taken out of its owner, so it is closed once and used by nobody else.
    #[allow(unsafe_code)]
    let closed = unsafe { libc::close(copy.into_raw_fd()) };
    if closed == 0 {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(code))
}
