//! What versions of BBR have in common: filters of what is measured, and room for bursts.

use super::super::{Sample, Window};
use srd_wire::{Nanos, Time};
use std::collections::VecDeque;

/// A round trip before the first.
pub(super) const UNKNOWN: Nanos = Nanos(u64::MAX);
/// Rounds over which ACKs' lumps count, and the longest lump.
const LUMP_ROUNDS: u64 = 5;
const LONGEST_LUMP: Nanos = Nanos::from_millis(100);

/// The largest of what was seen in the last rounds.
#[derive(Clone, Default, Debug)]
pub(super) struct Largest(VecDeque<(u64, f64)>);

impl Largest {
    pub(super) fn see(&mut self, round: u64, value: f64, rounds: u64) {
        while self.0.back().is_some_and(|&(_, other)| other <= value) {
            self.0.pop_back();
        }
        self.0.push_back((round, value));
        while self.0.front().is_some_and(|&(seen, _)| seen + rounds < round) {
            self.0.pop_front();
        }
    }

    pub(super) fn value(&self) -> f64 {
        self.0.front().map_or(0.0, |&(_, value)| value)
    }
}

/// How many more segments are acknowledged at once than the bandwidth explains.
#[derive(Clone, Default, Debug)]
pub(super) struct Lumps {
    since: Time,
    count: u32,
    largest: Largest,
}

impl Lumps {
    pub(super) fn see(&mut self, round: u64, bandwidth: f64, window: &Window, sample: &Sample) {
        let expected = bandwidth * sample.now.since(self.since).as_f64() / 1e9;
        if self.count as f64 <= expected {
            (self.count, self.since) = (0, sample.now);
        }
        self.count = self.count.saturating_add(sample.acked);
        let expected = bandwidth * sample.now.since(self.since).as_f64() / 1e9;
        let extra = (self.count as f64 - expected).clamp(0.0, window.size as f64);
        self.largest.see(round, extra, 2 * LUMP_ROUNDS);
    }

    /// Segments that the window needs for them.
    pub(super) fn room(&self, bandwidth: f64) -> u32 {
        let most = bandwidth * LONGEST_LUMP.as_f64() / 1e9;
        self.largest.value().min(most) as u32
    }
}

/// So many segments, and those of bursts that wait at either end.
pub(super) fn roomy(segments: u32, burst: u32, probes: bool) -> u32 {
    let even = (segments + 3 * burst + 1) & !1;
    even + if probes { 2 } else { 0 }
}
