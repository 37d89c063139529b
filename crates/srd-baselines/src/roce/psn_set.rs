//! Sequence numbers of a window, a bit each.

use std::collections::VecDeque;

/// Which sequence numbers from `base` on are in.
#[derive(Clone, Default, Debug)]
pub(super) struct PsnSet {
    /// Number of the first bit: a multiple of 64.
    base: u64,
    words: VecDeque<u64>,
}

impl PsnSet {
    /// Puts `psn` in. False if it was there, or is before what the set covers.
    pub(super) fn insert(&mut self, psn: u64) -> bool {
        let Some(offset) = psn.checked_sub(self.base) else { return false };
        let (word, bit) = ((offset / 64) as usize, 1 << (offset % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Forgets all below `psn`, by whole words.
    pub(super) fn forget_below(&mut self, psn: u64) {
        while self.base + 64 <= psn {
            self.base += 64;
            self.words.pop_front();
        }
    }

    /// The first number from `psn` on that is not in.
    pub(super) fn first_missing(&self, psn: u64) -> u64 {
        let Some(offset) = psn.checked_sub(self.base) else { return psn };
        let mut word = (offset / 64) as usize;
        let mut skipped = (1u64 << (offset % 64)) - 1;
        while let Some(bits) = self.words.get(word) {
            let missing = !(bits | skipped);
            if missing != 0 {
                return self.base + word as u64 * 64 + missing.trailing_zeros() as u64;
            }
            (word, skipped) = (word + 1, 0);
        }
        psn.max(self.base + word as u64 * 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn does_what_a_set_of_numbers_does(steps in proptest::collection::vec((0u64..300, 0u64..4), 1..200)) {
            let (mut set, mut model, mut floor) = (PsnSet::default(), BTreeSet::new(), 0);
            for (psn, move_by) in steps {
                if psn >= floor {
                    prop_assert_eq!(set.insert(psn), model.insert(psn));
                }
                floor += move_by;
                set.forget_below(floor);
                let missing = (floor..).find(|psn| !model.contains(psn)).unwrap();
                prop_assert_eq!(set.first_missing(floor), missing);
            }
        }
    }
}
