//! DCTCP: the window shrinks with the share of segments that were marked (RFC 8257).

use super::newreno::NewReno;
use super::{Congestion, Control, LEAST, Sample, Window};

/// Weight of the last window's share: g (RFC 8257, section 4.2).
const GAIN: f64 = 1.0 / 16.0;

/// DCTCP's state.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    growth: NewReno,
    /// Estimate of the share of marked segments. It begins at one (section 3.3): a flow's first marks halve
    /// its window.
    alpha: f64,
    acked: u32,
    marked: u32,
    /// The observation window ends when this segment is acknowledged.
    window_end: u64,
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp { growth: NewReno::default(), alpha: 1.0, acked: 0, marked: 0, window_end: 0 }
    }
}

impl Control for Dctcp {
    fn heard(&mut self, sample: &Sample) {
        self.acked += sample.advanced;
        if sample.marked {
            self.marked += sample.advanced;
        }
        if sample.first > self.window_end {
            if self.acked > 0 {
                let share = self.marked as f64 / self.acked as f64;
                self.alpha += GAIN * (share - self.alpha);
            }
            (self.acked, self.marked, self.window_end) = (0, 0, sample.next);
        }
    }

    fn acknowledged(&mut self, window: &mut Window, sample: &Sample) {
        self.growth.acknowledged(window, sample);
    }

    fn reduced(&mut self, window: &Window, why: Congestion) -> u32 {
        match why {
            Congestion::Mark => {
                let less = window.size as f64 * self.alpha / 2.0;
                (window.size - less as u32).max(LEAST)
            }
            // To losses it reacts as others do (section 3.5).
            Congestion::Loss | Congestion::Timeout => self.growth.reduced(window, why),
        }
    }
}
