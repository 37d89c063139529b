//! The process's place in the simulated fabric, once it has one.
#![allow(unsafe_code)]

use crate::real;
use srd_virtual::calls::{Call, MOST};
use srd_virtual::futex;
use srd_virtual::layout::{Channel, Hall, Kind, MAGIC, Place, map_calls, map_channel, map_hall, map_plan};
use srd_virtual::{RANK_VARIABLE, WORLD_VARIABLE};
use std::fs::File;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What is mapped; null until the process has its place, and in a child of it.
static CHANNEL: AtomicPtr<Channel> = AtomicPtr::new(std::ptr::null_mut());
/// What it notes of its calls of MPI, and what it repeats of another run's; null if it does not.
static CALLS: AtomicPtr<Call> = AtomicPtr::new(std::ptr::null_mut());
static PLAN: AtomicPtr<Call> = AtomicPtr::new(std::ptr::null_mut());
static HALL: AtomicPtr<Hall> = AtomicPtr::new(std::ptr::null_mut());
/// What the machine's clocks showed when the simulation's showed zero.
static MONOTONIC: AtomicU64 = AtomicU64::new(0);
static REAL: AtomicU64 = AtomicU64::new(0);

/// The process's memory, if it has its place.
#[inline]
pub fn channel() -> Option<&'static Channel> {
    // SAFETY: a channel that is mapped stays; all of it that both sides change at once is atomic.
    unsafe { CHANNEL.load(Ordering::Acquire).as_ref() }
}

/// The same, to whoever has the turn.
#[inline]
pub fn channel_mut() -> Option<&'static mut Channel> {
    // SAFETY: as above; the rings are touched by nobody but the thread that has the turn, which calls this.
    unsafe { CHANNEL.load(Ordering::Acquire).as_mut() }
}

/// What all processes share.
pub fn hall() -> Option<&'static Hall> {
    // SAFETY: as above.
    unsafe { HALL.load(Ordering::Acquire).as_ref() }
}

/// Notes a call of MPI. Returns its place, if there was room.
pub fn note(channel: &Channel, call: &Call) -> Option<usize> {
    let calls = CALLS.load(Ordering::Acquire);
    if calls.is_null() {
        return None;
    }
    let at = channel.calls.fetch_add(1, Ordering::AcqRel) as usize;
    if at >= MOST {
        return None;
    }
    // SAFETY: there is room for that many, and no other thread has this place.
    unsafe { calls.add(at).write(*call) };
    Some(at)
}

/// Notes in which call that was seen to be over which another one, noted before it, has begun.
pub fn note_end(begun_by: usize, seen_by: usize) {
    let calls = CALLS.load(Ordering::Acquire);
    if !calls.is_null() {
        // SAFETY: a call was noted there, and a request comes to its end once.
        unsafe { (*calls.add(begun_by)).done_in = seen_by as u64 + 1 };
    }
}

/// What it repeats.
pub fn plan() -> Option<&'static [Call]> {
    let (channel, plan) = (channel()?, PLAN.load(Ordering::Acquire));
    if plan.is_null() {
        return None;
    }
    // SAFETY: so many are there, and are not written any more.
    Some(unsafe { std::slice::from_raw_parts(plan, channel.planned as usize) })
}

/// Whether an address lies in the memory that is shared with the simulator.
pub fn is_own(at: usize) -> bool {
    let lies_in = |from: usize, length| from != 0 && (from..from + length).contains(&at);
    lies_in(CHANNEL.load(Ordering::Relaxed) as usize, size_of::<Channel>())
        || lies_in(HALL.load(Ordering::Relaxed) as usize, size_of::<Hall>())
}

/// What to add to the simulation's time for the machine's clocks.
pub fn origin(id: libc::clockid_t) -> Option<u64> {
    match id {
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME => Some(MONOTONIC.load(Ordering::Relaxed)),
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
            Some(REAL.load(Ordering::Relaxed))
        }
        _ => None,
    }
}

extern "C" fn forget() {
    CHANNEL.store(std::ptr::null_mut(), Ordering::Release);
}

/// The process ends, and takes no part any more. Nor do its threads: whoever ends them now, the device's among them, waits for them.
extern "C" fn end() {
    let Some(channel) = channel() else { return };
    begin_clocks(channel);
    forget();
    channel.ended.store(1, Ordering::Release);
    crate::thread::leave_for_good(channel);
    for slot in channel.slots().iter().filter(|slot| slot.waits_for().0 != Kind::Fellow) {
        slot.word.store(1, Ordering::Release);
        futex::wake(&slot.word);
    }
}

/// From now on clocks go on from what the machine's show, as the simulation's does.
pub fn begin_clocks(channel: &Channel) {
    let now = channel.now.load(Ordering::Acquire);
    MONOTONIC.store(real::clock(libc::CLOCK_MONOTONIC) - now, Ordering::Relaxed);
    REAL.store(real::clock(libc::CLOCK_REALTIME) - now, Ordering::Relaxed);
}

/// The simulation's time, and what has passed on the machine since the process has no place any more.
pub fn now() -> u64 {
    match channel() {
        Some(channel) => channel.now.load(Ordering::Acquire),
        None => real::clock(libc::CLOCK_MONOTONIC) - MONOTONIC.load(Ordering::Relaxed),
    }
}

/// Takes the place that the environment names.
pub fn attach() -> Result<Place, i32> {
    if let Some(channel) = channel() {
        return Ok(channel.place);
    }
    let variable = |name| std::env::var(name).map_err(|_| libc::ENOENT);
    let (world, rank) = (variable(WORLD_VARIABLE)?, variable(RANK_VARIABLE)?);
    let rank: u32 = rank.parse().map_err(|_| libc::EINVAL)?;
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let file = File::options().read(true).write(true).open(world).map_err(errno)?;
    let hall = map_hall(&file).map_err(errno)?;
    if hall.magic != MAGIC || rank >= hall.channels {
        return Err(libc::EPROTO);
    }
    let mapped = map_channel(&file, rank).map_err(errno)?;
    // SAFETY: it has just been mapped, and stays.
    let channel = unsafe { &*mapped };
    let own = std::process::id();
    if channel.process.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(libc::EBUSY);
    }
    if channel.keeps_calls != 0 {
        CALLS.store(map_calls(&file, hall.channels, rank).map_err(errno)?, Ordering::Release);
    }
    if channel.repeats != 0 {
        PLAN.store(map_plan(&file, hall.channels, rank).map_err(errno)?, Ordering::Release);
    }
    begin_clocks(channel);
    HALL.store(std::ptr::from_ref(hall).cast_mut(), Ordering::Release);
    CHANNEL.store(mapped, Ordering::Release);
    match channel.without_mpi {
        0 => crate::mpi::tell(),
        _ => crate::mpi::is_absent(),
    }
    // SAFETY: both are functions that may be called at any time.
    unsafe {
        libc::pthread_atfork(None, None, Some(child));
        libc::atexit(end);
    }
    Ok(channel.place)
}

unsafe extern "C" fn child() {
    real::unpin();
    forget();
}
