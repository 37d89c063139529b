//! Threads that take part: each has a slot, parks in it, and has a clock that is the process's and what it has computed since.

use crate::crowd;
use crate::fellows;
use crate::mpi;
use crate::process;
use crate::real;
use srd_virtual::futex;
use srd_virtual::layout::{Channel, Kind, NEVER, Phase, SLOTS, Slot, Status};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// So many looks at clocks cost nothing while no time passes: they are what programs and libraries take them for, moments.
const FREE_LOOKS: u32 = 64;
/// What each further one costs, in nanoseconds: a program that spins on a clock advances.
const LOOK: u64 = 100;
/// A thread may be ahead of the world by so much before it waits for it.
const AHEAD: u64 = 1_000;
/// Shortest and longest wait of a poll that has found nothing, and by which part of the time for which nothing was found it grows.
const SHORTEST: u64 = 100;
const LONGEST: u64 = 1_000_000;
const PART: u64 = 16;

/// So many polls in a row must have found nothing before a thread waits: after one that has found something a program polls once more, and
/// every queue that it has, and Open MPI does some of its work at every eighth of its polls only. Polls of its fellows count, too.
const VAIN: u32 = 10;

/// Open MPI does some things in as many steps as it takes, one at every eighth poll (a communicator's number): who has waited for so long, in nanoseconds, polls so
/// often once more before it waits without an end.
const A_WHILE: u64 = 5_000;
const LONG_VAIN: u32 = 96;

/// What a call that may be over at any time takes if it finds nothing, in nanoseconds: about what a look at a network card costs an MPI. It takes as much again after so
/// many of them in a row.
const GLANCE: u64 = 200;
const LONGER_AFTER: u64 = 1024;

/// So often it goes on nevertheless while another thread waits for a lock.
const GOES_ON: u32 = 64;

const NOBODY: usize = usize::MAX;

/// 1: a thread uses the device.
static DEVICE: AtomicU32 = AtomicU32::new(0);
/// Threads that take part, but cards.
static MEMBERS: AtomicU32 = AtomicU32::new(0);

/// A thread's own notes.
struct Notes {
    slot: Cell<usize>,
    /// Its clock.
    local: Cell<u64>,
    /// Looks at clocks since it last polled in vain.
    looks: Cell<u32>,
    /// Looks since time has passed.
    looks_now: Cell<u32>,
    /// When the first of the polls was that have found nothing.
    in_vain_since: Cell<u64>,
    /// It is in a call of MPI, and in one that may be over at any time.
    calls: Cell<bool>,
    glances: Cell<bool>,
    /// Polls of that which have found nothing. Of a thread that has called none: of all.
    of_call: Cell<u32>,
    /// It has polled in the call of MPI that it is in.
    polls: Cell<bool>,
    /// Calls in a row that may have been over at any time and have found nothing.
    glanced: Cell<u64>,
    /// It has waited for a while since any of them has found something.
    waited: Cell<bool>,
    /// What [`STIRS`] was at the last of them.
    stirs: Cell<u64>,
    /// So often it has gone on since though its polls are in vain, for one that waits for a lock.
    gone_on: Cell<u32>,
    /// Uses of the device since it last parked that were no polls.
    acts: Cell<u32>,
    /// Its processor time when it last gave account of it.
    computed: Cell<u64>,
    /// What of it has come onto its clock, and what of that went into polls in vain, one behind the other.
    accounted: Cell<u64>,
    in_vain: Cell<u64>,
    /// Where it runs, plus one; 0: anywhere.
    core: Cell<u32>,
    /// What it had accounted for at its last poll; [`NEVER`] if that found something.
    at_poll: Cell<u64>,
}

/// A thread's slot is nobody's when it ends. The first thread's stays: when the process ends, handlers use the device behind its destructors.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some((channel, at)) = number() {
            let _ = NOTES.try_with(|notes| notes.slot.set(NOBODY));
            free(channel, at);
        }
    }
}

