//! Several threads of a process that poll. What one of them does another may wait for, and one that has polled in vain has nothing to do before that. Most
//! often they have the turn one after the other; but one may spin, without a call, on a lock that another holds while it polls. Then those that poll go on
//! beside it, until all have polled in vain.

use crate::real;
use srd_virtual::layout::{Channel, SLOTS, Slot, Status};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Counts what threads of this process have done that others of it may poll for.
static STIRS: AtomicU64 = AtomicU64::new(0);
/// Of each thread, at which of those its polls have been in vain often enough; one more than that.
static IDLE_SINCE: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Polls of all threads that have been in vain since there were so many of those.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
static IN_VAIN_AT: AtomicU64 = AtomicU64::new(0);
/// Threads that get a processor only when nobody else wants one, and how many they are.
static BACK: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];
static BEHIND: AtomicU32 = AtomicU32::new(0);

/// How often something has been done that threads may poll for.
pub fn stirs() -> u64 {
    STIRS.load(Ordering::Acquire)
}

/// One more poll has been in vain when there were so many of those. How many have been since.
pub fn count_in_vain(stirs: u64) -> u32 {
    if IN_VAIN_AT.swap(stirs, Ordering::AcqRel) != stirs {
        IN_VAIN.store(0, Ordering::Release);
    }
    IN_VAIN.fetch_add(1, Ordering::AcqRel) + 1
}

/// A thread has polled in vain when there were so many of those.
pub fn polled_in_vain(at: usize, stirs: u64) {
    IDLE_SINCE[at].store(stirs + 1, Ordering::Release);
}

/// Whether a thread's polls have been in vain since anything happened that it may poll for.
pub fn is_idle(at: usize) -> bool {
    IDLE_SINCE[at].load(Ordering::Acquire) == stirs() + 1
}

/// The calling thread has done something that others may poll for. How often that was so before.
pub fn stir(channel: &Channel, has_turn: bool) -> u64 {
    let before = STIRS.fetch_add(1, Ordering::AcqRel);
    channel.stirred.store(1, Ordering::Release);
    if has_turn && BEHIND.load(Ordering::Acquire) > 0 {
        gather(channel);
    }
    before
}

/// A thread that has drifted goes on as the others do.
pub fn is_back(slot: &Slot, at: usize) {
    if BEHIND.load(Ordering::Acquire) > 0 {
        step_back(slot, at, false);
    }
}

/// A thread without the turn comes to have it beside others. False if there is no crowd.
pub fn joins(channel: &Channel, at: usize) -> bool {
    if channel.crowded.load(Ordering::Acquire) == 0 {
        return false;
    }
    let one_more = |threads| (threads > 0).then_some(threads + 1);
    if channel.turn.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
        return false;
    }
    let slot = &channel.slots()[at];
    slot.set_status(Status::Running);
    is_back(slot, at);
    true
}

/// Those who have nothing to do may have something to do now.
#[cold]
fn gather(channel: &Channel) {
    for (at, slot) in channel.slots().iter().enumerate() {
        if slot.change_status(Status::Adrift, Status::Running) {
            channel.turn.fetch_add(1, Ordering::AcqRel);
        }
        step_back(slot, at, false);
    }
}

/// Whether a thread gets a processor only when nobody else wants one.
fn step_back(slot: &Slot, at: usize, yes: bool) {
    if BACK[at].swap(yes, Ordering::AcqRel) != yes {
        match yes {
            true => BEHIND.fetch_add(1, Ordering::AcqRel),
            false => BEHIND.fetch_sub(1, Ordering::AcqRel),
        };
        real::only_when_idle(slot.thread.load(Ordering::Acquire), yes);
    }
}

/// Where several threads of the process have the turn: the calling one has polled in vain. If that is so of all, the others drift, and it may
/// wait; else it goes on polling.
pub fn is_over(channel: &Channel, at: usize) -> bool {
    let others = || channel.slots().iter().enumerate().filter(|(other, _)| *other != at);
    let may_act = |(other, slot): (usize, &Slot)| match slot.status() {
        Status::Running => !is_idle(other),
        Status::Busy => true,
        _ => false,
    };
    if others().any(may_act) {
        return false;
    }
    channel.crowded.store(0, Ordering::Release);
    for (other, slot) in others() {
        if slot.change_status(Status::Running, Status::Adrift) {
            channel.turn.fetch_sub(1, Ordering::AcqRel); // the caller still has it
            step_back(slot, other, true);
        }
    }
    true
}
