//! BBR version 1: the window and the pace follow a model of the path, its bandwidth and its round trip
//! (draft-cardwell-iccrg-bbr-congestion-control-00; constants as in Linux, tcp_bbr.c). Without the detection
//! of policers, which data centres lack.

mod path;
mod version3;

pub use version3::Bbr3;

use super::{Congestion, Control, Phase, Sample, Window};
use path::{Largest, Lumps, UNKNOWN, roomy};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Time};

/// 2 / ln 2: doubles the rate every round trip.
const STARTUP: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const CRUISE_WINDOW: f64 = 2.0;
/// Rounds over which the largest bandwidth counts.
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_SPAN: Nanos = Nanos::from_secs(10);
const PROBE_RTT_SPAN: Nanos = Nanos::from_millis(200);
const LEAST_WINDOW: u32 = 4;
/// The pipe is full if the bandwidth has not grown by a quarter for three rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The pace is one percent below the model's.
const MARGIN: f64 = 0.99;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// BBR's state.
#[derive(Debug)]
pub struct Bbr {
    mode: Mode,
    draws: SmallRng,
    /// Segments per second.
    bandwidth: Largest,
    round: u64,
    round_starts: bool,
    /// The round ends when a segment is acknowledged that left after so many were delivered.
    round_end: u64,
    min_rtt: Nanos,
    min_rtt_at: Time,
    cycle: usize,
    cycle_at: Time,
    full_bandwidth: f64,
    full_rounds: u32,
    full: bool,
    probe_ends: Option<Time>,
    probe_round: bool,
    /// Window to return to.
    saved: u32,
    phase: Phase,
    conserving: bool,
    pace: f64,
    initial_window: u32,
    burst: u32,
    lumps: Lumps,
}

impl Bbr {
    /// Before the first ACK.
    pub fn new(initial_window: u32, smoothed: Nanos, burst: u32, seed: u64) -> Bbr {
        Bbr {
            mode: Mode::Startup,
            draws: SmallRng::seed_from_u64(seed),
            bandwidth: Largest::default(),
            round: 0,
            round_starts: false,
            round_end: 0,
            min_rtt: UNKNOWN,
            min_rtt_at: Time(0),
            cycle: 0,
            cycle_at: Time(0),
            full_bandwidth: 0.0,
            full_rounds: 0,
            full: false,
            probe_ends: None,
            probe_round: false,
            saved: 0,
            phase: Phase::Open,
            conserving: false,
            pace: STARTUP * initial_window as f64 * 1e9 / smoothed.0.max(1) as f64,
            initial_window,
            burst,
            lumps: Lumps::default(),
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => STARTUP,
            Mode::Drain => 1.0 / STARTUP,
            Mode::ProbeBandwidth => CYCLE[self.cycle],
            Mode::ProbeRtt => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => STARTUP,
            Mode::ProbeBandwidth => CRUISE_WINDOW,
            Mode::ProbeRtt => 1.0,
        }
    }

    /// Segments of so many bandwidth-delay products.
    fn product(&self, gain: f64) -> u32 {
        let bandwidth = self.bandwidth.value();
        if bandwidth == 0.0 || self.min_rtt == UNKNOWN {
            return self.initial_window;
        }
        (bandwidth * self.min_rtt.as_f64() / 1e9 * gain).ceil() as u32
    }

    /// The same with room for bursts that wait at either end.
    fn roomy(&self, segments: u32) -> u32 {
        roomy(segments, self.burst, self.mode == Mode::ProbeBandwidth && self.cycle == 0)
    }

    fn in_flight_for(&self, gain: f64) -> u32 {
        self.roomy(self.product(gain))
    }

    fn see_bandwidth(&mut self, sample: &Sample) {
        self.round_starts = false;
        let Some(rate) = sample.rate else { return };
        if rate.prior >= self.round_end {
            self.round_end = sample.delivered;
            self.round += 1;
            (self.round_starts, self.conserving) = (true, false);
        }
        let bandwidth = rate.per_second();
        if !rate.short || bandwidth >= self.bandwidth.value() {
            self.bandwidth.see(self.round, bandwidth, BANDWIDTH_ROUNDS);
        }
    }

