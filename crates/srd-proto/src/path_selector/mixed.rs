//! Recycles the paths whose ACKs came back early, as REPS does; with none at hand, sweeps as the bitmap does
//! (uet-htsim's default, `UecMpMixed`).

use super::bitmap::Bitmap;
use super::recent::RecentPaths;
use super::{AckedPath, Candidates, Choice, PathSelector};
use srd_wire::{PathId, Time};

/// See the module.
pub(super) struct Mixed {
    recent: RecentPaths,
    bitmap: Bitmap,
    recycled: bool,
}

impl Mixed {
    pub(super) fn new(paths: u16, salt: u64) -> Mixed {
        Mixed { recent: RecentPaths::default(), bitmap: Bitmap::new(paths, salt), recycled: false }
    }
}

impl PathSelector for Mixed {
    fn pick(&mut self, from: &Candidates) -> PathId {
        while let Some(path) = self.recent.pop() {
            if from.fits(path) && self.bitmap.penalty(path) == 0 {
                self.recycled = true;
                return path;
            }
        }
        self.recycled = false;
        self.bitmap.pick(from)
    }

    fn last_choice(&self) -> Choice {
        if self.recycled { Choice::by("recycled") } else { self.bitmap.last_choice() }
    }

    fn on_ack(&mut self, acked: &AckedPath) {
        self.bitmap.on_ack(acked);
        if acked.early && !acked.ce {
            self.recent.push(acked.path);
        }
    }

    fn on_loss(&mut self, now: Time, path: PathId) {
        self.bitmap.on_loss(now, path);
    }

    fn on_timeout(&mut self, now: Time, path: PathId) {
        self.bitmap.on_timeout(now, path);
    }

    fn on_reroll(&mut self, path: PathId) {
        self.bitmap.on_reroll(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Field, acked};
    use super::*;

    #[test]
    fn an_early_path_is_taken_once_more_and_then_the_sweep_goes_on() {
        let field = Field::new(16);
        let mut mixed = Mixed::new(16, 1);
        mixed.on_ack(&acked(0, PathId(7)));
        assert_eq!(mixed.pick(&field.all(0)), PathId(7));
        let mut swept: Vec<u8> = (0..16).map(|_| mixed.pick(&field.all(0)).0).collect();
        swept.sort_unstable();
        assert_eq!(swept, (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn an_early_path_that_timed_out_since_is_not_recycled() {
        let field = Field::new(16);
        let mut mixed = Mixed::new(16, 1);
        mixed.on_ack(&acked(0, PathId(7)));
        mixed.on_timeout(Time(0), PathId(7));
        assert!((0..15).all(|_| mixed.pick(&field.all(0)) != PathId(7)));
    }
}
