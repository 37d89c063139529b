//! BBR version 3 (draft-ietf-ccwg-bbr-02): as version 1 it follows a model of the path, to which losses belong now. What is
//! in flight is bounded by how much was when more than two of a hundred were lost (the upper bound, found by probing), and by what
//! arrived in rounds with losses between probes (the lower bounds). Names in brackets are the draft's.

use super::path::{LEAST_WINDOW, Largest, Lumps, MIN_RTT_SPAN, Pace, Pipe, Rounds, RttProbe, UNKNOWN, product, roomy};
use super::super::{Congestion, Control, Losses, Sample, Window};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Time};

/// Section 2.4: StartupPacingGain, StartupCwndGain, DrainPacingGain.
const STARTUP: f64 = 2.77;
const STARTUP_WINDOW: f64 = 2.0;
const DRAIN: f64 = 0.5;
/// Gains of ProbeBW's phases, section 5.3.3.
const DOWN: f64 = 0.9;
const UP: f64 = 1.25;
const CRUISE_WINDOW: f64 = 2.0;
const UP_WINDOW: f64 = 2.25;
const PROBE_RTT_WINDOW: f64 = 0.5;
/// LossThresh, Beta, Headroom, StartupFullLossCnt, section 2.6.
const LOSS: f64 = 0.02;
const BETA: f64 = 0.7;
const HEADROOM: f64 = 0.15;
const STARTUP_LOSSES: u32 = 6;
/// ProbeRTTInterval, section 2.13.
const PROBE_RTT_EACH: Nanos = Nanos::from_secs(5);
/// Cycles of probing over which the largest bandwidth counts (MaxBwFilterLen).
const BANDWIDTH_CYCLES: u64 = 2;
/// Time between probes of the bandwidth: 2 to 3 s, or so many rounds as Reno would take to come back, section 5.3.3.5.
const PROBE_EACH: Nanos = Nanos::from_secs(2);
const PROBE_SPREAD: u64 = 1_000_000_000;
const MOST_RENO_ROUNDS: u32 = 63;
/// Rounds in which the growth of a probe doubles.
const MOST_DOUBLINGS: u32 = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Mode {
    fn probes_bandwidth(self) -> bool {
        matches!(self, Mode::Down | Mode::Cruise | Mode::Refill | Mode::Up)
    }
}

/// BBR's state, version 3.
#[derive(Debug)]
pub struct Bbr3 {
    mode: Mode,
    draws: SmallRng,
    rounds: Rounds,
    /// Segments per second: the largest of the last cycles, and what losses between probes have left (bw_shortterm).
    bandwidth: Largest,
    cycle: u64,
    least_bandwidth: f64,
    /// Segments in flight: what losses between probes have left (inflight_shortterm), and what probes have found (inflight_longterm).
    low: f64,
    high: f64,
    /// Of this round of losses: bandwidth, segments delivered, whether there were losses, and in how many ACKs.
    latest: f64,
    latest_segments: u32,
    lossy: bool,
    loss_events: u32,
    loss_round_end: u64,
    /// Losses found now are those of a probe (bw_probe_samples).
    samples_probe: bool,
    /// A probe has ended, and the next round tells of it no more (ACKS_PROBE_STOPPING).
    probe_ends: bool,
    /// The phase of ProbeBW began, and how long it lasts until the next probe; rounds since the last.
    phase_at: Time,
    wait: Nanos,
    rounds_waited: u32,
    /// A probe's growth: segments acknowledged for each by which `high` grows, those acknowledged, doublings.
    growth_each: u32,
    growth_acked: u32,
    doublings: u32,
    /// Of this phase; and whether it ever was full.
    pipe: Pipe,
    full: bool,
    min_rtt: Nanos,
    min_rtt_at: Time,
    /// The smallest since the last ProbeRTT.
    recent_rtt: Nanos,
    recent_rtt_at: Time,
    rtt_probe: RttProbe,
    saved: u32,
    timed_out: bool,
    pace: Pace,
    initial_window: u32,
    burst: u32,
    lumps: Lumps,
}

