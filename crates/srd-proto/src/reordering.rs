//! Whether paths keep packets in order, and what lateness means if they do not.
//!
//! ECMP sends all packets of a path the same way, so that the order on a path is the order of sending, and one packet
//! overtaken is one lost. Adaptive routing and bundles without flow hashing break that. It shows in retransmissions whose
//! originals arrive all the same: two of them within a while, and losses are judged by time over the whole context (RACK,
//! RFC 8985) until there has been none for long enough.

use srd_wire::{Nanos, Time};

/// Round trips within which two spurious retransmissions mean that paths are not FIFO. This and the next one:
/// docs/design/loss-recovery.md, "Paths that are not first-in-first-out".
const SPURIOUS_ROUNDS: u64 = 64;
/// Round trips without one after which they are taken for FIFO again.
const CLEAN_ROUNDS: u64 = 16;
/// How often that doubles: each return to a rule that does not fit costs two needless retransmissions.
const MAX_RELAPSES: u32 = 6;

/// See the module.
#[derive(Default)]
pub(crate) struct Reordering {
    active: bool,
    /// What spurious retransmissions have added to the window.
    growth: Nanos,
    spurious_at: Time,
    relapses: u32,
    window: Nanos,
    window_until: Time,
}

impl Reordering {
    /// A packet was retransmitted although its first copy has arrived. Whether the rule changes.
    pub(crate) fn on_spurious(&mut self, now: Time, rtt: Nanos, base: Nanos) -> bool {
        let again = self.spurious_at > Time(0) && now.since(self.spurious_at).0 < SPURIOUS_ROUNDS * rtt.0;
        self.spurious_at = now;
        if !again {
            return false;
        }
        if self.active {
            self.growth = self.growth + Nanos(base.0 / 4);
            self.window_until = Time(0);
            return false;
        }
        self.active = true;
        self.growth = Nanos::ZERO;
        self.window_until = Time(0);
        true
    }

    /// Whether losses are judged by time.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Ends the judging by time if there has been no spurious retransmission for long enough. Whether the rule changes.
    pub(crate) fn settle(&mut self, now: Time, rtt: Nanos) -> bool {
        if !self.active || now.since(self.spurious_at).0 < (CLEAN_ROUNDS << self.relapses) * rtt.0 {
            return false;
        }
        self.active = false;
        self.relapses = (self.relapses + 1).min(MAX_RELAPSES);
        true
    }

    /// How much later than a lost packet another one was sent that has arrived. `rtts`: the shortest and the longest
    /// smoothed round trip of a path, asked for once in a round trip; `variation`: that of the context.
    ///
    /// It is never longer than the longest round trip. (RACK has one srtt there, RFC 8985, section 6.2; with paths of
    /// different length that is a mean and shorter than what they differ by.)
    pub(crate) fn window(
        &mut self,
        now: Time,
        base: Nanos,
        variation: Nanos,
        rtts: impl FnOnce() -> Option<(Nanos, Nanos)>,
    ) -> Nanos {
        if now >= self.window_until {
            let (least, most) = rtts().unwrap_or((base, base));
            let wanted = (most - least) + Nanos(4 * variation.0) + self.growth;
            self.window = wanted.max(Nanos(base.0 / 4)).min(most.max(base));
            self.window_until = now + least;
        }
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = Nanos::from_micros(14);

    fn after(rounds: u64) -> Time {
        Time(1) + Nanos(rounds * RTT.0)
    }

    #[test]
    fn two_spurious_retransmissions_within_64_rounds_change_the_rule_and_16_clean_rounds_change_it_back() {
        let mut reordering = Reordering::default();
        assert!(!reordering.on_spurious(after(0), RTT, RTT));
        assert!(!reordering.on_spurious(after(100), RTT, RTT), "the first is long ago");
        assert!(reordering.on_spurious(after(150), RTT, RTT));
        assert!(!reordering.settle(after(165), RTT) && reordering.is_active());
        assert!(reordering.settle(after(166), RTT) && !reordering.is_active());
    }

    #[test]
    fn each_relapse_doubles_the_clean_rounds() {
        let mut reordering = Reordering::default();
        for relapse in 0..10 {
            let (start, patience) =
                (10_000 * (relapse + 1), CLEAN_ROUNDS << relapse.min(MAX_RELAPSES as u64));
            reordering.on_spurious(after(start), RTT, RTT);
            assert!(reordering.on_spurious(after(start + 1), RTT, RTT));
            assert!(!reordering.settle(after(start + patience), RTT));
            assert!(reordering.settle(after(start + patience + 1), RTT));
        }
    }

    #[test]
    fn the_window_covers_what_paths_differ_by_and_grows_with_each_spurious_retransmission() {
        let mut reordering = Reordering::default();
        let (base, none) = (RTT, Nanos::ZERO);
        let spread = Some((RTT, Nanos(4 * RTT.0)));
        assert_eq!(reordering.window(after(0), base, none, || Some((RTT, RTT))), Nanos(base.0 / 4));
        assert_eq!(reordering.window(after(2), base, none, || spread), Nanos(3 * RTT.0));
        reordering.on_spurious(after(3), RTT, base);
        reordering.on_spurious(after(4), RTT, base);
        reordering.on_spurious(after(5), RTT, base);
        assert_eq!(reordering.window(after(5), base, none, || spread), Nanos(3 * RTT.0 + base.0 / 4));
        assert_eq!(
            reordering.window(after(9), base, RTT, || spread),
            Nanos(4 * RTT.0),
            "no longer than the longest"
        );
    }
}
