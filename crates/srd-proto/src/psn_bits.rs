//! A sliding set of packet numbers: one bit for each of [`WINDOW_PACKETS`] numbers from a moving base.

use srd_wire::{Psn, WINDOW_PACKETS};

const WORDS: usize = (WINDOW_PACKETS / 64) as usize;

/// See the module. The caller keeps numbers within the window.
#[derive(Clone)]
pub(crate) struct PsnBits {
    words: [u64; WORDS],
}

impl PsnBits {
    pub(crate) fn new() -> PsnBits {
        PsnBits { words: [0; WORDS] }
    }

    fn position(psn: Psn) -> (usize, u32) {
        let bit = psn.0 % WINDOW_PACKETS;
        ((bit / 64) as usize, bit % 64)
    }

    pub(crate) fn contains(&self, psn: Psn) -> bool {
        let (word, bit) = PsnBits::position(psn);
        self.words[word] >> bit & 1 == 1
    }

    pub(crate) fn insert(&mut self, psn: Psn) {
        let (word, bit) = PsnBits::position(psn);
        self.words[word] |= 1 << bit;
    }

    /// The 64 bits from `psn` on, lowest first.
    pub(crate) fn word_at(&self, psn: Psn) -> u64 {
        let (word, bit) = PsnBits::position(psn);
        let low = self.words[word] >> bit;
        if bit == 0 { low } else { low | self.words[(word + 1) % WORDS] << (64 - bit) }
    }

    /// How many numbers from `psn` on are in the set without a gap, at most 64.
    pub(crate) fn run_at(&self, psn: Psn) -> u32 {
        self.word_at(psn).trailing_ones()
    }

    /// Takes `count` (at most 64) numbers from `psn` on out of the set.
    pub(crate) fn clear_run(&mut self, psn: Psn, count: u32) {
        self.change_run(psn, count, |word, mask| *word &= !mask);
    }

    /// Adds `count` (at most 64) numbers from `psn` on.
    pub(crate) fn insert_run(&mut self, psn: Psn, count: u32) {
        self.change_run(psn, count, |word, mask| *word |= mask);
    }

    #[inline]
    fn change_run(&mut self, psn: Psn, count: u32, change: impl Fn(&mut u64, u64)) {
        let (word, bit) = PsnBits::position(psn);
        let mask = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        change(&mut self.words[word], mask << bit);
        if bit != 0 {
            change(&mut self.words[(word + 1) % WORDS], mask >> (64 - bit));
        }
    }
}
