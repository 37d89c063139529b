//! Pacing: packets leave at the controller's rate, in bursts where it allows bursts.

use crate::congestion_control::SendLimits;
use rand::Rng;
use rand::rngs::SmallRng;
use srd_wire::{Nanos, Time};

/// Times per byte are in units of 2^-20 ns.
const SHIFT: u32 = 20;

/// When the next packet may leave.
#[derive(Default)]
pub(crate) struct Pacer {
    next: Time,
    /// From when the last packet's time counts, and how long that is at the present rate.
    since: Time,
    takes: Nanos,
    /// Closed until here, a little later than `next`, so that bursts form. Zero: not closed.
    gate: Time,
    /// The rate and burst for which the next two were computed: divisions cost as much as the rest of a packet's pacing.
    rate: f64,
    credit_bytes: u64,
    /// How long a burst takes: so much of an idle time may be made up for.
    credit: Nanos,
    per_byte: u64,
}

impl Pacer {
    /// When to try again, if the last try was too early.
    pub(crate) fn gate(&self) -> Option<Time> {
        (self.gate > Time(0)).then_some(self.gate)
    }

    /// Nothing waits for its time any more.
    pub(crate) fn open(&mut self) {
        self.gate = Time(0);
    }

    /// Whether a packet may leave now, without another look at the rate.
    #[inline]
    pub(crate) fn is_open(&self, now: Time) -> bool {
        now >= self.next.max(self.gate)
    }

    /// Whatever the rate says, no packet waits longer than until `latest`.
    pub(crate) fn wait_at_most(&mut self, latest: Time) {
        self.next = self.next.min(latest);
        self.gate = self.gate.min(latest);
    }

    /// Whether it is too early for a packet of `packet_bytes`.
    pub(crate) fn blocks(&mut self, now: Time, limits: &SendLimits, packet_bytes: u64) -> bool {
        if self.is_open(now) {
            return false;
        }
        if limits.rate > self.rate {
            // Whoever may go faster does so at once, not after a wait that was measured by the old rate.
            self.takes = Nanos((self.takes.as_f64() * self.rate / limits.rate) as u64);
            self.next = self.next.min(self.since + self.takes);
            self.gate = Time(0);
            self.adopt(limits);
            if now >= self.next {
                return false;
            }
        }
        if self.gate < self.next {
            self.adopt(limits);
            // Half a burst more than needed.
            let half = limits.burst_bytes.saturating_sub(packet_bytes) / 2;
            self.gate = self.next + self.time_of(half);
        }
        true
    }

    /// A packet of `bytes` has found no room. All that share the queue have heard so at the same moment, and try again within the time that
    /// their part of the rate leaves for a packet, not together.
    pub(crate) fn stand_back(&mut self, now: Time, limits: &SendLimits, bytes: u64, rng: &mut SmallRng) {
        if !limits.rate.is_finite() {
            return;
        }
        self.adopt(limits);
        let wait = Nanos((self.time_of(bytes).as_f64() * rng.random::<f64>()) as u64);
        if self.next < now + wait {
            (self.since, self.takes, self.next) = (now, wait, now + wait);
        }
    }

    /// A packet of `bytes` leaves, and others like it with it: `most` in all, or as many as may leave now. How many.
    pub(crate) fn sent(
        &mut self,
        now: Time,
        limits: &SendLimits,
        bytes: u64,
        most: u32,
        rng: &mut SmallRng,
    ) -> u32 {
        if !limits.rate.is_finite() {
            return most;
        }
        self.adopt(limits);
        let takes = self.time_of(bytes);
        // A packet is a part of the burst, so that no burst is longer than it may be.
        let earliest = Time(now.0.saturating_sub((self.credit - takes).0));
        let mut count = 0;
        while count < most && (count == 0 || self.is_open(now)) {
            // +- 5 %, so that senders do not lock step: docs/design/congestion-control.md, "Pacing".
            let factor = 973 + ((rng.random::<u32>() as u64 * 103) >> 32); // of 1024
            self.since = self.next.max(earliest);
            self.takes = Nanos(takes.0.saturating_mul(factor) >> 10);
            self.next = self.since + self.takes;
            count += 1;
        }
        count
    }

