//! All usable paths in turn, each sweep in another order: the counter is XORed with a number that changes per sweep,
//! as htsim's oblivious spraying does.

use super::{Candidates, Choice, PathSelector};
use srd_wire::PathId;

/// See the module.
pub(super) struct Oblivious {
    paths: u16,
    next: u16,
    mask: u16,
    salt: u64,
}

impl Oblivious {
    pub(super) fn new(paths: u16, salt: u64) -> Oblivious {
        Oblivious { paths, next: 0, mask: 0, salt }
    }

    /// The next slot of the sweep, usable or not.
    fn step(&mut self) -> PathId {
        let span = self.paths.next_power_of_two();
        loop {
            if self.next == 0 {
                // splitmix64's increment and one of its multipliers: any good mixing would do.
                self.salt = self.salt.wrapping_add(0x9E37_79B9_7F4A_7C15);
                self.mask = ((self.salt ^ (self.salt >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40)
                    as u16
                    & (span - 1);
            }
            let slot = self.next ^ self.mask;
            self.next = (self.next + 1) % span;
            if slot < self.paths {
                return PathId(slot as u8);
            }
        }
    }

    /// The first slot of the sweep that is a candidate and that `clean` does not object to; failing that, any candidate.
    pub(super) fn sweep(&mut self, from: &Candidates, mut clean: impl FnMut(PathId) -> bool) -> PathId {
        let (mut fallback, mut last_resort) = (None, None);
        for _ in 0..2 * self.paths {
            let path = self.step();
            if from.fits(path) {
                if clean(path) {
                    return path;
                }
                fallback = fallback.or(Some(path));
            } else if from.usable.contains(path) {
                last_resort = Some(path);
            }
        }
        fallback.or(last_resort).unwrap_or_default()
    }
}

impl PathSelector for Oblivious {
    fn pick(&mut self, from: &Candidates) -> PathId {
        self.sweep(from, |_| true)
    }

    fn last_choice(&self) -> Choice {
        Choice::by("sweep")
    }
}
