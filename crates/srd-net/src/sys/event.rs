//! Sleeping until something happens: event counters and epoll, with deadlines in nanoseconds.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
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
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = timespec(timeout);
        // SAFETY: one entry, and a time that outlives the call.
        unsafe { libc::ppoll(&mut poll, 1, &timeout, ptr::null()) > 0 }
    }
}

impl AsFd for EventFd {
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

/// A set of descriptors to sleep on.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    coarse: AtomicBool,
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is involved.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and belongs to nobody else.
        Ok(Epoll { fd: unsafe { OwnedFd::from_raw_fd(fd) }, coarse: AtomicBool::new(false) })
    }

    /// Wakes sleepers when `fd` is readable.
    pub fn add_readable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event outlives the call.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        })?;
        Ok(())
    }

    /// Sleeps until a descriptor is readable, or `timeout` (`None`: for ever) is over, or a signal was handled.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let until = timeout.map(timespec);
        let until_ptr = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        if !self.coarse.load(Ordering::Relaxed) {
            // The system call itself: the C library has it only since 2.35.
            // SAFETY: room for the number of events given; the time outlives the call.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.fd.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as libc::c_int,
                    until_ptr,
                    ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            };
            if got >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
                return;
            }
            self.coarse.store(true, Ordering::Relaxed); // before Linux 5.11
        }
        let millis =
            timeout.map_or(-1, |t| t.as_micros().div_ceil(1000).min(i32::MAX as u128) as libc::c_int);
        // SAFETY: room for the number of events given.
        unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), events.len() as libc::c_int, millis)
        };
    }
}
