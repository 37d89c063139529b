//! Locks, conditions and semaphores of the C library, where a thread that takes part waits (`fellows.rs`): for others of its process that do so,
//! too, or until a time of the simulation's.
#![allow(unsafe_code)]

use crate::fellows::{self, Ended};
use crate::own::{self, CONDITIONS, end_if_cancelled, nanoseconds, own};
use crate::process::origin;
use crate::thread;
use libc::{c_int, clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, sem_t, timespec};
use srd_virtual::layout::NEVER;

own!(own_lock, c"pthread_mutex_lock", None, (mutex: *mut pthread_mutex_t));
own!(own_unlock, c"pthread_mutex_unlock", None, (mutex: *mut pthread_mutex_t));
own!(own_timedlock, c"pthread_mutex_timedlock", None, (mutex: *mut pthread_mutex_t, until: *const timespec));
own!(own_clocklock, c"pthread_mutex_clocklock", None,
    (mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec));
own!(own_wait, c"pthread_cond_wait", CONDITIONS, (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t));
own!(own_timedwait, c"pthread_cond_timedwait", CONDITIONS,
    (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec));
own!(own_clockwait, c"pthread_cond_clockwait", None,
    (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec));
own!(own_signal, c"pthread_cond_signal", CONDITIONS, (condition: *mut pthread_cond_t));
own!(own_broadcast, c"pthread_cond_broadcast", CONDITIONS, (condition: *mut pthread_cond_t));
own!(own_sem_post, c"sem_post", None, (semaphore: *mut sem_t));
own!(own_sem_wait, c"sem_wait", None, (semaphore: *mut sem_t));
own!(own_sem_timedwait, c"sem_timedwait", None, (semaphore: *mut sem_t, until: *const timespec));
own!(own_sem_clockwait, c"sem_clockwait", None, (semaphore: *mut sem_t, clock: clockid_t, until: *const timespec));
own!(own_rdlock, c"pthread_rwlock_rdlock", None, (lock: *mut pthread_rwlock_t));
own!(own_wrlock, c"pthread_rwlock_wrlock", None, (lock: *mut pthread_rwlock_t));
own!(own_rwunlock, c"pthread_rwlock_unlock", None, (lock: *mut pthread_rwlock_t));
own!(own_timedrdlock, c"pthread_rwlock_timedrdlock", None, (lock: *mut pthread_rwlock_t, until: *const timespec));
own!(own_timedwrlock, c"pthread_rwlock_timedwrlock", None, (lock: *mut pthread_rwlock_t, until: *const timespec));
own!(own_clockrdlock, c"pthread_rwlock_clockrdlock", None,
    (lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec));
own!(own_clockwrlock, c"pthread_rwlock_clockwrlock", None,
    (lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec));

/// The simulated time at which that clock shows `until`, for a thread that waits in the simulation.
///
/// # Safety
/// `until` can be read, or is null.
pub unsafe fn simulated(clock: clockid_t, until: *const timespec) -> Option<u64> {
    // SAFETY: the caller's promise.
    let shown = unsafe { until.as_ref() }.filter(|_| thread::waits_in_simulation()).and_then(nanoseconds)?;
    Some(shown.saturating_sub(origin(clock)?))
}

/// The same of a condition's, which may be of one of two clocks: that whose time it can be.
unsafe fn simulated_of_either(until: *const timespec) -> Option<u64> {
    // SAFETY: the caller's promise.
    let shown = unsafe { until.as_ref() }.and_then(nanoseconds)?;
    let far = |clock| shown.abs_diff(origin(clock).unwrap_or(0));
    let clocks = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC];
    let clock = clocks.into_iter().min_by_key(|clock| far(*clock))?;
    // SAFETY: the caller's promise.
    unsafe { simulated(clock, until) }
}

/// `pthread_mutex_lock(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    match thread::has_fellows() {
        true => lock_until(mutex, NEVER),
        false => own_lock(mutex),
    }
}

fn lock_until(mutex: *mut pthread_mutex_t, until: u64) -> c_int {
    // SAFETY: the caller gives a mutex.
    fellows::lock(mutex as usize, until, || unsafe { libc::pthread_mutex_trylock(mutex) })
}

/// `pthread_mutex_unlock(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let result = own_unlock(mutex);
    fellows::unlocked(mutex as usize);
    result
}

/// `pthread_cond_wait(3)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    match thread::has_fellows() {
        true => wait_until(condition, mutex, NEVER),
        false => own_wait(condition, mutex),
    }
}

