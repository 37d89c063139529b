//! Waits for descriptors, of which the fabric has none: a thread that takes part looks at them again and again, while time passes.
#![allow(unsafe_code)]

use crate::thread;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use srd_virtual::Kind;
use srd_virtual::layout::NEVER;

/// First and longest time between two looks, in nanoseconds.
const FIRST: u64 = 1_000;
const LONGEST: u64 = 1_000_000;

/// Looks until there is something, or until the time is over; `None`: for ever.
fn look_until_ready(span: Option<u64>, mut look: impl FnMut() -> c_int) -> c_int {
    let until = span.map_or(NEVER, |span| thread::local().saturating_add(span));
    let mut step = FIRST;
    loop {
        let found = look();
        if found != 0 || thread::local() >= until {
            return found;
        }
        thread::park(Kind::Poller, until.min(thread::local().saturating_add(step)));
        step = (step * 2).min(LONGEST);
    }
}

fn milliseconds(timeout: c_int) -> Option<u64> {
    u64::try_from(timeout).ok().map(|timeout| timeout * 1_000_000)
}

/// `poll(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let look = |timeout: c_int| {
        let mut span = milliseconds(timeout).map(|span| timespec {
            tv_sec: (span / 1_000_000_000) as libc::time_t,
            tv_nsec: (span % 1_000_000_000) as i64,
        });
        let span = span.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let no_mask = std::ptr::null::<sigset_t>();
        // SAFETY: the kernel checks the pointers.
        unsafe { libc::syscall(libc::SYS_ppoll, fds, count, span, no_mask, 8) as c_int }
    };
    match timeout != 0 && thread::takes_part() {
        true => look_until_ready(milliseconds(timeout), || look(0)),
        false => look(timeout),
    }
}

/// `ppoll(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let span =
        unsafe { timeout.as_ref() }.map(|span| span.tv_sec as u64 * 1_000_000_000 + span.tv_nsec as u64);
    let look = |timeout: *const timespec| {
        // The kernel writes what is left of the time.
        // SAFETY: the caller's promise.
        let mut copy = unsafe { timeout.as_ref() }.copied();
        let copy = copy.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // SAFETY: the kernel checks the pointers; its sets of signals have eight bytes.
        unsafe { libc::syscall(libc::SYS_ppoll, fds, count, copy, mask, 8) as c_int }
    };
    match span != Some(0) && thread::takes_part() {
        true => look_until_ready(span, || look(&timespec { tv_sec: 0, tv_nsec: 0 })),
        false => look(timeout),
    }
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let look = |timeout: c_int| {
        let no_mask = std::ptr::null::<sigset_t>();
        // SAFETY: the kernel checks the pointers.
        unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, events, most, timeout, no_mask, 8) as c_int }
    };
    match timeout != 0 && thread::takes_part() {
        true => look_until_ready(milliseconds(timeout), || look(0)),
        false => look(timeout),
    }
}

/// `select(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { timeout.as_ref() }.copied();
    let span = given.map(|span| span.tv_sec as u64 * 1_000_000_000 + span.tv_usec as u64 * 1000);
    let call = |span: Option<u64>| {
        let mut time = span.map(|span| timespec {
            tv_sec: (span / 1_000_000_000) as libc::time_t,
            tv_nsec: (span % 1_000_000_000) as i64,
        });
        let time = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let no_mask = std::ptr::null::<u8>();
        // SAFETY: the kernel checks the pointers.
        unsafe { libc::syscall(libc::SYS_pselect6, count, read, write, except, time, no_mask) as c_int }
    };
    if span == Some(0) || !thread::takes_part() {
        return call(span);
    }
    // The kernel writes its answer over the question.
    let sets = [read, write, except];
    // SAFETY: the caller's promise.
    let asked = sets.map(|set| unsafe { set.as_ref() }.copied());
    look_until_ready(span, || {
        for (set, asked) in sets.iter().zip(&asked) {
            if let Some(asked) = asked {
                // SAFETY: as above.
                unsafe { set.write(*asked) };
            }
        }
        call(Some(0))
    })
}
