//! The content check: every message carries its number and bytes that follow from it, so that a receiver, whom
//! messages reach in any order, knows what to expect.

/// A message that is looked at in pieces is cut between words.
pub const WORD: usize = size_of::<u64>();

/// Writes the pattern of message `number`.
pub fn fill(message: &mut [u8], number: u64) {
    fill_part(message, 0, message.len(), number);
}

/// Writes what a message of `size` bytes has from its byte `from` on, where a word begins.
pub fn fill_part(part: &mut [u8], from: usize, size: usize, number: u64) {
    for (index, chunk) in part.chunks_mut(WORD).enumerate() {
        chunk.copy_from_slice(&word(number, from / WORD + index, size)[..chunk.len()]);
    }
}

/// The number that a message begins with. Messages shorter than a word have no room for one; theirs is `None`.
pub fn number(beginning: &[u8]) -> Option<u64> {
    beginning.first_chunk().map(|first| u64::from_le_bytes(*first))
}

/// Whether a message of `size` bytes with this number has these bytes from its byte `from` on, where a word begins.
pub fn check_part(part: &[u8], from: usize, size: usize, number: Option<u64>) -> Result<(), Corrupt> {
    for (index, found) in part.chunks(WORD).enumerate() {
        let index = from / WORD + index;
        if *found != word(number.unwrap_or(0), index, size)[..found.len()] {
            return Err(Corrupt { byte: index * WORD });
        }
    }
    Ok(())
}

/// Word `index` of message `number`: the first is the number itself.
fn word(number: u64, index: usize, size: usize) -> [u8; WORD] {
    match index {
        0 if size < WORD => *b"SRDSRDSR",
        0 => number.to_le_bytes(),
        // The golden ratio's odd multiple (as in SplitMix64) makes the words of all messages differ.
        _ => (number ^ 0x6a09_e667_f3bc_c908)
            .wrapping_add(index as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes(),
    }
}

/// Bytes that are not what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt {
    byte: usize,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the content differs from what was sent, from byte {} on", self.byte)
    }
}

impl std::error::Error for Corrupt {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &[u8]) -> Result<Option<u64>, Corrupt> {
        let number = number(message);
        check_part(message, 0, message.len(), number).map(|()| number)
    }

    #[test]
    fn pieces_make_the_same_message() {
        let (mut whole, mut pieces) = (vec![0; 100], vec![0; 100]);
        fill(&mut whole, 9);
        pieces.chunks_mut(24).enumerate().for_each(|(index, piece)| fill_part(piece, 24 * index, 100, 9));
        assert_eq!(pieces, whole);
        assert_eq!(check_part(&whole[24..], 24, 100, Some(9)), Ok(()));
        assert_eq!(check_part(&whole[24..], 32, 100, Some(9)), Err(Corrupt { byte: 32 }));
    }

    #[test]
    fn what_is_filled_checks() {
        for size in [0, 1, 7, 8, 9, 4096, 8191] {
            let mut message = vec![0; size];
            fill(&mut message, 77);
            assert_eq!(check(&message), Ok((size >= 8).then_some(77)), "size {size}");
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let mut message = vec![0; 21];
        fill(&mut message, 5);
        for bit in 0..21 * 8 {
            message[bit / 8] ^= 1 << (bit % 8);
            // A flipped bit of the number makes every other word wrong.
            assert!(check(&message).is_err(), "bit {bit}");
            message[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