impl Bbr3 {
    /// Before the first ACK.
    pub fn new(initial_window: u32, smoothed: Nanos, burst: u32, seed: u64) -> Bbr3 {
        Bbr3 {
            mode: Mode::Startup,
            draws: SmallRng::seed_from_u64(seed),
            rounds: Rounds::default(),
            bandwidth: Largest::default(),
            cycle: 0,
            least_bandwidth: f64::INFINITY,
            low: f64::INFINITY,
            high: f64::INFINITY,
            latest: 0.0,
            latest_segments: 0,
            lossy: false,
            loss_events: 0,
            loss_round_end: 0,
            samples_probe: false,
            probe_ends: false,
            phase_at: Time(0),
            wait: Nanos::ZERO,
            rounds_waited: 0,
            growth_each: u32::MAX,
            growth_acked: 0,
            doublings: 0,
            pipe: Pipe::default(),
            full: false,
            min_rtt: UNKNOWN,
            min_rtt_at: Time(0),
            recent_rtt: UNKNOWN,
            recent_rtt_at: Time(0),
            rtt_probe: RttProbe::default(),
            saved: 0,
            timed_out: false,
            pace: Pace::first(STARTUP, initial_window, smoothed),
            initial_window,
            burst,
            lumps: Lumps::default(),
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => STARTUP,
            Mode::Drain => DRAIN,
            Mode::Down => DOWN,
            Mode::Up => UP,
            Mode::Cruise | Mode::Refill | Mode::ProbeRtt => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => STARTUP_WINDOW,
            Mode::Down | Mode::Cruise | Mode::Refill => CRUISE_WINDOW,
            Mode::Up => UP_WINDOW,
            Mode::ProbeRtt => PROBE_RTT_WINDOW,
        }
    }

    /// The bandwidth that it believes in, in segments per second.
    fn believed(&self) -> f64 {
        self.bandwidth.value().min(self.least_bandwidth)
    }

    /// Segments of so many bandwidth-delay products.
    fn product(&self, bandwidth: f64, gain: f64) -> u32 {
        product(bandwidth, self.min_rtt, gain).unwrap_or(self.initial_window)
    }

    fn in_flight_for(&self, bandwidth: f64, gain: f64) -> u32 {
        roomy(self.product(bandwidth, gain), self.burst, self.mode == Mode::Up).max(LEAST_WINDOW)
    }

    /// Below the upper bound, so that others can begin.
    fn with_headroom(&self) -> f64 {
        (self.high * (1.0 - HEADROOM)).min(self.high - 1.0).max(f64::from(LEAST_WINDOW))
    }

    fn target(&self, window: &Window) -> f64 {
        f64::from(self.product(self.believed(), 1.0).min(window.size))
    }

    fn see_bandwidth(&mut self, sample: &Sample) {
        self.rounds.see(sample);
        self.rounds_waited += u32::from(self.rounds.starts);
        let Some(rate) = sample.rate else { return };
        let bandwidth = rate.per_second();
        if !rate.short || bandwidth >= self.bandwidth.value() {
            self.bandwidth.see(self.cycle, bandwidth, BANDWIDTH_CYCLES - 1);
        }
        self.latest = self.latest.max(bandwidth);
        self.latest_segments = self.latest_segments.max(rate.segments as u32);
    }

    /// What losses between probes leave (BBRAdaptLowerBoundsFromCongestion), once a round.
    fn see_losses(&mut self, window: &Window, sample: &Sample) {
        self.lossy |= sample.lost > 0;
        self.loss_events += u32::from(sample.lost > 0);
        let Some(rate) = sample.rate.filter(|rate| rate.prior >= self.loss_round_end) else { return };
        self.loss_round_end = sample.delivered;
        if self.mode == Mode::Startup && !self.full && self.loss_events >= STARTUP_LOSSES && rate.losses.exceed(LOSS) {
            self.full = true;
            self.high = f64::from(self.product(self.bandwidth.value(), 1.0).max(self.latest_segments));
        }
        let probing = matches!(self.mode, Mode::Startup | Mode::Refill | Mode::Up);
        if self.lossy && !probing {
            if self.least_bandwidth == f64::INFINITY {
                self.least_bandwidth = self.bandwidth.value();
            }
            if self.low == f64::INFINITY {
                self.low = f64::from(window.size);
            }
            self.least_bandwidth = self.latest.max(BETA * self.least_bandwidth);
            self.low = f64::from(self.latest_segments).max(BETA * self.low);
        }
        self.latest = rate.per_second();
        self.latest_segments = rate.segments as u32;
        (self.lossy, self.loss_events) = (false, 0);
    }

