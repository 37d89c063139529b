//! Whether a peer is there: how long it has been asked in vain, when it may be asked again, and when silence is death.

use srd_wire::{Nanos, Time};

/// Probes into silence before a peer can count as dead: a clock that jumps is not a peer that died.
const PROBES_TO_DEATH: u32 = 8;
/// Probes into silence after which the silence was the peer's and not the paths'.
const PROBES_TO_FORGIVE: u32 = 4;
/// Silence that is worth telling, though it need not be death.
const SILENCE_TO_TELL: Nanos = Nanos::from_secs(3);

/// See the module.
pub(crate) struct Liveness {
    /// Last packet from it.
    pub(crate) last_heard: Time,
    /// Since when something has been outstanding without an answer.
    pub(crate) waiting_since: Time,
    /// Probes sent into silence since the last answer.
    pub(crate) silent_probes: u32,
    /// The upper layer has been told of this silence.
    told: bool,
    /// No further probe before this.
    pub(crate) quiet_until: Time,
    /// Nor are paths asked about silence before this, whatever has been heard: late answers to earlier questions would
    /// draw new ones without end.
    next_ask: Time,
    /// Stopped: the peer counts as dead; sending resumes with the next message or packet from it.
    pub(crate) dead: bool,
}

impl Liveness {
    #[inline]
    pub(crate) fn new(now: Time) -> Liveness {
        Liveness {
            last_heard: now,
            waiting_since: now,
            silent_probes: 0,
            told: false,
            quiet_until: Time(0),
            next_ask: Time(0),
            dead: false,
        }
    }

    /// When it may be asked again.
    #[inline]
    pub(crate) fn may_ask_at(&self) -> Time {
        self.quiet_until.max(self.next_ask)
    }

    /// Paths have been asked, and are not asked again before `until`.
    #[inline]
    pub(crate) fn asked(&mut self, until: Time) {
        self.silent_probes += 1;
        (self.quiet_until, self.next_ask) = (until, until);
    }

    /// Something of ours has been answered. Returns whether the silence before was the peer's.
    #[inline]
    pub(crate) fn answered(&mut self, now: Time) -> bool {
        let forgives = self.silent_probes >= PROBES_TO_FORGIVE;
        self.silent_probes = 0;
        self.told = false;
        self.quiet_until = Time(0);
        self.waiting_since = now;
        forgives
    }

    /// There is a reason to try again. Returns whether it counted as dead.
    #[inline]
    pub(crate) fn revive(&mut self, now: Time) -> bool {
        let was_dead = std::mem::take(&mut self.dead);
        if was_dead {
            self.silent_probes = 0;
            self.quiet_until = now;
            self.waiting_since = now;
        }
        was_dead
    }

    /// For how long it has been asked in vain.
    #[inline]
    pub(crate) fn silence(&self, now: Time) -> Nanos {
        now.since(self.waiting_since.max(self.last_heard))
    }

    /// The same, judged at a timer that was to fire at `due`, while no timer waits longer than `longest`. If it is later (this
    /// process stood still, or its clock jumped), that time says nothing about the peer and does not count.
    #[inline]
    pub(crate) fn silence_at_timer(&mut self, now: Time, due: Time, longest: Nanos) -> Nanos {
        let stood_still = now.since(due) - longest;
        self.waiting_since = (self.waiting_since.max(self.last_heard) + stood_still).min(now);
        now.since(self.waiting_since)
    }

    /// Whether a silence is to be told, which it is once.
    #[inline]
    pub(crate) fn tell(&mut self, silence: Nanos) -> bool {
        silence >= SILENCE_TO_TELL && !std::mem::replace(&mut self.told, true)
    }

    /// Whether a silence after so many questions is death.
    #[inline]
    pub(crate) fn is_death(silence: Nanos, questions: u32, timeout: Nanos) -> bool {
        silence >= timeout && questions >= PROBES_TO_DEATH
    }
}
