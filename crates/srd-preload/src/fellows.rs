//! What threads of a process wait for from each other: a lock, a condition, an end. A thread that takes part and must wait for that lies in its
//! slot, so that it is the simulation which says who goes on, and in which order.
#![allow(unsafe_code)]

use crate::{crowd, thread};
use libc::pthread_t;
use srd_virtual::Kind;
use srd_virtual::layout::{Channel, SLOTS, Status};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// The lock at this address.
    Lock(usize),
    /// The condition or the semaphore at this address.
    Signal(usize),
    /// The end of the thread in this slot.
    End(usize),
}

/// How a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// What was waited for has come.
    Come,
    /// It has not, and it is too late.
    TooLate,
    /// Neither: to be tried again, if the thread has not been cancelled.
    Early,
}

/// Who waits for what.
pub struct Waiting {
    /// By the order in which they are to go on.
    waiters: Vec<(For, usize)>,
    /// Locks that somebody has let go of for this slot: nobody else who takes part takes them before.
    kept: Vec<(usize, usize)>,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { waiters: Vec::new(), kept: Vec::new() });
/// How many wait for locks or have one kept for them, and how many wait for anything.
static FOR_LOCKS: AtomicU32 = AtomicU32::new(0);
static FOR_ANYTHING: AtomicU32 = AtomicU32::new(0);
/// The C library's name of the thread in each slot.
static THREADS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Threads that somebody has cancelled since they last waited.
static CANCELLED: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    fn count(&self) {
        let locks =
            self.waiters.iter().filter(|(what, _)| matches!(what, For::Lock(_))).count() + self.kept.len();
        FOR_LOCKS.store(locks as u32, Ordering::SeqCst);
        FOR_ANYTHING.store(self.waiters.len() as u32, Ordering::SeqCst);
    }

    /// The first who waits for that goes on when the turn is free. The number of its slot.
    fn wake(&mut self, channel: &Channel, what: For) -> Option<usize> {
        let first = self.waiters.iter().position(|(other, _)| *other == what)?;
        let (_, at) = self.waiters.remove(first);
        self.count();
        channel.slots()[at].set_wait(Kind::Want, 0);
        Some(at)
    }
}

/// The calling thread is that of the slot.
pub fn began(at: usize) {
    CANCELLED[at].store(false, Ordering::Release);
    // SAFETY: it takes nothing and cannot fail.
    THREADS[at].store(unsafe { libc::pthread_self() }, Ordering::Release);
}

/// The thread of the slot is at its end; `free` makes the slot nobody's.
pub fn ended(channel: &Channel, at: usize, free: impl FnOnce()) {
    let mut waiting = waiting();
    THREADS[at].store(0, Ordering::Release);
    free();
    waiting.waiters.retain(|(_, waiter)| *waiter != at);
    waiting.kept.retain(|(_, keeper)| *keeper != at);
    while waiting.wake(channel, For::End(at)).is_some() {}
}

/// The slot of a thread, if that takes part.
fn slot_of(thread: pthread_t) -> Option<usize> {
    THREADS.iter().position(|of| of.load(Ordering::Acquire) == thread)
}

/// Waits for the end of a thread until a time. It has come if that takes no part.
pub fn await_end(thread: pthread_t, until: u64) -> Ended {
    let Some((channel, own)) = thread::number() else { return Ended::Come };
    thread::want_turn();
    let guard = waiting();
    match slot_of(thread).filter(|at| *at != own) {
        None => Ended::Come,
        Some(_) if channel.now.load(Ordering::Acquire) >= until => Ended::TooLate,
        Some(at) => {
            lie_down(guard, For::End(at), own, false, until);
            Ended::Early
        }
    }
}

/// Somebody has cancelled a thread: if it waits, it wakes.
pub fn cancelled(thread: pthread_t) {
    let Some(channel) = crate::process::channel() else { return };
    let waiting = waiting();
    let Some(at) = slot_of(thread) else { return };
    CANCELLED[at].store(true, Ordering::Release);
    let slot = &channel.slots()[at];
    // In its call of MPI it polls once more, and waits again.
    if slot.status() == Status::Parked && slot.waits_for().0 != Kind::Together {
        slot.set_wait(Kind::Want, 0);
    }
    drop(waiting);
    tell();
}

/// Whether somebody has cancelled the thread of that slot since it was last asked: then it does not wait once more, whether it lets that happen
/// or not.
pub fn is_cancelled(at: usize) -> bool {
    CANCELLED[at].swap(false, Ordering::AcqRel)
}

