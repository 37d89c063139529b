//! What programs can wait for, one by one or in sets, and how that begins and ends.

use crate::boundary::{Errno, Outcome, object};
use crate::constants::*;
use crate::layout::fid;
use crate::movers::Movers;
use crate::wait::{Signal, WaitObject};
use libc::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a program can wait for: queues, counters, and sets of them.
pub(crate) trait Waitable {
    /// What it sleeps on.
    fn wait_object(&self) -> &WaitObject;

    /// What the program calls it.
    fn context(&self) -> *mut c_void;

    /// Who brings what comes, if it is not the program itself.
    fn movers(&self) -> Option<&Movers> {
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
            let Some(movers) = self.movers() else { return Ok(true) };
            // What comes by shared memory need not be anything for this program.
            if movers.fall_asleep()? {
                movers.hand_over();
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The objects of all wait sets, each with the set's signal. Sets are few, and looked at before a sleep only.
static MEMBERS: Mutex<Vec<Member>> = Mutex::new(Vec::new());

struct Member {
    signal: Arc<Signal>,
    object: *const dyn Waitable,
}

// SAFETY: the object leaves the list before it is closed.
unsafe impl Send for Member {}

fn members() -> MutexGuard<'static, Vec<Member>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The objects of the set that sleeps on this.
pub(crate) fn members_of(set: &WaitObject) -> Vec<*const dyn Waitable> {
    let mine = |it: &&Member| set.signal.as_ref().is_some_and(|signal| Arc::ptr_eq(&it.signal, signal));
    members().iter().filter(mine).map(|it| it.object).collect()
}

/// Enters an object that has been opened in its set, if it waits by one.
///
/// # Safety
/// The object is live until [`close`].
pub(crate) unsafe fn enter(object: *const dyn Waitable) {
    // SAFETY: as the caller says.
    let wait = unsafe { &*object }.wait_object();
    if let Some(signal) = wait.signal.clone().filter(|_| wait.kind == FI_WAIT_SET) {
        members().push(Member { signal, object });
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
    if closed.wait_object().kind == FI_WAIT_SET {
        members().retain(|member| !std::ptr::addr_eq(member.object, fid));
    }
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(fid.cast::<T>()) });
    Ok(())
}
