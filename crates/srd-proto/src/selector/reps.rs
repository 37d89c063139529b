//! Recycled entropies (REPS): a path whose ACK came back early is taken again; with none at hand, the sweep goes on,
//! leaving out paths with penalties. CC_FINDINGS, "Paths"; arXiv 2407.21625.

use super::oblivious::Oblivious;
use super::{PathSelector, PathSet};
use srd_wire::{PathId, Time};

/// Good paths remembered. CC_FINDINGS: 4 to 64 make no difference.
const RING: usize = 8;
/// Steps for a loss and for a timeout, and the ceiling. CC_FINDINGS, "Paths"; ceiling as in htsim's bitmap selector.
const LOSS: u8 = 1;
const TIMEOUT: u8 = 4;
const CEILING: u8 = 15;

/// See the module.
pub(super) struct Reps {
    ring: [PathId; RING],
    oldest: usize,
    count: usize,
    penalties: Vec<u8>,
    sweep: Oblivious,
}

impl Reps {
    pub(super) fn new(paths: u16, salt: u64) -> Reps {
        Reps {
            ring: [PathId(0); RING],
            oldest: 0,
            count: 0,
            penalties: vec![0; paths as usize],
            sweep: Oblivious::new(paths, salt),
        }
    }

    fn penalise(&mut self, path: PathId, steps: u8) {
        let penalty = &mut self.penalties[path.0 as usize];
        *penalty = (*penalty + steps).min(CEILING);
    }
}

impl PathSelector for Reps {
    fn pick(&mut self, _: Time, usable: &PathSet, avoid: Option<PathId>) -> PathId {
        while self.count > 0 {
            let path = self.ring[self.oldest];
            self.oldest = (self.oldest + 1) % RING;
            self.count -= 1;
            if usable.contains(path) && Some(path) != avoid && self.penalties[path.0 as usize] == 0 {
                return path;
            }
        }
        let penalties = &mut self.penalties;
        let path = self.sweep.sweep(usable, |path| Some(path) != avoid && penalties[path.0 as usize] == 0);
        // A penalised path that had to be taken works its penalty off, so that no path is shunned for ever.
        penalties[path.0 as usize] = penalties[path.0 as usize].saturating_sub(1);
        path
    }

    fn on_ack(&mut self, path: PathId, early: bool) {
        let penalty = &mut self.penalties[path.0 as usize];
        *penalty = penalty.saturating_sub(1);
        if early && *penalty == 0 {
            if self.count == RING {
                self.oldest = (self.oldest + 1) % RING;
                self.count -= 1;
            }
            self.ring[(self.oldest + self.count) % RING] = path;
            self.count += 1;
        }
    }

    fn on_loss(&mut self, path: PathId) {
        self.penalise(path, LOSS);
    }

    fn on_timeout(&mut self, path: PathId) {
        self.penalise(path, TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_path_is_taken_again_and_a_lossy_one_is_not() {
        let usable = PathSet::first(16);
        let mut reps = Reps::new(16, 1);
        reps.on_ack(PathId(7), true);
        assert_eq!(reps.pick(Time(0), &usable, None), PathId(7));
        reps.on_ack(PathId(7), true);
        reps.on_loss(PathId(7));
        assert_ne!(reps.pick(Time(0), &usable, None), PathId(7));
    }

    #[test]
    fn a_sweep_visits_every_usable_path_once() {
        let mut usable = PathSet::first(10);
        usable.remove(PathId(3));
        let mut reps = Reps::new(10, 5);
        let mut seen: Vec<u8> = (0..9).map(|_| reps.pick(Time(0), &usable, None).0).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    }
}
