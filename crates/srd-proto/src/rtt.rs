//! Round-trip estimation (RFC 6298 form) over all paths of a context.

use srd_wire::{Nanos, Time};

/// Samples of which the smallest tells whether all packets wait in queues.
const WAIT_SAMPLES: u32 = 8;
/// How long a smallest round trip is remembered at least; at most twice as long.
const MIN_MEMORY: Nanos = Nanos::from_secs(5);

/// Follows a noisy quantity near its upper end: rises to it by a quarter, and falls slowly.
pub(crate) fn follow_high(estimate: &mut f64, sample: f64) {
    let gain = if sample > *estimate { 1.0 / 4.0 } else { 1.0 / 64.0 };
    *estimate += (sample - *estimate) * gain;
}

/// Smoothed round trip and its variation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    /// 0 until the first sample.
    smoothed_ns: f64,
    variation_ns: f64,
    /// Smallest of this period and of the last.
    min: [Nanos; 2],
    period_end: Time,
    /// Shortest wait of these few samples and of the few before.
    waits: [Nanos; 2],
    waits_count: u32,
    /// Time for which hosts, not the network, often hold a packet and its answer.
    hosts_ns: f64,
}

impl RttEstimator {
    pub(crate) fn new() -> RttEstimator {
        RttEstimator {
            smoothed_ns: 0.0,
            variation_ns: 0.0,
            min: [Nanos(u64::MAX); 2],
            period_end: Time(0),
            waits: [Nanos(u64::MAX); 2],
            waits_count: 0,
            hosts_ns: 0.0,
        }
    }

    /// A round trip took so long, and `wait` longer than its path does without queues.
    pub(crate) fn add(&mut self, now: Time, sample: Nanos, wait: Nanos) {
        if now >= self.period_end {
            self.min = [Nanos(u64::MAX), self.min[0]];
            self.period_end = now + MIN_MEMORY;
        }
        self.min[0] = self.min[0].min(sample);
        if self.waits_count == WAIT_SAMPLES {
            self.waits = [Nanos(u64::MAX), self.waits[0]];
            self.waits_count = 0;
        }
        self.waits[0] = self.waits[0].min(wait);
        self.waits_count += 1;
        let sample = sample.as_f64();
        if self.smoothed_ns == 0.0 {
            self.smoothed_ns = sample;
            self.variation_ns = sample / 2.0;
        } else {
            // Gains 1/4 and 1/8: RFC 6298, section 2.3.
            self.variation_ns += ((sample - self.smoothed_ns).abs() - self.variation_ns) / 4.0;
            self.smoothed_ns += (sample - self.smoothed_ns) / 8.0;
        }
    }

    /// Hosts have held a packet and its answer for so long.
    pub(crate) fn add_hosts(&mut self, held: Nanos) {
        follow_high(&mut self.hosts_ns, held.as_f64());
    }

    /// How long hosts often hold a packet and its answer, beside the round trip.
    pub(crate) fn hosts_ns(&self) -> f64 {
        self.hosts_ns
    }

    /// The smoothed value, or `otherwise` before the first sample.
    pub(crate) fn smoothed(&self, otherwise: Nanos) -> Nanos {
        if self.smoothed_ns == 0.0 { otherwise } else { Nanos(self.smoothed_ns as u64) }
    }

    /// The smoothed value and `k` times the variation.
    pub(crate) fn with_variation(&self, k: f64) -> Nanos {
        Nanos((self.smoothed_ns + k * self.variation_ns) as u64)
    }

    /// The variation.
    pub(crate) fn variation(&self) -> Nanos {
        Nanos(self.variation_ns as u64)
    }

    /// The smallest of late.
    pub(crate) fn min(&self) -> Option<Nanos> {
        Some(self.min[0].min(self.min[1])).filter(|min| min.0 != u64::MAX)
    }

    /// The shortest wait of the last 8 to 16 samples.
    pub(crate) fn least_wait(&self) -> Nanos {
        let least = self.waits[0].min(self.waits[1]);
        if least.0 == u64::MAX { Nanos::ZERO } else { least }
    }
}
