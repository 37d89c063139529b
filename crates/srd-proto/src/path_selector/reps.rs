//! Recycled entropies (REPS): a path whose ACK came back early is taken again; with none at hand, the sweep goes on,
//! leaving out paths with penalties. Sources: arXiv 2407.21625; docs/design/path-selection.md, "REPS".
//!
//! When a path goes down, others that share its link may be dead too. Until that is known, only paths that are known to
//! work are taken, one after the other (REPS calls this freezing; it needs no trimming here, since a path that is down
//! has failed a probe of its own). It is a precaution: where whole uplinks die at once (scenarios dead-uplink and
//! black-hole) the path table is quick enough that freezing changes nothing, neither there nor without faults.

use super::oblivious::Oblivious;
use super::recent::RecentPaths;
use super::{AckedPath, Candidates, Choice, PathSelector};
use srd_wire::{Nanos, PathId, Time};

/// Steps for a loss and for a timeout, and the ceiling: docs/design/path-selection.md, "REPS".
const LOSS: u8 = 1;
const TIMEOUT: u8 = 4;
const CEILING: u8 = 15;
/// Steps for an ACK that is late: later than the quickest of the last answers by so many base round trips. Some flow that cannot
/// move, or a slow cable, is on that path, and a message waits for its last packet.
const LATE: u8 = 8;
const LATE_BY: f64 = 1.6;
/// Answers, of any path, of which the quickest counts.
const ANSWERS: usize = 16;
/// Base round trips that freezing lasts after the last path has gone down: long enough for every path that was in use to
/// time out and be asked. htsim stays for 10 ms, some 700 round trips, and then forgets all; a path table that asks each
/// path by itself needs no such quarantine.
const FROZEN_ROUNDS: u64 = 16;
/// Packets in a row that take recycled paths. Then one goes on with the sweep: who has only ever tried paths over a slow
/// cable finds all of them usual.
const RECYCLED_AT_MOST: u32 = 32;
/// Known paths that it takes to freeze: with fewer, the load would be heaped on them.
const FREEZE_ON: usize = 4;

/// See the module.
pub(super) struct Reps {
    recent: RecentPaths,
    penalties: Vec<u8>,
    sweep: Oblivious,
    frozen_until: Time,
    frozen_span: Nanos,
    /// Packets since the last that went on with the sweep.
    recycled: u32,
    /// Round trips of the last answers, in a ring.
    answers: [Nanos; ANSWERS],
    next_answer: usize,
    late_by: Nanos,
    rule: &'static str,
}

impl Reps {
    pub(super) fn new(paths: u16, base_rtt: Nanos, salt: u64) -> Reps {
        Reps {
            recent: RecentPaths::default(),
            penalties: vec![0; paths as usize],
            sweep: Oblivious::new(paths, salt),
            frozen_until: Time(0),
            frozen_span: Nanos(FROZEN_ROUNDS * base_rtt.0),
            recycled: 0,
            answers: [Nanos(u64::MAX); ANSWERS],
            next_answer: 0,
            late_by: Nanos((LATE_BY * base_rtt.as_f64()) as u64),
            rule: "sweep",
        }
    }

    fn penalise(&mut self, path: PathId, steps: u8) {
        let penalty = &mut self.penalties[path.0 as usize];
        *penalty = (*penalty + steps).min(CEILING);
    }

    /// Whether a path has answered far later than others do.
    fn is_late(&mut self, rtt: Nanos) -> bool {
        self.answers[self.next_answer] = rtt;
        self.next_answer = (self.next_answer + 1) % ANSWERS;
        let quickest = self.answers.iter().copied().min().unwrap_or(rtt);
        rtt > quickest + self.late_by
    }

    fn is_clean(&self, path: PathId) -> bool {
        self.penalties[path.0 as usize] == 0
    }

    /// The next path known to work, which stays known.
    fn pick_frozen(&mut self, from: &Candidates) -> Option<PathId> {
        for _ in 0..self.recent.len() {
            let path = self.recent.pop()?;
            if self.is_clean(path) && from.usable.contains(path) {
                self.recent.push(path);
                if from.fits(path) {
                    return Some(path);
                }
            }
        }
        None
    }

    fn pick_recent(&mut self, from: &Candidates) -> Option<PathId> {
        while let Some(path) = self.recent.pop() {
            if from.fits(path) && self.is_clean(path) {
                return Some(path);
            }
        }
        None
    }
}

impl PathSelector for Reps {
    fn pick(&mut self, from: &Candidates) -> PathId {
        if from.now < self.frozen_until
            && let Some(path) = self.pick_frozen(from)
        {
            self.rule = "frozen";
            return path;
        }
        self.recycled += 1;
        if self.recycled < RECYCLED_AT_MOST
            && let Some(path) = self.pick_recent(from)
        {
            self.rule = "recycled";
            return path;
        }
        self.recycled = 0;
        self.rule = "sweep";
        let penalties = &mut self.penalties;
        // A penalised path that is passed over works its penalty off, so that none is shunned for ever.
        self.sweep.sweep(from, |path| {
            let penalty = &mut penalties[path.0 as usize];
            let clean = *penalty == 0;
            *penalty -= !clean as u8;
            clean
        })
    }

