//! Clocks and sleeps of the C library.
#![allow(unsafe_code)]

use crate::own::{SECOND, end_if_cancelled, nanoseconds, own, to_timespec};
use crate::process::{channel, origin};
use crate::{real, thread};
use libc::{c_int, c_uint, c_void, clockid_t, time_t, timespec, timeval, useconds_t};

own!(own_nanosleep, c"nanosleep", None, (span: *const timespec, left: *mut timespec));
own!(own_clock_nanosleep, c"clock_nanosleep", None,
    (clock: clockid_t, flags: c_int, span: *const timespec, left: *mut timespec));
own!(own_usleep, c"usleep", None, (microseconds: useconds_t));
own!(own_sleep, c"sleep", None, (seconds: c_uint));

/// What a clock shows to a thread that takes part.
fn shown(id: clockid_t) -> Option<u64> {
    channel()?;
    let origin = origin(id)?;
    Some(origin + thread::look_at_clock()?)
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
            unsafe { time.write(to_timespec(now)) };
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

/// Sleeps in the simulation; a thread that is cancelled meanwhile ends there. False if the calling one takes no part.
fn sleep_there(span: u64) -> bool {
    let slept = thread::sleep(span);
    if slept {
        end_if_cancelled();
    }
    slept
}

/// `nanosleep(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nanosleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { span.as_ref() }.and_then(nanoseconds) {
        Some(span) if sleep_there(span) => 0,
        _ => own_nanosleep(span, left),
    }
}

/// `clock_nanosleep(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn clock_nanosleep(
    id: clockid_t,
    flags: c_int,
    span: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { span.as_ref() }.and_then(nanoseconds);
    if let (Some(given), Some(origin)) = (given, origin(id)) {
        let span = match flags & libc::TIMER_ABSTIME {
            0 => given,
            _ => given.saturating_sub(origin + thread::local()),
        };
        if sleep_there(span) {
            return 0;
        }
    }
    own_clock_nanosleep(id, flags, span, left)
}

/// `sched_yield(2)`: to a thread that takes part nothing, since nobody else may run.
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    match thread::takes_part() {
        true => 0,
        false => real::give_way(),
    }
}

/// `usleep(3)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn usleep(microseconds: useconds_t) -> c_int {
    match sleep_there(u64::from(microseconds) * 1000) {
        true => 0,
        false => own_usleep(microseconds),
    }
}

/// `sleep(3)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    match sleep_there(u64::from(seconds) * SECOND) {
        true => 0,
        false => own_sleep(seconds) as c_uint,
    }
}
