//! The controller of the SRD paper (Shalev et al., IEEE Micro 2020, "Congestion Control"), as far as the paper tells: a
//! rate limit per connection and an inflight limit; the rate follows the rate of delivery, told by the timing of ACKs; and
//! the connection is congested if round trips grow on the majority of paths, or if less is delivered than is sent. What
//! happens on one path is the selector's business. The receiver's count of senders is not heeded.
//!
//! The paper gives no law. Ours multiplies the *delivered* rate, never the rate limit itself, by a factor that falls from
//! above one, where there is no delay, through one at the target to below one. So a queue is answered in proportion to its
//! length, at once, and not by a rate that goes on falling as long as the queue lasts: rate laws of that kind swing
//! (docs/design/congestion-control.md, "The prototype"). A small equal amount is added for everybody, which makes shares equal.
//!
//! Constants without another source: random search over 48 senders to one port (64 KB to 2 MB, queues of one
//! bandwidth-delay product and of 1 MB, 5 to 20 seeds each).

use super::{AckSample, CongestionController, ControllerView, RateSample, SendLimits};
use crate::Config;
use crate::rtt::follow_high;
use srd_wire::{Nanos, PathId, Time};

/// Queueing target, as a share of the base round trip. NSCC has 0.75 to 1; with 48 senders the equal amounts that all add keep
/// the queue above the target by half as much again. Sources of the constants that have one:
/// docs/design/congestion-control.md, "Constants of the paper's controller".
const TARGET: f64 = 0.3;
/// Factor on the delivered rate: its slope over the delay, in units of the base round trip, and its bounds. The lower one:
/// the most that a round trip takes away (NSCC and Swift have 0.5). The upper one only keeps the rate from running away
/// where something else than the network holds packets up.
const SLOPE: f64 = 2.0;
const LEAST_FACTOR: f64 = 0.5;
const MOST_FACTOR: f64 = 4.0;
/// Less than this share of the transmitted rate delivered is congestion whatever the delay: nobody grows. (A smaller loss
/// of rate shows in the product.)
const BEHIND: f64 = 0.5;
/// Share of the line that everybody adds in a base round trip, at most a quarter of the own rate: NSCC's eta.
const EQUAL_SHARE: f64 = 1.0 / 256.0;
const EQUAL_LIMIT: f64 = 0.25;
/// Base round trips for which that, and growth, is made up where a packet goes out more rarely.
const CATCH_UP: f64 = 8.0;
/// Weight of a rate sample: this, divided among the ACKs of a round trip.
const RATE_GAIN: f64 = 0.5;
/// Packets that an ACK adds to a round trip at the start; as many where round trips show no delay.
const START_STEP: f64 = 1.0;
const CLEAN_STEP: f64 = 2.0;
/// ACKs in a row with less delay than this share of the base that count as no delay.
const CLEAN_ACKS: u32 = 2;
const CLEAN_DELAY: f64 = 0.1;
/// Base round trips that make a packet too old to count as in flight, beside the queue's.
const MEMORY: f64 = 1.5;
/// Least rate: a packet in so many base round trips.
const LEAST_RATE_ROUNDS: f64 = 64.0;
/// Paths whose delays are compared.
const COMPARED_PATHS: usize = 16;

/// The last delay of each of the paths heard most recently.
struct PathDelays {
    entries: [(PathId, f32, Time); COMPARED_PATHS],
    count: usize,
    next: usize,
}

impl PathDelays {
    fn new() -> PathDelays {
        PathDelays { entries: [(PathId(0), 0.0, Time(0)); COMPARED_PATHS], count: 0, next: 0 }
    }

    fn add(&mut self, now: Time, path: PathId, delay: f64) {
        let entry = (path, delay as f32, now);
        match self.entries[..self.count].iter_mut().find(|old| old.0 == path) {
            Some(old) => *old = entry,
            None => {
                self.entries[self.next] = entry;
                self.next = (self.next + 1) % COMPARED_PATHS;
                self.count = (self.count + 1).min(COMPARED_PATHS);
            }
        }
    }

    /// What the majority of the paths heard since then exceeds or reaches: one congested path, or a few, do not show.
    fn median(&self, since: Time) -> Option<f64> {
        let mut delays = [0.0f32; COMPARED_PATHS];
        let mut count = 0;
        for &(_, delay, at) in &self.entries[..self.count] {
            if at >= since {
                delays[count] = delay;
                count += 1;
            }
        }
        let middle = count.checked_sub(1)? / 2;
        Some(*delays[..count].select_nth_unstable_by(middle, f32::total_cmp).1 as f64)
    }
}

