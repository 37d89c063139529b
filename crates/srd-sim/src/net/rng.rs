//! Random numbers that do not depend on the order in which hosts and ports come to draw them.

use rand::SeedableRng;
use rand::rngs::SmallRng;

/// The source of the `n`-th number of `whom` in a run with this seed.
pub(crate) fn source(seed: u64, whom: u32, n: u32) -> SmallRng {
    // Spread over all bits first: two runs with neighbouring seeds must not draw the same numbers in another order.
    let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    SmallRng::seed_from_u64(seed ^ (whom as u64) << 32 ^ n as u64)
}

/// Finaliser of MurmurHash3 (Appleby): every bit of the input moves every bit of the output.
#[inline]
pub(crate) fn mix(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85EB_CA6B);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xC2B2_AE35);
    hash ^ (hash >> 16)
}
