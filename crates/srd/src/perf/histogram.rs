//! Times, counted in buckets: a fixed amount of memory however long the run, and quantiles exact to 0.1 %.

use serde::{Deserialize, Serialize};

/// Each power of two is divided into this many buckets (2^10: 0.1 %).
const SUB_BITS: u32 = 10;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// A histogram of times in nanoseconds.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

/// What is reported of a distribution, in the unit that the field's name says.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 99 of 100 are no longer than this.
    pub p99: f64,
    /// 999 of 1000 are no longer than this.
    pub p999: f64,
}

impl Histogram {
    /// An empty one; its memory is touched now, not while measuring.
    pub fn new() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], total: 0 }
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)] += 1;
        self.total += 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// The time that `share` of the recorded ones do not exceed; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(index, &count)| {
            seen += count;
            (seen >= rank).then(|| middle(index))
        })
    }

    /// Median and tail of half the recorded times (round trips), in microseconds.
    pub fn half_in_microseconds(&self) -> Option<Quantiles> {
        let half = |share| self.quantile(share).map(|nanoseconds| nanoseconds / 2000.0);
        Some(Quantiles { p50: half(0.5)?, p99: half(0.99)?, p999: half(0.999)? })
    }
}

/// Values below 2^11 have a bucket each; above, the ten bits after the leading one choose.
#[inline]
fn bucket(value: u64) -> usize {
    let shift = (63 - (value | 1).leading_zeros()).saturating_sub(SUB_BITS);
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// Middle of the values that share a bucket.
fn middle(index: usize) -> f64 {
    let shift = (index >> SUB_BITS).saturating_sub(1) as u32;
    let low = (index - ((shift as usize) << SUB_BITS)) as u64;
    (low << shift) as f64 + ((1u64 << shift) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_exact() {
        for value in 0..2048 {
            let mut histogram = Histogram::new();
            histogram.record(value);
            assert_eq!(histogram.quantile(0.5), Some(value as f64));
        }
    }

    #[test]
    fn large_values_are_within_a_thousandth() {
        for exponent in 11..64 {
            for value in
                [1u64 << exponent, (1 << exponent) + 12345 % (1 << exponent), u64::MAX >> (63 - exponent)]
            {
                let mut histogram = Histogram::new();
                histogram.record(value);
                let error = (histogram.quantile(1.0).unwrap() - value as f64).abs() / value as f64;
                assert!(error <= 0.001, "{value}: off by {error}");
            }
        }
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|value| histogram.record(value * 2));
        assert_eq!(histogram.quantile(0.5), Some(1000.0));
        assert_eq!(histogram.half_in_microseconds(), Some(Quantiles { p50: 0.5, p99: 0.99, p999: 0.999 }));
    }

    #[test]
    fn nothing_recorded_means_no_quantile() {
        assert_eq!(Histogram::new().half_in_microseconds(), None);
    }
}
