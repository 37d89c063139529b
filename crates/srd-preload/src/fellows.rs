//! What threads of a process wait for from each other: a lock, a condition, an end. A thread that takes part and must wait for that lies in its
//! slot, so that it is the simulation which says who goes on, and in which order.
#![allow(unsafe_code)]

use crate::{crowd, thread};
use libc::pthread_t;
use srd_virtual::Kind;
use srd_virtual::layout::{Channel, NEVER, SLOTS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// The lock at this address.
    Lock(usize),
    /// The condition at this address.
    Condition(usize),
    /// The end of the thread in this slot.
    End(usize),
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
    // SAFETY: it takes nothing and cannot fail.
    THREADS[at].store(unsafe { libc::pthread_self() }, Ordering::Release);
}

/// The thread of the slot is at its end; `free` makes the slot nobody's.
pub fn ended(channel: &Channel, at: usize, free: impl FnOnce()) {
    let mut waiting = waiting();
    THREADS[at].store(0, Ordering::Release);
    free();
    while waiting.wake(channel, For::End(at)).is_some() {}
}

/// Waits for the end of a thread, if that takes part.
pub fn await_end(thread: pthread_t) {
    let Some((_, own)) = thread::number() else { return };
    thread::want_turn();
    loop {
        let guard = waiting();
        let other = THREADS.iter().position(|of| of.load(Ordering::Acquire) == thread);
        let Some(at) = other.filter(|at| *at != own) else { return };
        lie_down(guard, For::End(at), own, false, NEVER);
    }
}

/// The calling thread waits for that until somebody wakes it, or a time; `first`: before others. Whether somebody has.
fn lie_down(mut waiting: MutexGuard<'_, Waiting>, what: For, own: usize, first: bool, until: u64) -> bool {
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

/// Takes a lock that others may hold: `try_it` tries, and says `libc::EBUSY` if so.
pub fn lock(lock: usize, try_it: impl Fn() -> i32) -> i32 {
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
        if !crowd::is_idle(own) {
            // Whoever holds it may lie there until a packet comes.
            channel.stirred.store(1, Ordering::Release);
        }
        lie_down(waiting, For::Lock(lock), own, was_kept, NEVER);
    }
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

/// Waits for a condition until a time; `unlock` lets go of its lock. Whether it was signalled.
pub fn await_condition(condition: usize, lock: usize, unlock: impl FnOnce(), until: u64) -> bool {
    let Some((_, own)) = thread::number() else { return true };
    thread::want_turn();
    let mut waiting = waiting();
    unlock();
    give(&mut waiting, lock);
    lie_down(waiting, For::Condition(condition), own, false, until)
}

/// A condition is signalled: to one, or to all.
#[inline]
pub fn signalled(condition: usize, all: bool) {
    if FOR_ANYTHING.load(Ordering::SeqCst) == 0 {
        return;
    }
    let Some(channel) = crate::process::channel() else { return };
    let mut waiting = waiting();
    while waiting.wake(channel, For::Condition(condition)).is_some() {
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
