//! A hash for the tables whose keys come from peers: addresses, tags, numbers. It is keyed, so that nobody who cannot
//! see the key can choose keys that share a bucket, and all bits of a word reach all bits of the result, so that tags
//! that differ only far up do not.
//!
//! Multiply and fold, as wyhash and foldhash do it. Those crates keep the multiplier, or all of the secret, in a static;
//! here both words belong to a device and follow from its seed, so that a run can be repeated.

use std::hash::{BuildHasher, Hasher};

/// Makes the hashers of a table. There is no default: a table without a secret would be open to whoever fills it.
#[derive(Clone, Copy, Debug)]
pub struct KeyedHash {
    start: u64,
    multiplier: u64,
}

impl KeyedHash {
    /// From a seed that peers do not know.
    pub fn new(seed: u64) -> KeyedHash {
        // Odd: a product with them loses nothing.
        KeyedHash { start: mix(seed) | 1, multiplier: mix(seed.wrapping_add(STEP)) | 1 }
    }
}

/// 2^64 divided by the golden ratio: splitmix64's step.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl BuildHasher for KeyedHash {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.start, start: self.start, multiplier: self.multiplier }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct KeyedHasher {
    state: u64,
    start: u64,
    multiplier: u64,
}

/// Both halves of a product, one upon the other.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for KeyedHasher {
    /// A word that equals the state leaves 0, whatever came before. Who does not know the state cannot send it.
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.multiplier);
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.write_u64(u64::from_le_bytes(word)));
        rest.iter().for_each(|&byte| self.write_u8(byte));
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    /// Once more: after one product, words at equal distances are not spread evenly by every multiplier.
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Words that lie in one place, as hashbrown sees it: the low bits name the bucket, the seven at the top tell
    /// entries of one bucket apart.
    fn most_in_a_place(seed: u64, words: impl Iterator<Item = u64>) -> usize {
        let hash = KeyedHash::new(seed);
        let mut places = vec![0; 1 << 10];
        let mut marks = HashSet::new();
        for word in words {
            let hashed = hash.hash_one(word);
            places[hashed as usize & 1023] += 1;
            marks.insert(hashed >> 57);
        }
        assert_eq!(marks.len(), 128, "all marks are in use");
        places.into_iter().max().unwrap()
    }

    #[test]
    fn keys_that_differ_anywhere_spread() {
        for seed in 0..50 {
            for shift in 0..50 {
                // 10,240 over 1,024 places: 10 each; 35 in one is the chance of 10^-9 if they fall at random.
                let most = most_in_a_place(seed, (0..10_240).map(|i| i << shift));
                assert!(most <= 40, "seed {seed}: {most} of the tags i << {shift} share a place");
            }
        }
    }

    #[test]
    fn another_seed_is_another_hash() {
        let (a, b) = (KeyedHash::new(1), KeyedHash::new(2));
        assert!((0..1000u64).all(|word| a.hash_one(word) != b.hash_one(word)));
        assert_eq!(a.hash_one([1u8; 16]), KeyedHash::new(1).hash_one([1u8; 16]));
    }
}
