//! What one side knows of a round, and when the client's loop begins to count and when it stops.

use super::histogram::Histogram;
use super::plan::Amount;
use std::time::{Duration, Instant};

/// What the client counted in one round.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Messages that ended within the counted part (round trips in the latency test).
    pub messages: u64,
    /// How long that part lasted.
    pub elapsed: Duration,
    /// Messages of the whole round, warm-up included.
    pub all_messages: u64,
}

/// Divides a round into warm-up and counted part.
pub struct Clock {
    amount: Amount,
    warm_up: Amount,
    began: Instant,
    warm: Option<(Instant, u64)>,
}

impl Clock {
    /// Begins with the warm-up.
    pub fn start(amount: Amount) -> Clock {
        Clock { amount, warm_up: amount.warm_up(), began: Instant::now(), warm: None }
    }

    /// `messages` have ended by `now`. Returns whether the round is over. `histogram` is emptied after the warm-up.
    #[inline]
    pub fn is_over(&mut self, now: Instant, messages: u64, histogram: &mut Histogram) -> bool {
        match self.warm {
            Some((since, before)) => reached(self.amount, now - since, messages - before),
            None => {
                if reached(self.warm_up, now - self.began, messages) {
                    self.warm = Some((now, messages));
                    histogram.clear();
                }
                false
            }
        }
    }

    /// What has been counted, at the end.
    pub fn counted(&self, now: Instant, all_messages: u64) -> Counted {
        let (since, before) = self.warm.unwrap_or((now, all_messages));
        Counted { messages: all_messages - before, elapsed: now - since, all_messages }
    }
}

fn reached(amount: Amount, elapsed: Duration, messages: u64) -> bool {
    match amount {
        Amount::Messages(limit) => messages >= limit,
        Amount::Time(limit) => elapsed >= limit,
    }
}

/// What a server counted in one round.
#[derive(Clone, Copy, Default, Debug)]
pub struct Arrived {
    /// Messages that arrived.
    pub messages: u64,
    /// Sum of their numbers, if their content was checked.
    pub numbers: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_is_not_counted() {
        let mut histogram = Histogram::new();
        let mut clock = Clock::start(Amount::Messages(100));
        for message in 1..=9 {
            histogram.record(1_000_000);
            assert!(!clock.is_over(Instant::now(), message, &mut histogram));
        }
        assert!(!clock.is_over(Instant::now(), 10, &mut histogram));
        assert_eq!(histogram.quantile(0.5), None);
        assert!(!clock.is_over(Instant::now(), 109, &mut histogram));
        assert!(clock.is_over(Instant::now(), 110, &mut histogram));
        let counted = clock.counted(Instant::now(), 110);
        assert_eq!((counted.messages, counted.all_messages), (100, 110));
    }
}