    fn advance_cycle(&mut self, sample: &Sample) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let long = sample.now.since(self.cycle_at) > self.min_rtt;
        let gain = CYCLE[self.cycle];
        let over = if gain > 1.0 {
            long && (sample.lost > 0 || sample.flights.0 >= self.in_flight_for(gain))
        } else if gain < 1.0 {
            long || sample.flights.0 <= self.in_flight_for(1.0)
        } else {
            long
        };
        if over {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = sample.now;
        }
    }

    fn cruise(&mut self, now: Time) {
        self.mode = Mode::ProbeBandwidth;
        // Any place but the one that drains.
        self.cycle = (CYCLE.len() - self.draws.random_range(0..7usize)) % CYCLE.len();
        self.cycle_at = now;
    }

    fn see_full(&mut self, sample: &Sample) {
        if self.full || !self.round_starts || sample.rate.is_some_and(|rate| rate.short) {
            return;
        }
        if self.bandwidth.value() >= self.full_bandwidth * FULL_GROWTH {
            (self.full_bandwidth, self.full_rounds) = (self.bandwidth.value(), 0);
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    fn drain(&mut self, sample: &Sample) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && sample.flights.1 <= self.in_flight_for(1.0) {
            self.cruise(sample.now);
        }
    }

    fn see_rtt(&mut self, window: &mut Window, sample: &Sample) {
        let old = sample.now > self.min_rtt_at + MIN_RTT_SPAN;
        if let Some(rtt) = sample.rtt
            && (rtt <= self.min_rtt || old)
        {
            (self.min_rtt, self.min_rtt_at) = (rtt, sample.now);
        }
        if old && self.mode != Mode::ProbeRtt {
            self.save(window);
            (self.mode, self.probe_ends) = (Mode::ProbeRtt, None);
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_ends {
            None if sample.flights.1 <= LEAST_WINDOW => {
                self.probe_ends = Some(sample.now + PROBE_RTT_SPAN);
                (self.probe_round, self.round_end) = (false, sample.delivered);
            }
            None => {}
            Some(end) => {
                self.probe_round |= self.round_starts;
                if self.probe_round && sample.now > end {
                    self.min_rtt_at = sample.now;
                    window.size = window.size.max(self.saved);
                    match self.full {
                        true => self.cruise(sample.now),
                        false => self.mode = Mode::Startup,
                    }
                }
            }
        }
    }

    fn save(&mut self, window: &Window) {
        let calm = self.phase < Phase::Recovering && self.mode != Mode::ProbeRtt;
        self.saved = if calm { window.size } else { self.saved.max(window.size) };
    }

    fn set_pace(&mut self) {
        let pace = self.bandwidth.value() * self.pacing_gain() * MARGIN;
        if pace > 0.0 && (self.full || pace > self.pace) {
            self.pace = pace;
        }
    }

    /// During a recovery, as many segments leave as arrive.
    fn conserve(&mut self, window: &mut Window, sample: &Sample) -> bool {
        let was = self.phase;
        self.phase = sample.phase;
        if sample.lost > 0 {
            window.size = window.size.saturating_sub(sample.lost).max(1);
        }
        if sample.phase == Phase::Recovering && was != Phase::Recovering {
            (self.conserving, self.round_end) = (true, sample.delivered);
            window.size = sample.flights.1 + sample.acked;
        } else if was >= Phase::Recovering && sample.phase < Phase::Recovering {
            window.size = window.size.max(self.saved);
            self.conserving = false;
        }
        if self.conserving {
            window.size = window.size.max(sample.flights.1 + sample.acked);
        }
        self.conserving
    }

    fn set_window(&mut self, window: &mut Window, sample: &Sample) {
        if sample.acked > 0 && !self.conserve(window, sample) {
            let lumps = if self.full { self.lumps.room(self.bandwidth.value()) } else { 0 };
            let target = self.roomy(self.product(self.window_gain()) + lumps);
            if self.full {
                window.size = (window.size + sample.acked).min(target);
            } else if window.size < target || sample.delivered < self.initial_window as u64 {
                window.size += sample.acked;
            }
            window.size = window.size.max(LEAST_WINDOW);
        }
        if self.mode == Mode::ProbeRtt {
            window.size = window.size.min(LEAST_WINDOW);
        }
    }
}

impl Control for Bbr {
    fn acknowledged(&mut self, window: &mut Window, sample: &Sample) {
        self.see_bandwidth(sample);
        self.lumps.see(self.round, self.bandwidth.value(), window, sample);
        self.advance_cycle(sample);
        self.see_full(sample);
        self.drain(sample);
        self.see_rtt(window, sample);
        self.set_pace();
        self.set_window(window, sample);
    }

    fn reduced(&mut self, window: &Window, why: Congestion) -> u32 {
        self.save(window);
        if why == Congestion::Timeout {
            (self.phase, self.full_bandwidth, self.round_starts) = (Phase::TimedOut, 0.0, true);
        }
        window.threshold
    }

    fn restored(&mut self) {
        (self.full_bandwidth, self.full_rounds) = (0.0, 0);
    }

    fn pace(&self) -> Option<f64> {
        Some(self.pace)
    }

    fn rules(&self) -> bool {
        true
    }
}
