//! The edge to C: how a function reports failure, that no panic crosses, and what stands in the slots of operations that
//! there are not.

use crate::constants::*;
use libc::{c_int, ssize_t};
use srd_device::DeviceError;
use srd_msg::Refused;
use srd_net::log;
use srd_net::{Instance, Unavailable};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error number, of the system or of libfabric, without its sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub c_int);

impl Errno {
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const INVALID: Errno = Errno(libc::EINVAL);
    pub const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    pub const NO_SYS: Errno = Errno(libc::ENOSYS);
    pub const NO_DATA: Errno = Errno(libc::ENODATA);
    pub const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const IO: Errno = Errno(libc::EIO);
    pub const BAD_FLAGS: Errno = Errno(FI_EBADFLAGS);
    pub const TOO_SMALL: Errno = Errno(FI_ETOOSMALL);
    pub const BAD_STATE: Errno = Errno(FI_EOPBADSTATE);
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

impl From<Unavailable> for Errno {
    #[cold]
    fn from(barred: Unavailable) -> Errno {
        match barred {
            Unavailable::Forked => {
                // A child that only exits closes what libraries have opened: nothing that its program ought to change.
                if !CLOSING.get() {
                    log::once(log::Level::Warn, "forked", format_args!("{barred}"));
                }
                Errno::IO
            }
            // Mostly the handler has called exit(), and nobody can do anything about it.
            Unavailable::Interrupted => {
                log::debug(format_args!("{barred}"));
                Errno::BUSY
            }
            // It has been said when it happened.
            Unavailable::Failed => Errno::IO,
        }
    }
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Errno {
        if refused != Refused::Again {
            log::debug(format_args!("refused: {refused:?}"));
        }
        match refused {
            Refused::Again => Errno::AGAIN,
            Refused::NotClaimed => Errno(libc::ENOMSG),
            Refused::TooLong => Errno(libc::EMSGSIZE),
            Refused::Invalid(_) => Errno::INVALID,
            Refused::Unsupported(_) => Errno::UNSUPPORTED,
            Refused::KeyTaken => Errno(FI_ENOKEY),
            Refused::NoMemory(_) => Errno::NO_MEMORY,
        }
    }
}

thread_local! {
    /// A call that closes something is under way.
    static CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// What most functions come to.
pub(crate) type Outcome<T> = Result<T, Errno>;

#[inline]
fn guarded<T>(name: &str, body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(_) => {
            log::error(format_args!("{name}: internal error (the message is above); please report it"));
            // If it was inside the device, that has failed already; otherwise something of ours is half changed.
            Instance::fail_all();
            None
        }
    }
}

/// A function that returns 0 or the negative error number.
#[inline]
pub(crate) fn status(name: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    number(name, || body().map(|()| 0))
}

/// The same for one that closes something.
pub(crate) fn closing(name: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    let before = CLOSING.replace(true);
    let closed = status(name, body);
    CLOSING.set(before);
    closed
}

/// A function that returns a number, or the negative error number.
#[inline]
pub(crate) fn number(name: &str, body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    match guarded(name, body) {
        Some(Ok(value)) => value,
        Some(Err(errno)) => {
            say_refused(name, errno);
            -errno.0
        }
        None => -libc::EIO,
    }
}

/// A function of the data path that returns 0 or the negative error number.
#[inline]
pub(crate) fn posted(name: &str, body: impl FnOnce() -> Outcome<()>) -> ssize_t {
    count(name, || body().map(|()| 0))
}

/// A function of the data path that returns how many, or the negative error number.
#[inline]
pub(crate) fn count(name: &str, body: impl FnOnce() -> Outcome<usize>) -> ssize_t {
    match guarded(name, body) {
        Some(Ok(value)) => value as ssize_t,
        Some(Err(errno)) => -(errno.0 as ssize_t),
        None => -(libc::EIO as ssize_t),
    }
}

/// A function that cannot report failure: it returns `otherwise` then.
#[inline]
pub(crate) fn value_or<T>(name: &str, otherwise: T, body: impl FnOnce() -> T) -> T {
    guarded(name, body).unwrap_or(otherwise)
}

#[cold]
fn say_refused(name: &str, errno: Errno) {
    log::debug(format_args!("{name}: {errno:?}"));
}

/// Defines functions that C calls through a table of operations.
///
/// ```text
/// abi! { status fn bind(fid: *mut fid, …) { … Outcome<()> } }       0 or -errno
/// abi! { closing fn close_cq(fid: *mut fid) { … Outcome<()> } }     the same; not worth a warning in a forked child
/// abi! { number fn insert(av: *mut fid_av, …) { … Outcome<c_int> } }
/// abi! { posted fn send(ep: *mut fid_ep, …) { … Outcome<()> } }     as ssize_t, and not logged
/// abi! { count fn read(cq: *mut fid_cq, …) { … Outcome<usize> } }
/// ```
macro_rules! abi {
    ($($(#[$meta:meta])* $kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(abi!(@$kind [$($meta)*] $name($($arg: $type),*) $body);)*
    };
    (@status $($rest:tt)*) => { abi!(@function status libc::c_int $($rest)*); };
    (@closing $($rest:tt)*) => { abi!(@function closing libc::c_int $($rest)*); };
    (@number $($rest:tt)*) => { abi!(@function number libc::c_int $($rest)*); };
    (@posted $($rest:tt)*) => { abi!(@function posted libc::ssize_t $($rest)*); };
    (@count $($rest:tt)*) => { abi!(@function count libc::ssize_t $($rest)*); };
    (@function $kind:ident $ret:ty [$($meta:meta)*] $name:ident($($args:tt)*) $body:block) => {
        $(#[$meta])*
        #[allow(unused_unsafe)]
        pub(crate) unsafe extern "C" fn $name($($args)*) -> $ret {
            $crate::boundary::$kind(stringify!($name), || {
                // SAFETY: the program keeps the contract of the function's manual page: every pointer is NULL where that
                // is allowed, or comes from the call that makes such objects and has not been closed, arrays have the
                // length that goes with them, and no other thread closes what this call uses.
                unsafe { $body }
            })
        }
    };
}
pub(crate) use abi;

/// The object of ours that a pointer from C leads to; EINVAL for NULL.
///
/// # Safety
/// The pointer is NULL or points to a live `T`, which stays alive for `'a`.
#[inline]
pub(crate) unsafe fn object<'a, C, T>(pointer: *mut C) -> Outcome<&'a T> {
    // SAFETY: as the caller says.
    unsafe { pointer.cast::<T>().as_ref() }.ok_or(Errno::INVALID)
}

/// What a pointer from C leads to; EINVAL for NULL.
///
/// # Safety
/// The pointer is NULL or points to a live `C`, which stays alive for `'a` and which nobody writes to meanwhile.
#[inline]
pub(crate) unsafe fn readable<'a, C>(pointer: *const C) -> Outcome<&'a C> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
}

/// As [`readable`], for what is to be filled in.
///
/// # Safety
/// The pointer is NULL or points to a `C` that nobody else uses for `'a`.
#[inline]
pub(crate) unsafe fn writable<'a, C>(pointer: *mut C) -> Outcome<&'a mut C> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVALID)
}

/// A text from C; none for NULL.
///
/// # Safety
/// The pointer is NULL or points to a string that ends with a zero.
pub(crate) unsafe fn text<'a>(pointer: *const libc::c_char) -> Outcome<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    unsafe { std::ffi::CStr::from_ptr(pointer) }.to_str().map(Some).map_err(|_| Errno::INVALID)
}

