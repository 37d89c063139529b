//! The edge to C: how a function of the verbs reports failure, and structures of which programs know more or less than we do.

use srd_device::DeviceError;
use srd_ffi::{guarded, told};
use srd_net::Unavailable;
use std::ptr::null_mut;

pub(crate) use srd_ffi::{Errno, Outcome, abi, object, readable, writable};

/// A function that returns 0 or the error number.
pub(crate) fn status(name: &str, body: impl FnOnce() -> Outcome<()>) -> libc::c_int {
    told(name, body).map_or_else(|errno| errno.0, |()| 0)
}

/// The same for one that closes something.
pub(crate) fn closing(name: &str, body: impl FnOnce() -> Outcome<()>) -> libc::c_int {
    srd_ffi::closing(|| status(name, body))
}

/// A function that returns a pointer, or NULL and sets `errno`.
pub(crate) fn pointer<T>(name: &str, body: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    told(name, body).inspect_err(|errno| errno.set()).unwrap_or(null_mut())
}

/// A function that returns a number, or -1 and sets `errno`.
pub(crate) fn minus_one(name: &str, body: impl FnOnce() -> Outcome<libc::c_int>) -> libc::c_int {
    guarded(name, body).inspect_err(|errno| errno.set()).unwrap_or(-1)
}

/// A function that says 0, or with an error number that there is nothing or something is wrong. Polls ask so often that
/// nothing is logged.
#[inline]
pub(crate) fn polled(name: &str, body: impl FnOnce() -> Outcome<()>) -> libc::c_int {
    guarded(name, body).map_or_else(|errno| errno.0, |()| 0)
}

/// A function that returns how many, or the negative error number.
#[inline]
pub(crate) fn number(name: &str, body: impl FnOnce() -> Outcome<libc::c_int>) -> libc::c_int {
    guarded(name, body).unwrap_or_else(|errno| -errno.0)
}

/// What giving an object back to the device comes to. To a device that has failed nothing can be given back: there the
/// program gets rid of it all the same.
pub(crate) fn given_back(result: Result<Result<(), DeviceError>, Unavailable>) -> Outcome<()> {
    match result {
        Err(Unavailable::Failed) => Ok(()),
        result => Ok(result??),
    }
}

/// A function that cannot report failure: it returns its type's zero then.
pub(crate) fn value<T: Default>(name: &str, body: impl FnOnce() -> T) -> T {
    guarded(name, || Ok(body())).unwrap_or_default()
}

/// Whether a structure of which the program knows the first `len` bytes has the field that begins at `offset`
/// (`vext_field_avail` of the headers).
pub(crate) fn has_field(offset: usize, len: usize) -> bool {
    offset < len
}

/// Copies `source` into the first `len` bytes at `target`, and fills what lies beyond with zeros.
///
/// # Safety
/// `len` bytes at `target` may be written. `T` has no padding that would matter.
pub(crate) unsafe fn copy_out<T>(source: &T, target: *mut T, len: usize) {
    // SAFETY: as the caller says; the copy stays within both.
    unsafe {
        target.cast::<u8>().write_bytes(0, len);
        std::ptr::copy_nonoverlapping(
            (source as *const T).cast::<u8>(),
            target.cast::<u8>(),
            len.min(size_of::<T>()),
        );
    }
}

/// The first `len` bytes at `source` as a `T`, the rest of it zero. `None` if the program's structure is longer than
/// ours and says something there: it asks for what we do not know.
///
/// # Safety
/// `len` bytes at `source` may be read, and a `T` of zeros is a valid one.
pub(crate) unsafe fn copy_in<T>(source: *const T, len: usize) -> Option<T> {
    // SAFETY: as the caller says; the copy stays within both.
    unsafe {
        let mut copy = std::mem::zeroed::<T>();
        let bytes = std::slice::from_raw_parts(source.cast::<u8>(), len);
        let known = len.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut copy).cast::<u8>(), known);
        bytes[known..].iter().all(|&byte| byte == 0).then_some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Grown {
        old: u64,
        new: u64,
    }

    /// docs/design/efa-verbs.md, "Trap 8": programs hand over the structures of their own headers.
    #[test]
    fn shorter_structures_are_filled_up_with_zeros() {
        let full = Grown { old: 7, new: 9 };
        // SAFETY: within `full`.
        let short = unsafe { copy_in(&full, 8) };
        assert_eq!(short, Some(Grown { old: 7, new: 0 }));
    }

    #[test]
    fn longer_structures_are_refused_only_if_they_say_something_unknown() {
        for (tail, wanted) in [(0u64, Some(Grown { old: 1, new: 2 })), (5, None)] {
            let longer = [1u64, 2, tail];
            // SAFETY: within `longer`.
            assert_eq!(unsafe { copy_in(longer.as_ptr().cast::<Grown>(), 24) }, wanted);
        }
    }

    #[test]
    fn output_stays_within_the_programs_structure_and_clears_what_we_do_not_know() {
        let mut target = [0xFFu8; 32];
        // SAFETY: within `target`.
        unsafe { copy_out(&Grown { old: 1, new: 2 }, target.as_mut_ptr().cast(), 8) };
        assert_eq!(target[8..], [0xFF; 24]);
        // SAFETY: within `target`.
        unsafe { copy_out(&Grown { old: 1, new: 2 }, target.as_mut_ptr().cast(), 24) };
        assert_eq!(target[16..24], [0; 8]);
        assert_eq!(target[24..], [0xFF; 8]);
    }

    #[test]
    fn a_panic_becomes_an_error_number() {
        assert_eq!(status("test", || panic!("on purpose")), libc::EIO);
        assert!(pointer::<u8>("test", || panic!("on purpose")).is_null());
        assert_eq!(Errno::last(), Errno::IO);
        assert_eq!(minus_one("test", || panic!("on purpose")), -1);
        assert_eq!(value::<u32>("test", || panic!("on purpose")), 0);
        assert_eq!(polled("test", || panic!("on purpose")), libc::EIO);
        assert_eq!(number("test", || panic!("on purpose")), -libc::EIO);
    }
}
