//! Extended attributes of the object behind an `O_PATH` descriptor, by its magic link (`xattr(7)`).

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::XattrFlags;
use rustix::io::{self, Errno};

/// The largest value or list the kernel hands out, in bytes (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`, `linux/limits.h`).
const XATTR_MAX: usize = 65536;

fn path(object: impl AsFd) -> CString {
    super::at::Magic::of(object).path()
}

fn attribute(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

pub(crate) fn get_xattr(object: impl AsFd, name: &OsStr) -> io::Result<Vec<u8>> {
    let (path, name) = (path(object), attribute(name)?);
    let name: &CStr = &name;
    let mut value = vec![0; rustix::fs::getxattr_query(path.as_c_str(), name)?.min(XATTR_MAX)];
    loop {
        match rustix::fs::getxattr(path.as_c_str(), name, value.as_mut_slice()) {
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
            // It grew between the two calls.
            Err(Errno::RANGE) if value.len() < XATTR_MAX => value.resize(XATTR_MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
}

pub(crate) fn list_xattrs(object: impl AsFd) -> io::Result<Vec<u8>> {
    let path = path(object);
    let mut list = vec![0; rustix::fs::listxattr_query(path.as_c_str())?.min(XATTR_MAX)];
    loop {
        match rustix::fs::listxattr(path.as_c_str(), list.as_mut_slice()) {
            Ok(len) => {
                list.truncate(len);
                return Ok(list);
            }
            Err(Errno::RANGE) if list.len() < XATTR_MAX => list.resize(XATTR_MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
}

pub(crate) fn set_xattr(object: impl AsFd, name: &OsStr, value: &[u8], flags: u32) -> io::Result<()> {
    let (path, name) = (path(object), attribute(name)?);
    rustix::fs::setxattr(path.as_c_str(), name.as_c_str(), value, XattrFlags::from_bits_retain(flags))
}

pub(crate) fn remove_xattr(object: impl AsFd, name: &OsStr) -> io::Result<()> {
    let (path, name) = (path(object), attribute(name)?);
    rustix::fs::removexattr(path.as_c_str(), name.as_c_str())
}
