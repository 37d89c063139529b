//! The lock of a completion queue's consumer side.
//!
//! It is held from `start_poll` to `end_poll`, so across calls, and the thread that holds it may come back meanwhile:
//! programs destroy queue pairs and arm the queue while they iterate. It never covers posting
//! (docs/design/efa-verbs.md, "Trap 1").

use srd_net::this_thread;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct PollLock<T> {
    /// Whose it is: a number per thread, 0 for nobody's.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only one thread at a time reaches the value.
unsafe impl<T: Send> Sync for PollLock<T> {}

/// The lock, until this is dropped, be it by a panic.
pub(crate) struct Guard<'a, T>(&'a PollLock<T>);

impl<T> Guard<'_, T> {
    /// It stays locked until somebody unlocks it.
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<T> PollLock<T> {
    pub fn new(value: T) -> PollLock<T> {
        PollLock { owner: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock; waits while another thread iterates.
    #[inline]
    pub fn lock(&self) {
        let me = this_thread();
        let mut turns = 0u32;
        while self.owner.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Polls are short; but where there are more threads than cores, the owner may need this one.
            turns += 1;
            if turns.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes the lock for as long as the guard lives.
    #[inline]
    pub fn guard(&self) -> Guard<'_, T> {
        self.lock();
        self.locked()
    }

    /// The calling thread, which holds the lock, gives it back with the guard.
    #[inline]
    pub fn locked(&self) -> Guard<'_, T> {
        Guard(self)
    }

    /// Gives it back.
    #[inline]
    pub fn unlock(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// What it protects.
    ///
    /// # Safety
    /// The calling thread holds the lock and no other reference to the value.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn held(&self) -> &mut T {
        // SAFETY: as the caller says.
        unsafe { &mut *self.value.get() }
    }

    /// Runs `f` under the lock, which this thread may hold already.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mine = self.owner.load(Ordering::Relaxed) == this_thread();
        let _guard = (!mine).then(|| self.guard());
        // SAFETY: we hold it. Between the calls of an iteration nothing keeps a reference to the value.
        f(unsafe { self.held() })
    }
}