    fn last_choice(&self) -> Choice {
        Choice::by(self.rule)
    }

    fn on_ack(&mut self, acked: &AckedPath) {
        if acked.rtt.is_some_and(|rtt| self.is_late(rtt)) {
            return self.penalise(acked.path, LATE);
        }
        let penalty = &mut self.penalties[acked.path.0 as usize];
        *penalty = penalty.saturating_sub(1);
        let frozen = acked.now < self.frozen_until;
        if acked.early && !acked.ce && *penalty == 0 && !(frozen && self.recent.contains(acked.path)) {
            self.recent.push(acked.path);
        }
    }

    fn on_loss(&mut self, _: Time, path: PathId) {
        self.penalise(path, LOSS);
    }

    fn on_timeout(&mut self, _: Time, path: PathId) {
        self.penalise(path, TIMEOUT);
    }

    fn on_path_down(&mut self, now: Time, _: PathId) {
        let mut known = RecentPaths::default();
        while let Some(path) = self.recent.pop() {
            if self.is_clean(path) && !known.contains(path) {
                known.push(path);
            }
        }
        self.recent = known;
        if self.recent.len() >= FREEZE_ON {
            self.frozen_until = now + self.frozen_span;
        }
    }

    fn on_reroll(&mut self, path: PathId) {
        self.penalties[path.0 as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Field, acked};
    use super::*;
    use std::collections::BTreeSet;

    const BASE: Nanos = Nanos::from_micros(14);

    #[test]
    fn an_early_path_is_taken_again_and_a_lossy_one_is_not() {
        let field = Field::new(16);
        let mut reps = Reps::new(16, BASE, 1);
        reps.on_ack(&acked(0, PathId(7)));
        assert_eq!(reps.pick(&field.all(0)), PathId(7));
        reps.on_ack(&acked(0, PathId(7)));
        reps.on_loss(Time(0), PathId(7));
        assert_ne!(reps.pick(&field.all(0)), PathId(7));
    }

    #[test]
    fn a_sweep_visits_every_usable_path_once() {
        let mut field = Field::new(10);
        field.usable.remove(PathId(3));
        let mut reps = Reps::new(10, BASE, 5);
        let mut seen: Vec<u8> = (0..9).map(|_| reps.pick(&field.all(0)).0).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn while_frozen_only_known_good_paths_are_taken_and_afterwards_all() {
        let field = Field::new(64);
        let mut reps = Reps::new(64, BASE, 5);
        (10..16).for_each(|path| reps.on_ack(&acked(0, PathId(path))));
        reps.on_path_down(Time(0), PathId(3));
        let frozen: BTreeSet<u8> = (0..100).map(|_| reps.pick(&field.all(1000)).0).collect();
        assert_eq!(frozen, (10..16).collect());
        let later = FROZEN_ROUNDS * BASE.0;
        let thawed: BTreeSet<u8> = (0..100).map(|_| reps.pick(&field.all(later)).0).collect();
        assert_eq!(thawed.len(), 64);
    }

    #[test]
    fn a_path_that_times_out_while_frozen_is_left() {
        let field = Field::new(64);
        let mut reps = Reps::new(64, BASE, 5);
        (10..16).for_each(|path| reps.on_ack(&acked(0, PathId(path))));
        reps.on_path_down(Time(0), PathId(3));
        reps.on_timeout(Time(0), PathId(12));
        assert!((0..100).all(|_| reps.pick(&field.all(1000)) != PathId(12)));
    }

    #[test]
    fn a_path_that_answers_far_later_than_others_is_left_for_some_sweeps() {
        let field = Field::new(16);
        let mut reps = Reps::new(16, BASE, 5);
        let answer = |reps: &mut Reps, path, us| {
            let rtt = Some(Nanos::from_micros(us));
            reps.on_ack(&AckedPath { rtt, early: false, ..acked(0, PathId(path)) });
        };
        (0..8).for_each(|path| answer(&mut reps, path, 20));
        answer(&mut reps, 9, 90);
        let taken = |reps: &mut Reps| (0..64).filter(|_| reps.pick(&field.all(1000)) == PathId(9)).count();
        assert_eq!(taken(&mut reps), 0);
        for _ in 0..3 {
            taken(&mut reps);
        }
        assert!(taken(&mut reps) > 0, "it is tried again");
        // Where all are late, as before a receiver that many send to, none is.
        (0..16).for_each(|path| answer(&mut reps, path, 90));
        answer(&mut reps, 3, 91);
        assert!((0..64).any(|_| reps.pick(&field.all(2000)) == PathId(3)));
    }

    #[test]
    fn with_few_known_paths_it_does_not_freeze() {
        let field = Field::new(64);
        let mut reps = Reps::new(64, BASE, 5);
        (10..12).for_each(|path| reps.on_ack(&acked(0, PathId(path))));
        reps.on_path_down(Time(0), PathId(3));
        let taken: BTreeSet<u8> = (0..66).map(|_| reps.pick(&field.all(1000)).0).collect();
        assert_eq!(taken.len(), 64);
    }
}
