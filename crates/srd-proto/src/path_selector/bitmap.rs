//! All paths in turn, leaving out those that carry a penalty (uet-htsim's bitmap selector, `uec_mp.cpp`): the first one
//! left out in each search works off a step, so that no path is shunned for ever.

use super::oblivious::Oblivious;
use super::{AckedPath, Candidates, Choice, PathSelector};
use srd_wire::{PathId, Time};

/// Steps for a congestion mark, a loss and a timeout. docs/design/path-selection.md, "Bitmap".
const MARK: u8 = 1;
const LOSS: u8 = 4;
const TIMEOUT: u8 = 15;
/// Most steps (uet-htsim, `_max_penalty`).
pub(super) const CEILING: u8 = 15;

/// See the module.
pub(super) struct Bitmap {
    penalties: Vec<u8>,
    sweep: Oblivious,
}

impl Bitmap {
    pub(super) fn new(paths: u16, salt: u64) -> Bitmap {
        Bitmap { penalties: vec![0; paths as usize], sweep: Oblivious::new(paths, salt) }
    }

    pub(super) fn penalty(&self, path: PathId) -> u8 {
        self.penalties[path.0 as usize]
    }

    fn penalise(&mut self, path: PathId, steps: u8) {
        let penalty = &mut self.penalties[path.0 as usize];
        *penalty = (*penalty + steps).min(CEILING);
    }
}

impl PathSelector for Bitmap {
    fn pick(&mut self, from: &Candidates) -> PathId {
        let (penalties, mut worked_off) = (&mut self.penalties, false);
        self.sweep.sweep(from, |path| {
            let penalty = &mut penalties[path.0 as usize];
            let clean = *penalty == 0;
            *penalty -= (!clean && !worked_off) as u8;
            worked_off = true;
            clean
        })
    }

    fn last_choice(&self) -> Choice {
        Choice::by("sweep")
    }

    fn on_ack(&mut self, acked: &AckedPath) {
        // A late packet counts as a marked one: most networks do not mark.
        if acked.ce || !acked.early {
            self.penalise(acked.path, MARK);
        }
    }

    fn on_loss(&mut self, _: Time, path: PathId) {
        self.penalise(path, LOSS);
    }

    fn on_timeout(&mut self, _: Time, path: PathId) {
        self.penalise(path, TIMEOUT);
    }

    fn on_reroll(&mut self, path: PathId) {
        self.penalties[path.0 as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Field, acked};
    use super::*;

    #[test]
    fn a_path_is_left_out_as_often_as_it_has_steps() {
        for (steps, fault) in [(1, 0), (4, 1), (15, 2)] {
            let field = Field::new(2);
            let mut bitmap = Bitmap::new(2, 1);
            match fault {
                0 => bitmap.on_ack(&AckedPath { ce: true, ..acked(0, PathId(0)) }),
                1 => bitmap.on_loss(Time(0), PathId(0)),
                _ => bitmap.on_timeout(Time(0), PathId(0)),
            }
            assert_eq!(bitmap.penalty(PathId(0)), steps);
            let mut left_out = 0;
            while bitmap.pick(&field.all(0)) == PathId(1) {
                left_out += 1;
            }
            // Each sweep of the two paths leaves it out once, until its steps are worked off.
            assert!((steps..=2 * steps + 1).contains(&left_out), "{steps} steps: left out {left_out} times");
        }
    }

    #[test]
    fn where_all_paths_have_penalties_one_is_taken_all_the_same() {
        let field = Field::new(8);
        let mut bitmap = Bitmap::new(8, 1);
        (0..8).for_each(|path| bitmap.on_timeout(Time(0), PathId(path)));
        assert!(field.usable.contains(bitmap.pick(&field.all(0))));
    }
}
