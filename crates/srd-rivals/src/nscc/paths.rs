//! Which path each packet takes: one of so many entropy values, that is, source ports.

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
        }
    }

    /// The next packet's path.
    pub(super) fn next(&mut self) -> u16 {
        match self.selector {
            Selector::Oblivious => self.step(),
            Selector::Bitmap => self.unpenalised(),
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
            _ => {}
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
            self.fresh_count -= 1;
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
