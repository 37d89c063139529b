//! Memory that the device reads and writes beside the program, and the content check's pattern in it.
//!
//! The words are atomics: the device may write them at any time, from any thread, and safe Rust must be told so.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// Room for a number of messages of one size, each beginning on a word.
pub struct Slots {
    words: Box<[AtomicU64]>,
    size: usize,
    stride: usize,
}

impl Slots {
    /// `count` slots of `size` bytes, all zero and backed by memory now.
    pub fn new(count: usize, size: usize) -> Slots {
        let stride = size.div_ceil(WORD).max(1);
        Slots { words: (0..count * stride).map(|_| AtomicU64::new(0)).collect(), size, stride }
    }

    /// Address of the first slot.
    pub fn address(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    /// Length of all slots together in bytes.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// How far a slot's first byte lies from the first slot's, in bytes.
    pub fn offset(&self, slot: usize) -> u64 {
        (slot * self.stride * WORD) as u64
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.words.len() / self.stride
    }

    /// Writes the pattern of message `number` into a slot.
    pub fn fill(&self, slot: usize, number: u64) {
        for (index, word) in self.slot(slot).iter().enumerate() {
            word.store(pattern(number, index, self.size), Relaxed);
        }
    }

    /// Zeroes a slot.
    pub fn clear(&self, slot: usize) {
        self.slot(slot).iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Whether nothing has been written to a zeroed slot.
    pub fn is_clear(&self, slot: usize) -> bool {
        self.slot(slot).iter().all(|word| word.load(Relaxed) == 0)
    }

    /// The slot's first `N` bytes; zeros where it is shorter.
    pub fn first_bytes<const N: usize>(&self, slot: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (chunk, word) in bytes.chunks_mut(WORD).zip(self.slot(slot)) {
            chunk.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..chunk.len()]);
        }
        bytes
    }

    /// The number of the message whose pattern the slot holds, or what is wrong with it. Messages shorter than a word
    /// have no room for a number; theirs is `None`.
    pub fn check(&self, slot: usize) -> Result<Option<u64>, Corrupt> {
        let words = self.slot(slot);
        let number = words[0].load(Relaxed);
        for (index, word) in words.iter().enumerate() {
            let (found, expected) = (word.load(Relaxed), pattern(number, index, self.size));
            // A slot's last word may be longer than the message.
            let valid = (self.size - index * WORD).min(WORD);
            let mask = u64::MAX.checked_shr(64 - 8 * valid as u32).unwrap_or(0).to_le();
            if (found ^ expected) & mask != 0 {
                return Err(Corrupt { slot, byte: index * WORD, found, expected });
            }
        }
        Ok((self.size >= WORD).then_some(number))
    }

    fn slot(&self, slot: usize) -> &[AtomicU64] {
        &self.words[slot * self.stride..][..self.stride]
    }
}

/// Bytes that are not what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt {
    slot: usize,
    byte: usize,
    found: u64,
    expected: u64,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Corrupt { slot, byte, found, expected } = self;
        write!(f, "slot {slot}: the 8 bytes from {byte} are {found:#018x} instead of {expected:#018x}")
    }
}

impl std::error::Error for Corrupt {}

/// Word `index` of message `number`. The first word is the number itself, so that the receiver, whom messages reach
/// in any order, knows what to expect of the rest.
pub fn pattern(number: u64, index: usize, size: usize) -> u64 {
    match index {
        0 if size < WORD => 0x5352_4453_5244_5352,
        0 => number,
        // The golden ratio's odd multiple (as in SplitMix64) makes the words of all messages differ.
        _ => (number ^ 0x6a09_e667_f3bc_c908).wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_checks() {
        for size in [0, 1, 7, 8, 9, 4096, 8191] {
            let slots = Slots::new(3, size);
            slots.fill(1, 77);
            assert_eq!(slots.check(1), Ok((size >= 8).then_some(77)), "size {size}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_and_bytes_after_the_message_do_not_count() {
        let slots = Slots::new(2, 12);
        slots.fill(0, 5);
        slots.words[1].fetch_xor(1u64.to_le() << 33, Relaxed);
        assert_eq!(slots.check(0), Ok(Some(5)));
        slots.words[1].fetch_xor(1u64.to_le() << 31, Relaxed);
        assert_eq!(slots.check(0).unwrap_err().byte, 8);
    }

    #[test]
    fn slots_do_not_overlap() {
        let slots = Slots::new(4, 20);
        (0..4).for_each(|slot| slots.fill(slot, slot as u64));
        assert!((0..4).all(|slot| slots.check(slot) == Ok(Some(slot as u64))));
        assert_eq!((slots.offset(3), slots.bytes()), (72, 96));
    }
}