/// The calling thread waits for that until somebody wakes it, or a time; `first`: before others. Whether somebody has.
fn lie_down(mut waiting: MutexGuard<'_, Waiting>, what: For, own: usize, first: bool, until: u64) -> bool {
    if is_cancelled(own) {
        waiting.count();
        return false;
    }
    let place = if first { 0 } else { waiting.waiters.len() };
    waiting.waiters.insert(place, (what, own));
    waiting.count();
    thread::settle(Kind::Fellow, until);
    drop(waiting);
    thread::stay(Kind::Fellow, until);
    let mut waiting = self::waiting();
    let before = waiting.waiters.len();
    waiting.waiters.retain(|waiter| *waiter != (what, own));
    waiting.count();
    waiting.waiters.len() == before
}

/// Takes a lock that others may hold, until a time: `try_it` tries, and says `libc::EBUSY` if so.
pub fn lock(lock: usize, until: u64, try_it: impl Fn() -> i32) -> i32 {
    if FOR_LOCKS.load(Ordering::SeqCst) == 0 {
        let tried = try_it();
        if tried != libc::EBUSY {
            return tried;
        }
    }
    let Some((channel, own)) = thread::number() else { return try_it() };
    loop {
        thread::want_turn();
        let mut waiting = waiting();
        let was_kept = waiting.kept.contains(&(lock, own));
        waiting.kept.retain(|kept| *kept != (lock, own));
        // Whoever lets go of it from now on looks who waits.
        FOR_LOCKS.fetch_add(1, Ordering::SeqCst);
        if !waiting.kept.iter().any(|(other, _)| *other == lock) {
            let tried = try_it();
            if tried != libc::EBUSY {
                waiting.count();
                return tried;
            }
            if was_kept {
                // It is held nevertheless: by somebody who does not take part, or for the second time by one who waits here.
                waiting.wake(channel, For::Lock(lock));
            }
        }
        if channel.now.load(Ordering::Acquire) >= until {
            waiting.count();
            return libc::ETIMEDOUT;
        }
        if !crowd::is_idle(own) {
            // Whoever holds it may lie there until a packet comes.
            channel.stirred.store(1, Ordering::Release);
        }
        lie_down(waiting, For::Lock(lock), own, was_kept, until);
    }
}

/// Takes one of a semaphore's, until a time: `try_it` tries, and says whether there was one.
pub fn take(semaphore: usize, until: u64, try_it: impl Fn() -> bool) -> Ended {
    let come = |yes| if yes { Ended::Come } else { Ended::TooLate };
    let Some((channel, own)) = thread::number() else { return come(try_it()) };
    thread::want_turn();
    let waiting = waiting();
    // Whoever gives one from now on looks who waits.
    FOR_ANYTHING.fetch_add(1, Ordering::SeqCst);
    let taken = try_it();
    if taken || channel.now.load(Ordering::Acquire) >= until {
        waiting.count();
        return come(taken);
    }
    lie_down(waiting, For::Signal(semaphore), own, false, until);
    Ended::Early
}

/// A lock has been let go of.
#[inline]
pub fn unlocked(lock: usize) {
    if FOR_LOCKS.load(Ordering::SeqCst) > 0 {
        give(&mut waiting(), lock);
    }
}

#[cold]
fn give(waiting: &mut Waiting, lock: usize) {
    let Some(channel) = crate::process::channel() else { return };
    if let Some(at) = waiting.wake(channel, For::Lock(lock)) {
        waiting.kept.push((lock, at));
        waiting.count();
        tell();
    }
}

/// Somebody is to have the turn: whoever has it now gives it soon, or else the simulator must look.
fn tell() {
    if !thread::has_turn() {
        thread::ring();
    }
}

/// Waits for a condition until a time; `unlock` lets go of its lock.
pub fn await_condition(condition: usize, lock: usize, unlock: impl FnOnce(), until: u64) -> Ended {
    let Some((channel, own)) = thread::number() else { return Ended::Early };
    thread::want_turn();
    let mut waiting = waiting();
    // Whoever signals from now on looks who waits: it may come between the next line and the list.
    FOR_ANYTHING.fetch_add(1, Ordering::SeqCst);
    unlock();
    give(&mut waiting, lock);
    match lie_down(waiting, For::Signal(condition), own, false, until) {
        true => Ended::Come,
        false if channel.now.load(Ordering::Acquire) >= until => Ended::TooLate,
        false => Ended::Early,
    }
}

/// A condition is signalled, or a semaphore gets one more: to one who waits, or to all.
#[inline]
pub fn signalled(condition: usize, all: bool) {
    if FOR_ANYTHING.load(Ordering::SeqCst) == 0 {
        return;
    }
    let Some(channel) = crate::process::channel() else { return };
    let mut waiting = waiting();
    while waiting.wake(channel, For::Signal(condition)).is_some() {
        tell();
        if !all {
            return;
        }
    }
}

/// Whether a thread waits for a lock that has something to do.
pub fn anybody_waits_for_a_lock() -> bool {
    FOR_LOCKS.load(Ordering::SeqCst) > 0
        && waiting().waiters.iter().any(|(what, at)| matches!(what, For::Lock(_)) && !crowd::is_idle(*at))
}
