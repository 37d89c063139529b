//! Sleeping until something happens: event counters, alarms and sets of descriptors, with deadlines in nanoseconds.

use super::simulated;
use super::xdp::MOST_QUEUES;
use crate::slots::SLOTS;
use arrayvec::ArrayVec;
use nix::sys::eventfd::{self, EfdFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// An event counter (`eventfd`): readable from [`EventFd::signal`] to [`EventFd::drain`].
#[derive(Debug)]
pub struct EventFd(eventfd::EventFd);

impl EventFd {
    /// A counter at zero.
    pub fn new() -> io::Result<EventFd> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(EventFd(eventfd::EventFd::from_flags(flags)?))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let _ = self.0.write(1); // fails only for a counter at its limit, which is readable anyway
    }

    /// Makes it unreadable; returns whether it was readable.
    pub fn drain(&self) -> bool {
        self.0.read().is_ok()
    }

    /// Sleeps until it is readable or `timeout` is over. Returns whether it is readable.
    pub fn wait(&self, timeout: Duration) -> bool {
        ppoll(&mut [entry(&self.0.as_raw_fd())], Some(timeout)) > 0
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A clock that makes itself readable at a time (`timerfd`).
#[derive(Debug)]
pub struct Alarm(TimerFd);

impl Alarm {
    /// One that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Alarm(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// It will be readable after `span`, which is not zero, and is not until then.
    pub fn set(&self, span: Duration) {
        // It cannot fail: the descriptor is a timer and the time is valid.
        let _ = self.0.set(Expiration::OneShot(timespec(span)), TimerSetTimeFlags::empty());
    }

    /// It is not readable, and will not be.
    pub fn clear(&self) {
        let _ = self.0.unset();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn timespec(span: Duration) -> TimeSpec {
    span.min(Duration::from_secs(i32::MAX as u64)).into()
}

/// Most descriptors of a set: a socket for each receive port that an instance can have, those of a ring, and an event counter.
const MOST_DESCRIPTORS: usize = SLOTS as usize + MOST_QUEUES as usize + 1;

/// A set of descriptors to sleep on.
///
/// It sleeps in `ppoll`, not in epoll: a socket that belongs to an epoll set makes each packet's sender run the wake-up
/// of that set, though nobody sleeps there. And descriptors are few.
#[derive(Debug)]
pub struct PollSet {
    fds: Mutex<ArrayVec<RawFd, MOST_DESCRIPTORS>>,
}

impl PollSet {
    /// An empty set.
    pub fn new() -> PollSet {
        PollSet { fds: Mutex::default() }
    }

    /// Sleeps end when `fd` is readable, too. The caller keeps it open as long as the set is used.
    ///
    /// # Panics
    ///
    /// If the set is full: it has room for what one instance sleeps on.
    pub fn add_readable(&self, fd: BorrowedFd<'_>) {
        self.fds.lock().unwrap_or_else(PoisonError::into_inner).push(fd.as_raw_fd());
    }

    /// Sleeps until a descriptor is readable, or `timeout` (`None`: for ever) is over, or a signal was handled.
    pub fn wait(&self, timeout: Option<Duration>) -> Wakening {
        self.wait_or(timeout, None)
    }

    /// The same, or until `other` is readable.
    pub fn wait_or(&self, timeout: Option<Duration>, other: Option<BorrowedFd<'_>>) -> Wakening {
        if let Some((library, _)) = simulated::known() {
            library.wait(timeout);
            return Wakening { by_signal: false, first_is_ready: false };
        }
        let fds = self.fds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries: ArrayVec<_, { MOST_DESCRIPTORS + 1 }> = fds.iter().map(entry).collect();
        drop(fds);
        entries.extend(other.map(|fd| entry(&fd.as_raw_fd())));
        let n = ppoll(&mut entries, timeout);
        Wakening {
            by_signal: n < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted,
            first_is_ready: n > 0 && entries.first().is_some_and(|first| first.revents != 0),
        }
    }
}

/// What a sleep on descriptors ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wakening {
    /// A handler of a signal has run.
    pub by_signal: bool,
    /// The descriptor that was added first is readable.
    pub first_is_ready: bool,
}

fn entry(&fd: &RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Returns how many are ready; below 0 if it was interrupted.
fn ppoll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let until = timeout.map(timespec);
    let until = until.as_ref().map_or(ptr::null(), |until| ptr::from_ref(until.as_ref()));
    // SAFETY: as many entries as said, and a time that outlives the call or none.
    unsafe { libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, until, ptr::null()) }
}