    fn adopt(&mut self, limits: &SendLimits) {
        if limits.rate != self.rate || limits.credit_bytes != self.credit_bytes {
            self.rate = limits.rate;
            self.credit_bytes = limits.credit_bytes;
            self.credit = Nanos((limits.credit_bytes as f64 / limits.rate) as u64);
            self.per_byte = ((1u64 << SHIFT) as f64 / limits.rate) as u64;
        }
    }

    fn time_of(&self, bytes: u64) -> Nanos {
        Nanos(((bytes as u128 * self.per_byte as u128) >> SHIFT) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn packets_leave_at_the_rate_and_a_burst_at_a_time() {
        // 1 B/ns, bursts of 4 packets of 1000 B.
        let limits = SendLimits {
            window_bytes: u64::MAX,
            rate: 1.0,
            burst_bytes: 4000,
            credit_bytes: 4000,
            inflight_horizon: Nanos(u64::MAX),
        };
        let (mut pacer, mut rng) = (Pacer::default(), SmallRng::seed_from_u64(1));
        let (mut now, mut left, mut visits) = (Time(1_000_000), 0u64, 0u64);
        let end = now + Nanos::from_millis(1);
        while now < end {
            while !pacer.blocks(now, &limits, 1000) {
                pacer.open();
                pacer.sent(now, &limits, 1000, 1, &mut rng);
                left += 1;
            }
            visits += 1;
            now = pacer.gate().expect("it is too early");
        }
        assert!((985..1020).contains(&left), "{left} packets in 1 ms at 1 B/ns");
        assert!(visits < left / 2 + 10, "{visits} visits for {left} packets");
    }

    #[test]
    fn a_burst_is_no_longer_than_allowed() {
        let limits = SendLimits {
            window_bytes: u64::MAX,
            rate: 1.0,
            burst_bytes: 7600,
            credit_bytes: 7600,
            inflight_horizon: Nanos(u64::MAX),
        };
        let (mut pacer, mut rng) = (Pacer::default(), SmallRng::seed_from_u64(1));
        let now = Time(1_000_000);
        let mut left = 0;
        while !pacer.blocks(now, &limits, 1000) {
            pacer.sent(now, &limits, 1000, 1, &mut rng);
            left += 1;
        }
        assert_eq!(left, 7);
    }

    #[test]
    fn who_stands_back_waits_for_a_part_of_a_packets_time() {
        let limits = SendLimits {
            window_bytes: u64::MAX,
            rate: 1.0,
            burst_bytes: 1000,
            credit_bytes: 1000,
            inflight_horizon: Nanos(u64::MAX),
        };
        let now = Time(1_000_000);
        let waits: Vec<u64> = (0..100)
            .map(|seed| {
                let (mut pacer, mut rng) = (Pacer::default(), SmallRng::seed_from_u64(seed));
                pacer.stand_back(now, &limits, 1000, &mut rng);
                (0..).find(|wait| pacer.is_open(now + Nanos(*wait))).unwrap()
            })
            .collect();
        assert!(waits.iter().all(|wait| *wait <= 1000), "{waits:?}");
        assert!(waits.iter().filter(|wait| **wait < 500).count() > 30, "{waits:?}");
        assert!(waits.iter().filter(|wait| **wait > 500).count() > 30, "{waits:?}");
    }

    #[test]
    fn a_very_low_rate_does_not_overflow_and_an_infinite_one_does_not_pace() {
        let (mut pacer, mut rng) = (Pacer::default(), SmallRng::seed_from_u64(1));
        let slow = SendLimits {
            window_bytes: 1,
            rate: 1e-9,
            burst_bytes: 65_536,
            credit_bytes: 65_536,
            inflight_horizon: Nanos(u64::MAX),
        };
        pacer.sent(Time(0), &slow, 9000, 1, &mut rng);
        assert!(pacer.blocks(Time(1_000_000_000), &slow, 9000));
        pacer.wait_at_most(Time(2_000_000_000));
        assert!(!pacer.blocks(Time(2_000_000_000), &slow, 9000));
        let mut pacer = Pacer::default();
        let free = SendLimits { rate: f64::INFINITY, ..slow };
        pacer.sent(Time(5), &free, 9000, 1, &mut rng);
        assert!(!pacer.blocks(Time(5), &free, 9000));
    }
}
