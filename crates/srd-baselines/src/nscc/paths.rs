//! Which path each packet takes: one of so many entropy values, that is, source ports.

use super::profile::Profile;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Time};
use std::collections::VecDeque;

/// How a path is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector {
    /// Each in turn, in an order that changes each time.
    Oblivious,
    /// The same, but those with bad marks are passed over (uet-htsim, uec_mp.cpp).
    Bitmap,
    /// Those that an ACK without a mark has named, else any (arXiv 2407.21625).
    Reps,
    /// Those that an ACK without a mark has named, else as the bitmap says: uet-htsim's default.
    Mixed,
    /// Each in turn, but those with a mark or a loss as MRC has it (`profile`).
    Profile,
}

/// What has been heard of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Good,
    Marked,
    Cut,
    TimedOut,
}

/// Most bad marks of a path, and what a timeout costs.
const MOST_PENALTY: u8 = 15;
/// What a cut packet costs; a mark costs one.
const CUT_PENALTY: u8 = 4;
/// Most paths that wait to be taken again. There are no more of them than packets in flight.
const MOST_RECYCLED: usize = 4096;

/// One flow's paths.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    selector: Selector,
    /// A power of two.
    count: u16,
    draws: SmallRng,
    turn: u16,
    shuffle: u16,
    penalties: Vec<u8>,
    recycled: VecDeque<u16>,
    ring: Ring,
    pub(super) profile: Profile,
}

impl Paths {
    /// `count` must be a power of two.
    pub(super) fn new(selector: Selector, count: u16, seed: u64) -> Paths {
        debug_assert!(count.is_power_of_two());
        let mut draws = SmallRng::seed_from_u64(seed);
        let shuffle = draws.random_range(0..count);
        let remembers = matches!(selector, Selector::Bitmap | Selector::Mixed);
        Paths {
            selector,
            count,
            draws,
            turn: 0,
            shuffle,
            penalties: vec![0; if remembers { count as usize } else { 0 }],
            recycled: VecDeque::new(),
            ring: Ring::default(),
            profile: Profile::new(if selector == Selector::Profile { count } else { 0 }),
        }
    }

    /// The next packet's path.
    pub(super) fn next(&mut self) -> u16 {
        match self.selector {
            Selector::Oblivious => self.step(),
            Selector::Bitmap => self.unpenalised(),
            Selector::Profile => {
                let next = (0..2 * self.count).find_map(|_| {
                    let place = self.step();
                    self.profile.usable(place)
                });
                next.unwrap_or_else(|| self.step())
            }
            Selector::Mixed => self.recycled.pop_front().unwrap_or_else(|| self.unpenalised()),
            Selector::Reps => {
                let any = self.draws.random_range(0..self.count);
                self.ring.next().unwrap_or(any)
            }
        }
    }

    /// Something has been heard of a path.
    pub(super) fn hear(&mut self, now: Time, path: u16, news: News) {
        if let Some(penalty) = self.penalties.get_mut(path as usize) {
            let more = match news {
                News::Good => 0,
                News::Marked => 1,
                News::Cut => CUT_PENALTY,
                News::TimedOut => MOST_PENALTY,
            };
            *penalty = (*penalty + more).min(MOST_PENALTY);
        }
        match self.selector {
            Selector::Mixed if news == News::Good && self.recycled.len() < MOST_RECYCLED => {
                self.recycled.push_back(path);
            }
            Selector::Reps => self.ring.hear(now, path, news),
            Selector::Profile => match news {
                News::Good => {}
                News::Marked | News::Cut => self.profile.congested(path),
                News::TimedOut => self.profile.lost(now, path),
            },
            _ => {}
        }
    }

    /// A probe of a path has come back.
    pub(super) fn works(&mut self, path: u16) {
        if self.selector == Selector::Profile {
            self.profile.works(path);
        }
    }

    /// Each path in turn; in another order each time.
    fn step(&mut self) -> u16 {
        let path = (self.turn ^ self.shuffle) & (self.count - 1);
        self.turn += 1;
        if self.turn == self.count {
            self.turn = 0;
            self.shuffle = self.draws.random_range(0..self.count);
        }
        path
    }

    /// The next path without bad marks. The first that is passed over loses one of its marks.
    fn unpenalised(&mut self) -> u16 {
        let mut path = self.step();
        if self.penalties[path as usize] > 0 {
            self.penalties[path as usize] -= 1;
            for _ in 0..self.count {
                path = self.step();
                if self.penalties[path as usize] == 0 {
                    break;
                }
            }
        }
        path
    }
}

