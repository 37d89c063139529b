//! HyStart++: leaves slow start when round trips become longer (RFC 9406). Its thresholds are milliseconds:
//! in a data centre it acts where queues are deep.

use super::{Sample, Window};
use srd_wire::Nanos;

// RFC 9406, section 4.3.
const LEAST_RISE: Nanos = Nanos::from_millis(4);
const MOST_RISE: Nanos = Nanos::from_millis(16);
const RISE_DIVISOR: u64 = 8;
const SAMPLES: u32 = 8;
const CAREFUL_DIVISOR: u32 = 4;
const CAREFUL_ROUNDS: u32 = 5;

/// What HyStart++ knows.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    /// The round ends when this segment is acknowledged.
    round_end: u64,
    last: Nanos,
    current: Nanos,
    samples: u32,
    /// Conservative Slow Start: the shortest round trip when it began, and rounds since.
    careful: Option<(Nanos, u32)>,
    /// Segments acknowledged since the window last grew, in conservative slow start.
    counted: u32,
}

impl Default for HyStart {
    fn default() -> HyStart {
        let none = Nanos(u64::MAX);
        HyStart { round_end: 0, last: none, current: none, samples: 0, careful: None, counted: 0 }
    }
}

impl HyStart {
    /// Slow start, as fast as the round trips allow (section 4.2). The window grows by all that is
    /// acknowledged, as on Linux: the limit of 8 segments per ACK is for senders of single segments. Returns
    /// what is left over.
    pub fn slow_start(&mut self, window: &mut Window, sample: &Sample) -> u32 {
        if let Some(rtt) = sample.rtt {
            self.current = self.current.min(rtt);
            self.samples += 1;
        }
        let left = if self.careful.is_some() {
            self.counted += sample.acked;
            let grown = self.counted / CAREFUL_DIVISOR;
            self.counted %= CAREFUL_DIVISOR;
            window.slow_start(grown)
        } else {
            window.slow_start(sample.acked)
        };
        let judged = self.samples >= SAMPLES && self.current.0 < u64::MAX;
        match self.careful {
            None if judged && self.last.0 < u64::MAX => {
                let rise = Nanos(self.last.0 / RISE_DIVISOR).clamp(LEAST_RISE, MOST_RISE);
                if self.current >= self.last + rise {
                    self.careful = Some((self.current, 0));
                }
            }
            Some((baseline, _)) if judged && self.current < baseline => self.careful = None,
            _ => {}
        }
        if sample.first >= self.round_end {
            self.round_end = sample.next;
            (self.last, self.current, self.samples) = (self.current, Nanos(u64::MAX), 0);
            if let Some((_, rounds)) = &mut self.careful {
                *rounds += 1;
                if *rounds >= CAREFUL_ROUNDS {
                    window.threshold = window.size;
                }
            }
        }
        left
    }
}
