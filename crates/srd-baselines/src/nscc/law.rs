//! The window: NSCC's four answers to an acknowledgement, and what it does when that is not enough.
//!
//! |              | delay below target    | delay at or above target |
//! |--------------|-----------------------|--------------------------|
//! | **no mark**  | proportional increase | fair increase            |
//! | **marked**   | nothing               | multiplicative decrease  |
//!
//! Increases are gathered and take effect together (`fulfil`); the decrease is at once, but once in a round trip. Where the
//! network delivers next to nothing, the window becomes what was delivered (`quick_adapt`). Sources: arXiv 2404.01630 (SMaRTT),
//! section 3; UET's NSCC as uet-htsim has it (uec.cpp), whose constants these are.

use srd_wire::{BitRate, Nanos, Time};

/// The network to which NSCC's constants refer: 100 Gb/s and 12 us (uec.cpp, `initNsccParams`).
const REFERENCE_RTT_NS: f64 = 12_000.0;
const REFERENCE_BDP: f64 = 150_000.0;
/// Share of the excess by which delay takes from the window (`_gamma`), and the most that it takes at once.
const GAMMA: f64 = 0.8;
const LEAST_FACTOR: f64 = 0.5;
/// Weight of a sample in the mean delay (`_delay_alpha`).
const DELAY_WEIGHT: f64 = 0.0125;
/// Unmarked samples above the target count as so much of the base round trip: the queue is another path's.
const UNMARKED_DELAY: f64 = 0.25;
/// Delay below which a path counts as idle (`fast_increase`).
const IDLE: Nanos = Nanos::from_micros(1);
/// Packets' worth of bytes after which increases take effect (`_adjust_bytes_threshold`).
const FULFIL_PACKETS: f64 = 8.0;
/// Delay beyond which the window jumps, in targets (`_qa_threshold`), and the share of the largest window that must not have
/// been delivered for that (`_qa_gate`, 2^3).
const JUMP_TARGETS: u64 = 4;
const JUMP_SHARE: f64 = 1.0 / 8.0;

/// What is the same for all windows of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Constants {
    rate: BitRate,
    /// The network's round trip, unloaded.
    rtt: Nanos,
    /// Queueing delay that is aimed at.
    pub(super) target: Nanos,
    /// Bytes of a full packet on the wire, headers included: the least window.
    pub(super) packet: f64,
    /// Largest window in bandwidth-delay products.
    most_bdp: f64,
    /// Proportional increase: bytes per byte acknowledged and nanosecond below the target, times the window.
    alpha: f64,
    /// Fair increase: bytes per byte acknowledged, times the window.
    fair: f64,
    /// Bytes by which every window grows in a round trip.
    eta: f64,
    /// Fast increase: bytes per byte acknowledged.
    fast: f64,
}

impl Constants {
    /// For packets of `payload` and `headers` bytes.
    pub(super) fn new(
        rate: BitRate,
        rtt: Nanos,
        target: Nanos,
        most_bdp: f64,
        payload: f64,
        headers: f64,
    ) -> Constants {
        let scale = bdp(rate, rtt) / REFERENCE_BDP;
        Constants {
            rate,
            rtt,
            target,
            packet: payload + headers,
            most_bdp,
            alpha: 4.0 * payload * scale / REFERENCE_RTT_NS,
            fair: 5.0 * payload * scale,
            eta: 0.15 * payload * scale,
            fast: 0.25 * scale,
        }
    }

    /// Bytes of the largest window.
    pub(super) fn most(&self) -> f64 {
        self.most_bdp * bdp(self.rate, self.rtt)
    }
}

fn bdp(rate: BitRate, rtt: Nanos) -> f64 {
    rate.0 as f64 / 8e9 * rtt.as_f64()
}

/// What an acknowledgement says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sample {
    /// The packet was marked.
    pub(super) marked: bool,
    /// How much longer than the base round trip it took.
    pub(super) delay: Nanos,
    /// Bytes that have come to the receiver since the last acknowledgement.
    pub(super) bytes: f64,
    /// Bytes in flight now.
    pub(super) in_flight: f64,
}

/// One flow's window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Bytes that may be in flight.
    pub(super) bytes: f64,
    /// The most that this may be.
    most: f64,
    /// Shortest round trip so far; the network's at first.
    base_rtt: Nanos,
    mean_delay_ns: f64,
    /// Increases gathered: bytes times the window.
    gathered: f64,
    /// Bytes acknowledged since increases last took effect, and when the window last grew by eta.
    since_fulfil: f64,
    grown_at: Time,
    decreased_at: Time,
    /// Bytes acknowledged in a row at next to no delay, and whether they were a windowful.
    idle_bytes: f64,
    fast: bool,
    /// Bytes delivered in this period, which ends then (`None`: none has begun), and whether a packet was cut or lost.
    delivered: f64,
    period_ends: Option<Time>,
    cut: bool,
    /// What was in flight at the last jump, and how much of it has been heard of.
    stale: f64,
    heard: f64,
}

impl Window {
    /// Of a flow that begins: as large as it may ever be.
    pub(super) fn new(constants: &Constants, now: Time) -> Window {
        let most = constants.most();
        Window {
            bytes: most,
            most,
            base_rtt: constants.rtt,
            mean_delay_ns: 0.0,
            gathered: 0.0,
            since_fulfil: 0.0,
            grown_at: now,
            decreased_at: now,
            idle_bytes: 0.0,
            fast: false,
            delivered: 0.0,
            period_ends: None,
            cut: false,
            stale: 0.0,
            heard: 0.0,
        }
    }

