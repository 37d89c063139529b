//! Sleeping until something happens: event counters, alarms and sets of descriptors, with deadlines in nanoseconds.

use super::check;
use crate::slots::SLOTS;
use arrayvec::ArrayVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// An event counter (`eventfd`): readable from [`EventFd::signal`] to [`EventFd::drain`].
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A counter at zero.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: no memory is involved.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor is new and belongs to nobody else.
        Ok(EventFd { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is 8 bytes long. The only failure is a counter at its limit, which is readable anyway.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable; returns whether it was readable.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: the buffer is 8 bytes long.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        got == 8
    }

    /// Sleeps until it is readable or `timeout` is over. Returns whether it is readable.
    pub fn wait(&self, timeout: Duration) -> bool {
        ppoll(
            &mut [libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }],
            Some(timeout),
        ) > 0
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A clock that makes itself readable at a time (`timerfd`).
#[derive(Debug)]
pub struct Alarm {
    fd: OwnedFd,
}

impl Alarm {
    /// One that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the descriptor is new and belongs to nobody else.
        Ok(Alarm { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// It will be readable after `span`, which is not zero, and is not until then.
    pub fn set(&self, span: Duration) {
        let never = timespec(Duration::ZERO);
        let time = libc::itimerspec { it_interval: never, it_value: timespec(span) };
        // SAFETY: the time outlives the call. It cannot fail: the descriptor is a timer and the time is valid.
        unsafe { libc::timerfd_settime(self.fd.as_raw_fd(), 0, &raw const time, ptr::null_mut()) };
    }

    /// It is not readable, and will not be.
    pub fn clear(&self) {
        self.set(Duration::ZERO); // to the system, zero means never
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(span: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: span.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: span.subsec_nanos() as libc::c_long,
    }
}

/// Most descriptors of a set: a socket for each receive port that an instance can have, a ring, and an event counter.
const MOST_DESCRIPTORS: usize = SLOTS as usize + 2;

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
        let entry = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let fds = self.fds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries: ArrayVec<_, MOST_DESCRIPTORS> = fds.iter().map(entry).collect();
        drop(fds);
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

/// Returns how many are ready; below 0 if it was interrupted.
fn ppoll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let until = timeout.map(timespec);
    let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: as many entries as said, and a time that outlives the call or none.
    unsafe { libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, until, ptr::null()) }
}
