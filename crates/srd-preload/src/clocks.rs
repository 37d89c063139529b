//! Clocks and sleeps of the C library.
#![allow(unsafe_code)]

use crate::process::{channel, origin};
use crate::real;
use crate::thread;
use libc::{c_int, c_uint, c_void, clockid_t, time_t, timespec, timeval, useconds_t};

const SECOND: u64 = 1_000_000_000;

/// What a clock shows to a thread that takes part.
fn shown(id: clockid_t) -> Option<u64> {
    channel()?;
    let origin = origin(id)?;
    Some(origin + thread::look_at_clock()?)
}

fn nanoseconds(time: &timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(SECOND).saturating_add(time.tv_nsec as u64)
}

/// `clock_gettime(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(id: clockid_t, time: *mut timespec) -> c_int {
    match shown(id) {
        Some(now) if !time.is_null() => {
            // SAFETY: the caller's promise.
            unsafe {
                time.write(timespec { tv_sec: (now / SECOND) as time_t, tv_nsec: (now % SECOND) as i64 })
            };
            0
        }
        _ => real::clock_gettime(id, time),
    }
}

/// `gettimeofday(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = shown(libc::CLOCK_REALTIME).unwrap_or_else(|| real::clock(libc::CLOCK_REALTIME));
    if !time.is_null() {
        let value = timeval { tv_sec: (now / SECOND) as time_t, tv_usec: (now % SECOND / 1000) as i64 };
        // SAFETY: the caller's promise.
        unsafe { time.write(value) };
    }
    0
}

/// `time(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(out: *mut time_t) -> time_t {
    let now = shown(libc::CLOCK_REALTIME).unwrap_or_else(|| real::clock(libc::CLOCK_REALTIME));
    let seconds = (now / SECOND) as time_t;
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write(seconds) };
    }
    seconds
}

fn is_time(time: &timespec) -> bool {
    time.tv_sec >= 0 && (0..SECOND as i64).contains(&time.tv_nsec)
}

/// `nanosleep(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { span.as_ref() };
    match given.filter(|span| is_time(span)) {
        Some(span) if thread::sleep(nanoseconds(span)) => 0,
        // SAFETY: the kernel checks the pointers.
        _ => unsafe { libc::syscall(libc::SYS_nanosleep, span, left) as c_int },
    }
}

/// `clock_nanosleep(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    id: clockid_t,
    flags: c_int,
    span: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { span.as_ref() }.filter(|span| is_time(span));
    if let (Some(span), Some(origin), true) = (given, origin(id), thread::takes_part()) {
        let span = nanoseconds(span);
        let span = match flags & libc::TIMER_ABSTIME {
            0 => span,
            _ => span.saturating_sub(origin + thread::local()),
        };
        thread::sleep(span);
        return 0;
    }
    // SAFETY: the kernel checks the pointers. The call gives its error as a negative number.
    let returned = unsafe { libc::syscall(libc::SYS_clock_nanosleep, id, flags, span, left) };
    // SAFETY: as every thread may.
    if returned < 0 { unsafe { *libc::__errno_location() } } else { 0 }
}

/// `sched_yield(2)`: to a thread that takes part nothing, since nobody else may run.
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    match thread::takes_part() {
        true => 0,
        // SAFETY: it takes nothing.
        false => unsafe { libc::syscall(libc::SYS_sched_yield) as c_int },
    }
}

/// `usleep(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn usleep(microseconds: useconds_t) -> c_int {
    if !thread::sleep(u64::from(microseconds) * 1000) {
        let span = timespec {
            tv_sec: (microseconds / 1_000_000) as time_t,
            tv_nsec: i64::from(microseconds % 1_000_000) * 1000,
        };
        // SAFETY: the time is there; what is left of it nobody asks.
        return unsafe {
            libc::syscall(libc::SYS_nanosleep, &span, std::ptr::null_mut::<timespec>()) as c_int
        };
    }
    0
}

/// `sleep(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn sleep(seconds: c_uint) -> c_uint {
    if !thread::sleep(u64::from(seconds) * SECOND) {
        let mut span = timespec { tv_sec: seconds as time_t, tv_nsec: 0 };
        let left: *mut timespec = &mut span;
        // SAFETY: the kernel may write what is left where it has read the time.
        if unsafe { libc::syscall(libc::SYS_nanosleep, left, left) } != 0 {
            return span.tv_sec as c_uint + c_uint::from(span.tv_nsec >= SECOND as i64 / 2);
        }
    }
    0
}