thread_local! {
    static LEAVES: Leaves = const { Leaves };
    static NOTES: Notes = const {
        Notes {
            slot: Cell::new(NOBODY),
            local: Cell::new(0),
            looks: Cell::new(0),
            looks_now: Cell::new(0),
            in_vain_since: Cell::new(NEVER),
            calls: Cell::new(false),
            glances: Cell::new(false),
            of_call: Cell::new(VAIN),
            polls: Cell::new(false),
            glanced: Cell::new(0),
            waited: Cell::new(false),
            stirs: Cell::new(0),
            gone_on: Cell::new(0),
            acts: Cell::new(0),
            computed: Cell::new(0),
            accounted: Cell::new(0),
            in_vain: Cell::new(0),
            core: Cell::new(0),
            at_poll: Cell::new(NEVER),
        }
    };
}

/// The slot is nobody's; its thread's turn, if it has it, ends.
pub fn free(channel: &Channel, at: usize) {
    let slot = &channel.slots()[at];
    let had_turn = matches!(slot.status(), Status::Running | Status::Busy);
    MEMBERS.fetch_sub(1, Ordering::AcqRel);
    stir(channel);
    fellows::ended(channel, at, || slot.set_status(Status::Free));
    if had_turn {
        hand_over(channel);
    } else {
        ring();
    }
}

/// The calling thread's turn is over.
fn hand_over(channel: &Channel) {
    if channel.turn.fetch_sub(1, Ordering::AcqRel) == 1 {
        futex::wake(&channel.turn);
    }
}

/// The simulator is to look.
pub fn ring() {
    if let Some(hall) = process::hall() {
        hall.bell.fetch_add(1, Ordering::AcqRel);
        futex::wake(&hall.bell);
    }
}

/// The process ends.
pub fn leave_for_good(channel: &Channel) {
    for slot in channel.slots() {
        slot.set_status(Status::Free);
    }
    channel.turn.store(0, Ordering::Release);
    futex::wake(&channel.turn);
    ring();
}

/// The number of the calling thread's slot, if it takes part.
#[inline]
pub fn number() -> Option<(&'static Channel, usize)> {
    let channel = process::channel()?;
    let at = NOTES.try_with(|notes| notes.slot.get()).unwrap_or(NOBODY);
    (at != NOBODY).then_some((channel, at))
}

/// The calling thread's slot, if it takes part.
#[inline]
fn own() -> Option<(&'static Channel, &'static Slot)> {
    number().map(|(channel, at)| (channel, &channel.slots()[at]))
}

/// From now on the calling thread takes part.
pub fn join() -> Option<(&'static Channel, &'static Slot)> {
    if let Some(known) = own() {
        return Some(known);
    }
    let channel = process::channel()?;
    take(channel, claim(channel)?)
}

/// A slot for one more thread.
pub fn claim(channel: &Channel) -> Option<usize> {
    let at = channel.claim_slot();
    if at.is_none() {
        real::give_up(&format!(
            "srd sim mpirun: more than {SLOTS} threads of a process use the simulated fabric: use fewer\n"
        ));
    }
    MEMBERS.fetch_add(1, Ordering::AcqRel);
    at
}

/// It is the calling thread's.
pub fn take(channel: &'static Channel, at: usize) -> Option<(&'static Channel, &'static Slot)> {
    let slot = &channel.slots()[at];
    slot.thread.store(real::thread(), Ordering::Release);
    fellows::began(at);
    NOTES.try_with(|notes| notes.slot.set(at)).ok()?;
    if real::thread() != std::process::id() {
        LEAVES.try_with(|_| ()).ok()?;
    }
    #[cfg(target_arch = "x86_64")]
    if channel.covers_counter != 0 {
        crate::tsc::cover_thread();
    }
    Some((channel, slot))
}

/// What the calling thread does so may run on all processors.
pub fn on_all_cores<R>(f: impl FnOnce() -> R) -> R {
    let core = NOTES.try_with(|notes| notes.core.get()).unwrap_or(0);
    if core > 0 {
        real::unpin();
    }
    let result = f();
    if core > 0 {
        real::pin(core - 1);
    }
    result
}

