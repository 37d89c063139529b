//! Waits for descriptors, of which the fabric has none: a thread that takes part looks at them again and again, while time passes.
#![allow(unsafe_code)]

use crate::own::{end_if_cancelled, nanoseconds, own, to_timespec};
use crate::thread;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use srd_virtual::Kind;
use srd_virtual::layout::NEVER;

own!(own_poll, c"poll", None, (fds: *mut pollfd, count: nfds_t, timeout: c_int));
own!(own_ppoll, c"ppoll", None,
    (fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t));
own!(own_epoll_pwait, c"epoll_pwait", None,
    (epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t));
own!(own_epoll_pwait2, c"epoll_pwait2", None,
    (epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t));
own!(own_select, c"select", None,
    (count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval));
own!(own_pselect, c"pselect", None,
    (count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t));

const AT_ONCE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// First and longest time between two looks, in nanoseconds.
const FIRST: u64 = 1_000;
const LONGEST: u64 = 1_000_000;

/// Looks until there is something, or until the time is over; `None`: for ever.
fn look_until_ready(span: Option<u64>, look: impl FnMut() -> c_int) -> c_int {
    look_until(span.map_or(NEVER, |span| thread::local().saturating_add(span)), 0, look)
}

/// Tries until what is tried is no longer busy, or until a time.
pub fn try_until(until: u64, try_it: impl FnMut() -> c_int) -> c_int {
    match look_until(until, libc::EBUSY, try_it) {
        libc::EBUSY => libc::ETIMEDOUT,
        other => other,
    }
}

fn look_until(until: u64, nothing: c_int, mut look: impl FnMut() -> c_int) -> c_int {
    let mut step = FIRST;
    loop {
        end_if_cancelled();
        let found = look();
        if found != nothing || thread::local() >= until {
            return found;
        }
        thread::park(Kind::Poller, until.min(thread::local().saturating_add(step)));
        step = (step * 2).min(LONGEST);
    }
}

/// How long a thread waits in the simulation for what it has given in milliseconds; `None`: it does not wait there.
fn of_milliseconds(timeout: c_int) -> Option<Option<u64>> {
    (timeout != 0 && thread::takes_part())
        .then(|| u64::try_from(timeout).ok().map(|timeout| timeout * 1_000_000))
}

/// The same of a time; one that is no time is the C library's to refuse.
///
/// # Safety
/// `timeout` can be read, or is null.
unsafe fn of_time(timeout: *const timespec) -> Option<Option<u64>> {
    // SAFETY: the caller's promise.
    let span = match unsafe { timeout.as_ref() } {
        Some(timeout) => Some(nanoseconds(timeout)?),
        None => None,
    };
    (span != Some(0) && thread::takes_part()).then_some(span)
}

/// `poll(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    match of_milliseconds(timeout) {
        Some(span) => look_until_ready(span, || own_poll(fds, count, 0)),
        None => own_poll(fds, count, timeout),
    }
}

/// `ppoll(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of_time(timeout) } {
        Some(span) => look_until_ready(span, || own_ppoll(fds, count, &AT_ONCE, mask)),
        None => own_ppoll(fds, count, timeout, mask),
    }
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { epoll_pwait(epoll, events, most, timeout, std::ptr::null()) }
}

/// `epoll_pwait(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    match of_milliseconds(timeout) {
        Some(span) => look_until_ready(span, || own_epoll_pwait(epoll, events, most, 0, mask)),
        None => own_epoll_pwait(epoll, events, most, timeout, mask),
    }
}

/// `epoll_pwait2(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of_time(timeout) } {
        Some(span) => look_until_ready(span, || own_epoll_pwait(epoll, events, most, 0, mask)),
        None => own_epoll_pwait2(epoll, events, most, timeout, mask),
    }
}

/// `select(2)`, which says how much of the time is left.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { timeout.as_ref() };
    let span = given.map(|span| timespec {
        tv_sec: span.tv_sec.saturating_add(span.tv_usec / 1_000_000),
        tv_nsec: span.tv_usec % 1_000_000 * 1000,
    });
    let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: it is there, or null.
    let Some(span) = (unsafe { of_time(span) }) else {
        return own_select(count, read, write, except, timeout);
    };
    let began = thread::local();
    // SAFETY: the caller's promise.
    let found = unsafe { look_at_sets(count, [read, write, except], span, std::ptr::null()) };
    if let Some(span) = span {
        let left = to_timespec(span.saturating_sub(thread::local() - began));
        // SAFETY: the caller's promise.
        unsafe { timeout.write(timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 }) };
    }
    found
}

/// `pselect(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of_time(timeout) } {
        // SAFETY: as above.
        Some(span) => unsafe { look_at_sets(count, [read, write, except], span, mask) },
        None => own_pselect(count, read, write, except, timeout, mask),
    }
}

/// # Safety
/// The sets can be read and written, or are null.
unsafe fn look_at_sets(
    count: c_int,
    sets: [*mut fd_set; 3],
    span: Option<u64>,
    mask: *const sigset_t,
) -> c_int {
    // The kernel writes its answer over the question.
    // SAFETY: the caller's promise.
    let asked = sets.map(|set| unsafe { set.as_ref() }.copied());
    look_until_ready(span, || {
        for (set, asked) in sets.iter().zip(&asked) {
            if let Some(asked) = asked {
                // SAFETY: as above.
                unsafe { set.write(*asked) };
            }
        }
        own_pselect(count, sets[0], sets[1], sets[2], &AT_ONCE, mask)
    })
}
