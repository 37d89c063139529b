//! When the program polls, and until when the progress thread sleeps: by that each knows what it may leave to the other.

use super::handoff::LATEST;
use serde::Serialize;
use srd_wire::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// A program is at the device "now" if it called less than this ago. Where ranks share cores and give way to each other, one
/// that polls is away for as long again and again; a thread that took over then would only take the core from others.
const CALLS_NOW: Nanos = Nanos::from_micros(300);
/// The thread is woken if a program that has not called for a while has something due this much before the thread would wake.
const KICK_AHEAD: Nanos = Nanos::from_micros(50);

/// See the module. Read without the lock.
pub(crate) struct PollActivity {
    last_call: AtomicU64,
    /// When the thread wakes by itself at the latest.
    pub(crate) thread_wakes: AtomicU64,
    pub(crate) counters: AtomicCounters,
}

#[derive(Default)]
pub(crate) struct AtomicCounters {
    pub(crate) wakes: AtomicU64,
    pub(crate) parks: AtomicU64,
    kicks: AtomicU64,
}

/// What the thread did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProgressCounters {
    /// Times that the thread woke to move packets.
    pub thread_wakes: u64,
    /// Times that the thread found the program polling, and slept on.
    pub thread_parks: u64,
    /// Times that the thread was woken for something due before it would have woken.
    pub thread_kicks: u64,
    /// Times that a poll found nothing and gave way, or slept for a moment, because others wanted the cores.
    pub rests: u64,
}

impl PollActivity {
    pub(crate) fn new() -> PollActivity {
        PollActivity {
            last_call: AtomicU64::new(0),
            thread_wakes: AtomicU64::new(0),
            counters: AtomicCounters::default(),
        }
    }

    /// The program calls the device.
    #[inline]
    pub(crate) fn called(&self, now: Time) {
        self.last_call.store(now.0, Ordering::Relaxed);
    }

    /// A call that the program made has taken long, and is over.
    pub(crate) fn goes_on(&self, now: Time) {
        self.last_call.store(now.0, Ordering::Relaxed);
    }

    /// The program's poll rests until `until`, and goes on then.
    #[inline]
    pub(crate) fn rests(&self, until: Time) {
        self.last_call.store(until.0, Ordering::Relaxed);
    }

    /// The program will not call for a while.
    pub(crate) fn paused(&self) {
        self.last_call.store(0, Ordering::Relaxed);
    }

    /// Whether the program calls the device at this time.
    #[inline]
    pub(crate) fn calls_now(&self, now: Time) -> bool {
        now.since(Time(self.last_call.load(Ordering::Relaxed))) < CALLS_NOW
    }

    /// Whether the thread would sleep past `due`.
    #[inline]
    pub(crate) fn sleeps_past(&self, due: Time, now: Time, busy: bool) -> bool {
        if due == Time::NEVER {
            return false;
        }
        let wakes = Time(self.thread_wakes.load(Ordering::Relaxed));
        // While the program calls, its calls are in time; the thread must only be there when they stop. It parks by
        // its own clock, which is read later than `now`.
        let ahead = if busy { Nanos(2 * LATEST.0) } else { KICK_AHEAD };
        let latest = due.max(now) + ahead;
        let past = wakes > latest;
        if past {
            self.thread_wakes.store(now.0, Ordering::Relaxed); // once is enough
            self.counters.kicks.fetch_add(1, Ordering::Relaxed);
        }
        past
    }

    pub(crate) fn counters(&self, rests: u64) -> ProgressCounters {
        let counters = &self.counters;
        ProgressCounters {
            thread_wakes: counters.wakes.load(Ordering::Relaxed),
            thread_parks: counters.parks.load(Ordering::Relaxed),
            thread_kicks: counters.kicks.load(Ordering::Relaxed),
            rests,
        }
    }
}
