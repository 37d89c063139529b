//! The generator behind every draw: SplitMix64, so that a seed means the same run on every machine and with every
//! version of any library. Each purpose has a stream of its own: to switch one fault off leaves the draws of the
//! others as they were, which is what lets a failing plan be made smaller.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

/// SplitMix64's output function: a bijection that spreads every bit over the whole word.
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// The stream of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: u64) -> Rng {
        Rng { state: mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ mix(purpose ^ 0x5851_f42d_4c95_7f2d) }
    }

    /// The next 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `n`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.word() as u128 * n as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from `low` to `high` whose logarithm is evenly spread: as often small as large.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        if high <= low {
            return low;
        }
        let bits = 63 - (high / low).leading_zeros();
        let shift = self.below(bits as u64 + 1);
        let base = low << shift;
        self.within(base, base.saturating_mul(2).min(high))
    }

    /// True `ppm` times in a million.
    #[inline]
    pub fn ppm(&mut self, ppm: u64) -> bool {
        ppm != 0 && self.below(1_000_000) < ppm
    }

    /// True `percent` times in a hundred.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        percent != 0 && self.below(100) < percent
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A time with mean `mean`, from 0 to 4 times that: mostly short, sometimes long.
    pub fn around(&mut self, mean: u64) -> u64 {
        let u = self.below(1 << 20);
        // The square of a uniform number has mean 1/3.
        ((mean as u128 * 3 * (u * u) as u128) >> 40) as u64
    }
}
