//! Random numbers of workloads: SplitMix64 (Steele, Lea and Flood, 2014), so that a seed means the same flows on every
//! machine and with every version of any library.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Draw {
    state: u64,
}

/// SplitMix64's increment, the golden ratio in 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Draw {
    /// The stream of `seed` for `purpose`: other workloads leave it as it is.
    pub fn of(seed: u64, purpose: u64) -> Draw {
        Draw { state: mix(mix(seed.wrapping_add(GOLDEN)) ^ purpose.wrapping_mul(GOLDEN)) }
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        ((mix(self.state) as u128 * n as u128) >> 64) as u64
    }

    /// Every order of `items` is as likely as any other (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A permutation of 0 to `n - 1` that leaves nothing in its place; `n` must not be 1. Each is as likely as any
    /// other: orders are drawn until one fits, which takes e attempts on average.
    pub fn derangement(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        loop {
            self.shuffle(&mut order);
            if order.iter().enumerate().all(|(place, &item)| place as u32 != item) {
                return order;
            }
        }
    }
}