/// Bytes sent in the round trip that is under way.
struct Transmission {
    round: u32,
    began: Time,
    bytes: u64,
    /// Smoothed rate of the round trips before, in bytes per nanosecond; 0: none.
    rate: f64,
}

impl Transmission {
    fn note(&mut self, sample: &AckSample) {
        if sample.round == self.round {
            return;
        }
        let span = sample.now.since(self.began).as_f64();
        if self.began > Time(0) && span > 0.0 {
            let rate = (sample.sent_bytes - self.bytes) as f64 / span;
            self.rate += (rate - self.rate) * if self.rate == 0.0 { 1.0 } else { RATE_GAIN };
        }
        (self.round, self.began, self.bytes) = (sample.round, sample.now, sample.sent_bytes);
    }
}

/// See the module.
pub(super) struct Paper {
    /// Configured base round trip: the unit in which delays are judged.
    unit_ns: f64,
    /// Base round trip over which this context's delays are taken.
    base_ns: f64,
    learn_base: bool,
    packet_bytes: f64,
    /// Rate of the line, in bytes per nanosecond as all rates here.
    line: f64,
    max_burst: f64,
    rate: f64,
    startup: bool,
    /// Delivered rate; 0: none known.
    delivered: f64,
    transmitted: Transmission,
    delays: PathDelays,
    /// Delay of the majority of paths, and mean delay.
    delay: f64,
    mean_delay: f64,
    clean_acks: u32,
    /// Time for which hosts often hold a packet and its ACK, and for which this host does.
    host_ns: f64,
    local_ns: f64,
    limits: SendLimits,
}

impl Paper {
    pub(super) fn new(config: &Config, packet_bytes: u32) -> Paper {
        let unit_ns = config.base_rtt.as_f64();
        let packet_bytes = packet_bytes as f64;
        let line = (config.line_rate.0 as f64 / 8e9).max(packet_bytes / unit_ns / LEAST_RATE_ROUNDS);
        let unknown = SendLimits {
            window_bytes: 0,
            rate: 0.0,
            burst_bytes: 0,
            credit_bytes: 0,
            inflight_horizon: Nanos(u64::MAX),
        };
        let mut controller = Paper {
            unit_ns,
            base_ns: unit_ns,
            learn_base: config.learn_base_rtt,
            packet_bytes,
            line,
            max_burst: config.burst_bytes as f64,
            rate: packet_bytes / unit_ns,
            startup: true,
            delivered: 0.0,
            transmitted: Transmission { round: 0, began: Time(0), bytes: 0, rate: 0.0 },
            delays: PathDelays::new(),
            delay: 0.0,
            mean_delay: 0.0,
            clean_acks: 0,
            host_ns: 0.0,
            local_ns: 0.0,
            limits: unknown,
        };
        controller.settle();
        controller
    }

    /// What is measured between two looks of this host is its own doing.
    fn target_ns(&self) -> f64 {
        TARGET * self.unit_ns + self.local_ns
    }

    /// Packets in a base round trip at the present rate, possibly below one.
    fn packets(&self) -> f64 {
        self.rate * self.unit_ns / self.packet_bytes
    }

    /// Keeps the rate within bounds and works out the limits.
    fn settle(&mut self) {
        let least = self.packet_bytes / self.unit_ns / LEAST_RATE_ROUNDS;
        self.rate = self.rate.clamp(least, self.line);
        if self.delivered == 0.0 && self.startup {
            // One packet until it is known how it fares: nobody can tell the first of 48 senders from the only one.
            let packet = self.packet_bytes as u64;
            self.limits = SendLimits {
                window_bytes: packet,
                rate: self.rate,
                burst_bytes: packet,
                credit_bytes: packet,
                inflight_horizon: Nanos(u64::MAX),
            };
            return;
        }
        // What the rate has in flight where the queue is at its target.
        let round = self.base_ns + self.mean_delay.max(self.target_ns()) + self.host_ns;
        let burst =
            (self.rate * self.target_ns()).clamp(self.packet_bytes, self.max_burst.max(self.packet_bytes));
        self.limits = SendLimits {
            window_bytes: ((self.rate * round / self.packet_bytes).ceil() * self.packet_bytes) as u64,
            rate: self.rate,
            burst_bytes: burst as u64,
            credit_bytes: burst.max(self.rate * self.local_ns) as u64,
            inflight_horizon: Nanos((MEMORY * self.base_ns + self.mean_delay + self.host_ns) as u64),
        };
    }

