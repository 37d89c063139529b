//! Round-trip estimation (RFC 6298 form) over all paths of a context.

use srd_wire::Nanos;

/// Smoothed round trip and its variation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    /// 0 until the first sample.
    smoothed_ns: f64,
    variation_ns: f64,
    min_ns: f64,
}

impl RttEstimator {
    pub(crate) fn new() -> RttEstimator {
        RttEstimator { smoothed_ns: 0.0, variation_ns: 0.0, min_ns: f64::INFINITY }
    }

    pub(crate) fn add(&mut self, sample: Nanos) {
        let sample = sample.as_f64();
        self.min_ns = self.min_ns.min(sample);
        if self.smoothed_ns == 0.0 {
            self.smoothed_ns = sample;
            self.variation_ns = sample / 2.0;
        } else {
            // Gains 1/4 and 1/8: RFC 6298, section 2.3.
            self.variation_ns += ((sample - self.smoothed_ns).abs() - self.variation_ns) / 4.0;
            self.smoothed_ns += (sample - self.smoothed_ns) / 8.0;
        }
    }

    /// The smoothed value, or `otherwise` before the first sample.
    pub(crate) fn smoothed(&self, otherwise: Nanos) -> Nanos {
        if self.smoothed_ns == 0.0 { otherwise } else { Nanos(self.smoothed_ns as u64) }
    }

    /// The smoothed value and `k` times the variation.
    pub(crate) fn with_variation(&self, k: f64) -> Nanos {
        Nanos((self.smoothed_ns + k * self.variation_ns) as u64)
    }

    /// Whether there was a sample.
    pub(crate) fn measured(&self) -> bool {
        self.smoothed_ns != 0.0
    }
}
