//! Beginnings and ends of threads: those that take part do so from their beginning, and what the others compute counts for who waits for their end.
#![allow(unsafe_code)]

use crate::fellows::{self, Ended};
use crate::locks::simulated;
use crate::own::{end_if_cancelled, own};
use crate::process::channel;
use crate::thread::on_all_cores;
use crate::{mpi, real, thread, waits};
use libc::{c_int, c_void, clockid_t, pthread_attr_t, pthread_t, timespec};
use srd_virtual::layout::{Channel, NEVER};
use srd_virtual::{Kind, Phase, futex};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

own!(own_create, c"pthread_create", None,
    (thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void));
own!(own_join, c"pthread_join", None, (thread: pthread_t, result: *mut *mut c_void));
own!(own_tryjoin, c"pthread_tryjoin_np", None, (thread: pthread_t, result: *mut *mut c_void));
own!(own_timedjoin, c"pthread_timedjoin_np", None,
    (thread: pthread_t, result: *mut *mut c_void, until: *const timespec));
own!(own_clockjoin, c"pthread_clockjoin_np", None,
    (thread: pthread_t, result: *mut *mut c_void, clock: clockid_t, until: *const timespec));
own!(own_cancel, c"pthread_cancel", None, (thread: pthread_t));

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a thread begins with.
struct Beginning {
    start: Start,
    argument: *mut c_void,
    part: Part,
    /// 1: it has read this, and lies in its slot if it has one.
    there: AtomicU32,
}

/// Which part it has in the simulation.
#[derive(Clone, Copy)]
enum Part {
    /// It takes part, and has this slot.
    Takes(usize),
    /// It takes none, but what it computes counts from this moment on.
    Computes(u64),
}

/// Of a thread that only computes: when it began.
struct Alone(Cell<u64>);

impl Alone {
    /// Its clock.
    fn clock(&self) -> Option<u64> {
        let channel = channel().filter(|_| self.0.get() != NEVER)?;
        Some(self.0.get() + real::clock(libc::CLOCK_THREAD_CPUTIME_ID) * channel.compute.measured / 1000)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Some(end) = self.clock() {
            // SAFETY: it takes nothing and cannot fail.
            let own = unsafe { libc::pthread_self() };
            let mut ends = ends();
            ends.retain(|(thread, _)| *thread != own); // of that name there was one that nobody joined
            ends.push((own, end));
        }
    }
}

thread_local! {
    static ALONE: Alone = const { Alone(Cell::new(NEVER)) };
}

/// Clocks of threads that only computed, at their end.
static ENDS: Mutex<Vec<(pthread_t, u64)>> = Mutex::new(Vec::new());

fn ends() -> MutexGuard<'static, Vec<(pthread_t, u64)>> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a thread that the calling one makes.
fn part(channel: &'static Channel) -> Option<Part> {
    if mpi::phase() != Phase::Running {
        return None;
    }
    match thread::takes_part() {
        true if mpi::is_multiple() => Some(Part::Takes(thread::claim(channel)?)),
        _ if channel.compute.measured == 0 => None,
        true => Some(Part::Computes(thread::computed())),
        false => ALONE.try_with(Alone::clock).ok()?.map(Part::Computes),
    }
}

/// `pthread_create(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some((channel, part)) = channel().and_then(|channel| Some((channel, part(channel)?))) else {
        return on_all_cores(|| own_create(thread, attributes, start, argument));
    };
    let beginning = Beginning { start, argument, part, there: AtomicU32::new(0) };
    let given = std::ptr::from_ref(&beginning).cast_mut().cast();
    let result = on_all_cores(|| own_create(thread, attributes, begin, given));
    if result == 0 {
        while beginning.there.load(Ordering::Acquire) == 0 {
            futex::wait(&beginning.there, 0, None);
        }
    } else if let Part::Takes(slot) = part {
        thread::free(channel, slot);
    }
    result
}

extern "C-unwind" fn begin(given: *mut c_void) -> *mut c_void {
    // SAFETY: the creator waits, and with it what it has given, until `there` says so.
    let beginning = unsafe { &*given.cast::<Beginning>() };
    let (start, argument, part) = (beginning.start, beginning.argument, beginning.part);
    let read = || {
        beginning.there.store(1, Ordering::Release);
        futex::wake(&beginning.there); // only its address counts from here on
    };
    match part {
        Part::Takes(slot) => {
            if let Some(channel) = channel() {
                thread::take(channel, slot);
            }
            thread::settle(Kind::Want, 0);
            read();
            thread::stay(Kind::Want, 0);
        }
        Part::Computes(from) => {
            let _ = ALONE.try_with(|alone| alone.0.set(from));
            read();
        }
    }
    let result = start(argument);
    thread::computed();
    result
}

/// `pthread_join(3)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    if thread::has_fellows() {
        while fellows::await_end(thread, NEVER) == Ended::Early {
            end_if_cancelled();
        }
    }
    joined(thread, own_join(thread, result))
}

/// A thread has been joined, if the result is 0: what it has computed the calling one has waited for.
fn joined(thread: pthread_t, result: c_int) -> c_int {
    let counts = channel().is_some_and(|channel| channel.compute.measured > 0);
    if counts && result == 0 {
        let mut ends = ends();
        let end = ends.iter().position(|(other, _)| *other == thread).map(|at| ends.swap_remove(at).1);
        drop(ends);
        if let Some(end) = end
            && !thread::has_come_to(end)
        {
            let _ = ALONE.try_with(|alone| {
                let waited = alone.clock().map_or(0, |own| end.saturating_sub(own));
                alone.0.set(alone.0.get().saturating_add(waited));
            });
        }
    }
    result
}

/// `pthread_timedjoin_np(3)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_timedjoin_np(
    thread: pthread_t,
    result: *mut *mut c_void,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { simulated(libc::CLOCK_REALTIME, until) } {
        Some(until) => join_until(thread, result, until),
        None => joined(thread, own_timedjoin(thread, result, until)),
    }
}

/// `pthread_clockjoin_np(3)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_clockjoin_np(
    thread: pthread_t,
    result: *mut *mut c_void,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { simulated(clock, until) } {
        Some(until) => join_until(thread, result, until),
        None => joined(thread, own_clockjoin(thread, result, clock, until)),
    }
}

fn join_until(thread: pthread_t, result: *mut *mut c_void, until: u64) -> c_int {
    loop {
        match fellows::await_end(thread, until) {
            Ended::Come => break,
            Ended::TooLate => return libc::ETIMEDOUT,
            Ended::Early => end_if_cancelled(),
        }
    }
    joined(thread, waits::try_until(until, || own_tryjoin(thread, result)))
}

/// `pthread_cancel(3)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    let result = own_cancel(thread);
    if result == 0 {
        fellows::cancelled(thread);
    }
    result
}
