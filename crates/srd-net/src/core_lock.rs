//! The lock of an instance's device, which knows when the thread that asks for it has it already.
//!
//! That happens when a signal comes in the middle of a call and its handler calls the device again, or calls `exit()`,
//! which runs the destructors of libraries that close their devices (libfabric's, with the handler of the PSM library
//! that Debian's loads). A plain lock would wait for itself for ever.

use crate::core::Core;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
pub(crate) struct CoreLock {
    /// The thread that holds it: a number per thread, 0 for none.
    owner: AtomicUsize,
    core: Mutex<Core>,
}

/// The device, for as long as it is held.
pub(crate) struct Held<'a> {
    owner: &'a AtomicUsize,
    core: MutexGuard<'a, Core>,
}

/// A number that no other living thread has.
pub fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| &raw const *mark as usize)
}

impl CoreLock {
    pub(crate) fn new(core: Core) -> CoreLock {
        CoreLock { owner: AtomicUsize::new(0), core: Mutex::new(core) }
    }

    /// Waits for the lock; none if this very thread holds it.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_>> {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            return None;
        }
        // A panic inside the device is a mistake there; going on may help a program to end in order.
        Some(self.held(self.core.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether another thread holds it at this moment.
    #[inline]
    pub(crate) fn is_held_by_another(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner != this_thread()
    }

    /// The lock if nobody has it and the device has not failed.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        self.core.try_lock().ok().map(|core| self.held(core))
    }

    /// Whether there was a panic inside the device.
    pub(crate) fn has_failed(&self) -> bool {
        self.core.is_poisoned()
    }

    #[inline]
    fn held<'a>(&'a self, core: MutexGuard<'a, Core>) -> Held<'a> {
        self.owner.store(this_thread(), Ordering::Relaxed);
        Held { owner: &self.owner, core }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl Deref for Held<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}
