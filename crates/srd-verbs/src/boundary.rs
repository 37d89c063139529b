//! The edge to C: how a function reports failure, and that no panic crosses.

use srd_device::DeviceError;
use srd_net::log;
use srd_net::{Instance, Unavailable};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error number of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub libc::c_int);

impl Errno {
    pub const INVALID: Errno = Errno(libc::EINVAL);
    pub const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    pub const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const IO: Errno = Errno(libc::EIO);
    pub const FAULT: Errno = Errno(libc::EFAULT);
    pub const NO_ENTRY: Errno = Errno(libc::ENOENT);

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
        log::debug(format_args!("refused: {error:?}"));
        match error {
            DeviceError::Invalid(_) | DeviceError::NotFound(_) => Errno::INVALID,
            DeviceError::Full(_) => Errno::NO_MEMORY,
            DeviceError::Unsupported(_) => Errno::UNSUPPORTED,
            DeviceError::Busy(_) => Errno::BUSY,
        }
    }
}

impl From<Unavailable> for Errno {
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

thread_local! {
    /// A call that closes something is under way.
    static CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// What most functions come to.
pub(crate) type Outcome<T> = Result<T, Errno>;

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

/// A function that returns 0 or the error number.
pub(crate) fn status(name: &str, body: impl FnOnce() -> Outcome<()>) -> libc::c_int {
    match guarded(name, body) {
        Some(Ok(())) => 0,
        Some(Err(errno)) => {
            log::debug(format_args!("{name}: {errno:?}"));
            errno.0
        }
        None => libc::EIO,
    }
}

/// The same for one that closes something.
pub(crate) fn closing(name: &str, body: impl FnOnce() -> Outcome<()>) -> libc::c_int {
    let before = CLOSING.replace(true);
    let closed = status(name, body);
    CLOSING.set(before);
    closed
}

/// A function that returns a pointer, or NULL and sets `errno`.
pub(crate) fn pointer<T>(name: &str, body: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    let errno = match guarded(name, body) {
        Some(Ok(pointer)) => return pointer,
        Some(Err(errno)) => errno,
        None => Errno::IO,
    };
    log::debug(format_args!("{name}: {errno:?}"));
    errno.set();
    std::ptr::null_mut()
}

/// A function that returns a number, or -1 and sets `errno`.
pub(crate) fn minus_one(name: &str, body: impl FnOnce() -> Outcome<libc::c_int>) -> libc::c_int {
    let errno = match guarded(name, body) {
        Some(Ok(value)) => return value,
        Some(Err(errno)) => errno,
        None => Errno::IO,
    };
    errno.set();
    -1
}

/// A function that says 0, or with an error number that there is nothing or something is wrong. Polls ask so often that
/// nothing is logged.
#[inline]
pub(crate) fn polled(name: &str, body: impl FnOnce() -> Outcome<()>) -> libc::c_int {
    match guarded(name, body) {
        Some(Ok(())) => 0,
        Some(Err(errno)) => errno.0,
        None => libc::EIO,
    }
}

/// A function that returns how many, or the negative error number.
#[inline]
pub(crate) fn count(name: &str, body: impl FnOnce() -> Outcome<libc::c_int>) -> libc::c_int {
    match guarded(name, body) {
        Some(Ok(count)) => count,
        Some(Err(errno)) => -errno.0,
        None => -libc::EIO,
    }
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
    guarded(name, body).unwrap_or_default()
}

/// Defines functions that C calls: `exported` ones by name, `table` ones through an operations table.
///
/// ```text
/// abi! { exported status fn ibv_modify_qp(…) { … } }                           0 or the error number
/// abi! { exported closing fn ibv_dealloc_pd(pd: *mut ibv_pd) { … } }           the same; no warning in a forked child
/// abi! { exported pointer fn ibv_alloc_pd(c: *mut ibv_context) -> ibv_pd { … } }   NULL and errno
/// abi! { exported minus_one fn ibv_query_gid(…) { … } }                        -1 and errno
/// abi! { table polled fn next_poll(cq: *mut ibv_cq_ex) { … } }                 as status, and not logged
/// abi! { table count fn poll_cq(cq: *mut ibv_cq, …) { … } }                    the negative error number
/// abi! { table value fn end_poll(cq: *mut ibv_cq_ex) -> () { … } }             cannot fail
/// ```
macro_rules! abi {
    ($($(#[$meta:meta])* $place:ident $kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(abi!(@$place $kind [$(#[$meta])*] $name($($arg: $type),*) [$($ret)?] $body);)*
    };
    (@exported $kind:ident [$($meta:tt)*] $name:ident($($args:tt)*) $ret:tt $body:block) => {
        abi!(@define $kind [$($meta)* #[unsafe(no_mangle)]] [pub] $name($($args)*) $ret $body);
    };
    (@table $kind:ident [$($meta:tt)*] $name:ident($($args:tt)*) $ret:tt $body:block) => {
        abi!(@define $kind [$($meta)*] [pub(crate)] $name($($args)*) $ret $body);
    };
    (@define status [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [libc::c_int] status $body);
    };
    (@define closing [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [libc::c_int] closing $body);
    };
    (@define polled [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [libc::c_int] polled $body);
    };
    (@define count [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [libc::c_int] count $body);
    };
    (@define minus_one [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [libc::c_int] minus_one $body);
    };
    (@define pointer [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [$ret:ty] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [*mut $ret] pointer $body);
    };
    (@define value [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [$ret:ty] $body:block) => {
        abi!(@function [$($meta)*] [$($vis)*] $name($($args)*) [$ret] value $body);
    };
    (@function [$($meta:tt)*] [$($vis:tt)*] $name:ident($($args:tt)*) [$ret:ty] $kind:ident $body:block) => {
        $($meta)*
        #[allow(unused_unsafe)]
        $($vis)* unsafe extern "C" fn $name($($args)*) -> $ret {
            $crate::boundary::$kind(stringify!($name), || {
                // SAFETY: the program keeps the contract of the function's manual page: every pointer is NULL or
                // comes from the call that makes such objects and has not been given back, arrays have the length
                // that goes with them, and no other thread destroys what this call uses.
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
pub(crate) unsafe fn object<'a, C, T>(pointer: *mut C) -> Outcome<&'a T> {
    // SAFETY: as the caller says.
    unsafe { pointer.cast::<T>().as_ref() }.ok_or(Errno::INVALID)
}

/// What a pointer from C leads to; EINVAL for NULL.
///
/// # Safety
/// The pointer is NULL or points to a live `C`, which stays alive for `'a` and which nobody writes to meanwhile.
pub(crate) unsafe fn readable<'a, C>(pointer: *const C) -> Outcome<&'a C> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
}

/// As [`readable`], for what is to be filled in.
///
/// # Safety
/// The pointer is NULL or points to a `C` that nobody else uses for `'a`.
pub(crate) unsafe fn writable<'a, C>(pointer: *mut C) -> Outcome<&'a mut C> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVALID)
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
        assert_eq!(count("test", || panic!("on purpose")), -libc::EIO);
    }
}
