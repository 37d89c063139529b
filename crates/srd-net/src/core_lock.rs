//! The lock of an instance's device, which knows when the thread that asks for it has it already.
//!
//! That happens when a signal comes in the middle of a call and its handler calls the device again, or calls `exit()`,
//! which runs the destructors of libraries that close their devices (libfabric's, with the handler of the PSM library
//! that Debian's loads). A plain lock would wait for itself for ever.
//!
//! A panic while it is held is final: what it leaves half changed is never used again, and the lock never given out.

use crate::core::Core;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, OnceLock, Ordering, panicking, this_thread};
use srd_device::{Completion, CqId};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

/// See the module.
pub(crate) struct CoreLock {
    /// The thread that holds it: a number per thread, 0 for none.
    owner: AtomicUsize,
    core: Mutex<Core>,
    failed: AtomicBool,
    /// What the program may still poll of a device that has failed.
    last: OnceLock<Mutex<VecDeque<(CqId, Completion)>>>,
    /// Who is told of the failure.
    mourner: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The device, for as long as it is held. The fields are dropped in this order.
pub(crate) struct Held<'a> {
    _owned: Owned<'a>,
    core: MutexGuard<'a, Core>,
    _witness: Witness<'a>,
}

impl Held<'_> {
    /// Lets go of it. As dropping it, without a call.
    #[inline(always)]
    pub(crate) fn release(self) {
        let Held { _owned, core, _witness } = self;
        drop(_owned);
        drop(core);
        std::mem::forget(_witness); // there was no panic, or this would not be called
    }
}

struct Owned<'a>(&'a AtomicUsize);

impl Drop for Owned<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Notices, after the lock was let go of, that this was because of a panic.
struct Witness<'a>(&'a CoreLock);

impl Drop for Witness<'_> {
    #[inline]
    fn drop(&mut self) {
        if panicking() && self.0.core.is_poisoned() {
            self.0.fail();
        }
    }
}

/// Why the lock is not given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// This very thread holds it.
    Interrupted,
    /// The device has failed.
    Failed,
}

impl CoreLock {
    pub(crate) fn new(core: Core) -> CoreLock {
        CoreLock {
            owner: AtomicUsize::new(0),
            core: Mutex::new(core),
            failed: AtomicBool::new(false),
            last: OnceLock::new(),
            mourner: OnceLock::new(),
        }
    }

    /// `mourner` is called once if the device fails, with no lock held.
    pub(crate) fn on_failure(&self, mourner: impl Fn() + Send + Sync + 'static) {
        let _ = self.mourner.set(Box::new(mourner)); // whoever was first stays
    }

    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Result<Held<'_>, Refused> {
        let me = this_thread();
        if self.owner.load(Ordering::Relaxed) == me {
            return Err(Refused::Interrupted);
        }
        match self.core.lock() {
            Ok(core) if !self.has_failed() => Ok(self.held(core, me)),
            _ => Err(Refused::Failed),
        }
    }

    /// Whether another thread holds it at this moment.
    #[inline]
    pub(crate) fn is_held_by_another(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner != this_thread()
    }

    /// The lock if nobody has it and the device has not failed.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        match self.core.try_lock() {
            Ok(core) if !self.has_failed() => Some(self.held(core, this_thread())),
            _ => None,
        }
    }

    /// Whether there was a panic inside the device, and whoever was in it has left.
    pub(crate) fn is_over(&self) -> bool {
        self.last.get().is_some()
    }

    /// Whether there was a panic inside the device.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The device ends here, whatever it was doing.
    #[cold]
    pub(crate) fn fail(&self) {
        if self.owner.load(Ordering::Relaxed) == this_thread() || self.failed.swap(true, Ordering::SeqCst) {
            return;
        }
        // Whoever has the lock is waited for, and nobody gets it afterwards.
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        // What is half changed may well make this panic, too.
        let last = catch_unwind(AssertUnwindSafe(|| core.device.last_completions())).unwrap_or_default();
        drop(core);
        let _ = self.last.set(Mutex::new(last.into()));
        if let Some(mourner) = self.mourner.get() {
            // This may be a destructor that runs because of a panic: another one would abort the process.
            let _ = catch_unwind(AssertUnwindSafe(mourner));
        }
    }

    /// What is left of it, once it has failed and whoever was in it has left.
    #[cold]
    pub(crate) fn with_failed(&self, f: impl FnOnce(&mut Core)) {
        if self.is_over() {
            f(&mut self.core.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Takes the oldest completion that a failed device has left for `cq`.
    pub(crate) fn take_last(&self, cq: CqId) -> Option<Completion> {
        // Whoever failed it is about to say.
        let mut last = self.last.wait().lock().unwrap_or_else(PoisonError::into_inner);
        let at = last.iter().position(|(of, _)| *of == cq)?;
        last.remove(at).map(|(_, completion)| completion)
    }

    #[inline(always)]
    fn held<'a>(&'a self, core: MutexGuard<'a, Core>, me: usize) -> Held<'a> {
        self.owner.store(me, Ordering::Relaxed);
        Held { _owned: Owned(&self.owner), core, _witness: Witness(self) }
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
