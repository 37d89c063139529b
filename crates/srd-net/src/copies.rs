//! A process may be copied without its knowledge: a snapshot of its machine is resumed, perhaps twice. Both copies have the
//! keys and counters of the moment, and what they seal next would have the same nonces. No system tells a program of
//! that in time, so here it is guessed from clocks, and a wrong guess costs each side a key derivation of 2 us per peer.
//!
//! What is found: a copy made while nothing was sent (the usual one: a machine that is prepared, then copied), and a resume
//! after which the machine's clock is set before the next packet leaves. What is not: packets that follow the moment of
//! the copy within [`IDLE`] (`docs/SECURITY.md`).

use crate::sys::process::monotonic_ns;
use rand::TryRngCore;
use rand::rngs::OsRng;
use srd_wire::seal::Keyring;
use srd_wire::{Nanos, Time};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

/// After so long without a packet the next one has new keys. With 2^20 leaps to take, an instance that sends a packet now and
/// then is covered for 12 days at least.
const IDLE: Nanos = Nanos::from_secs(1);
/// The clocks are compared this often.
const COMPARE_EVERY: Nanos = Nanos::from_millis(1);
/// Clocks that differ by this much more or less than before have been set. (Slewing moves both.)
const STEP_NS: u64 = 50_000_000;

/// Watches for signs that this process may be a copy.
#[derive(Default)]
pub struct Copies {
    /// When something was sealed last.
    sealed_at: Time,
    compared_at: Time,
    /// Real time less monotonic time.
    offset: u64,
}

impl Copies {
    /// A packet is about to be sealed at the time `now`.
    #[inline]
    pub fn before_sealing(&mut self, now: Time, keyring: &mut Keyring) {
        // A round has one time, and is over in microseconds.
        if now != self.sealed_at && self.is_suspect(now, || real_ns().wrapping_sub(monotonic_ns())) {
            keyring.leap(random());
        }
    }

    fn is_suspect(&mut self, now: Time, offset: impl FnOnce() -> u64) -> bool {
        let mut suspect = now.since(self.sealed_at) > IDLE;
        if now.since(self.compared_at) > COMPARE_EVERY {
            let offset = offset();
            let step = (offset.wrapping_sub(self.offset) as i64).unsigned_abs();
            suspect |= step > STEP_NS;
            (self.compared_at, self.offset) = (now, offset);
        }
        self.sealed_at = now;
        suspect
    }
}

fn real_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A number that two copies do not share: the kernel's generator, which starts anew where the hypervisor tells it of a copy,
/// and clocks, which go on apart in any case. It need not be secret.
fn random() -> u32 {
    let mut hasher = DefaultHasher::new();
    (OsRng.try_next_u64().unwrap_or(0), real_ns(), monotonic_ns()).hash(&mut hasher);
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watching(start: Time, offset: u64) -> Copies {
        let mut copies = Copies::default();
        copies.is_suspect(start, || offset);
        copies
    }

    const START: Time = Time(5_000_000_000);
    const OFFSET: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn a_flow_of_packets_keeps_its_keys() {
        let mut copies = watching(START, OFFSET);
        for ms in 1..5000 {
            let drift = ms / 100;
            assert!(!copies.is_suspect(START + Nanos::from_millis(ms), || OFFSET + drift), "after {ms} ms");
        }
        assert!(!copies.is_suspect(START + Nanos::from_millis(5999), || OFFSET));
    }

    #[test]
    fn what_follows_a_pause_has_other_keys() {
        let mut copies = watching(START, OFFSET);
        let later = START + Nanos::from_millis(1001);
        assert!(copies.is_suspect(later, || OFFSET));
        assert!(!copies.is_suspect(later + Nanos::from_millis(2), || OFFSET));
    }

    #[test]
    fn a_clock_that_was_set_means_other_keys() {
        for step in [60_000_000_i64, -60_000_000, 3_600_000_000_000] {
            let mut copies = watching(START, OFFSET);
            let set = OFFSET.wrapping_add(step as u64);
            assert!(copies.is_suspect(START + Nanos::from_millis(2), || set), "by {step} ns");
            assert!(!copies.is_suspect(START + Nanos::from_millis(4), || set));
        }
    }
}
