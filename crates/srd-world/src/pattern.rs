//! What every byte of every message is: a function of the run's seed, the message's number and the offset.

use crate::rng::mix;

/// Names the contents of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern(pub u64);

impl Pattern {
    /// The contents of message `id` in the run of `seed`.
    pub fn of(seed: u64, id: u64) -> Pattern {
        Pattern(mix(seed ^ 0x517c_c1b7_2722_0a95) ^ mix(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    #[inline]
    fn word(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(self, offset: usize, out: &mut [u8]) {
        self.walk(offset, out.len(), |at, bytes| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            true
        });
    }

    /// The place of the first byte of `bytes` that is not as it should be, if `bytes` begins at `offset`.
    pub fn mismatch(self, offset: usize, bytes: &[u8]) -> Option<usize> {
        let mut bad = None;
        self.walk(offset, bytes.len(), |at, want| {
            let got = &bytes[at..at + want.len()];
            if got != want {
                bad = got.iter().zip(want).position(|(a, b)| a != b).map(|i| at + i);
            }
            bad.is_none()
        });
        bad
    }

    /// The first bytes, at most 8, of a message of `len` bytes, as a number.
    pub fn prefix(self, len: usize) -> u64 {
        let mut bytes = [0; 8];
        self.fill(0, &mut bytes[..len.min(8)]);
        u64::from_le_bytes(bytes)
    }

    #[inline]
    fn walk(self, offset: usize, len: usize, mut each: impl FnMut(usize, &[u8]) -> bool) {
        let mut at = 0;
        while at < len {
            let absolute = offset + at;
            let word = self.word((absolute / 8) as u64).to_le_bytes();
            let from = absolute % 8;
            let n = (8 - from).min(len - at);
            if !each(at, &word[from..from + n]) {
                return;
            }
            at += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_of_a_message_is_the_same_wherever_it_is_cut() {
        let pattern = Pattern::of(7, 42);
        let mut whole = [0; 100];
        pattern.fill(0, &mut whole);
        for (from, to) in [(0, 100), (1, 9), (7, 8), (8, 8), (13, 77)] {
            let mut part = vec![0; to - from];
            pattern.fill(from, &mut part);
            assert_eq!(part, whole[from..to]);
            assert_eq!(pattern.mismatch(from, &part), None);
        }
    }

    #[test]
    fn a_changed_byte_is_found() {
        let pattern = Pattern::of(1, 2);
        let mut bytes = [0; 40];
        pattern.fill(3, &mut bytes);
        bytes[29] ^= 1;
        assert_eq!(pattern.mismatch(3, &bytes), Some(29));
    }
}
