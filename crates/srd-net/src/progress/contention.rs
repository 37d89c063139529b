//! Whether the program has its cores for itself. Programs that poll (MPI ranks, most of all) take all the time that
//! they get; with more of them than cores, each takes it from the very one whose answer it waits for. So where the thread
//! has been seen waiting for a core, a poll that finds nothing gives way: on cores of its own a program's poll never does.
//! Ranks that give way to each other are soon back, stay on the core that they have, and take packets by several at a time. Others
//! keep the core for all of their turn, again and again; beside those a poll rests until a packet comes, which ends their turn.
//!
//! Where several threads poll it does not rest, either: a packet that ends the rest of one brings completions for all. A
//! thread that finds nothing gives way to the next, and by how soon it is back it sees whether they are a crowd, more than
//! there are cores for. One of a crowd looks at the sockets now and then, for all of them, and sends what all of them have
//! posted meanwhile.

use crate::clock;
use crate::sync::this_thread;
use crate::sys::process;
use srd_wire::{Nanos, Time};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Two polls that find nothing further apart than this: the thread was away, computing or waiting for a core. Longer
/// than this without a core: others want it too.
const AWAY: Nanos = Nanos::from_micros(300);
/// So many waits for a core...
const WAITS: usize = 3;
/// ...within this time show that others want the cores too, and are taken as a sign for as long.
const MEMORY: Nanos = Nanos::from_millis(50);
/// How often it is seen meanwhile whether that is still so...
const LOOK_AGAIN: Nanos = Nanos(MEMORY.0 / 4);
/// ...which it is if the thread has waited for this part of the time.
const WAITED_PART: u64 = 16;
/// Longest rest after a poll that found something. Each further one in a row may be twice as long as the last...
const REST: Nanos = Nanos::from_micros(100);
/// ...up to this: a packet ends it anyway, but the program may look at other things between two polls.
const LONGEST_REST: Nanos = Nanos::from_millis(1);
/// So many times must giving way take longer than [`AWAY`] to show that others do not give way in turn...
const STUBBORN: u32 = 8;
/// ...where one of those outweighs so many after which the thread is soon back: the system lets it run again for what it missed before.
const OUTWEIGHS: u32 = 4;
/// ...which is believed for so long, and then tried once more.
const BELIEVED: Nanos = Nanos::from_secs(1);

/// A thread has company for so many of its polls in vain after one of another thread's: more than it makes while it has a
/// core for itself, since it gives way each time.
const COMPANY: u32 = 1024;
/// Who gives way and is back later than this has let another run: a call of the system alone takes a fraction of it.
const RAN: Nanos = Nanos::from_micros(2);
/// So many times in a row must threads be back at once to be no crowd any more.
const CROWD: u32 = 64;
/// How often one of a crowd looks at the sockets. Some ten threads have their turn on a core meanwhile.
const LOOKS: Nanos = Nanos::from_micros(20);

/// Whose the cores are, as a poll sees it that has found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cores {
    /// Nobody else wants them.
    Free,
    /// Other threads of the program poll, too.
    Company,
    /// Others want them, and give way in turn.
    Yielded,
    /// Others want them, and keep them for all of their turn.
    Taken,
}

/// See the module. Shared by the threads that poll; races between them cost an observation at worst.
pub(crate) struct Contention {
    /// When the last poll was, if it found nothing; else 0.
    last_poll: AtomicU64,
    waits: [AtomicU64; WAITS],
    contended_until: AtomicU64,
    /// When it was last seen whether that is still so.
    looked_again: AtomicU64,
    rests: AtomicU64,
    /// How long the next rest may be.
    next_rest: AtomicU64,
    /// How much more often giving way has taken long than not.
    long_turns: AtomicU32,
    /// Until when it is known that others do not give way.
    stubborn_until: AtomicU64,
    /// Whose poll in vain was last, and for how many more of them it has company.
    last_thread: AtomicUsize,
    company: AtomicU32,
    /// How many times more threads must be back at once.
    crowd: AtomicU32,
    /// When the sockets were last looked at.
    last_look: AtomicU64,
}

impl Contention {
    pub(crate) fn new() -> Contention {
        Contention {
            last_poll: AtomicU64::new(0),
            waits: Default::default(),
            contended_until: AtomicU64::new(0),
            looked_again: AtomicU64::new(0),
            rests: AtomicU64::new(0),
            next_rest: AtomicU64::new(REST.0),
            long_turns: AtomicU32::new(0),
            stubborn_until: AtomicU64::new(0),
            last_thread: AtomicUsize::new(0),
            company: AtomicU32::new(0),
            crowd: AtomicU32::new(0),
            last_look: AtomicU64::new(0),
        }
    }

    /// After a poll that found nothing.
    #[inline]
    pub(crate) fn cores(&self, now: Time) -> Cores {
        if self.in_company() {
            Cores::Company
        } else if !self.is_contended(now) {
            Cores::Free
        } else if self.others_give_way(now) {
            Cores::Yielded
        } else {
            Cores::Taken
        }
    }

