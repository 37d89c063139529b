//! Proportional rate reduction: during a recovery the window follows what arrives, down to its threshold (RFC
//! 6937; below the threshold with the slow-start bound while there is progress, as Linux, tcp_cwnd_reduction).

/// A reduction that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// Window before: RecoverFS.
    prior: u32,
    delivered: u32,
    sent: u32,
}

impl Reduction {
    /// From this window on.
    pub fn new(prior: u32) -> Reduction {
        Reduction { prior: prior.max(1), delivered: 0, sent: 0 }
    }

    /// A segment leaves.
    pub fn sent(&mut self) {
        self.sent += 1;
    }

    /// The window after an ACK of `acked` segments. `progress`: it acknowledges in order, and no more losses
    /// were found.
    pub fn window(&mut self, threshold: u32, in_flight: u32, acked: u32, progress: bool) -> u32 {
        self.delivered += acked;
        let quota = if in_flight > threshold {
            let share = (threshold as u64 * self.delivered as u64).div_ceil(self.prior as u64);
            (share as u32).saturating_sub(self.sent)
        } else {
            let bound = self.delivered.saturating_sub(self.sent).max(acked) + progress as u32;
            bound.min(threshold - in_flight)
        };
        // The first retransmission leaves at once.
        in_flight + quota.max((self.sent == 0) as u32)
    }
}
