//! Barriers of threads. The C library's cannot be asked whether somebody waits: here they are counted again, and a thread that takes part waits in the
//! simulation (`fellows.rs`).
#![allow(unsafe_code)]

use crate::own::own;
use crate::{fellows, thread};
use libc::{c_int, c_uint, pthread_barrier_t, pthread_barrierattr_t};
use srd_virtual::futex;
use srd_virtual::layout::NEVER;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

own!(own_init, c"pthread_barrier_init", None,
    (barrier: *mut pthread_barrier_t, attributes: *const pthread_barrierattr_t, count: c_uint));
own!(own_destroy, c"pthread_barrier_destroy", None, (barrier: *mut pthread_barrier_t));
own!(own_wait, c"pthread_barrier_wait", None, (barrier: *mut pthread_barrier_t));

/// A barrier of the program's.
struct Barrier {
    /// Its address.
    at: usize,
    /// For how many, and how many have come.
    count: u32,
    come: u32,
    /// How often all have come.
    round: Arc<AtomicU32>,
}

static BARRIERS: Mutex<Vec<Barrier>> = Mutex::new(Vec::new());

fn barriers() -> MutexGuard<'static, Vec<Barrier>> {
    BARRIERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `pthread_barrier_init(3)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: *mut pthread_barrier_t,
    attributes: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    let result = own_init(barrier, attributes, count);
    let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
    if !attributes.is_null() {
        // SAFETY: the caller's promise.
        unsafe { libc::pthread_barrierattr_getpshared(attributes, &mut shared) };
    }
    if result == 0 && shared == libc::PTHREAD_PROCESS_PRIVATE {
        let mut barriers = barriers();
        let at = barrier as usize;
        barriers.retain(|other| other.at != at); // there was one that nobody destroyed
        barriers.push(Barrier { at, count, come: 0, round: Arc::default() });
    }
    result
}

/// `pthread_barrier_destroy(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    barriers().retain(|other| other.at != barrier as usize);
    own_destroy(barrier)
}

/// `pthread_barrier_wait(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    let at = barrier as usize;
    let mut barriers = barriers();
    let Some(own) = barriers.iter_mut().find(|other| other.at == at) else {
        drop(barriers);
        return own_wait(barrier);
    };
    let (round, before) = (Arc::clone(&own.round), own.round.load(Ordering::Acquire));
    own.come += 1;
    if own.come == own.count {
        own.come = 0;
        round.store(before.wrapping_add(1), Ordering::Release);
        drop(barriers);
        fellows::signalled(at, true);
        futex::wake(&round);
        return libc::PTHREAD_BARRIER_SERIAL_THREAD;
    }
    drop(barriers);
    let over = || round.load(Ordering::Acquire) != before;
    while !over() {
        if thread::has_fellows() {
            fellows::take(at, NEVER, over);
        } else {
            futex::wait(&round, before, None);
        }
    }
    0
}
