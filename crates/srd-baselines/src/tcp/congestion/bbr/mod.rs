//! BBR version 1: the window and the pace follow a model of the path, its bandwidth and its round trip
//! (draft-cardwell-iccrg-bbr-congestion-control-00; constants as in Linux, tcp_bbr.c). Without the detection
//! of policers, which data centres lack.

mod path;
mod version3;

pub use version3::Bbr3;

use super::{Congestion, Control, Phase, Sample, Window};
use path::{LEAST_WINDOW, Largest, Lumps, MIN_RTT_SPAN, Pace, Pipe, Rounds, RttProbe, UNKNOWN, product, roomy};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Time};

/// 2 / ln 2: doubles the rate every round trip.
const STARTUP: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const CRUISE_WINDOW: f64 = 2.0;
/// Rounds over which the largest bandwidth counts.
const BANDWIDTH_ROUNDS: u64 = 10;

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
    rounds: Rounds,
    min_rtt: Nanos,
    min_rtt_at: Time,
    cycle: usize,
    cycle_at: Time,
    pipe: Pipe,
    full: bool,
    probe: RttProbe,
    /// Window to return to.
    saved: u32,
    phase: Phase,
    conserving: bool,
    pace: Pace,
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
            rounds: Rounds::default(),
            min_rtt: UNKNOWN,
            min_rtt_at: Time(0),
            cycle: 0,
            cycle_at: Time(0),
            pipe: Pipe::default(),
            full: false,
            probe: RttProbe::default(),
            saved: 0,
            phase: Phase::Open,
            conserving: false,
            pace: Pace::first(STARTUP, initial_window, smoothed),
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
        product(self.bandwidth.value(), self.min_rtt, gain).unwrap_or(self.initial_window)
    }

    /// The same with room for bursts that wait at either end.
    fn roomy(&self, segments: u32) -> u32 {
        roomy(segments, self.burst, self.mode == Mode::ProbeBandwidth && self.cycle == 0)
    }

    fn in_flight_for(&self, gain: f64) -> u32 {
        self.roomy(self.product(gain))
    }

    fn see_bandwidth(&mut self, sample: &Sample) {
        self.rounds.see(sample);
        self.conserving &= !self.rounds.starts;
        let Some(rate) = sample.rate else { return };
        let bandwidth = rate.per_second();
        if !rate.short || bandwidth >= self.bandwidth.value() {
            self.bandwidth.see(self.rounds.number, bandwidth, BANDWIDTH_ROUNDS);
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
        if self.full || !self.rounds.starts || sample.rate.is_some_and(|rate| rate.short) {
            return;
        }
        self.pipe.see(self.bandwidth.value());
        self.full = self.pipe.is_full();
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
            (self.mode, self.probe) = (Mode::ProbeRtt, RttProbe::default());
        }
        if self.mode == Mode::ProbeRtt && self.probe.is_over(sample, LEAST_WINDOW, &mut self.rounds) {
            self.min_rtt_at = sample.now;
            window.size = window.size.max(self.saved);
            match self.full {
                true => self.cruise(sample.now),
                false => self.mode = Mode::Startup,
            }
        }
    }

    fn save(&mut self, window: &Window) {
        let calm = self.phase < Phase::Recovering && self.mode != Mode::ProbeRtt;
        self.saved = if calm { window.size } else { self.saved.max(window.size) };
    }

    /// During a recovery, as many segments leave as arrive.
    fn conserve(&mut self, window: &mut Window, sample: &Sample) -> bool {
        let was = self.phase;
        self.phase = sample.phase;
        if sample.lost > 0 {
            window.size = window.size.saturating_sub(sample.lost).max(1);
        }
        if sample.phase == Phase::Recovering && was != Phase::Recovering {
            (self.conserving, self.rounds.end) = (true, sample.delivered);
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
        self.lumps.see(self.rounds.number, self.bandwidth.value(), window, sample);
        self.advance_cycle(sample);
        self.see_full(sample);
        self.drain(sample);
        self.see_rtt(window, sample);
        self.pace.follow(self.bandwidth.value(), self.pacing_gain(), self.full);
        self.set_window(window, sample);
    }

    fn reduced(&mut self, window: &Window, why: Congestion) -> u32 {
        self.save(window);
        if why == Congestion::Timeout {
            (self.phase, self.pipe.bandwidth, self.rounds.starts) = (Phase::TimedOut, 0.0, true);
        }
        window.threshold
    }

    fn restored(&mut self) {
        self.pipe = Pipe::default();
    }

    fn pace(&self) -> Option<f64> {
        Some(self.pace.0)
    }

    fn rules(&self) -> bool {
        true
    }
}