    /// After a poll that found nothing: whether other threads poll, too.
    #[inline]
    pub(crate) fn in_company(&self) -> bool {
        let me = this_thread();
        if self.last_thread.load(Ordering::Relaxed) != me {
            // The first of all has no company yet.
            let others = self.last_thread.swap(me, Ordering::Relaxed) != 0;
            if others {
                self.company.store(COMPANY, Ordering::Relaxed);
            }
            return others;
        }
        let left = self.company.load(Ordering::Relaxed);
        if left > 0 {
            self.company.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Lets others have the core, and sees whether any wanted it.
    pub(crate) fn give_way(&self) {
        let before = clock::now();
        std::thread::yield_now();
        let now = clock::now();
        self.gave_way(now, now.since(before));
        if now.since(Time(self.looked_again.load(Ordering::Relaxed))) > LOOK_AGAIN {
            self.look_again(now);
        }
    }

    /// Whether the thread still waits for a core again and again.
    #[cold]
    fn look_again(&self, now: Time) {
        self.looked_again.store(now.0, Ordering::Relaxed);
        if let Some((elapsed, waited)) = waited_since_last_look(now)
            && now.0 < self.contended_until.load(Ordering::Relaxed)
            && waited.0 > elapsed.0 / WAITED_PART
        {
            self.contended_until.store((now + MEMORY).0, Ordering::Relaxed);
        }
    }

    fn gave_way(&self, now: Time, away: Nanos) {
        let turns = self.long_turns.load(Ordering::Relaxed);
        let mut turns = if away > AWAY { turns + OUTWEIGHS } else { turns.saturating_sub(1) };
        if turns >= STUBBORN * OUTWEIGHS {
            self.stubborn_until.store((now + BELIEVED).0, Ordering::Relaxed);
            turns = (STUBBORN - 1) * OUTWEIGHS;
        }
        self.long_turns.store(turns, Ordering::Relaxed);
        let left = self.crowd.load(Ordering::Relaxed);
        let left = if away > RAN { CROWD } else { left.saturating_sub(1) };
        self.crowd.store(left, Ordering::Relaxed);
    }

    /// Whether more threads poll than there are cores for.
    #[inline]
    pub(crate) fn is_crowd(&self) -> bool {
        self.crowd.load(Ordering::Relaxed) > 0 && self.company.load(Ordering::Relaxed) > 0
    }

    /// A poll looks at the sockets.
    #[inline]
    pub(crate) fn looks(&self, now: Time) {
        self.last_look.store(now.0, Ordering::Relaxed);
    }

    /// Whether one of a crowd has looked at the sockets just now.
    #[inline]
    pub(crate) fn has_looked(&self, now: Time) -> bool {
        now.since(Time(self.last_look.load(Ordering::Relaxed))) < LOOKS
    }

    /// After a poll that found something. What it does with that takes time for which nobody else is to blame.
    #[inline]
    pub(crate) fn found(&self) {
        self.last_poll.store(0, Ordering::Relaxed);
        if self.next_rest.load(Ordering::Relaxed) != REST.0 {
            self.next_rest.store(REST.0, Ordering::Relaxed);
        }
    }

    /// How long a rest may be.
    pub(crate) fn rest(&self) -> Nanos {
        Nanos(self.next_rest.load(Ordering::Relaxed))
    }

    /// Whether those who want the core are thought to give way, too.
    fn others_give_way(&self, now: Time) -> bool {
        now.0 >= self.stubborn_until.load(Ordering::Relaxed)
    }

    /// After a poll has given way instead of resting.
    pub(crate) fn count_rest(&self) {
        self.rests.fetch_add(1, Ordering::Relaxed);
    }

    /// After a poll that found nothing: whether others want the cores.
    #[inline]
    fn is_contended(&self, now: Time) -> bool {
        let last = Time(self.last_poll.load(Ordering::Relaxed));
        self.last_poll.store(now.0, Ordering::Relaxed);
        if last > Time(0) && now.since(last) > AWAY {
            self.was_away(now);
        }
        now.0 < self.contended_until.load(Ordering::Relaxed)
    }

    /// After a rest that was to end at `due` at the latest.
    pub(crate) fn rested(&self, now: Time, due: Time) {
        self.count_rest();
        self.next_rest.store((2 * self.rest().0).min(LONGEST_REST.0), Ordering::Relaxed);
        self.last_poll.store(now.0, Ordering::Relaxed);
        if now.since(due) > AWAY {
            self.note_wait(now);
        }
    }

    /// How often polls rested or gave way because others want the cores.
    pub(crate) fn rests(&self) -> u64 {
        self.rests.load(Ordering::Relaxed)
    }

    #[cold]
    fn was_away(&self, now: Time) {
        if waited_since_last_look(now).is_some_and(|(_, waited)| waited > AWAY) {
            self.note_wait(now);
        }
    }

    fn note_wait(&self, now: Time) {
        let oldest = self.waits[0].load(Ordering::Relaxed);
        for i in 1..WAITS {
            self.waits[i - 1].store(self.waits[i].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.waits[WAITS - 1].store(now.0, Ordering::Relaxed);
        if oldest != 0 && now.since(Time(oldest)) < MEMORY {
            self.contended_until.store((now + MEMORY).0, Ordering::Relaxed);
        }
    }
}

/// How long ago this thread asked last, and how long it has waited for a core since then; `None` if that was too long ago.
fn waited_since_last_look(now: Time) -> Option<(Nanos, Nanos)> {
    thread_local! {
        /// When that was, and how long it had waited by then.
        static BEFORE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    let waited = process::waited_for_core()?;
    let (at, before) = BEFORE.replace((now.0, waited));
    let elapsed = now.since(Time(at));
    (elapsed < MEMORY).then_some((elapsed, Nanos(waited - before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_a_core_in_short_order_make_polls_rest_for_a_while() {
        let contention = Contention::new();
        let ms = |n: u64| Time(1_000_000_000 + n * 1_000_000);
        for i in 0..WAITS as u64 {
            contention.rested(ms(10 * i), Time(ms(10 * i).0 - 1_000_000));
        }
        assert!(!contention.is_contended(ms(21)), "three waits are no evidence without a fourth");
        contention.rested(ms(30), ms(29));
        assert!(contention.is_contended(ms(31)));
        assert!(!contention.is_contended(ms(31) + MEMORY));
    }

    #[test]
    fn rests_in_a_row_grow_until_something_comes() {
        let contention = Contention::new();
        for expected_us in [100, 200, 400, 800, 1000, 1000] {
            assert_eq!(contention.rest(), Nanos::from_micros(expected_us));
            contention.rested(Time(1_000_000_000), Time(1_000_000_000));
        }
        contention.found();
        assert_eq!(contention.rest(), REST);
    }

    #[test]
    fn a_thread_has_company_while_another_polls_in_vain_and_not_for_long_afterwards() {
        let contention = Contention::new();
        assert!((0..10).all(|_| !contention.in_company()), "alone from the start");
        std::thread::scope(|scope| scope.spawn(|| contention.in_company()).join().unwrap());
        assert!((0..=COMPANY).all(|_| contention.in_company()));
        assert!((0..10).all(|_| !contention.in_company()), "the other has gone");
    }

    #[test]
    fn threads_in_company_are_a_crowd_until_they_are_back_at_once_again_and_again() {
        let contention = Contention::new();
        contention.gave_way(Time(1_000_000_000), Nanos(RAN.0 + 1));
        assert!(!contention.is_crowd(), "another process wants the core, no thread of this one");
        contention.in_company();
        std::thread::scope(|scope| scope.spawn(|| contention.in_company()).join().unwrap());
        for _ in 0..CROWD {
            assert!(contention.is_crowd());
            contention.gave_way(Time(1_000_000_000), Nanos(RAN.0 / 4));
        }
        assert!(!contention.is_crowd());
    }

    #[test]
    fn one_look_of_a_crowd_is_enough_for_a_moment() {
        let contention = Contention::new();
        contention.looks(Time(1_000_000));
        assert!(contention.has_looked(Time(1_000_000 + LOOKS.0 - 1)));
        assert!(!contention.has_looked(Time(1_000_000 + LOOKS.0)));
    }

    #[test]
    fn who_keeps_the_core_again_and_again_is_not_given_way_to() {
        let contention = Contention::new();
        let turn = Nanos::from_millis(3);
        let mut now = Time(1_000_000_000);
        for _ in 0..STUBBORN {
            assert!(contention.others_give_way(now));
            now += turn;
            contention.gave_way(now, turn);
        }
        assert!(!contention.others_give_way(now));
        now += BELIEVED;
        assert!(contention.others_give_way(now), "it is tried again");
        contention.gave_way(now, turn);
        assert!(!contention.others_give_way(now), "once is enough then");
        now += BELIEVED;
        contention.gave_way(now, RAN);
        contention.gave_way(now, turn);
        assert!(contention.others_give_way(now), "they do give way");
    }

    #[test]
    fn a_few_short_turns_in_between_do_not_hide_those_who_keep_the_core() {
        let now = Time(1_000_000_000);
        for (short, known) in [(OUTWEIGHS - 1, true), (OUTWEIGHS, false)] {
            let contention = Contention::new();
            for _ in 0..100 {
                contention.gave_way(now, Nanos::from_millis(3));
                (0..short).for_each(|_| contention.gave_way(now, RAN));
            }
            assert_eq!(contention.others_give_way(now), !known, "{short} between");
        }
    }

    #[test]
    fn rare_waits_do_not() {
        let contention = Contention::new();
        for i in 1..20u64 {
            contention.rested(Time(i * 40_000_000), Time(i * 40_000_000 - 1_000_000));
        }
        assert!(!contention.is_contended(Time(20 * 40_000_000)));
    }
}
