//! Inode flags, which arrive as the ioctls that `chattr(1)` and `lsattr(1)` make.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::core::{Answer, Call, Core, Ends};
use super::files::FileAt;
use crate::authorize::{Ask, Op};
use crate::sys::{self, Caller, Kind};

/// What is asked of an inode's flags. Every other ioctl of the view is ENOTTY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagsRequest {
    /// `FS_IOC_GETFLAGS`.
    Get,
    /// `FS_IOC_SETFLAGS`.
    Set(u32),
    /// `FS_IOC_FSGETXATTR`.
    GetExtended,
    /// `FS_IOC_FSSETXATTR`.
    SetExtended(sys::ExtendedFlags),
}

/// The answer: flags, or what `struct fsxattr` holds, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flags {
    Plain(u32),
    Extended(sys::ExtendedFlags),
    Done,
}

impl Core {
    pub(crate) fn flags(&self, caller: Caller, at: FileAt, request: FlagsRequest) -> Result<Answer<Flags>, Errno> {
        let op = match request {
            FlagsRequest::Get | FlagsRequest::GetExtended => Op::Stat,
            FlagsRequest::Set(_) | FlagsRequest::SetExtended(_) => Op::Setattr,
        };
        let call = self.admit(caller, op, at.node)?;
        if call.is_top() {
            return Err(Errno::NOTTY);
        }
        let ends = Ends::of(&call);
        self.authorize(&ends, &Ask::new(op, call.place()))?;
        let object = self.to_ask(&call, at.handle)?;
        if let (Ok((tree, inode)), true) = (call.inside(), op.changes()) {
            // An immutable file, or one that may only be appended to, is not opened for writing again.
            Self::hold_open(tree, inode.node, &call.descriptor()?)?;
        }
        let flags = {
            let _acting = sys::act_as(&caller, None)?;
            match request {
                FlagsRequest::Get => sys::inode_flags(&*object).map(Flags::Plain),
                FlagsRequest::GetExtended => sys::extended_flags(&*object).map(Flags::Extended),
                FlagsRequest::Set(flags) => sys::set_inode_flags(&*object, flags).map(|()| Flags::Done),
                FlagsRequest::SetExtended(flags) => sys::set_extended_flags(&*object, flags).map(|()| Flags::Done),
            }
        };
        let flags = if op.changes() { self.done(&ends, op, flags) } else { flags }?;
        call.answer(flags)
    }

    /// A descriptor that takes an ioctl: the handle's, or one opened to read.
    fn to_ask(&self, call: &Call, handle: u64) -> Result<Arc<OwnedFd>, Errno> {
        let (_, inode) = call.inside()?;
        match inode.kind {
            Kind::File => self.serve(call, handle, OFlags::RDONLY),
            Kind::Directory => {
                let open = || sys::reopen(&*call.descriptor()?, OFlags::RDONLY | OFlags::DIRECTORY);
                self.with_room(open).map(Arc::new)
            }
            _ => Err(Errno::NOTTY),
        }
    }
}