/// An array from C; empty if there are none.
///
/// # Safety
/// `count` elements at `pointer` are live for `'a`, and nobody writes to them meanwhile.
#[inline]
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize) -> Outcome<&'a [T]> {
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::INVALID),
        // SAFETY: as the caller says.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Something to put into the slot of an operation that there is not: it returns -FI_ENOSYS.
pub(crate) trait Absent {
    /// The function.
    const ABSENT: Self;
}

/// What such an operation returns.
trait Answer {
    const NO_SYS: Self;
}

impl Answer for c_int {
    const NO_SYS: c_int = -libc::ENOSYS;
}

impl Answer for ssize_t {
    const NO_SYS: ssize_t = -(libc::ENOSYS as ssize_t);
}

macro_rules! absent {
    ($($type:ident)*) => {
        #[allow(private_bounds)]
        impl<R: Answer, $($type),*> Absent for unsafe extern "C" fn($($type),*) -> R {
            const ABSENT: Self = {
                #[allow(non_snake_case)]
                unsafe extern "C" fn absent<R: Answer, $($type),*>($(_: $type),*) -> R {
                    R::NO_SYS
                }
                absent::<R, $($type),*>
            };
        }
    };
}
absent!(A);
absent!(A B);
absent!(A B C);
absent!(A B C D);
absent!(A B C D E);
absent!(A B C D E F);
absent!(A B C D E F G);
absent!(A B C D E F G H);
absent!(A B C D E F G H I);
absent!(A B C D E F G H I J);
absent!(A B C D E F G H I J K);
absent!(A B C D E F G H I J K L);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_number() {
        assert_eq!(status("test", || panic!("on purpose")), -libc::EIO);
        assert_eq!(count("test", || panic!("on purpose")), -(libc::EIO as ssize_t));
        assert_eq!(value_or("test", 7, || panic!("on purpose")), 7);
    }

    #[test]
    fn an_absent_operation_says_so() {
        let absent: unsafe extern "C" fn(u64, *mut u8) -> c_int = Absent::ABSENT;
        // SAFETY: it looks at nothing.
        assert_eq!(unsafe { absent(1, std::ptr::null_mut()) }, -libc::ENOSYS);
    }
}
