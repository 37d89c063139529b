//! Whether the program has its cores for itself. Programs that poll (MPI ranks, most of all) take all the time that
//! they get; with more of them than cores, each takes it from the very one whose answer it waits for. So a poll that
//! finds nothing rests until a packet comes, but only for a moment, and only where the thread has been seen waiting
//! for a core: on cores of its own a program's poll never sleeps.

use crate::sys::process;
use srd_wire::{Nanos, Time};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two polls that find nothing further apart than this: the thread was away, computing or waiting for a core. Longer
/// than this without a core: others want it too.
const AWAY: Nanos = Nanos::from_micros(300);
/// So many waits for a core...
const WAITS: usize = 3;
/// ...within this time show that others want the cores too, and are taken as a sign for as long.
const MEMORY: Nanos = Nanos::from_millis(50);
/// Longest rest after a poll that found something. Each further one in a row may be twice as long as the last...
const REST: Nanos = Nanos::from_micros(100);
/// ...up to this: a packet ends it anyway, but the program may look at other things between two polls.
const LONGEST_REST: Nanos = Nanos::from_millis(1);

/// See the module. Shared by the threads that poll; races between them cost an observation at worst.
pub(crate) struct Contention {
    /// When the last poll was, if it found nothing; else 0.
    last_poll: AtomicU64,
    waits: [AtomicU64; WAITS],
    contended_until: AtomicU64,
    rests: AtomicU64,
    /// How long the next rest may be.
    next_rest: AtomicU64,
}

impl Contention {
    pub(crate) fn new() -> Contention {
        Contention {
            last_poll: AtomicU64::new(0),
            waits: Default::default(),
            contended_until: AtomicU64::new(0),
            rests: AtomicU64::new(0),
            next_rest: AtomicU64::new(REST.0),
        }
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

    /// After a poll that found nothing: whether it should rest.
    #[inline]
    pub(crate) fn should_rest(&self, now: Time) -> bool {
        let last = Time(self.last_poll.load(Ordering::Relaxed));
        self.last_poll.store(now.0, Ordering::Relaxed);
        if last > Time(0) && now.since(last) > AWAY {
            self.was_away(now);
        }
        now.0 < self.contended_until.load(Ordering::Relaxed)
    }

    /// After a rest that was to end at `due` at the latest.
    pub(crate) fn rested(&self, now: Time, due: Time) {
        self.rests.fetch_add(1, Ordering::Relaxed);
        self.next_rest.store((2 * self.rest().0).min(LONGEST_REST.0), Ordering::Relaxed);
        self.last_poll.store(now.0, Ordering::Relaxed);
        if now.since(due) > AWAY {
            self.note_wait(now);
        }
    }

    /// How often polls rested.
    pub(crate) fn rests(&self) -> u64 {
        self.rests.load(Ordering::Relaxed)
    }

    #[cold]
    fn was_away(&self, now: Time) {
        thread_local! {
            /// When this thread was last away, and how long it had waited for a core by then.
            static BEFORE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        }
        let Some(waited) = process::waited_for_core() else { return };
        let (at, before) = BEFORE.replace((now.0, waited));
        if now.since(Time(at)) < MEMORY && waited - before > AWAY.0 {
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
        assert!(!contention.should_rest(ms(21)), "three waits are no evidence without a fourth");
        contention.rested(ms(30), ms(29));
        assert!(contention.should_rest(ms(31)));
        assert!(!contention.should_rest(ms(31) + MEMORY));
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
    fn rare_waits_do_not() {
        let contention = Contention::new();
        for i in 1..20u64 {
            contention.rested(Time(i * 40_000_000), Time(i * 40_000_000 - 1_000_000));
        }
        assert!(!contention.should_rest(Time(20 * 40_000_000)));
    }
}
