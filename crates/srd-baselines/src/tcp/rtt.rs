//! Round-trip times and the retransmission timeout (RFC 6298).

use srd_wire::Nanos;

/// Longest timeout (RFC 6298, section 2.5, has at least 60 s; Linux 120 s).
const LONGEST: Nanos = Nanos::from_secs(120);

/// An estimate of the round trip.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    smoothed: Nanos,
    variation: Nanos,
    least: Nanos,
    min_rto: Nanos,
}

impl RoundTrip {
    /// After one sample: that of the handshake.
    pub fn new(first: Nanos, min_rto: Nanos) -> RoundTrip {
        RoundTrip { smoothed: first, variation: Nanos(first.0 / 2), least: Nanos(u64::MAX), min_rto }
    }

    /// Another sample (section 2.3).
    pub fn sample(&mut self, sample: Nanos) {
        let apart = sample.0.abs_diff(self.smoothed.0);
        self.variation = Nanos((3 * self.variation.0 + apart) / 4);
        self.smoothed = Nanos((7 * self.smoothed.0 + sample.0) / 8);
    }

    /// A sample that does not have the receiver's delay in it.
    pub fn sample_newest(&mut self, sample: Nanos) {
        self.least = self.least.min(sample);
    }

    /// SRTT.
    pub fn smoothed(&self) -> Nanos {
        self.smoothed
    }

    /// The shortest that was seen; SRTT before any.
    pub fn least(&self) -> Nanos {
        self.least.min(self.smoothed)
    }

    /// RTO, doubled so many times.
    pub fn timeout(&self, doubled: u32) -> Nanos {
        let once = Nanos(self.smoothed.0 + 4 * self.variation.0).max(self.min_rto);
        Nanos(once.0.saturating_mul(1 << doubled.min(32))).min(LONGEST)
    }
}