    fn forget_low(&mut self) {
        (self.least_bandwidth, self.low) = (f64::INFINITY, f64::INFINITY);
    }

    /// The upper bound: what was in flight when too much was lost, or more where less was (BBRAdaptLongTermModel).
    fn see_bound(&mut self, window: &Window, sample: &Sample) {
        if self.rounds.starts && std::mem::take(&mut self.probe_ends) {
            let tells = self.mode.probes_bandwidth() && sample.rate.is_some_and(|rate| !rate.short);
            self.cycle += u64::from(tells);
        }
        if let Some(losses) = sample.last_lost.filter(|losses| self.samples_probe && losses.exceed(LOSS)) {
            return self.was_too_much(within(&losses), window, sample);
        }
        let Some(rate) = sample.rate else { return };
        if rate.losses.exceed(LOSS) {
            if self.samples_probe {
                self.was_too_much(f64::from(rate.losses.in_flight), window, sample);
            }
            return;
        }
        if self.high == f64::INFINITY {
            return;
        }
        self.high = self.high.max(f64::from(rate.losses.in_flight));
        if self.mode == Mode::Up {
            self.grow(window, sample);
        }
    }

    fn was_too_much(&mut self, in_flight: f64, window: &Window, sample: &Sample) {
        self.samples_probe = false;
        if sample.rate.is_none_or(|rate| !rate.short) {
            self.high = in_flight.max(BETA * self.target(window));
        }
        if self.mode == Mode::Up {
            self.go_down(sample.now);
        }
    }

    /// A probe goes on: slowly at first, then twice as fast each round (BBRProbeInflightLongTermUpward).
    fn grow(&mut self, window: &Window, sample: &Sample) {
        if !sample.limited || f64::from(window.size) < self.high {
            return;
        }
        self.growth_acked += sample.acked;
        if self.growth_acked >= self.growth_each {
            self.high += f64::from(self.growth_acked / self.growth_each);
            self.growth_acked %= self.growth_each;
        }
        if self.rounds.starts {
            self.steepen(window);
        }
    }

    fn steepen(&mut self, window: &Window) {
        self.growth_each = (window.size >> self.doublings).max(1);
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    fn see_full(&mut self, sample: &Sample) {
        let Some(rate) = sample.rate else { return };
        if self.pipe.is_full() || !self.rounds.starts || rate.short {
            return;
        }
        self.pipe.see(rate.per_second());
        self.full |= self.pipe.is_full();
    }

    fn go_down(&mut self, now: Time) {
        (self.mode, self.phase_at) = (Mode::Down, now);
        (self.growth_each, self.probe_ends) = (u32::MAX, true);
        self.rounds_waited = self.draws.random_range(0..2);
        self.wait = PROBE_EACH + Nanos(self.draws.random_range(0..PROBE_SPREAD));
    }

    fn refill(&mut self, now: Time) {
        self.forget_low();
        (self.mode, self.phase_at) = (Mode::Refill, now);
        (self.doublings, self.growth_acked, self.samples_probe) = (0, 0, false);
        (self.probe_ends, self.rounds_waited) = (false, 0);
    }

    fn advance(&mut self, window: &Window, sample: &Sample) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        let drained = sample.flights.1 <= self.in_flight_for(self.bandwidth.value(), 1.0);
        let reno_rounds = (self.target(window) as u32).min(MOST_RENO_ROUNDS);
        let time_to_probe = sample.now.since(self.phase_at) > self.wait || self.rounds_waited >= reno_rounds;
        match self.mode {
            Mode::Drain if drained => self.go_down(sample.now),
            Mode::Down | Mode::Cruise if time_to_probe => self.refill(sample.now),
            Mode::Down if drained && f64::from(sample.flights.1) <= self.with_headroom() => self.mode = Mode::Cruise,
            Mode::Refill if self.rounds.starts && self.rounds_waited > 0 => {
                (self.mode, self.phase_at) = (Mode::Up, sample.now);
                (self.samples_probe, self.probe_ends) = (true, false);
                self.pipe = Pipe::from(sample.rate.map_or(0.0, |rate| rate.per_second()));
                self.steepen(window);
            }
            Mode::Up if sample.limited && f64::from(window.size) >= self.high => {
                self.pipe = Pipe::from(self.latest);
            }
            Mode::Up if self.pipe.is_full() => self.go_down(sample.now),
            _ => {}
        }
    }

