//! What versions of BBR have in common: what is measured of the path, when that has been looked at for long enough, and what it comes to.

use super::super::{Sample, Window};
use srd_wire::{Nanos, Time};
use std::collections::VecDeque;

/// A round trip before the first.
pub(super) const UNKNOWN: Nanos = Nanos(u64::MAX);
/// How long the smallest round trip counts.
pub(super) const MIN_RTT_SPAN: Nanos = Nanos::from_secs(10);
pub(super) const LEAST_WINDOW: u32 = 4;
/// How long little is in flight for the sake of the round trip.
const PROBE_RTT_SPAN: Nanos = Nanos::from_millis(200);
/// The pipe is full if the bandwidth has not grown by a quarter for three rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The pace is one percent below the model's.
const MARGIN: f64 = 0.99;
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

/// Segments of so many bandwidth-delay products; `None` while one of both is not known.
pub(super) fn product(bandwidth: f64, min_rtt: Nanos, gain: f64) -> Option<u32> {
    let known = bandwidth != 0.0 && min_rtt != UNKNOWN;
    known.then(|| (bandwidth * min_rtt.as_f64() / 1e9 * gain).ceil() as u32)
}

/// Rounds: one ends when a segment is acknowledged that left after so many were delivered.
#[derive(Clone, Default, Debug)]
pub(super) struct Rounds {
    pub(super) number: u64,
    /// This ACK begins one.
    pub(super) starts: bool,
    pub(super) end: u64,
}

impl Rounds {
    pub(super) fn see(&mut self, sample: &Sample) {
        self.starts = sample.rate.is_some_and(|rate| rate.prior >= self.end);
        if self.starts {
            self.end = sample.delivered;
            self.number += 1;
        }
    }
}

/// Whether more is delivered if more is sent.
#[derive(Clone, Default, Debug)]
pub(super) struct Pipe {
    pub(super) bandwidth: f64,
    rounds: u32,
}

impl Pipe {
    /// Looked at anew: it delivers so much.
    pub(super) fn from(bandwidth: f64) -> Pipe {
        Pipe { bandwidth, rounds: 0 }
    }

    /// So much was delivered in a round.
    pub(super) fn see(&mut self, bandwidth: f64) {
        if bandwidth >= self.bandwidth * FULL_GROWTH {
            *self = Pipe::from(bandwidth);
        } else {
            self.rounds += 1;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rounds >= FULL_ROUNDS
    }
}

/// ProbeRTT: little is in flight for a while, and for a round.
#[derive(Clone, Default, Debug)]
pub(super) struct RttProbe {
    ends: Option<Time>,
    round: bool,
}

impl RttProbe {
    /// An ACK has come in it. Whether it is over. It begins to count with `least` in flight.
    pub(super) fn is_over(&mut self, sample: &Sample, least: u32, rounds: &mut Rounds) -> bool {
        match self.ends {
            Some(end) => {
                self.round |= rounds.starts;
                self.round && sample.now > end
            }
            None => {
                if sample.flights.1 <= least {
                    self.ends = Some(sample.now + PROBE_RTT_SPAN);
                    rounds.end = sample.delivered;
                }
                false
            }
        }
    }
}

/// Segments per second at which bursts leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(pub(super) f64);

impl Pace {
    /// Before the first ACK.
    pub(super) fn first(gain: f64, window: u32, smoothed: Nanos) -> Pace {
        Pace(gain * window as f64 * 1e9 / smoothed.0.max(1) as f64)
    }

    /// The bandwidth is so much; it is lowered only once the pipe has been full.
    pub(super) fn follow(&mut self, bandwidth: f64, gain: f64, full: bool) {
        let pace = bandwidth * gain * MARGIN;
        if pace > 0.0 && (full || pace > self.0) {
            self.0 = pace;
        }
    }
}
