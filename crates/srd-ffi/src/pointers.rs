//! What pointers of callers lead to.
#![allow(unsafe_code)]

use crate::{Errno, Outcome};

/// The object of ours that a pointer from C leads to; EINVAL for NULL.
///
/// # Safety
/// The pointer is NULL or points to a live `T`, which stays alive for `'a`.
#[inline]
pub unsafe fn object<'a, C, T>(pointer: *mut C) -> Outcome<&'a T> {
    // SAFETY: as the caller says.
    unsafe { readable(pointer.cast()) }
}

/// What a pointer from C leads to; EINVAL for NULL.
///
/// # Safety
/// The pointer is NULL or points to a live `C`, which stays alive for `'a` and which nobody writes to meanwhile.
#[inline]
pub unsafe fn readable<'a, C>(pointer: *const C) -> Outcome<&'a C> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
}

/// As [`readable`], for what is to be filled in.
///
/// # Safety
/// The pointer is NULL or points to a `C` that nobody else uses for `'a`.
#[inline]
pub unsafe fn writable<'a, C>(pointer: *mut C) -> Outcome<&'a mut C> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVALID)
}