    fn see_rtt(&mut self, window: &mut Window, sample: &Sample) {
        let due = sample.now > self.recent_rtt_at + PROBE_RTT_EACH;
        if let Some(rtt) = sample.rtt
            && (rtt < self.recent_rtt || due)
        {
            (self.recent_rtt, self.recent_rtt_at) = (rtt, sample.now);
        }
        if self.recent_rtt < self.min_rtt || sample.now > self.min_rtt_at + MIN_RTT_SPAN {
            (self.min_rtt, self.min_rtt_at) = (self.recent_rtt, self.recent_rtt_at);
        }
        if due && self.mode != Mode::ProbeRtt {
            self.saved = window.size;
            (self.mode, self.rtt_probe) = (Mode::ProbeRtt, RttProbe::default());
            self.probe_ends = true;
        }
        let least = self.least_in_probe();
        if self.mode == Mode::ProbeRtt && self.rtt_probe.is_over(sample, least, &mut self.rounds) {
            self.recent_rtt_at = sample.now;
            window.size = window.size.max(self.saved);
            self.forget_low();
            match self.full {
                true => {
                    self.go_down(sample.now);
                    self.mode = Mode::Cruise;
                }
                false => self.mode = Mode::Startup,
            }
        }
    }

    fn least_in_probe(&self) -> u32 {
        self.product(self.believed(), PROBE_RTT_WINDOW).max(LEAST_WINDOW)
    }

    fn set_window(&mut self, window: &mut Window, sample: &Sample) {
        if std::mem::take(&mut self.timed_out) {
            window.size = sample.flights.1 + 1; // BBROnEnterRTO
        }
        if sample.acked > 0 {
            let bandwidth = self.believed();
            let lumps = if self.full { self.lumps.room(bandwidth) } else { 0 };
            let segments = self.product(bandwidth, self.window_gain()) + lumps;
            let target = roomy(segments, self.burst, self.mode == Mode::Up);
            if self.full {
                window.size = (window.size + sample.acked).min(target);
            } else if window.size < target || sample.delivered < 2 * u64::from(self.initial_window) {
                window.size += sample.acked;
            }
        }
        if self.mode == Mode::ProbeRtt {
            window.size = window.size.min(self.least_in_probe());
        }
        let bound = match self.mode {
            Mode::Down | Mode::Refill | Mode::Up => self.high,
            Mode::Cruise | Mode::ProbeRtt => self.with_headroom(),
            Mode::Startup | Mode::Drain => f64::INFINITY,
        };
        let bound = bound.min(self.low);
        window.size = (f64::from(window.size).min(bound) as u32).max(LEAST_WINDOW);
    }
}

/// With how many in flight two of a hundred would have been lost: up to the segment before the last that was (BBRInflightAtLoss).
fn within(losses: &Losses) -> f64 {
    let (in_flight, lost) = (f64::from(losses.in_flight) - 1.0, losses.lost as f64 - 1.0);
    (in_flight + (LOSS * in_flight - lost) / (1.0 - LOSS)).max(0.0)
}

impl Control for Bbr3 {
    fn acknowledged(&mut self, window: &mut Window, sample: &Sample) {
        self.see_bandwidth(sample);
        self.lumps.see(self.rounds.number, self.believed(), window, sample);
        self.see_full(sample);
        self.see_bound(window, sample);
        self.advance(window, sample);
        self.see_losses(window, sample);
        self.see_rtt(window, sample);
        self.pace.follow(self.believed(), self.pacing_gain(), self.full);
        self.set_window(window, sample);
    }

    fn reduced(&mut self, window: &Window, why: Congestion) -> u32 {
        self.timed_out |= why == Congestion::Timeout;
        window.threshold
    }

    fn restored(&mut self) {
        self.pipe = Pipe::default();
        self.forget_low();
    }

    fn pace(&self) -> Option<f64> {
        Some(self.pace.0)
    }

    fn rules(&self) -> bool {
        true
    }
}
