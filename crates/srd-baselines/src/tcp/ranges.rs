//! A set of numbers as ranges: what has come out of order, and what the sender knows of it.

use std::collections::VecDeque;

/// Numbers, as ranges that do not touch, in order. Ends are not part of a range.
#[derive(Clone, Default, Debug)]
pub struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.1 <= number);
        self.ranges.get(after).is_some_and(|range| range.0 <= number)
    }

    /// Adds a range; `fresh` gets the parts of it that are new. Returns the range that it is part of now.
    pub fn add(&mut self, start: u64, end: u64, fresh: &mut Vec<(u64, u64)>) -> (u64, u64) {
        let first = self.ranges.partition_point(|range| range.1 < start);
        let (mut whole, mut from, mut after) = ((start, end), start, first);
        while let Some(&(low, high)) = self.ranges.get(after).filter(|range| range.0 <= end) {
            if from < low {
                fresh.push((from, low));
            }
            from = from.max(high);
            whole = (whole.0.min(low), whole.1.max(high));
            after += 1;
        }
        if from < end {
            fresh.push((from, end));
        }
        if first == after {
            self.ranges.insert(first, whole);
        } else {
            self.ranges[first] = whole;
            if after - first > 1 {
                self.ranges.drain(first + 1..after);
            }
        }
        whole
    }

    /// Forgets what is below `number`.
    pub fn forget_below(&mut self, number: u64) {
        while self.ranges.front().is_some_and(|range| range.1 <= number) {
            self.ranges.pop_front();
        }
        if let Some(range) = self.ranges.front_mut() {
            range.0 = range.0.max(number);
        }
    }

    /// Takes the first range if it begins at `number`, and returns its end.
    pub fn take_from(&mut self, number: u64) -> Option<u64> {
        self.ranges.front().filter(|range| range.0 == number)?;
        self.ranges.pop_front().map(|range| range.1)
    }

    /// The member that has `count` - 1 members above it; `None` if there are fewer.
    pub fn highest(&self, mut count: u64) -> Option<u64> {
        for &(start, end) in self.ranges.iter().rev() {
            if end - start >= count {
                return Some(end - count);
            }
            count -= end - start;
        }
        None
    }
}
