//! What threads share where the order of what they do decides whether one is woken, or who gets the device: in one place so
//! that models of every interleaving can put theirs there (`srd-races`).

pub use crate::sys::process::this_thread;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub(crate) use std::thread::panicking;
