//! Which counters have been seen: a bitmap that slides (as in RFC 6479: a ring of words, cleared as it moves).

/// Remembers the newest `(WORDS - 1) * 64` counters.
pub(super) struct Window<const WORDS: usize> {
    /// One more than the highest counter seen.
    next: u64,
    /// Bit `n % 64` of word `n / 64 % WORDS`: counter `n` has been seen.
    words: [u64; WORDS],
}

impl<const WORDS: usize> Window<WORDS> {
    /// How far behind the highest a counter may be.
    const SPAN: u64 = (WORDS as u64 - 1) * 64;

    /// Refuses every counter before `first`.
    pub(super) fn starting_at(first: u64) -> Self {
        let mut words = [u64::MAX; WORDS];
        words[Self::word(first)] = (1 << (first % 64)) - 1;
        Window { next: first, words }
    }

    /// One more than the highest counter seen.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn word(n: u64) -> usize {
        (n / 64 % WORDS as u64) as usize
    }

    /// Whether `n` is neither seen nor too old to tell.
    #[inline]
    pub(super) fn is_fresh(&self, n: u64) -> bool {
        n >= self.next || (self.next - n <= Self::SPAN && self.words[Self::word(n)] >> (n % 64) & 1 == 0)
    }

    /// `n` has been seen.
    #[inline]
    pub(super) fn mark(&mut self, n: u64) {
        if n >= self.next {
            // The word of `next` may hold bits of its predecessors; those after it are to be cleared.
            let first = self.next.div_ceil(64);
            let last = n / 64;
            for word in first.max(last.saturating_sub(WORDS as u64 - 1))..=last {
                self.words[(word % WORDS as u64) as usize] = 0;
            }
            self.next = n.saturating_add(1);
        }
        self.words[Self::word(n)] |= 1 << (n % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_counter_is_accepted_once(
            first in prop_oneof![Just(0u64), 0u64..300],
            steps in proptest::collection::vec((-400i64..80, prop_oneof![20 => Just(0u64), 1 => 0u64..2000]), 1..600),
        ) {
            let mut window = Window::<5>::starting_at(first);
            let mut seen = BTreeSet::new();
            for (near, far) in steps {
                let n = (window.next() as i64 + near).max(0) as u64 + far;
                let too_old = n < window.next().saturating_sub(Window::<5>::SPAN);
                let fresh = n >= first && !too_old && !seen.contains(&n);
                prop_assert_eq!(window.is_fresh(n), fresh, "{} of {}", n, window.next());
                if fresh {
                    window.mark(n);
                    seen.insert(n);
                }
                prop_assert!(!window.is_fresh(n));
            }
        }
    }

    #[test]
    fn the_highest_counter_of_all_wraps_nothing() {
        let mut window = Window::<5>::starting_at(0);
        window.mark(u64::MAX - 1);
        assert!(window.is_fresh(u64::MAX - 2));
        assert!(!window.is_fresh(u64::MAX - 1));
        assert!(!window.is_fresh(7));
    }
}
