//! `futex(2)` of programs that call it by `syscall(2)`, as C++'s `std::future` does: a thread that takes part waits until a time of the simulation's.
//! Other waits, and those of this library and the provider, are the kernel's.
#![allow(unsafe_code)]

use crate::fellows::{self, Ended};
use crate::locks::simulated;
use crate::own::{self, Own, nanoseconds};
use crate::{process, thread};
use libc::{c_int, c_long, timespec};
use std::sync::atomic::{AtomicU32, Ordering};

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// `syscall(2)`: whatever it is, six words at most.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    static OWN: Own = Own::new(c"syscall", None);
    if number == libc::SYS_futex
        && !process::is_own(a)
        // SAFETY: the caller's promise.
        && let Some(result) = unsafe { futex(a, b as c_int, c as u32, d as *const timespec) }
    {
        return result.into();
    }
    // SAFETY: the C library's function of that name takes such words.
    unsafe { std::mem::transmute::<*mut libc::c_void, Syscall>(OWN.get())(number, a, b, c, d, e, f) }
}

/// What the call returns, if it is not the kernel's.
///
/// # Safety
/// As that.
unsafe fn futex(at: usize, operation: c_int, value: u32, time: *const timespec) -> Option<c_int> {
    match operation & libc::FUTEX_CMD_MASK {
        command @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            // SAFETY: the caller's promise.
            let span = unsafe { time.as_ref() }.filter(|_| thread::waits_in_simulation())?;
            let until = match command {
                libc::FUTEX_WAIT => thread::local().saturating_add(nanoseconds(span)?),
                _ if operation & libc::FUTEX_CLOCK_REALTIME != 0 => {
                    // SAFETY: as above.
                    unsafe { simulated(libc::CLOCK_REALTIME, time) }?
                }
                // SAFETY: as above.
                _ => unsafe { simulated(libc::CLOCK_MONOTONIC, time) }?,
            };
            // SAFETY: the kernel would read the word, too.
            let word = unsafe { (at as *const AtomicU32).as_ref() }?;
            Some(match fellows::take(at, until, || word.load(Ordering::SeqCst) != value) {
                Ended::Come => own::fail(libc::EAGAIN),
                Ended::Early if thread::local() < until => 0,
                Ended::Early | Ended::TooLate => own::fail(libc::ETIMEDOUT),
            })
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            fellows::signalled(at, value > 1);
            None
        }
        libc::FUTEX_WAKE_OP | libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            fellows::signalled(at, true);
            None
        }
        _ => None,
    }
}
