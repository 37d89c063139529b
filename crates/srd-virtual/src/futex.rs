//! Waiting in shared memory: `futex(2)`.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`, until somebody wakes it, for `at_most`. May come back without a reason.
pub fn wait(word: &AtomicU32, expected: u32, at_most: Option<Duration>) {
    let span = at_most.map(|span| libc::timespec {
        tv_sec: span.as_secs() as libc::time_t,
        tv_nsec: span.subsec_nanos() as libc::c_long,
    });
    let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time are there for the length of the call; the kernel writes to neither.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, span) };
}

/// Wakes whoever sleeps on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the kernel looks at the address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
