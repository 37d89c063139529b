//! What threads share where the order of what they do decides whether one is woken, or who gets the device: in one place so
//! that models of every interleaving can put theirs there (`srd-races`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub(crate) use std::thread::panicking;

/// A number that no other living thread has.
#[inline]
pub fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| &raw const *mark as usize)
}