/// The calling thread is the network card's.
pub fn join_as_card() {
    if own().is_none() && join().is_some() {
        MEMBERS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the calling thread takes part and others of its process do, too, so that locks between them are the simulation's.
#[inline]
pub fn has_fellows() -> bool {
    MEMBERS.load(Ordering::Relaxed) > 1 && mpi::phase() == Phase::Running && takes_part()
}

/// Whether the calling thread waits for times of the simulation's: clocks show it those.
pub fn waits_in_simulation() -> bool {
    mpi::phase() == Phase::Running && takes_part()
}

/// Whether the calling thread has the turn.
pub fn has_turn() -> bool {
    own().is_some_and(|(_, slot)| matches!(slot.status(), Status::Running | Status::Busy))
}

/// The calling thread, which takes part, has the turn when this returns.
pub fn want_turn() {
    if !has_turn() && !number().is_some_and(|(channel, at)| crowd::joins(channel, at)) {
        park(Kind::Want, 0);
    }
}

/// Whether the calling thread takes part.
pub fn takes_part() -> bool {
    own().is_some()
}

/// The thread has done something that others may poll for.
pub fn stir(channel: &Channel) {
    let before = crowd::stir(channel, has_turn());
    let _ = NOTES.try_with(|notes| {
        if notes.stirs.get() == before {
            notes.stirs.set(before + 1); // not for itself
        }
    });
}

/// Waits for something. The thread has the turn when this returns.
pub fn park(kind: Kind, until: u64) {
    settle(kind, until);
    stay(kind, until);
}

/// The thread lies down in its slot, and has no turn any more: [`stay`] must follow.
pub fn settle(kind: Kind, until: u64) {
    let Some((channel, slot)) = own() else { return };
    if NOTES.try_with(|notes| notes.acts.replace(0)).is_ok_and(|acts| acts > 0) {
        stir(channel);
    }
    slot.word.store(0, Ordering::Release);
    slot.set_wait(kind, until);
    let had_turn =
        [Status::Running, Status::Busy].iter().any(|from| slot.change_status(*from, Status::Parked));
    if had_turn {
        hand_over(channel);
    } else {
        // It comes from outside, or has drifted, and has no turn to give.
        if kind != Kind::Card {
            slot.set_wait(Kind::Want, 0);
        }
        slot.set_status(Status::Parked);
        ring();
    }
}

/// Waits in its slot until it has the turn.
pub fn stay(kind: Kind, until: u64) {
    let Some((channel, at)) = number() else { return };
    let slot = &channel.slots()[at];
    while slot.word.load(Ordering::Acquire) == 0 {
        futex::wait(&slot.word, 0, None);
    }
    crowd::is_back(slot, at);
    // It asked for the turn first, and waits now.
    if slot.waits_for().0 == Kind::Want
        && !matches!(kind, Kind::Want | Kind::Fellow)
        && (until == NEVER || until > channel.now.load(Ordering::Acquire))
        && !fellows::is_cancelled(at)
    {
        return park(kind, until);
    }
    let _ = NOTES.try_with(|notes| {
        let core = channel.core.load(Ordering::Acquire);
        if core != notes.core.replace(core) {
            core.checked_sub(1).map_or_else(real::unpin, real::pin);
        }
        let now = channel.now.load(Ordering::Acquire);
        if now > notes.local.get() {
            notes.looks_now.set(0);
        }
        notes.local.set(notes.local.get().max(now));
        if channel.compute.measured > 0 {
            notes.computed.set(real::clock(libc::CLOCK_THREAD_CPUTIME_ID));
        }
    });
    if kind == Kind::Sleeper {
        stir(channel); // what it will do others may wait for
    }
}

/// The thread will use the device.
pub fn enter() {
    let Some((channel, slot)) = join() else { return };
    if slot.status() == Status::Busy {
        return;
    }
    want_turn();
    let _ = NOTES.try_with(|notes| notes.acts.set(notes.acts.get() + 1));
    account(channel, channel.compute.per_call);
    while !slot.change_status(Status::Running, Status::Busy) {
        park(Kind::Want, 0);
    }
    // In a crowd another thread may use it now.
    while DEVICE.swap(1, Ordering::AcqRel) != 0 {
        real::give_way();
    }
}

/// It has used it.
pub fn leave() {
    if let Some((_, slot)) = own()
        && slot.status() == Status::Busy
    {
        DEVICE.store(0, Ordering::Release);
        slot.set_status(Status::Running);
    }
}

/// The transport wants to run so much later.
pub fn set_due(span: u64) {
    if let Some((channel, _)) = own() {
        channel.due.store(channel.now.load(Ordering::Acquire).saturating_add(span), Ordering::Release);
    }
}

/// The thread has written to a descriptor: to a launcher, perhaps, whose answer is no packet.
pub fn spoke() {
    if let Some((channel, _)) = own() {
        channel.spoke.store(1, Ordering::Release);
    }
}

/// Waits for a packet or a deadline of the transport, and not longer than so.
pub fn wait(span: u64) {
    let Some((channel, _)) = own() else { return };
    park(Kind::Poller, channel.now.load(Ordering::Acquire).saturating_add(span.max(SHORTEST)));
}

/// Puts what the thread has computed on its clock, and waits for the world if it is ahead of it. While MPI begins no time passes.
fn account(channel: &Channel, cost: u64) {
    if mpi::phase() == Phase::Beginning {
        return;
    }
    put_on_clock(channel, cost);
    catch_up(channel);
}

/// Puts what the thread has computed on its clock, and so much.
fn put_on_clock(channel: &Channel, cost: u64) {
    let _ = NOTES.try_with(|notes| {
        let mut local = notes.local.get().max(channel.now.load(Ordering::Acquire)) + cost;
        if channel.compute.measured > 0 {
            let computed = real::clock(libc::CLOCK_THREAD_CPUTIME_ID);
            let since = computed.saturating_sub(notes.computed.replace(computed));
            let counts = since * channel.compute.measured / 1000;
            notes.accounted.set(notes.accounted.get() + counts);
            local += counts;
        }
        notes.local.set(local);
    });
}

/// The thread's clock, with what it has computed on it, and all that it has computed until now, so far as that is measured, but for polls in vain:
/// how many there are is a matter of how long it waits.
pub fn account_of() -> (u64, u64) {
    let Some((channel, _)) = own() else { return (0, 0) };
    put_on_clock(channel, 0);
    let computed = NOTES.try_with(|notes| {
        notes.at_poll.set(NEVER);
        notes.accounted.get() - notes.in_vain.get()
    });
    (local(), computed.unwrap_or(0))
}

/// The thread computes for so long.
pub fn compute(span: u64) {
    if let Some((channel, _)) = own()
        && span > 0
    {
        account(channel, span);
    }
}

/// The calling thread's clock, with what it has computed on it; 0 if it does not take part.
pub fn computed() -> u64 {
    if let Some((channel, _)) = own()
        && mpi::phase() == Phase::Running
    {
        account(channel, 0);
    }
    local()
}

/// The calling thread has waited for something that was so at this time. False if it does not take part.
pub fn has_come_to(time: u64) -> bool {
    let Some((channel, _)) = own() else { return false };
    let _ = NOTES.try_with(|notes| notes.local.set(notes.local.get().max(time)));
    account(channel, 0);
    true
}

/// Waits for the world, if the thread is ahead of it.
fn catch_up(channel: &Channel) {
    let local = NOTES.try_with(|notes| notes.local.get()).unwrap_or(0);
    if local >= channel.now.load(Ordering::Acquire).saturating_add(AHEAD) {
        park(Kind::Sleeper, local);
    }
}

/// The time, to a thread that takes part; a look at it costs something.
pub fn look_at_clock() -> Option<u64> {
    let (channel, slot) = own()?;
    if matches!(mpi::phase(), Phase::Beginning | Phase::Ending) {
        return None;
    }
    if slot.status() != Status::Running {
        // It may have waited for something that is not of the fabric, and others have gone on.
        return Some(process::hall()?.now.load(Ordering::Acquire).max(local()));
    }
    let looks = NOTES.try_with(|notes| {
        notes.looks.set(notes.looks.get() + 1);
        notes.looks_now.set(notes.looks_now.get().saturating_add(1));
        notes.looks_now.get()
    });
    account(channel, if looks.is_ok_and(|looks| looks > FREE_LOOKS) { LOOK } else { 0 });
    NOTES.try_with(|notes| notes.local.get()).ok()
}

/// The thread sleeps for so long. False if it does not take part.
pub fn sleep(span: u64) -> bool {
    let Some((channel, _)) = own() else { return false };
    if mpi::phase() == Phase::Beginning {
        park(Kind::Poller, NEVER); // for what its launcher does
        return true;
    }
    account(channel, 0);
    park(Kind::Sleeper, channel.now.load(Ordering::Acquire).saturating_add(span.max(SHORTEST)));
    true
}

/// The thread's clock, without a cost.
pub fn local() -> u64 {
    let Some((channel, _)) = own() else { return 0 };
    let local = NOTES.try_with(|notes| notes.local.get()).unwrap_or(0);
    local.max(channel.now.load(Ordering::Acquire))
}

/// The thread begins a call of MPI; `glances`: one that does not wait. Whether it was in one.
pub fn begin_call(glances: bool) -> bool {
    NOTES
        .try_with(|notes| {
            let within = notes.calls.replace(true);
            if !within {
                notes.glances.set(glances);
                notes.of_call.set(0);
                notes.waited.set(false);
                notes.polls.set(false);
            }
            within
        })
        .unwrap_or(true)
}

/// A call that may be over at any time, and in which nothing polls, has found nothing: it takes as long as if it had.
pub fn glance() {
    let polls = NOTES.try_with(|notes| notes.polls.get()).unwrap_or(true);
    if !polls && takes_part() && mpi::phase() == Phase::Running {
        park(Kind::Sleeper, local() + GLANCE); // meanwhile the card takes what comes
    }
}

/// That has ended, and the thread is where it was.
pub fn end_call(within: bool) {
    let _ = NOTES.try_with(|notes| notes.calls.set(within));
}

/// A poll has found something, or nothing.
///
/// A thread that polls on and on in one call of MPI, and has not looked at a clock meanwhile, cannot know how much time passes: it waits for what it
/// polls for. One that has looked may be about to give up: it waits by small steps, which grow with the time for which it has found nothing. So does
/// one that another waits for, which may hold a lock: for a while it goes on, so that it may let go of it. And one whose call may soon be over
/// (`MPI_Test`) waits for a moment in each call, since it may have something else to do behind it.
pub fn polled(found: bool) {
    let Some((channel, at)) = number() else { return };
    let until = NOTES.try_with(|notes| {
        notes.polls.set(true);
        notes.acts.set(notes.acts.get().saturating_sub(1));
        let stirs = crowd::stirs();
        let accounted = notes.accounted.get();
        let last = notes.at_poll.replace(if found { NEVER } else { accounted });
        notes.in_vain.set(notes.in_vain.get() + if found { 0 } else { accounted.saturating_sub(last) });
        if found || notes.stirs.replace(stirs) != stirs {
            notes.gone_on.set(0); // others may have done meanwhile what it polls for
        }
        if found {
            notes.in_vain_since.set(NEVER);
            notes.glanced.set(0);
            notes.of_call.set(0);
            notes.waited.set(false);
            notes.looks.set(0);
            return None;
        }
        let of_call = notes.of_call.get().saturating_add(1);
        notes.of_call.set(of_call);
        let of_all = crowd::count_in_vain(stirs);
        if channel.crowded.load(Ordering::Acquire) != 0 {
            crowd::polled_in_vain(at, stirs);
            if !crowd::is_over(channel, at) {
                return None;
            }
        }
        let glances = notes.glances.get() && mpi::phase() == Phase::Running;
        if glances && of_call == 1 {
            let glanced = notes.glanced.replace(notes.glanced.get() + 1);
            let span = GLANCE + GLANCE * glanced / LONGER_AFTER;
            return Some(local() + span.min(LONGEST));
        }
        // In a call that waits those of its fellows count, too.
        let alone = MEMBERS.load(Ordering::Relaxed) <= 1;
        let goes_on = (alone || glances) && of_call < if notes.waited.get() { LONG_VAIN } else { VAIN };
        if of_all < VAIN || goes_on {
            return None;
        }
        crowd::polled_in_vain(at, stirs);
        let holds_up = fellows::anybody_waits_for_a_lock();
        if holds_up && notes.gone_on.get() < GOES_ON {
            notes.gone_on.set(notes.gone_on.get() + 1);
            return None;
        }
        let now = notes.local.get().max(channel.now.load(Ordering::Acquire));
        if notes.in_vain_since.get() == NEVER {
            notes.in_vain_since.set(now);
        }
        let looks = notes.looks.replace(0);
        let step = (now.saturating_sub(notes.in_vain_since.get()) / PART).clamp(SHORTEST, LONGEST);
        if mpi::phase() == Phase::Beginning {
            return Some(NEVER);
        }
        let waits = looks == 0 && !holds_up;
        Some(match waits && (notes.waited.replace(true) || !alone) {
            true => NEVER,
            false if waits => now + A_WHILE,
            false => now + step,
        })
    });
    match until {
        Ok(Some(until)) => park(Kind::Poller, until),
        _ if found => stir(channel),
        _ => {}
    }
}
