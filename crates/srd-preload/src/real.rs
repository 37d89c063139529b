//! The machine's own clocks and waits: what this library stands in front of, by system calls.
#![allow(unsafe_code)]

use libc::{c_int, clockid_t, timespec};
use std::sync::OnceLock;

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

/// Sleeps for so many milliseconds.
pub fn pause(millis: u64) {
    let span = timespec { tv_sec: 0, tv_nsec: millis as libc::c_long * 1_000_000 };
    // SAFETY: the span is there to be read.
    unsafe { libc::syscall(libc::SYS_nanosleep, &span, std::ptr::null_mut::<timespec>()) };
}

/// Lets others have the processor.
pub fn give_way() -> c_int {
    // SAFETY: it takes nothing.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}

/// On which processors the program's threads may run.
static BEFORE: OnceLock<libc::cpu_set_t> = OnceLock::new();

fn set_affinity(set: &libc::cpu_set_t) {
    // SAFETY: the set is there to be read.
    unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<libc::cpu_set_t>(), set) };
}

/// The calling thread runs on this processor only.
pub fn pin(core: u32) {
    // SAFETY: all zeros are an empty set.
    let empty: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    BEFORE.get_or_init(|| {
        let mut before = empty;
        // SAFETY: the set is there to be written.
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<libc::cpu_set_t>(), &mut before) };
        before
    });
    let mut only = empty;
    // SAFETY: the set is there to be written; a processor beyond its end is refused.
    unsafe { libc::CPU_SET(core as usize, &mut only) };
    set_affinity(&only);
}

/// It may run on all of the program's again.
pub fn unpin() {
    if let Some(before) = BEFORE.get() {
        set_affinity(before);
    }
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