/// Paths that REPS remembers.
const RING: usize = 8;
/// How long REPS keeps to them after a timeout, and how many packets then look for others (uet-htsim, buffer_reps.cpp).
const FROZEN: Nanos = Nanos::from_millis(10);
const EXPLORES: u32 = 16;

/// REPS's memory: the last paths that were good, each to be taken once; after a timeout again and again.
#[derive(Clone, Default, Debug)]
struct Ring {
    paths: [u16; RING],
    fresh: [bool; RING],
    /// Where the next goes.
    head: usize,
    filled: usize,
    fresh_count: usize,
    frozen_until: Option<Time>,
    frozen_turn: usize,
    explore: u32,
}

impl Ring {
    fn next(&mut self) -> Option<u16> {
        if self.explore > 0 {
            self.explore -= 1;
            return None;
        }
        let at = match self.frozen_until {
            Some(_) if self.filled > 0 => {
                let at = self.frozen_turn % self.filled;
                self.frozen_turn = at + 1;
                at
            }
            None if self.fresh_count > 0 => (self.head + RING - self.fresh_count) % RING,
            _ => return None,
        };
        if self.fresh[at] || self.frozen_until.is_none() {
            self.fresh_count = self.fresh_count.saturating_sub(1);
        }
        self.fresh[at] = false;
        Some(self.paths[at])
    }

    fn hear(&mut self, now: Time, path: u16, news: News) {
        if news == News::TimedOut && self.frozen_until.is_none() && self.explore == 0 {
            self.frozen_until = Some(now + FROZEN);
        }
        if self.frozen_until.is_some_and(|until| now > until) {
            *self = Ring { explore: EXPLORES, ..Ring::default() };
        }
        if news == News::Good {
            self.fresh_count += !self.fresh[self.head] as usize;
            (self.paths[self.head], self.fresh[self.head]) = (path, true);
            self.head = (self.head + 1) % RING;
            self.filled = (self.filled + 1).min(RING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oblivious_takes_each_path_once_in_a_round() {
        let mut paths = Paths::new(Selector::Oblivious, 16, 1);
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let round: Vec<u16> = (0..16).map(|_| paths.next()).collect();
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..16).collect::<Vec<u16>>());
            rounds.push(round);
        }
        assert!(rounds[0] != rounds[1] || rounds[1] != rounds[2], "the order changes: {rounds:?}");
    }

    #[test]
    fn a_path_that_cut_a_packet_is_passed_over_four_times() {
        let mut paths = Paths::new(Selector::Bitmap, 8, 1);
        paths.hear(Time(0), 3, News::Cut);
        paths.hear(Time(0), 5, News::Marked);
        let mut taken = [0; 8];
        (0..8 * 6).for_each(|_| taken[paths.next() as usize] += 1);
        assert!(taken[3] < taken[5] && taken[5] < 7, "{taken:?}");
        assert_eq!(paths.penalties, [0; 8], "all is forgiven");
    }

    #[test]
    fn all_paths_bad_still_gives_one() {
        let mut paths = Paths::new(Selector::Bitmap, 4, 1);
        (0..4).for_each(|path| paths.hear(Time(0), path, News::TimedOut));
        (0..100).for_each(|_| assert!(paths.next() < 4));
    }

    #[test]
    fn mixed_takes_good_paths_again_first() {
        let mut paths = Paths::new(Selector::Mixed, 64, 1);
        for path in [7, 9, 7] {
            paths.hear(Time(0), path, News::Good);
        }
        paths.hear(Time(0), 11, News::Marked);
        assert_eq!([paths.next(), paths.next(), paths.next()], [7, 9, 7]);
    }

    #[test]
    fn reps_keeps_to_what_worked_after_a_timeout() {
        let mut paths = Paths::new(Selector::Reps, 1 << 12, 1);
        for path in [1, 2, 3] {
            paths.hear(Time(0), path, News::Good);
        }
        assert_eq!([paths.next(), paths.next()], [1, 2]);
        paths.hear(Time(0), 3000, News::TimedOut);
        let frozen: Vec<u16> = (0..6).map(|_| paths.next()).collect();
        assert_eq!(frozen, [1, 2, 3, 1, 2, 3]);
        paths.hear(Time(0) + FROZEN + Nanos(1), 5, News::Good);
        let explored: Vec<u16> = (0..EXPLORES).map(|_| paths.next()).collect();
        assert!(explored.iter().filter(|&&path| path > 5).count() > 10, "{explored:?}");
        assert_eq!(paths.next(), 5);
    }
}