    fn note_round_trip(&mut self, sample: &AckSample) {
        if let Some(min) = sample.min_rtt {
            // As LogTarget: the configured base is that of the longest way.
            let min_ns = min.as_f64();
            self.base_ns = if self.learn_base { self.unit_ns.max(min_ns) } else { self.unit_ns.min(min_ns) };
        }
        let (Some(rtt), Some(path)) = (sample.rtt, sample.path) else { return };
        let delay = (rtt.as_f64() - self.base_ns).max(0.0);
        self.delays.add(sample.now, path, delay);
        let round = Nanos((self.base_ns + self.mean_delay) as u64);
        self.delay = self.delays.median(Time(sample.now.0.saturating_sub(round.0))).unwrap_or(delay);
        self.mean_delay += (delay - self.mean_delay) * if self.packets() < 1.0 { 0.5 } else { 0.125 };
        self.clean_acks =
            if delay < CLEAN_DELAY * self.unit_ns { self.clean_acks.saturating_add(1) } else { 0 };
        self.host_ns = sample.hosts_ns;
        follow_high(&mut self.local_ns, sample.local.as_f64());
    }

    fn note_delivery(&mut self, sample: &RateSample) {
        let rate = sample.rate.min(self.line);
        if self.delivered == 0.0 {
            self.delivered = rate;
        } else if !sample.app_limited || rate > self.delivered {
            self.delivered += (rate - self.delivered) * (1.0 / self.packets()).min(RATE_GAIN);
        }
    }

    /// One packet has been acknowledged.
    fn acknowledged(&mut self, window_limited: bool) {
        let short = (self.target_ns() - self.delay) / self.unit_ns;
        if self.startup {
            if short < 0.0 {
                self.leave_startup();
            } else if window_limited {
                let step = if self.clean_acks >= CLEAN_ACKS { CLEAN_STEP } else { START_STEP };
                self.rate += step * self.packet_bytes / (self.unit_ns + self.mean_delay);
            }
        } else if self.delivered > 0.0 {
            let aim = self.aim(short);
            if aim < self.rate || window_limited {
                self.rate += (aim - self.rate) * (1.0 / self.packets()).min(1.0);
            }
        }
        self.rate = self.rate.min(self.line);
    }

    /// The rate to be reached where the delay is `short` of the target, in base round trips.
    fn aim(&self, short: f64) -> f64 {
        if self.delivered < BEHIND * self.transmitted.rate {
            return self.delivered * (1.0 + SLOPE * short).clamp(LEAST_FACTOR, 1.0);
        }
        let rare = (1.0 / self.packets()).clamp(1.0, CATCH_UP);
        let equal = (EQUAL_SHARE * self.line).min(EQUAL_LIMIT * self.rate) * rare;
        if short <= 0.0 {
            return self.delivered * (1.0 + SLOPE * short).max(LEAST_FACTOR) + equal;
        }
        // Without a queue what is delivered may be less only because packets wait here, for their turn at the card.
        let growth = 1.0 + SLOPE * short * rare;
        (self.rate.max(self.delivered) * growth + equal).min(MOST_FACTOR * self.delivered)
    }

    /// There is congestion: what was achieved so far is the rate.
    fn leave_startup(&mut self) {
        self.startup = false;
        if self.delivered > 0.0 {
            self.rate = self.rate.min(self.delivered);
        }
    }
}

impl CongestionController for Paper {
    fn on_ack(&mut self, sample: &AckSample) {
        self.note_round_trip(sample);
        if let Some(rate) = &sample.rate {
            self.note_delivery(rate);
        }
        self.transmitted.note(sample);
        for _ in 0..sample.newly_acked {
            self.acknowledged(sample.window_limited);
        }
        self.settle();
    }

    /// A loss lowers the rate of delivery, and with it the rate; here it only ends the start.
    fn on_loss(&mut self, _: Time) {
        if self.startup {
            self.leave_startup();
            self.settle();
        }
    }

    fn send_limits(&self) -> SendLimits {
        self.limits
    }

