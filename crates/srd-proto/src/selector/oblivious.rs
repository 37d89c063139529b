//! All usable paths in turn, each sweep in another order: the counter is XORed with a number that changes per sweep,
//! as htsim's oblivious spraying does.

use super::{PathSelector, PathSet};
use srd_wire::{PathId, Time};

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

    /// The first slot of the sweep that `fits`, or any usable one.
    pub(super) fn sweep(&mut self, usable: &PathSet, fits: impl Fn(PathId) -> bool) -> PathId {
        let mut fallback = None;
        for _ in 0..2 * self.paths {
            let path = self.step();
            if usable.contains(path) {
                if fits(path) {
                    return path;
                }
                fallback = Some(path);
            }
        }
        fallback.unwrap_or_default()
    }
}

impl PathSelector for Oblivious {
    fn pick(&mut self, _: Time, usable: &PathSet, avoid: Option<PathId>) -> PathId {
        self.sweep(usable, |path| Some(path) != avoid)
    }

    fn on_ack(&mut self, _: PathId, _: bool) {}

    fn on_loss(&mut self, _: PathId) {}

    fn on_timeout(&mut self, _: PathId) {}
}
