//! SLEEK: finds losses where no switch says what it has cut. Packets are lost if far more have come after them than a window
//! holds, or if a probe comes back quickly and they have still not been heard of (uet-htsim, uec.cpp, `runSleek`).

use super::law::{Constants, Window};
use super::sending::Rules;
use srd_wire::{Nanos, Time};
use std::ops::Range;

/// Windows' worth of packets that must have come out of order (`loss_retx_factor`), and the least number of them.
const WINDOWS: f64 = 1.5;
const LEAST: f64 = 5.0;
/// Base round trips without an ACK until the first probe, and until another (`probe_first_trial_time`, `probe_retry_time`).
const FIRST_PROBE: u64 = 3;
const NEXT_PROBE: u64 = 5;

/// One flow's search for losses.
#[derive(Clone, Debug)]
pub(super) struct Sleek {
    /// While packets below this number are missing, the lost ones are sent whatever the window is.
    until: Option<u32>,
    /// Packets below it have been taken for lost in this recovery.
    through: u32,
    timer: Time,
    probes: u32,
    probed_at: Time,
}

impl Default for Sleek {
    fn default() -> Sleek {
        Sleek { until: None, through: 0, timer: Time::NEVER, probes: 0, probed_at: Time(0) }
    }
}

impl Sleek {
    /// Packets are being recovered.
    pub(super) fn recovering(&self) -> bool {
        self.until.is_some()
    }

    /// When the next probe is due.
    pub(super) fn timer(&self) -> Time {
        self.timer
    }

    /// An ACK has come: the timer begins anew, if anything is missing or there is `more` to send.
    pub(super) fn set_timer(
        &mut self,
        now: Time,
        constants: &Constants,
        window: &Window,
        more: bool,
        missing: bool,
    ) {
        let base = window.base_rtt();
        self.timer = match (more, missing) {
            (true, _) => now + Nanos(FIRST_PROBE * base.0),
            (false, true) => now + base + constants.target,
            (false, false) => Time::NEVER,
        };
    }

    /// The number of the next probe, if it is due.
    pub(super) fn probe(&mut self, now: Time, base_rtt: Nanos) -> Option<u32> {
        if now < self.timer {
            return None;
        }
        self.probes += 1;
        self.probed_at = now;
        self.timer = now + Nanos(NEXT_PROBE * base_rtt.0);
        Some(self.probes)
    }

    /// How long the last probe has taken, if this is its number.
    pub(super) fn round_trip(&self, now: Time, number: u32) -> Option<Nanos> {
        (number == self.probes).then(|| now.since(self.probed_at))
    }

    /// An ACK says that all packets below `first` have come and so many out of order. `quick`: it is a probe's, which met no
    /// queue. Returns the packets that are lost if they are in flight.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hear(
        &mut self,
        rules: &Rules,
        window: &Window,
        first: u32,
        next: u32,
        out_of_order: u32,
        quick: bool,
        none_waits: bool,
    ) -> Range<u32> {
        let payload = rules.payload as f64;
        if quick {
            (self.until, self.through) = (Some(next), first);
        }
        if self.until.is_some_and(|until| first >= until) {
            self.until = None;
        }
        let threshold = ((WINDOWS * window.bytes).min(window.most()) / payload).max(LEAST);
        if self.until.is_none() && (out_of_order as f64) >= threshold.floor() && none_waits {
            self.until = Some(next);
        }
        let Some(until) = self.until else { return 0..0 };
        let to = until.min(first + (window.bytes / payload) as u32);
        self.through.max(first).min(to)..to
    }

    /// A packet was taken for lost.
    pub(super) fn went_through(&mut self, psn: u32) {
        self.through = psn + 1;
    }
}
