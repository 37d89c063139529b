//! Functions that C calls, out of which no panic comes.
#![allow(unsafe_code)]

use crate::{Errno, Outcome};
use srd_net::{Instance, log};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; a panic in it fails the devices of this process, and is EIO.
#[inline]
pub fn guarded<T>(name: &str, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::error(format_args!("{name}: internal error (the message is above); please report it"));
        // If it was inside the device, that has failed already; otherwise something of ours is half changed.
        Instance::fail_all();
        Err(Errno::IO)
    })
}

/// As [`guarded`], and tells a log that wants to know everything what was refused. Not for what programs ask all the time.
#[inline]
pub fn told<T>(name: &str, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    guarded(name, body).inspect_err(|&errno| tell(name, errno))
}

#[cold]
fn tell(name: &str, errno: Errno) {
    log::debug(format_args!("{name}: {errno:?}"));
}

/// Defines functions that C calls: through a table of operations, or `exported` ones by name. A kind is a function of the
/// library's own `boundary`, which runs the body and returns what C is told:
///
/// ```text
/// abi! { exported status fn ibv_modify_qp(…) { … Outcome<()> } }   0 or the error number, with the library's sign
/// abi! { closing fn close_cq(fid: *mut fid) { … Outcome<()> } }    the same; no warning in a forked child
/// abi! { polled fn next_poll(cq: *mut ibv_cq_ex) { … } }           as status, and not logged
/// abi! { number fn insert(…) { … Outcome<c_int> } }                a number, or the negative error number
/// abi! { posted fn send(…) { … Outcome<()> } }                     as ssize_t, and not logged
/// abi! { count fn read(…) { … Outcome<usize> } }                   the same for a number
/// abi! { minus_one fn ibv_query_gid(…) { … Outcome<c_int> } }      -1 and errno
/// abi! { pointer fn ibv_alloc_pd(c: *mut ibv_context) -> ibv_pd { … Outcome<*mut ibv_pd> } }   NULL and errno
/// abi! { value fn end_poll(cq: *mut ibv_cq_ex) -> () { … } }       cannot fail
/// ```
#[macro_export]
// The macro's users have a `boundary` each.
#[allow(clippy::crate_in_macro_def)]
macro_rules! abi {
    () => {};
    ($(#[$meta:meta])* exported $kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block $($rest:tt)*) => {
        $crate::abi!(@$kind [$(#[$meta])* #[unsafe(no_mangle)] pub] $name($($arg: $type),*) [$($ret)?] $body);
        $crate::abi!($($rest)*);
    };
    ($(#[$meta:meta])* $kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block $($rest:tt)*) => {
        $crate::abi!(@$kind [$(#[$meta])* pub(crate)] $name($($arg: $type),*) [$($ret)?] $body);
        $crate::abi!($($rest)*);
    };
    (@posted $head:tt $name:ident $args:tt [] $body:block) => { $crate::abi!(@define posted $head $name $args [libc::ssize_t] $body); };
    (@count $head:tt $name:ident $args:tt [] $body:block) => { $crate::abi!(@define count $head $name $args [libc::ssize_t] $body); };
    (@pointer $head:tt $name:ident $args:tt [$ret:ty] $body:block) => { $crate::abi!(@define pointer $head $name $args [*mut $ret] $body); };
    (@value $head:tt $name:ident $args:tt [$ret:ty] $body:block) => { $crate::abi!(@define value $head $name $args [$ret] $body); };
    (@$kind:ident $head:tt $name:ident $args:tt [] $body:block) => { $crate::abi!(@define $kind $head $name $args [libc::c_int] $body); };
    (@define $kind:ident [$($head:tt)*] $name:ident($($args:tt)*) [$ret:ty] $body:block) => {
        #[allow(unused_unsafe)]
        $($head)* unsafe extern "C" fn $name($($args)*) -> $ret {
            crate::boundary::$kind(stringify!($name), || {
                // SAFETY: the program keeps the contract of the function's manual page: every pointer is NULL where that
                // is allowed, or comes from the call that makes such objects and has not been given back, arrays have the
                // length that goes with them, and no other thread destroys what this call uses.
                unsafe { $body }
            })
        }
    };
}
