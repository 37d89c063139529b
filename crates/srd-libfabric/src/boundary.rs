//! The edge to C: how a function of libfabric's tables reports failure, and what stands in the slots of operations that
//! there are not.

use crate::constants::*;
use crate::layout::fi_ops;
use libc::{c_int, ssize_t};
use srd_ffi::{guarded, told};
use srd_msg::Refused;
use srd_net::log;

pub(crate) use srd_ffi::{Errno, Outcome, abi, object, readable, writable};

/// What the messaging layer's answers are to libfabric.
pub(crate) fn refused(refused: Refused) -> Errno {
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
        Refused::MemoryGone => Errno::FAULT,
    }
}

/// A function that returns 0 or the negative error number.
#[inline]
pub(crate) fn status(name: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    number(name, || body().map(|()| 0))
}

/// The same for one that closes something.
pub(crate) fn closing(name: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    srd_ffi::closing(|| status(name, body))
}

/// A function that returns a number, or the negative error number.
#[inline]
pub(crate) fn number(name: &str, body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    told(name, body).unwrap_or_else(|errno| -errno.0)
}

/// A function of the data path that returns 0 or the negative error number.
#[inline]
pub(crate) fn posted(name: &str, body: impl FnOnce() -> Outcome<()>) -> ssize_t {
    count(name, || body().map(|()| 0))
}

/// A function of the data path that returns how many, or the negative error number.
#[inline]
pub(crate) fn count(name: &str, body: impl FnOnce() -> Outcome<usize>) -> ssize_t {
    guarded(name, body).map_or_else(|errno| -(errno.0 as ssize_t), |n| n as ssize_t)
}

/// A function that cannot report failure: it returns its type's zero then.
#[inline]
pub(crate) fn value<T: Default>(name: &str, body: impl FnOnce() -> T) -> T {
    value_or(name, T::default(), body)
}

/// The same with another value.
#[inline]
pub(crate) fn value_or<T>(name: &str, otherwise: T, body: impl FnOnce() -> T) -> T {
    guarded(name, || Ok(body())).unwrap_or(otherwise)
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

/// Copies as much of a text as fits into the program's buffer, if there is one, and returns where to read it.
///
/// # Safety
/// `len` bytes at `buf` may be written, unless it is NULL.
pub(crate) unsafe fn copy_text(
    text: &'static std::ffi::CStr,
    buf: *mut libc::c_char,
    len: usize,
) -> *const libc::c_char {
    if buf.is_null() || len == 0 {
        return text.as_ptr();
    }
    let n = text.count_bytes().min(len - 1);
    // SAFETY: as the caller says.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buf, n);
        *buf.add(n) = 0;
    }
    buf
}

/// The same for a text that is made for the occasion; `len` says afterwards how much room it needs.
///
/// # Safety
/// `*len` bytes at `buf` may be written, unless it is NULL.
pub(crate) unsafe fn copy_out_text(
    text: &str,
    buf: *mut libc::c_char,
    len: *mut usize,
) -> *const libc::c_char {
    // SAFETY: as the caller says.
    unsafe {
        let Some(len) = len.as_mut() else { return std::ptr::null() };
        let room = std::mem::replace(len, text.len() + 1);
        if !buf.is_null() && room > 0 {
            let n = text.len().min(room - 1);
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, n);
            *buf.add(n) = 0;
        }
    }
    buf
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

impl fi_ops {
    /// None of the operations that most objects have.
    pub const ABSENT: fi_ops = fi_ops {
        size: size_of::<fi_ops>(),
        close: Absent::ABSENT,
        bind: Absent::ABSENT,
        control: Absent::ABSENT,
        ops_open: Absent::ABSENT,
        tostr: Absent::ABSENT,
        ops_set: Absent::ABSENT,
    };
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
