//! Power of two choices by round trip: of two random paths the one with the lower score, which is its smoothed round trip
//! and what it has done wrong. Sources: docs/design/path-selection.md, "Power of two choices".
//!
//! UCCL chooses so among queue pairs, by the last raw sample, and a path without a sample counts as 0 there and always
//! wins. Here a path that has not been sampled of late counts as the median of those that have; now and then such a path
//! is taken for the sake of a sample; and no path holds more than twice its share of what is in flight.

use super::{AckedPath, Candidates, Choice, PathSelector, PathSet};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, PathId, Time};

/// One choice in so many explores.
const EXPLORE: u32 = 32;
/// Round trips after which a sample is stale.
const STALE_ROUNDS: f32 = 8.0;
/// Steps for a congestion mark, a loss and a timeout, and the ceiling: the bitmap's.
const MARK: u8 = 1;
const LOSS: u8 = 4;
const TIMEOUT: u8 = 15;
pub(super) const CEILING: u8 = 15;
/// Steps that weigh as much as one base round trip: a path that has timed out ranks behind any that is merely queued
/// (15 steps are nearly four round trips). [to be settled by sweep]
const STEPS_PER_ROUND: f32 = 4.0;
/// Weight of a new sample: a path gets few of them.
const GAIN: f32 = 0.25;
/// Packets that any path may hold, whatever its share.
const TOKENS: u32 = 2;

#[derive(Clone, Copy, Default)]
struct Score {
    /// Smoothed round trip in nanoseconds; meaningless without a sample.
    rtt: f32,
    /// Zero: never.
    sampled: Time,
    penalty: u8,
}

/// See the module.
pub(super) struct RttP2c {
    scores: Vec<Score>,
    /// Smoothed round trip over all paths: the unit in which samples age.
    rtt: f32,
    step: f32,
    median: f32,
    median_at: Time,
    /// For working out the median.
    sorted: Vec<f32>,
    rng: SmallRng,
    choice: Choice,
}

impl RttP2c {
    pub(super) fn new(paths: u16, base_rtt: Nanos, salt: u64) -> RttP2c {
        let base = base_rtt.as_f64() as f32;
        RttP2c {
            scores: vec![Score::default(); paths as usize],
            rtt: base,
            step: base / STEPS_PER_ROUND,
            median: base,
            median_at: Time(0),
            sorted: Vec::with_capacity(paths as usize),
            rng: SmallRng::seed_from_u64(salt),
            choice: Choice::by("only one"),
        }
    }

    #[cfg(test)]
    pub(super) fn penalty(&self, path: PathId) -> u8 {
        self.scores[path.0 as usize].penalty
    }

    fn is_fresh(&self, now: Time, path: PathId) -> bool {
        let sampled = self.scores[path.0 as usize].sampled;
        sampled > Time(0) && (now.since(sampled).0 as f32) <= STALE_ROUNDS * self.rtt
    }

    fn score(&self, now: Time, path: PathId) -> f32 {
        let score = &self.scores[path.0 as usize];
        let rtt = if self.is_fresh(now, path) { score.rtt } else { self.median };
        rtt + score.penalty as f32 * self.step
    }

    /// Works out the median of the fresh paths, once in a round trip.
    fn refresh_median(&mut self, now: Time) {
        if (now.since(self.median_at).0 as f32) < self.rtt {
            return;
        }
        self.median_at = now;
        self.sorted.clear();
        for i in 0..self.scores.len() {
            if self.is_fresh(now, PathId(i as u8)) {
                self.sorted.push(self.scores[i].rtt);
            }
        }
        if !self.sorted.is_empty() {
            let middle = self.sorted.len() / 2;
            self.median = *self.sorted.select_nth_unstable_by(middle, f32::total_cmp).1;
        }
    }

    /// The first from a random place on that `fits`.
    fn random(&mut self, paths: u16, fits: impl Fn(&RttP2c, PathId) -> bool) -> Option<PathId> {
        let start = self.rng.random_range(0..paths);
        (0..paths).map(|i| PathId(((start + i) % paths) as u8)).find(|&path| fits(self, path))
    }

    fn take(&mut self, rule: &'static str, path: PathId) -> PathId {
        self.choice = Choice::by(rule);
        path
    }
}

fn any(usable: &PathSet) -> PathId {
    (0..=255).map(PathId).find(|&path| usable.contains(path)).unwrap_or_default()
}

