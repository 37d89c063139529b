//! What the other senders of a receiver leave of its link, for those who keep to the receiver's count.
//!
//! Not everyone whom the receiver counts can use his part: some are held back by their own cards, or elsewhere. Then no
//! queue stands at the receiver, and those who could send more take more parts than one; the more they have the less
//! willingly, so that they become equal (the delay is the same for all). When a queue stands they give back.

use super::ControlLaw;
use srd_wire::Time;

/// How fast parts are given back, in e-folds per base round trip and base round trip of delay.
const GIVE_BACK: f64 = 0.5;
/// Mean delay beyond which they are, as a share of B. Where all take their parts it is 0.6.
const TOO_LONG: f64 = 0.5;
/// What is left of [`ControlLaw::unused`] for one that has taken all.
const LEFT: f64 = 0.5;
/// Base round trips, or answers if they are fewer, over which the mean delay must be low.
const LONG: f64 = 16.0;
/// Base round trips at most for which one ACK stands.
const LONGEST_STEP: f64 = 4.0;

/// See the module.
pub(super) struct SpareBandwidth {
    /// How many parts this sender takes.
    parts: f64,
    /// When that was judged last, and of how many.
    at: Time,
    of: u16,
    /// Mean delay over a long time, in B.
    long_delay: f64,
}

impl SpareBandwidth {
    pub(super) fn new() -> SpareBandwidth {
        SpareBandwidth { parts: 1.0, at: Time(0), of: 1, long_delay: 1.0 }
    }

    pub(super) fn parts(&self) -> f64 {
        self.parts
    }

    /// An ACK has come: the receiver counts so many senders, `delay` is the mean of a short while, in B of `unit_ns`.
    /// `may_take`: this sender could send more, and whoever has begun has been heard.
    pub(super) fn judge(
        &mut self,
        now: Time,
        senders: u16,
        delay: f64,
        unit_ns: f64,
        may_take: bool,
        law: &ControlLaw,
    ) {
        let step = now.since(self.at).as_f64() / unit_ns;
        if senders as u32 >= 2 * self.of as u32 || step > LONG {
            (self.parts, self.long_delay) = (1.0, 1.0); // others have begun
        }
        (self.of, self.at) = (senders, now);
        self.long_delay += (delay - self.long_delay) * (step.min(1.0) / LONG);
        let taken = if self.parts > 1.0 { self.parts.ln() / (senders as f64).ln() } else { 0.0 };
        let unused = 1.0 - (1.0 - LEFT) * taken - self.long_delay / law.unused;
        let growth = if delay > TOO_LONG {
            -GIVE_BACK * (delay - TOO_LONG).min(1.0)
        } else if unused < 0.0 || may_take {
            law.take * unused.max(-1.0)
        } else {
            0.0
        };
        if growth > 0.0 || self.parts > 1.0 {
            self.parts = (self.parts * (growth * step.min(LONGEST_STEP)).exp()).clamp(1.0, senders as f64);
        }
    }

    /// A packet is lost, or delays are longer than they should be: half of what was taken goes back. Whether there was
    /// something.
    pub(super) fn give_back(&mut self) -> bool {
        let taken = self.parts > 1.0;
        self.parts = (self.parts / 2.0).max(1.0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: f64 = 10_000.0;

    /// One ACK per base round trip.
    fn rounds(unused: &mut SpareBandwidth, from: u64, count: u64, delay: f64) -> f64 {
        for round in from..from + count {
            unused.judge(Time(round * UNIT as u64), 8, delay, UNIT, true, &ControlLaw::default());
        }
        unused.parts()
    }

    #[test]
    fn parts_grow_while_no_queue_stands_and_shrink_when_one_does() {
        let mut unused = SpareBandwidth::new();
        assert_eq!(rounds(&mut unused, 1, 500, 0.6), 1.0, "all use their parts");
        let alone = rounds(&mut unused, 501, 500, 0.0);
        assert!(alone > 7.9, "{alone}");
        let shared = rounds(&mut unused, 1001, 10, 1.5);
        assert!(shared < 0.01 * alone + 1.0, "{shared}");
    }

    #[test]
    fn a_sender_with_many_parts_wants_less_queue_than_one_with_few() {
        let (mut many, mut few) = (SpareBandwidth::new(), SpareBandwidth::new());
        rounds(&mut many, 1, 500, 0.0);
        rounds(&mut few, 1, 2, 0.0);
        let between = 0.8 * ControlLaw::default().unused;
        let (many, few) = (rounds(&mut many, 501, 500, between), rounds(&mut few, 501, 500, between));
        assert!((many / few - 1.0).abs() < 0.05, "{many} and {few} parts");
        assert!(few > 1.5, "{few}");
    }

    #[test]
    fn many_more_senders_end_it() {
        let mut unused = SpareBandwidth::new();
        rounds(&mut unused, 1, 500, 0.0);
        unused.judge(Time(501 * UNIT as u64), 16, 0.0, UNIT, true, &ControlLaw::default());
        assert_eq!(unused.parts(), 1.0);
    }

    #[test]
    fn half_goes_back_at_a_loss() {
        let mut unused = SpareBandwidth::new();
        assert!(!unused.give_back());
        let parts = rounds(&mut unused, 1, 500, 0.0);
        assert!(unused.give_back());
        assert_eq!(unused.parts(), parts / 2.0);
    }
}