    fn view(&self) -> ControllerView {
        ControllerView {
            phase: if self.startup { "startup" } else { "steady" },
            delay_ns: self.delay,
            target_ns: self.target_ns(),
            delivery_rate: self.delivered,
            transmit_rate: self.transmitted.rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE_US: u64 = 14;

    /// A controller that has left its start at a tenth of the line, with 16 paths that show no delay.
    fn settled() -> (Paper, AckSample) {
        let config = Config { learn_base_rtt: false, ..Config::default() };
        let mut paper = Paper::new(&config, 4150);
        let mut sample = AckSample { now: Time(1_000_000), window_limited: true, ..AckSample::default() };
        paper.on_loss(sample.now);
        for path in 0..16 {
            hear(&mut paper, &mut sample, path, BASE_US, 1.25);
        }
        paper.rate = 1.25;
        paper.delivered = 1.25;
        (paper, sample)
    }

    /// An ACK of one packet on `path`, a microsecond later.
    fn hear(paper: &mut Paper, sample: &mut AckSample, path: u8, rtt_us: u64, delivered: f64) {
        sample.now += Nanos::from_micros(1);
        sample.path = Some(PathId(path));
        sample.rtt = Some(Nanos::from_micros(rtt_us));
        sample.rate = Some(RateSample { rate: delivered, app_limited: false });
        sample.newly_acked = 1;
        paper.on_ack(sample);
    }

    #[test]
    fn delay_on_the_majority_of_paths_takes_the_rate_below_what_is_delivered() {
        let (mut paper, mut sample) = settled();
        for path in 0..50 {
            let rtt_us = if path % 16 < 12 { 3 * BASE_US } else { BASE_US };
            hear(&mut paper, &mut sample, path % 16, rtt_us, 1.25);
        }
        assert!(paper.rate < 0.9 * 1.25, "{} B/ns", paper.rate);
    }

    #[test]
    fn delay_on_a_few_paths_does_not_slow_it() {
        let (mut paper, mut sample) = settled();
        for round in 0..10 {
            for path in 0..10 {
                let rtt_us = if path < 3 { 10 * BASE_US } else { BASE_US };
                hear(&mut paper, &mut sample, path, rtt_us, 1.25 + 0.1 * round as f64);
            }
        }
        assert!(paper.rate > 1.25, "{} B/ns", paper.rate);
    }

    #[test]
    fn less_delivered_than_sent_is_congestion_without_any_delay() {
        let (mut paper, mut sample) = settled();
        for round in 0..200 {
            sample.round = round / 10;
            sample.sent_bytes += 1250; // in a microsecond: 1.25 B/ns
            hear(&mut paper, &mut sample, round as u8 % 16, BASE_US, 0.5);
        }
        assert!(paper.rate < 0.7, "{} B/ns where 0.5 B/ns arrive", paper.rate);
    }

    #[test]
    fn the_programs_own_pauses_do_not_lower_the_rate() {
        let (mut paper, mut sample) = settled();
        sample.window_limited = false;
        for path in 0..100 {
            sample.now += Nanos::from_micros(1);
            sample.rate = Some(RateSample { rate: 0.01, app_limited: true });
            (sample.path, sample.newly_acked) = (Some(PathId(path % 16)), 1);
            paper.on_ack(&sample);
        }
        assert!(paper.rate >= 1.25, "{} B/ns", paper.rate);
    }

    #[test]
    fn unequal_rates_that_meet_the_same_queue_become_equal() {
        let config = Config { learn_base_rtt: false, ..Config::default() };
        let mut flows = [0.25, 1.0].map(|rate| {
            let mut paper = Paper::new(&config, 4150);
            paper.on_loss(Time(0));
            (paper.rate, paper.delivered) = (rate, rate);
            paper
        });
        // One queue in which each has a part in proportion to its rate.
        let (line, mut queue_ns) = (1.25, 0.0f64);
        for round in 0..400u64 {
            let offered: f64 = flows.iter().map(|flow| flow.rate).sum();
            let base_ns = BASE_US as f64 * 1e3;
            queue_ns = (queue_ns + (offered / line - 1.0) * base_ns).max(0.0);
            for flow in &mut flows {
                let rate = flow.rate * (line / offered).min(1.0);
                flow.on_ack(&AckSample {
                    now: Time(1_000_000 + round * BASE_US * 1000),
                    path: Some(PathId(round as u8 % 16)),
                    rtt: Some(Nanos((base_ns + queue_ns) as u64)),
                    rate: Some(RateSample { rate, app_limited: false }),
                    newly_acked: 1 + (flow.packets() as u32),
                    window_limited: true,
                    ..AckSample::default()
                });
            }
        }
        let ratio = flows[1].rate / flows[0].rate;
        assert!((0.9..1.1).contains(&ratio), "{} and {} B/ns", flows[0].rate, flows[1].rate);
    }
}
