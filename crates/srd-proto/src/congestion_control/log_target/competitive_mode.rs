//! A sender's window while others are in the way who do not yield to delay: the receiver's count does not explain the queue,
//! and who waited for it to leave would wait for ever. Like TCP it gives way to losses (AIMD, RFC 5681: one packet more for
//! each round trip, but a third less at a loss, CUBIC's, RFC 9438, section 4.6), and to marks in proportion to how many
//! there are (RFC 8257, section 3.3); and it never takes more than its part of the line.

use super::AckSample;
use srd_wire::Time;

/// What is left of the window after a loss.
const AFTER_LOSS: f64 = 0.7;
/// Weight of a round trip in the share of packets that are marked (RFC 8257, section 4.2: g).
const MARK_GAIN: f64 = 1.0 / 16.0;
/// Round trips in which it would have what is missing to its part, beside the packet each: it knows what its part is, and a packet
/// a round trip alone takes seconds where others keep megabytes in the queue.
const RECOVERY: f64 = 32.0;
/// Least window in packets: fewer hear of nothing.
const LEAST: f64 = 0.2;
/// Share of its part below which a sender has been pushed aside.
const STARVED: f64 = 0.6;
/// Base round trips, and packets, over which that is measured.
const PERIOD: f64 = 64.0;
const PACKETS: u32 = 16;
/// Packets of its part, and round trips, after whose time without an answer it has been idle.
const PAUSE: f64 = 16.0;
const ROUNDS_OF_PAUSE: f64 = 8.0;

/// What a sender gets of the line: less than its part, although it wants more, where others push it aside. Where only those
/// send whom the receiver counts, each gets its part, however long the queue.
#[derive(Clone, Copy, Default)]
pub(super) struct ShareMeter {
    since: Time,
    last: Time,
    /// Its part then: a measurement begins anew when the count has changed.
    part: f64,
    packets: u32,
    wanted_more: bool,
    starved: bool,
}

impl ShareMeter {
    /// An ACK has come; `part`: packets of its part of the line in a base round trip, which takes `unit_ns`; `delay`: of the
    /// queue, in base round trips.
    pub(super) fn see(&mut self, sample: &AckSample, part: f64, delay: f64, unit_ns: f64) {
        let pause = sample.now.since(self.last).as_f64() / unit_ns;
        let idle = PAUSE / part + ROUNDS_OF_PAUSE * (1.0 + delay);
        self.last = sample.now;
        if self.packets == 0 || part != self.part || pause > idle {
            *self = ShareMeter { since: sample.now, part, wanted_more: true, packets: 0, ..*self };
        }
        self.packets = self.packets.saturating_add(sample.newly_acked);
        self.wanted_more &= sample.window_limited;
        let rounds = sample.now.since(self.since).as_f64() / unit_ns;
        let enough = self.packets >= PACKETS || part * rounds > 4.0 * PACKETS as f64;
        if rounds >= PERIOD && enough {
            self.starved = self.wanted_more && (self.packets as f64) < STARVED * part * rounds;
            self.packets = 0;
        }
    }

    /// Whether that is so.
    pub(super) fn starved(&self) -> bool {
        self.starved
    }
}

/// See the module.
#[derive(Clone, Copy, Default)]
pub(super) struct CompetitiveMode {
    /// In packets; 0 while nobody is in the way.
    window: f64,
    /// Share of packets that are marked.
    marked_share: f64,
    /// Packets acknowledged, and marked, in this round trip.
    acked: u32,
    marked: u32,
    round: u32,
    /// It gave way to a loss in this round trip.
    gave_way: bool,
}

impl CompetitiveMode {
    /// Whether somebody is in the way.
    pub(super) fn goes_on(&self) -> bool {
        self.window > 0.0
    }

    /// Somebody is. It begins with its part.
    pub(super) fn begin(&mut self, part: f64) {
        *self = CompetitiveMode { window: part.max(LEAST), marked_share: 0.0, ..CompetitiveMode::default() };
    }

    /// Nobody is any more.
    pub(super) fn end(&mut self) {
        self.window = 0.0;
    }

    /// An ACK has come; `part`: the window with which this sender has its part of the line. Returns the window.
    pub(super) fn acknowledged(&mut self, sample: &AckSample, part: f64) -> f64 {
        self.acked = self.acked.saturating_add(sample.newly_acked);
        // A peer may report marks without acknowledging anything, so that the round does not end.
        self.marked = self.marked.saturating_add(sample.ce_marks);
        if sample.round != self.round {
            let share = (self.marked as f64 / self.acked.max(1) as f64).min(1.0);
            self.marked_share += (share - self.marked_share) * MARK_GAIN;
            if self.marked > 0 {
                self.window *= 1.0 - self.marked_share / 2.0;
            }
            (self.acked, self.marked, self.round, self.gave_way) = (0, 0, sample.round, false);
        }
        if sample.window_limited && !self.gave_way {
            let step = 1.0 + (part - self.window).max(0.0) / RECOVERY;
            self.window += step * sample.newly_acked as f64 * self.window.min(1.0) / self.window.max(1.0);
        }
        self.window = self.window.clamp(LEAST, part.max(LEAST));
        self.window
    }

    /// A packet is lost. Returns the window.
    pub(super) fn lost(&mut self) -> f64 {
        if !self.gave_way {
            self.gave_way = true;
            self.window = (self.window * AFTER_LOSS).max(LEAST);
        }
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of ten packets each, so many of them marked. Returns the window.
    fn rounds(competitive: &mut CompetitiveMode, from: u32, count: u32, marks: u32, part: f64) -> f64 {
        let mut window = 0.0;
        for round in from..from + count {
            for packet in 0..10 {
                let ce_marks = (packet < marks) as u32;
                let window_limited = true;
                let sample =
                    AckSample { newly_acked: 1, ce_marks, round, window_limited, ..AckSample::default() };
                window = competitive.acknowledged(&sample, part);
            }
        }
        window
    }

    #[test]
    fn it_gives_way_once_in_a_round_trip_and_takes_its_part_again() {
        let mut competitive = CompetitiveMode::default();
        competitive.begin(10.0);
        assert_eq!(competitive.lost(), 7.0);
        assert_eq!(competitive.lost(), 7.0);
        let window = rounds(&mut competitive, 1, 2, 0, 10.0);
        assert!((8.0..10.0).contains(&window), "{window}");
        assert_eq!(rounds(&mut competitive, 3, 10, 0, 10.0), 10.0, "no more than its part");
    }

    #[test]
    fn marks_take_in_proportion() {
        let (mut few, mut many) = (CompetitiveMode::default(), CompetitiveMode::default());
        few.begin(100.0);
        many.begin(100.0);
        let few = rounds(&mut few, 1, 100, 1, 1000.0);
        let many = rounds(&mut many, 1, 100, 5, 1000.0);
        assert!(few > 2.0 * many, "{few} and {many}");
    }
}
