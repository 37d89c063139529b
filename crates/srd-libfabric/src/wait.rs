//! What programs sleep on: descriptors that become readable when there is something, and how long a sleep may be.

use crate::boundary::{Errno, Outcome, object};
use crate::constants::*;
use crate::engine::Engine;
use crate::layout::fid;
use crate::wait_set;
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
        *unsafe { crate::boundary::writable(arg.cast::<c_int>()) }? = answer;
        Ok(())
    }
}

/// What a program can wait for: queues, counters, and sets of them.
pub(crate) trait Waitable {
    /// What it sleeps on.
    fn wait_object(&self) -> &WaitObject;

    /// What the program calls it.
    fn context(&self) -> *mut c_void;

    /// Who brings what comes, if it is not the program itself.
    fn engine(&self) -> Option<&Engine> {
        None
    }

    /// Whether something refers to it.
    fn is_bound(&self) -> bool;

    /// Moves packets where that can bring something, and tells whether there is anything.
    fn look(&self) -> Outcome<bool>;

    /// fi_trywait(3): whether the program may sleep on the descriptor.
    fn try_wait(&self) -> Outcome<bool> {
        if let Some(signal) = &self.wait_object().signal {
            signal.lower();
        }
        self.may_sleep()
    }

    /// The same for who has lowered the signal.
    fn may_sleep(&self) -> Outcome<bool> {
        while !self.look()? {
            let Some(engine) = self.engine() else { return Ok(true) };
            // What comes by shared memory need not be anything for this program.
            if engine.fall_asleep()? {
                engine.instance.hand_over();
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Closes one, unless something refers to it.
///
/// # Safety
/// The pointer is NULL or points to a live `T` in a box, which nobody uses any more.
pub(crate) unsafe fn close<T: Waitable>(fid: *mut fid) -> Outcome<()> {
    // SAFETY: as the caller says.
    let closed: &T = unsafe { object(fid) }?;
    if closed.is_bound() {
        return Err(Errno::BUSY);
    }
    wait_set::leave(closed.wait_object(), fid);
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(fid.cast::<T>()) });
    Ok(())
}

/// A timeout in milliseconds, as libfabric gives it: negative for none.
pub(crate) fn timeout(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
