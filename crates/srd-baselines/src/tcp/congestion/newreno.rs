//! NewReno: a segment more per round trip, half of the window at a loss (RFC 5681, section 3.1).

use super::{Congestion, Control, LEAST, Sample, Window};

/// NewReno's state.
#[derive(Clone, Copy, Default, Debug)]
pub struct NewReno {
    /// Segments acknowledged since the window last grew.
    counted: u32,
}

impl NewReno {
    /// Grows: fast below the threshold, by one per window above.
    pub fn grow(&mut self, window: &mut Window, acked: u32) {
        self.counted += window.slow_start(acked);
        let grown = self.counted / window.size;
        self.counted -= grown * window.size;
        window.size += grown;
    }
}

impl Control for NewReno {
    fn acknowledged(&mut self, window: &mut Window, sample: &Sample) {
        if sample.may_grow && sample.limited {
            self.grow(window, sample.acked);
        }
    }

    fn reduced(&mut self, window: &Window, _: Congestion) -> u32 {
        self.counted = 0;
        (window.size / 2).max(LEAST)
    }
}
