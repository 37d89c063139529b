//! What kept a context's packets back, over time: the window, the pace, or neither.

use crate::contexts::{Context, Decision};

/// What kept packets back at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeper {
    /// As much was in flight as the window allows.
    Window,
    /// What has been sent would have taken until now at the pace.
    Pace,
    /// Neither: the program had asked for nothing more, others had their turn, or the host was busy.
    Neither,
}

/// See the module. Times are microseconds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Where spans end, and for how long until then each had kept packets back since the beginning.
    until: Vec<(f64, [f64; 3])>,
}

impl Held {
    pub(crate) fn of(context: &Context) -> Held {
        let packet = context.largest_packet();
        let mut paced = paced(context).into_iter().peekable();
        let mut held = Held::default();
        let mut sums = [0.0; 3];
        for span in context.spans() {
            let full = span
                .window
                .is_some_and(|window| span.inflight > 0 && span.inflight.saturating_add(packet) > window);
            if full {
                sums[Keeper::Window as usize] += span.until - span.from;
            } else {
                let mut pace = 0.0;
                while let Some(&(from, until)) = paced.peek() {
                    pace += (until.min(span.until) - from.max(span.from)).max(0.0);
                    if until > span.until {
                        break;
                    }
                    paced.next();
                }
                sums[Keeper::Pace as usize] += pace;
                sums[Keeper::Neither as usize] += (span.until - span.from - pace).max(0.0);
            }
            held.until.push((span.until, sums));
        }
        held
    }

    /// For how long each kept packets back between two times.
    pub(crate) fn between(&self, from: f64, until: f64) -> [f64; 3] {
        let (begin, end) = (self.at(from), self.at(until));
        std::array::from_fn(|keeper| (end[keeper] - begin[keeper]).max(0.0))
    }

    /// The sums until `at`.
    fn at(&self, at: f64) -> [f64; 3] {
        let next = self.until.partition_point(|(until, _)| *until <= at);
        let (from, before) = next.checked_sub(1).map_or((0.0, [0.0; 3]), |last| self.until[last]);
        let Some(&(until, after)) = self.until.get(next) else {
            // Nothing is known of what comes behind the last span.
            let mut sums = before;
            sums[Keeper::Neither as usize] += (at - from).max(0.0);
            return sums;
        };
        let share = if until > from { (at - from).max(0.0) / (until - from) } else { 0.0 };
        std::array::from_fn(|keeper| before[keeper] + share * (after[keeper] - before[keeper]))
    }
}

/// Times in which what had been sent was still being paid for at the pace, in order.
fn paced(context: &Context) -> Vec<(f64, f64)> {
    let mut times: Vec<(f64, f64)> = Vec::new();
    let mut rate = None;
    for (at, decision) in &context.decisions {
        match decision {
            Decision::ControllerUpdated { rate: now, .. } => rate = now.filter(|rate| *rate > 0.0),
            Decision::PacketSent { bytes, .. } | Decision::PacketResent { bytes, .. } => {
                let Some(rate) = rate else { continue };
                let takes = *bytes as f64 / rate / 1e3;
                match times.last_mut() {
                    Some((_, until)) if *until >= *at => *until += takes,
                    _ => times.push((*at, at + takes)),
                }
            }
            _ => {}
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: u64, inflight: u64) -> Decision {
        Decision::PacketSent { psn: 0, message: 0, bytes, inflight }
    }

    fn acked(inflight: u64) -> Decision {
        Decision::AckReceived { inflight, ce_marks: 0, senders: 0 }
    }

    fn context(decisions: Vec<(f64, Decision)>) -> Context {
        Context { decisions }
    }

    #[test]
    fn a_full_window_keeps_back_until_the_next_ack() {
        let controller = Decision::ControllerUpdated { window: 2000, rate: None, target: 0.0 };
        let held = Held::of(&context(vec![
            (0.0, controller),
            (10.0, sent(1000, 1000)),
            (11.0, sent(1000, 2000)),
            (31.0, acked(2000)),
            (41.0, sent(1000, 2000)),
        ]));
        let [window, pace, neither] = held.between(10.0, 41.0);
        assert_eq!((window, pace), (20.0, 0.0));
        assert!((neither - 11.0).abs() < 1e-9);
        assert_eq!(held.between(20.0, 25.0), [5.0, 0.0, 0.0]);
    }

    #[test]
    fn the_pace_keeps_back_for_as_long_as_what_was_sent_takes() {
        // 1 byte a nanosecond: 1000 bytes take 1 us.
        let controller = Decision::ControllerUpdated { window: 1 << 20, rate: Some(1.0), target: 0.0 };
        let held = Held::of(&context(vec![
            (0.0, controller),
            (10.0, sent(1000, 1000)),
            (10.0, sent(1000, 2000)),
            (12.0, sent(1000, 3000)),
            (20.0, sent(1000, 4000)),
        ]));
        let [window, pace, neither] = held.between(10.0, 20.0);
        assert_eq!(window, 0.0);
        assert!((pace - 3.0).abs() < 1e-9 && (neither - 7.0).abs() < 1e-9, "{pace} {neither}");
        assert_eq!(held.between(30.0, 35.0), [0.0, 0.0, 5.0], "nobody knows");
    }
}
