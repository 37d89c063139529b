//! How busy the machine's processors are.

use std::fs;

/// Time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// Now (proc_stat(5)).
    pub fn now() -> Ticks {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .skip(1)
            .take(8) // the rest is contained in these
            .filter_map(|field| field.parse().ok())
            .collect();
        let idle = fields.get(3).copied().unwrap_or(0) + fields.get(4).copied().unwrap_or(0);
        Ticks { idle, all: fields.iter().sum() }
    }

    /// Share of the time since then in which they were busy, in percent.
    pub fn busy_percent_since(self, earlier: Ticks) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let idle = self.idle.saturating_sub(earlier.idle) as f64;
        100.0 * (1.0 - idle / all).max(0.0)
    }
}
