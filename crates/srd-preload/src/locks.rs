//! Locks, conditions and threads of the C library, where more than one thread of a process takes part (`fellows.rs`).
#![allow(unsafe_code)]

use crate::process::{channel, origin};
use crate::{fellows, mpi, thread};
use libc::{
    c_char, c_int, c_void, clockid_t, pthread_attr_t, pthread_cond_t, pthread_mutex_t, pthread_t, timespec,
};
use srd_virtual::futex;
use srd_virtual::layout::NEVER;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const SECOND: u64 = 1_000_000_000;

/// The C library's own function of that name, and version if there are several.
struct Own {
    name: &'static CStr,
    version: Option<&'static CStr>,
    found: AtomicPtr<c_void>,
}

impl Own {
    const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Own {
        Own { name, version, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let of_version = |version: &CStr| {
            // SAFETY: both are C strings.
            unsafe { dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) }
        };
        let mut found = self.version.map_or(std::ptr::null_mut(), of_version);
        if found.is_null() {
            // SAFETY: the name is a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        }
        if found.is_null() {
            std::process::abort(); // a C library without locks
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// That of conditions since they are what they are now; before, they were something else.
#[cfg(target_arch = "x86_64")]
const CONDITIONS: Option<&CStr> = Some(c"GLIBC_2.3.2");
#[cfg(not(target_arch = "x86_64"))]
const CONDITIONS: Option<&CStr> = None;

/// Declares the C library's own `$name`.
macro_rules! own {
    ($call:ident, $name:literal, $version:expr, ($($argument:ident: $type:ty),*)) => {
        fn $call($($argument: $type),*) -> c_int {
            static OWN: Own = Own::new($name, $version);
            // SAFETY: the function of that name takes and returns that; what it is given is what our caller was.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(OWN.get())($($argument),*)
            }
        }
    };
}

own!(own_lock, c"pthread_mutex_lock", None, (mutex: *mut pthread_mutex_t));
own!(own_unlock, c"pthread_mutex_unlock", None, (mutex: *mut pthread_mutex_t));
own!(own_wait, c"pthread_cond_wait", CONDITIONS, (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t));
own!(own_timedwait, c"pthread_cond_timedwait", CONDITIONS,
    (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec));
own!(own_signal, c"pthread_cond_signal", CONDITIONS, (condition: *mut pthread_cond_t));
own!(own_broadcast, c"pthread_cond_broadcast", CONDITIONS, (condition: *mut pthread_cond_t));
own!(own_create, c"pthread_create", None,
    (thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void));
own!(own_join, c"pthread_join", None, (thread: pthread_t, result: *mut *mut c_void));

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// `pthread_mutex_lock(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    match thread::has_fellows() {
        // SAFETY: the caller gives a mutex.
        true => fellows::lock(mutex as usize, || unsafe { libc::pthread_mutex_trylock(mutex) }),
        false => own_lock(mutex),
    }
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
pub extern "C" fn pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    match thread::has_fellows() {
        true => {
            wait_until(condition, mutex, NEVER);
            0
        }
        false => own_wait(condition, mutex),
    }
}

/// `pthread_cond_timedwait(3)`: of the clock whose time it can be.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { until.as_ref() }.filter(|_| thread::has_fellows());
    let Some(given) = given else { return own_timedwait(condition, mutex, until) };
    let shown = (given.tv_sec as u64).saturating_mul(SECOND).saturating_add(given.tv_nsec as u64);
    let of = |id: clockid_t| origin(id).unwrap_or(0);
    let (real, monotonic) = (of(libc::CLOCK_REALTIME), of(libc::CLOCK_MONOTONIC));
    let origin = if shown.abs_diff(real) < shown.abs_diff(monotonic) { real } else { monotonic };
    match wait_until(condition, mutex, shown.saturating_sub(origin)) {
        true => 0,
        false => libc::ETIMEDOUT,
    }
}

fn wait_until(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: u64) -> bool {
    let unlock = || {
        own_unlock(mutex);
    };
    let signalled = fellows::await_condition(condition as usize, mutex as usize, unlock, until);
    pthread_mutex_lock(mutex);
    signalled
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

/// What a thread begins with that takes part from its beginning.
struct Beginning {
    start: Start,
    argument: *mut c_void,
    slot: usize,
    /// 1: it lies in its slot.
    there: AtomicU32,
}

/// `pthread_create(3)`: in a program whose threads may call MPI at once, threads of those that take part do so from their beginning.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let takes_part =
        mpi::is_multiple() && mpi::phase() == srd_virtual::Phase::Running && thread::takes_part();
    let Some((channel, slot)) =
        channel().filter(|_| takes_part).and_then(|channel| Some((channel, thread::claim(channel)?)))
    else {
        return own_create(thread, attributes, start, argument);
    };
    let beginning = Beginning { start, argument, slot, there: AtomicU32::new(0) };
    let given = std::ptr::from_ref(&beginning).cast_mut().cast();
    let result = own_create(thread, attributes, begin, given);
    if result != 0 {
        thread::free(channel, slot);
        return result;
    }
    while beginning.there.load(Ordering::Acquire) == 0 {
        futex::wait(&beginning.there, 0, None);
    }
    0
}

extern "C" fn begin(given: *mut c_void) -> *mut c_void {
    // SAFETY: the creator waits, and with it what it has given, until `there` says so.
    let beginning = unsafe { &*given.cast::<Beginning>() };
    let (start, argument) = (beginning.start, beginning.argument);
    if let Some(channel) = channel() {
        thread::take(channel, beginning.slot);
    }
    thread::settle(srd_virtual::Kind::Want, 0);
    beginning.there.store(1, Ordering::Release);
    futex::wake(&beginning.there); // only its address counts from here on
    thread::stay(srd_virtual::Kind::Want, 0);
    start(argument)
}

/// `pthread_join(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    if thread::has_fellows() {
        fellows::await_end(thread);
    }
    own_join(thread, result)
}