impl PathSelector for RttP2c {
    fn pick(&mut self, from: &Candidates) -> PathId {
        self.refresh_median(from.now);
        let paths = from.load.paths();
        let tokens = TOKENS.max(2 * from.load.total() / from.usable.len().max(1));
        if self.rng.random_range(0..EXPLORE) == 0
            && let Some(path) =
                self.random(paths, |all, path| from.fits(path) && !all.is_fresh(from.now, path))
        {
            return self.take("explored", path);
        }
        let free = |_: &RttP2c, path: PathId| from.fits(path) && from.load.on(path) <= tokens;
        let Some(one) = self.random(paths, free) else {
            let path = self.random(paths, |_, path| from.fits(path)).unwrap_or_else(|| any(from.usable));
            return self.take("no token", path);
        };
        let Some(two) = self.random(paths, |all, path| path != one && free(all, path)) else {
            return self.take("only one", one);
        };
        let (first, second) = (self.score(from.now, one), self.score(from.now, two));
        let (best, other) = if second < first { (two, one) } else { (one, two) };
        self.choice = Choice {
            rule: "lower score",
            other: Some(other),
            score: first.min(second),
            other_score: first.max(second),
        };
        best
    }

    fn last_choice(&self) -> Choice {
        self.choice
    }

    fn on_ack(&mut self, acked: &AckedPath) {
        let fresh = self.is_fresh(acked.now, acked.path);
        let score = &mut self.scores[acked.path.0 as usize];
        score.penalty = if acked.ce {
            (score.penalty + MARK).min(CEILING)
        } else {
            score.penalty.saturating_sub(acked.early as u8)
        };
        let Some(rtt) = acked.rtt else { return };
        let rtt = rtt.as_f64() as f32;
        score.rtt = if fresh { score.rtt + GAIN * (rtt - score.rtt) } else { rtt };
        score.sampled = acked.now;
        self.rtt += (rtt - self.rtt) / 8.0;
    }

    fn on_loss(&mut self, _: Time, path: PathId) {
        let penalty = &mut self.scores[path.0 as usize].penalty;
        *penalty = (*penalty + LOSS).min(CEILING);
    }

    fn on_timeout(&mut self, _: Time, path: PathId) {
        let penalty = &mut self.scores[path.0 as usize].penalty;
        *penalty = (*penalty + TIMEOUT).min(CEILING);
    }

    fn on_reroll(&mut self, path: PathId) {
        self.scores[path.0 as usize] = Score::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Field, acked};
    use super::*;

    const BASE: Nanos = Nanos::from_micros(14);

    fn sample(selector: &mut RttP2c, now: u64, path: u8, rtt_us: u64) {
        selector.on_ack(&AckedPath { rtt: Some(Nanos::from_micros(rtt_us)), ..acked(now, PathId(path)) });
    }

    fn shares(selector: &mut RttP2c, field: &Field, now: u64) -> Vec<u32> {
        let mut taken = vec![0; field.usable.len() as usize];
        (0..3200).for_each(|_| taken[selector.pick(&field.all(now)).0 as usize] += 1);
        taken
    }

    #[test]
    fn of_two_paths_the_faster_one_is_taken() {
        let field = Field::new(2);
        let mut selector = RttP2c::new(2, BASE, 1);
        sample(&mut selector, 1000, 0, 14);
        sample(&mut selector, 1000, 1, 20);
        assert_eq!(shares(&mut selector, &field, 2000), [3200, 0]);
    }

    #[test]
    fn a_path_without_a_sample_is_neither_preferred_nor_shunned() {
        let field = Field::new(3);
        let mut selector = RttP2c::new(3, BASE, 1);
        for _ in 0..20 {
            sample(&mut selector, 1000, 0, 14);
            sample(&mut selector, 1000, 1, 30);
        }
        // It counts as the median, which of two is the slower one; the faster path beats it.
        let taken = shares(&mut selector, &field, 100_000);
        assert!(taken[0] > 2 * taken[2] && taken[2] > 100, "{taken:?}");
    }

    #[test]
    fn a_stale_path_is_explored() {
        let field = Field::new(2);
        let mut selector = RttP2c::new(2, BASE, 1);
        sample(&mut selector, 1000, 1, 1000); // so slow that it is never chosen
        let later = 50_000_000;
        sample(&mut selector, later, 0, 14);
        assert!(shares(&mut selector, &field, later)[1] >= 50, "about one in 32");
    }

    #[test]
    fn no_path_takes_more_than_twice_its_share_of_what_is_in_flight() {
        let mut field = Field::new(16);
        let mut selector = RttP2c::new(16, BASE, 1);
        (0..16).for_each(|path| sample(&mut selector, 1000, path, if path == 5 { 14 } else { 50 }));
        for _ in 0..160 {
            let path = selector.pick(&field.all(2000));
            field.load.add(path);
        }
        let most = (0..16).map(|path| field.all(0).load.on(PathId(path))).max().unwrap();
        assert!((17..=21).contains(&most), "{most} of 160 packets on one of 16 paths");
    }

    #[test]
    fn a_timeout_weighs_more_than_a_queue() {
        let field = Field::new(2);
        let mut selector = RttP2c::new(2, BASE, 1);
        sample(&mut selector, 1000, 0, 14);
        sample(&mut selector, 1000, 1, 50);
        selector.on_timeout(Time(1000), PathId(0));
        assert_eq!(shares(&mut selector, &field, 2000), [0, 3200]);
    }
}