/// `pthread_cond_timedwait(3)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { simulated_of_either(until) } {
        Some(until) => wait_until(condition, mutex, until),
        None => own_timedwait(condition, mutex, until),
    }
}

/// `pthread_cond_clockwait(3)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { simulated(clock, until) } {
        Some(until) => wait_until(condition, mutex, until),
        None => own_clockwait(condition, mutex, clock, until),
    }
}

fn wait_until(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: u64) -> c_int {
    let unlock = || {
        own_unlock(mutex);
    };
    let ended = fellows::await_condition(condition as usize, mutex as usize, unlock, until);
    lock_until(mutex, NEVER);
    end_if_cancelled();
    if ended == Ended::TooLate { libc::ETIMEDOUT } else { 0 }
}

/// `pthread_cond_signal(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    fellows::signalled(condition as usize, false);
    own_signal(condition)
}

/// `pthread_cond_broadcast(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    fellows::signalled(condition as usize, true);
    own_broadcast(condition)
}

/// `sem_post(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn sem_post(semaphore: *mut sem_t) -> c_int {
    let result = own_sem_post(semaphore);
    fellows::signalled(semaphore as usize, false);
    result
}

/// `sem_wait(3)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sem_wait(semaphore: *mut sem_t) -> c_int {
    match thread::has_fellows() {
        true => take_until(semaphore, NEVER),
        false => own_sem_wait(semaphore),
    }
}

fn take_until(semaphore: *mut sem_t, until: u64) -> c_int {
    loop {
        end_if_cancelled();
        // SAFETY: the caller gives a semaphore.
        match fellows::take(semaphore as usize, until, || unsafe { libc::sem_trywait(semaphore) } == 0) {
            Ended::Come => return 0,
            Ended::TooLate => return own::fail(libc::ETIMEDOUT),
            Ended::Early => {}
        }
    }
}

/// `pthread_rwlock_rdlock(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
    match thread::has_fellows() {
        true => read_until(lock, NEVER),
        false => own_rdlock(lock),
    }
}

/// `pthread_rwlock_wrlock(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
    match thread::has_fellows() {
        true => write_until(lock, NEVER),
        false => own_wrlock(lock),
    }
}

/// `pthread_rwlock_unlock(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    let result = own_rwunlock(lock);
    fellows::unlocked(lock as usize);
    result
}

fn read_until(lock: *mut pthread_rwlock_t, until: u64) -> c_int {
    // SAFETY: the caller gives a lock.
    let result = fellows::lock(lock as usize, until, || unsafe { libc::pthread_rwlock_tryrdlock(lock) });
    if result == 0 {
        fellows::unlocked(lock as usize); // another may read, too
    }
    result
}

fn write_until(lock: *mut pthread_rwlock_t, until: u64) -> c_int {
    // SAFETY: the caller gives a lock.
    fellows::lock(lock as usize, until, || unsafe { libc::pthread_rwlock_trywrlock(lock) })
}

/// Waits for such a thing until a time of a clock's: of `CLOCK_REALTIME`, and of the one that is given.
macro_rules! until_a_time {
    ($($timed:ident $own_timed:ident, $clocked:ident $own_clocked:ident: |$it:ident: $of:ty, $until:ident| $wait:expr;)*) => {$(
        /// As that of the C library.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $timed($it: $of, until: *const timespec) -> c_int {
            // SAFETY: the caller's promise.
            match unsafe { simulated(libc::CLOCK_REALTIME, until) } {
                Some($until) => $wait,
                None => $own_timed($it, until),
            }
        }

        /// The same.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $clocked($it: $of, clock: clockid_t, until: *const timespec) -> c_int {
            // SAFETY: the caller's promise.
            match unsafe { simulated(clock, until) } {
                Some($until) => $wait,
                None => $own_clocked($it, clock, until),
            }
        }
    )*};
}

until_a_time! {
    pthread_mutex_timedlock own_timedlock, pthread_mutex_clocklock own_clocklock:
        |mutex: *mut pthread_mutex_t, until| lock_until(mutex, until);
    sem_timedwait own_sem_timedwait, sem_clockwait own_sem_clockwait:
        |semaphore: *mut sem_t, until| take_until(semaphore, until);
    pthread_rwlock_timedrdlock own_timedrdlock, pthread_rwlock_clockrdlock own_clockrdlock:
        |lock: *mut pthread_rwlock_t, until| read_until(lock, until);
    pthread_rwlock_timedwrlock own_timedwrlock, pthread_rwlock_clockwrlock own_clockwrlock:
        |lock: *mut pthread_rwlock_t, until| write_until(lock, until);
}
