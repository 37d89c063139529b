//! The machine's own clocks and waits: what this library stands in front of, by system calls.
#![allow(unsafe_code)]

use libc::{c_int, clockid_t, timespec};

/// The time of a clock in nanoseconds.
pub fn clock(id: clockid_t) -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is there to be written.
    unsafe { libc::syscall(libc::SYS_clock_gettime, id, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// As `clock_gettime(2)`.
pub fn clock_gettime(id: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the kernel checks the pointer.
    unsafe { libc::syscall(libc::SYS_clock_gettime, id, time) as c_int }
}

/// The calling thread's number.
pub fn thread() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Says why, and ends the process.
pub fn give_up(why: &str) -> ! {
    // SAFETY: the bytes are there.
    unsafe { libc::syscall(libc::SYS_write, 2, why.as_ptr(), why.len()) };
    std::process::abort()
}

/// Lets others have the processor.
pub fn give_way() -> c_int {
    // SAFETY: it takes nothing.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}

/// Whether a thread of this process gets a processor only when nobody else wants one.
pub fn only_when_idle(thread: u32, yes: bool) {
    let policy = if yes { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    // SAFETY: all zeros are such parameters.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // It fails only where the kernel does not let a thread come back, or for one that has ended.
    // SAFETY: the parameters are there to be read.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &parameters) };
}
