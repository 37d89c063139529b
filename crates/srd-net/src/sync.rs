//! What threads share where the order of what they do decides whether one is woken: in one place so that models of every
//! interleaving can put theirs there (`srd-races`).

pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
