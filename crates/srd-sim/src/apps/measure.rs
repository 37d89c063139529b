//! What marks say.

use srd_wire::{Nanos, Time};

/// The time between the two marks of each pair.
pub fn spans(marks: &[Time]) -> impl Iterator<Item = Nanos> {
    marks.chunks_exact(2).map(|pair| pair[1].since(pair[0]))
}

/// What is told of many measurements, in the unit of these.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// How many.
    pub count: usize,
    /// The least.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// The greatest.
    pub most: f64,
}

impl Summary {
    /// `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        // Nearest rank: the smallest that is at least as large as 99 % of them.
        let p99 = *values.get((count * 99).div_ceil(100).saturating_sub(1))?;
        let mean = values.iter().sum::<f64>() / count as f64;
        Some(Summary { count, least: values[0], mean, p99, most: values[count - 1] })
    }
}
