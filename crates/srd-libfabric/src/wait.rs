//! What programs sleep on: descriptors that become readable when there is something, and how long a sleep may be.

use crate::boundary::{Errno, Outcome, writable};
use crate::constants::*;
use libc::{c_int, c_void};
use srd_net::EventFd;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A descriptor that is readable from when something came until the program looks (fi_trywait(3)). It is not made
/// unreadable by every read, so that a program that polls all the time pays for it once.
pub(crate) struct Signal {
    event: EventFd,
    raised: AtomicBool,
}

impl Signal {
    pub fn new() -> Outcome<Arc<Signal>> {
        let event = EventFd::new().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EMFILE)))?;
        Ok(Arc::new(Signal { event, raised: AtomicBool::new(false) }))
    }

    /// Something has come.
    #[inline]
    pub fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// The program is about to look whether there is something; what comes from now on is shown.
    pub fn lower(&self) {
        if self.raised.swap(false, Ordering::SeqCst) {
            self.event.drain();
        }
    }

    pub fn fd(&self) -> c_int {
        self.event.as_fd().as_raw_fd()
    }

    /// Sleeps until it is raised; returns whether it was within `timeout` (`None`: for ever).
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.event.wait(timeout.unwrap_or(Duration::MAX))
    }
}

/// The wait object of a queue or counter.
pub(crate) struct WaitObject {
    /// As asked for.
    pub kind: u32,
    /// Raised when something has come, if anybody can look at that.
    pub signal: Option<Arc<Signal>>,
}

impl WaitObject {
    /// `set`: the wait set's signal, for `FI_WAIT_SET`.
    pub fn new(kind: u32, set: Option<Arc<Signal>>) -> Outcome<WaitObject> {
        let signal = match kind {
            FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => None,
            FI_WAIT_FD => Some(Signal::new()?),
            FI_WAIT_SET => Some(set.ok_or(Errno::INVALID)?),
            _ => return Err(Errno::NO_SYS),
        };
        Ok(WaitObject { kind, signal })
    }

    /// Something has come.
    #[inline]
    pub fn raise(&self) {
        if let Some(signal) = &self.signal {
            signal.raise();
        }
    }

    /// Sleeps until something has come, or `timeout` is over.
    pub fn sleep(&self, timeout: Option<Duration>) {
        if let Some(signal) = &self.signal {
            signal.wait(timeout);
        }
    }

    /// FI_GETWAIT and FI_GETWAITOBJ of fi_control(3).
    ///
    /// # Safety
    /// `arg` is NULL or leads to what the command fills in.
    pub unsafe fn control(&self, command: c_int, arg: *mut c_void) -> Outcome<()> {
        let answer = match command {
            FI_GETWAIT => match &self.signal {
                Some(signal) if self.kind == FI_WAIT_FD => signal.fd(),
                _ => return Err(Errno::NO_DATA),
            },
            FI_GETWAITOBJ => self.kind as c_int,
            _ => return Err(Errno::NO_SYS),
        };
        // SAFETY: as the caller says: both are filled in with an int.
        *unsafe { writable(arg.cast::<c_int>()) }? = answer;
        Ok(())
    }
}

/// A timeout in milliseconds, as libfabric gives it: negative for none.
pub(crate) fn timeout(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
