//! The C library's own functions, in front of which this library stands.
#![allow(unsafe_code)]

use libc::{c_char, c_int, c_void, timespec};
use srd_virtual::layout::NEVER;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The C library's own function of that name, and version if there are several.
pub struct Own {
    name: &'static CStr,
    version: Option<&'static CStr>,
    found: AtomicPtr<c_void>,
}

impl Own {
    pub const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Own {
        Own { name, version, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    pub fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let of_version = |version: &CStr| {
            // SAFETY: both are C strings.
            unsafe { dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) }
        };
        let mut found = self.version.map_or(std::ptr::null_mut(), of_version);
        if found.is_null() {
            // SAFETY: the name is a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        }
        if found.is_null() {
            std::process::abort(); // whoever calls it has found it in the C library
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// That of conditions since they are what they are now; before, they were something else.
#[cfg(target_arch = "x86_64")]
pub const CONDITIONS: Option<&CStr> = Some(c"GLIBC_2.3.2");
#[cfg(not(target_arch = "x86_64"))]
pub const CONDITIONS: Option<&CStr> = None;

/// Declares the C library's own `$name`.
macro_rules! own {
    ($call:ident, $name:literal, $version:expr, ($($argument:ident: $type:ty),*)) => {
        fn $call($($argument: $type),*) -> libc::c_int {
            static OWN: $crate::own::Own = $crate::own::Own::new($name, $version);
            // SAFETY: the function of that name takes and returns that; what it is given is what our caller was. A thread may be
            // cancelled there.
            unsafe {
                std::mem::transmute::<
                    *mut libc::c_void,
                    unsafe extern "C-unwind" fn($($type),*) -> libc::c_int,
                >(OWN.get())($($argument),*)
            }
        }
    };
}
pub(crate) use own;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// The calling thread ends here if somebody has cancelled it, and it lets that happen.
pub fn end_if_cancelled() {
    // SAFETY: it takes nothing. No value lives on our frames that must be dropped.
    unsafe { pthread_testcancel() };
}

/// In nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// A span of nanoseconds, as the C library has it.
pub fn to_timespec(span: u64) -> timespec {
    timespec { tv_sec: (span / SECOND) as libc::time_t, tv_nsec: (span % SECOND) as libc::c_long }
}

/// The same the other way; `None` if it is no time.
pub fn nanoseconds(time: &timespec) -> Option<u64> {
    let is_time = time.tv_sec >= 0 && (0..SECOND as libc::c_long).contains(&time.tv_nsec);
    is_time.then(|| {
        (time.tv_sec as u64).saturating_mul(SECOND).saturating_add(time.tv_nsec as u64).min(NEVER - 1)
    })
}

/// What a call of the kernel's or of the C library's returns with this error.
pub fn fail(error: c_int) -> c_int {
    // SAFETY: as every thread may.
    unsafe { *libc::__errno_location() = error };
    -1
}
