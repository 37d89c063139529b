//! Error numbers, and which of them the device's answers are.
#![allow(unsafe_code)]

use srd_device::DeviceError;
use srd_net::{Unavailable, log};
use std::cell::Cell;

/// An error number, of the system or of a library of its own, without its sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub libc::c_int);

/// What most functions come to.
pub type Outcome<T> = Result<T, Errno>;

#[allow(missing_docs)] // the system's names
impl Errno {
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const INVALID: Errno = Errno(libc::EINVAL);
    pub const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    pub const NO_SYS: Errno = Errno(libc::ENOSYS);
    pub const NO_DATA: Errno = Errno(libc::ENODATA);
    pub const NO_ENTRY: Errno = Errno(libc::ENOENT);
    pub const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const IO: Errno = Errno(libc::EIO);
    pub const FAULT: Errno = Errno(libc::EFAULT);

    /// The calling thread's `errno`.
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Makes it the calling thread's `errno`.
    pub fn set(self) {
        // SAFETY: the pointer is to the calling thread's own `errno`.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

impl From<DeviceError> for Errno {
    fn from(error: DeviceError) -> Errno {
        log::debug(format_args!("refused: {error}"));
        match error {
            DeviceError::Invalid(_) | DeviceError::NotFound(_) => Errno::INVALID,
            DeviceError::Full(_) => Errno::NO_MEMORY,
            DeviceError::Unsupported(_) => Errno::UNSUPPORTED,
            DeviceError::Busy(_) => Errno::BUSY,
        }
    }
}

thread_local! {
    /// A call that closes something is under way.
    static CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call that closes something.
pub fn closing<T>(call: impl FnOnce() -> T) -> T {
    let before = CLOSING.replace(true);
    let closed = call();
    CLOSING.set(before);
    closed
}

impl From<Unavailable> for Errno {
    #[cold]
    fn from(unavailable: Unavailable) -> Errno {
        match unavailable {
            Unavailable::Forked => {
                // A child that only exits closes what libraries have opened: nothing that its program ought to change.
                if !CLOSING.get() {
                    log::once(log::Level::Warn, "forked", format_args!("{unavailable}"));
                }
                Errno::IO
            }
            // Mostly the handler has called exit(), and nobody can do anything about it.
            Unavailable::Interrupted => {
                log::debug(format_args!("{unavailable}"));
                Errno::BUSY
            }
            // It has been said when it happened.
            Unavailable::Failed => Errno::IO,
        }
    }
}