    /// Shortest round trip so far.
    pub(super) fn base_rtt(&self) -> Nanos {
        self.base_rtt
    }

    /// The most bytes that may ever be in flight.
    pub(super) fn most(&self) -> f64 {
        self.most
    }

    /// The mean delay: what an acknowledgement without a sample of its own counts as.
    pub(super) fn mean_delay(&self) -> Nanos {
        Nanos(self.mean_delay_ns as u64)
    }

    /// A packet, cut or not, has been there and back so quickly.
    pub(super) fn shorten(&mut self, constants: &Constants, rtt: Nanos) {
        if rtt < self.base_rtt {
            self.base_rtt = rtt;
            self.most = constants.most_bdp * bdp(constants.rate, rtt);
        }
    }

    /// Takes a round trip and returns its queueing delay.
    pub(super) fn measure(&mut self, constants: &Constants, rtt: Nanos, marked: bool) -> Nanos {
        self.shorten(constants, rtt);
        let delay = rtt - self.base_rtt;
        let counts = match !marked && delay > constants.target {
            true => UNMARKED_DELAY * self.base_rtt.as_f64(),
            false => delay.as_f64(),
        };
        self.average(counts);
        delay
    }

    fn average(&mut self, delay_ns: f64) {
        self.mean_delay_ns += DELAY_WEIGHT * (delay_ns - self.mean_delay_ns);
    }

    /// An acknowledgement has come.
    pub(super) fn on_ack(&mut self, constants: &Constants, now: Time, sample: Sample) {
        let Sample { marked, delay, bytes, in_flight } = sample;
        self.delivered += bytes;
        self.since_fulfil += bytes;
        self.heard += bytes;
        if self.quick_adapt(
            constants,
            now,
            marked,
            delay > Nanos(JUMP_TARGETS * constants.target.0),
            in_flight,
        ) {
            return;
        }
        match (marked, delay < constants.target) {
            (false, true) => self.proportional_increase(constants, bytes, delay),
            (false, false) => self.gathered += constants.fair * bytes,
            (true, true) => {} // another path is enough
            (true, false) => self.decrease(constants, now),
        }
        self.bound(constants);
        if self.since_fulfil > FULFIL_PACKETS * constants.packet || now.since(self.grown_at) > constants.rtt {
            self.fulfil(constants, now);
        }
        self.bound(constants);
    }

    /// A packet of so many bytes was cut.
    pub(super) fn on_nack(&mut self, constants: &Constants, now: Time, bytes: f64, in_flight: f64) {
        self.heard += bytes;
        // A full queue is about a round trip long.
        self.average(constants.rtt.as_f64());
        self.cut = true;
        if !self.quick_adapt(constants, now, true, true, in_flight) {
            self.bytes -= bytes;
            self.bound(constants);
        }
    }

    /// A packet of so many bytes timed out.
    pub(super) fn on_timeout(&mut self, constants: &Constants, bytes: f64) {
        self.bytes = (self.bytes - bytes).max(constants.packet);
    }

    fn bound(&mut self, constants: &Constants) {
        self.bytes = self.bytes.max(constants.packet).min(self.most.max(constants.packet));
    }

    /// At the end of each period of a round trip and the target: if next to nothing was delivered in it and there is a reason,
    /// the window becomes what was. What is said of packets that were in flight then is not heard. Returns whether there is
    /// nothing more to do.
    fn quick_adapt(
        &mut self,
        constants: &Constants,
        now: Time,
        marked: bool,
        severe: bool,
        in_flight: f64,
    ) -> bool {
        let mut done = false;
        if marked && self.heard < self.stale {
            done = true;
        } else if self.period_ends.is_none_or(|end| now > end) {
            if self.period_ends.is_some() && (self.cut || severe) && self.delivered < self.most * JUMP_SHARE {
                self.bytes = self.delivered.max(constants.packet);
                (self.stale, self.heard) = (in_flight, 0.0);
                self.cut = false;
                done = true;
            }
            self.delivered = 0.0;
            self.period_ends = Some(now + self.base_rtt + constants.target);
        }
        if done {
            (self.gathered, self.since_fulfil) = (0.0, 0.0);
        }
        done
    }

    fn proportional_increase(&mut self, constants: &Constants, bytes: f64, delay: Nanos) {
        if delay < IDLE {
            self.idle_bytes += bytes;
            self.fast |= self.idle_bytes > self.bytes;
        } else {
            (self.idle_bytes, self.fast) = (0.0, false);
        }
        match self.fast {
            true => self.bytes += constants.fast * bytes,
            false => self.gathered += constants.alpha * bytes * (constants.target - delay).as_f64(),
        }
    }

    fn decrease(&mut self, constants: &Constants, now: Time) {
        (self.idle_bytes, self.fast) = (0.0, false);
        let (mean, target) = (self.mean_delay_ns, constants.target.as_f64());
        if mean > target && now.since(self.decreased_at) > self.base_rtt {
            self.bytes *= (1.0 - GAMMA * (mean - target) / mean).max(LEAST_FACTOR);
            self.decreased_at = now;
        }
    }

    /// Gathered increases take effect.
    fn fulfil(&mut self, constants: &Constants, now: Time) {
        self.bytes += self.gathered / self.bytes;
        if now.since(self.grown_at) >= constants.rtt {
            self.bytes += constants.eta;
            self.grown_at = now;
        }
        (self.gathered, self.since_fulfil) = (0.0, 0.0);
    }
}

#[cfg(test)]
mod tests;
