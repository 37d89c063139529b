//! Hierarchical timing wheel: one deadline per slot number, in constant time however many slots there are.
//!
//! Seven levels of 64 slots; a tick is 64 ns. A deadline lies on the level of the highest digit in which its tick
//! differs from the wheel's, so every entry of a level lies after the wheel's position there, nothing wraps round, and
//! the lowest level in use holds the earliest entry.

use srd_wire::Time;

const TICK_SHIFT: u32 = 6;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 7;
const NONE: u32 = u32::MAX;
/// Entries of a slot beyond the next 64 ticks that are looked at for the earliest: with more, somebody wakes too early once.
const LOOKED_AT: u32 = 8;

#[derive(Clone, Copy)]
struct Entry {
    deadline: Time,
    prev: u32,
    next: u32,
    /// `level * SLOTS + slot`, or [`NONE`] when not scheduled.
    place: u32,
}

/// See the module.
pub(crate) struct TimerWheel {
    entries: Vec<Entry>,
    heads: Box<[u32; LEVELS * SLOTS]>,
    used: [u64; LEVELS],
    tick: u64,
}

impl TimerWheel {
    pub(crate) fn new() -> TimerWheel {
        TimerWheel {
            entries: Vec::new(),
            heads: Box::new([NONE; LEVELS * SLOTS]),
            used: [0; LEVELS],
            tick: 0,
        }
    }

    /// Sets the deadline of `id`, replacing an earlier one; [`Time::NEVER`] takes it away.
    pub(crate) fn set(&mut self, id: u32, deadline: Time) {
        if self.entries.len() <= id as usize {
            let blank = Entry { deadline: Time::NEVER, prev: NONE, next: NONE, place: NONE };
            self.entries.resize(id as usize + 1, blank);
        }
        let entry = &self.entries[id as usize];
        if entry.deadline == deadline && (entry.place != NONE || deadline == Time::NEVER) {
            return;
        }
        self.unlink(id);
        self.entries[id as usize].deadline = deadline;
        if deadline != Time::NEVER {
            self.link(id);
        }
    }

    /// The earliest time at which [`TimerWheel::expire`] has something to do: never after the earliest deadline.
    pub(crate) fn next(&self) -> Time {
        let Some((level, slot)) = self.first() else { return Time::NEVER };
        let mut earliest = Time::NEVER;
        let mut looked_at = 0;
        let mut id = self.heads[level * SLOTS + slot];
        while id != NONE {
            if level > 0 && looked_at == LOOKED_AT {
                return Time(self.slot_start(level, slot) << TICK_SHIFT);
            }
            looked_at += 1;
            let entry = &self.entries[id as usize];
            earliest = earliest.min(entry.deadline);
            id = entry.next;
        }
        earliest
    }

    /// Takes one entry whose deadline has come. Call until it returns `None`.
    pub(crate) fn expire(&mut self, now: Time) -> Option<u32> {
        let target = now.0 >> TICK_SHIFT;
        while let Some((level, slot)) = self.first() {
            let start = self.slot_start(level, slot);
            if start > target {
                break;
            }
            self.tick = self.tick.max(start);
            if level == 0 {
                let mut id = self.heads[slot];
                while id != NONE && self.entries[id as usize].deadline > now {
                    id = self.entries[id as usize].next;
                }
                if id == NONE {
                    return None;
                }
                self.unlink(id);
                self.entries[id as usize].deadline = Time::NEVER;
                return Some(id);
            }
            while self.heads[level * SLOTS + slot] != NONE {
                let id = self.heads[level * SLOTS + slot];
                self.unlink(id);
                self.link(id);
            }
        }
        self.tick = self.tick.max(target);
        None
    }

    fn first(&self) -> Option<(usize, usize)> {
        (0..LEVELS)
            .find(|&level| self.used[level] != 0)
            .map(|level| (level, self.used[level].trailing_zeros() as usize))
    }

    /// First tick of a slot, given the wheel's position.
    fn slot_start(&self, level: usize, slot: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        let above = self.tick >> (shift + DIGIT_BITS);
        (((above << DIGIT_BITS) | slot as u64) << shift).max(self.tick)
    }

    fn link(&mut self, id: u32) {
        let deadline = self.entries[id as usize].deadline;
        let tick = (deadline.0 >> TICK_SHIFT).max(self.tick);
        let differing = (tick ^ self.tick) | 1;
        let level = (((63 - differing.leading_zeros()) / DIGIT_BITS) as usize).min(LEVELS - 1);
        let slot = if ((63 - differing.leading_zeros()) / DIGIT_BITS) as usize >= LEVELS {
            SLOTS - 1 // beyond the wheel's reach (52 days): looked at again when the last slot comes
        } else {
            (tick >> (DIGIT_BITS * level as u32)) as usize & (SLOTS - 1)
        };
        let place = level * SLOTS + slot;
        let head = self.heads[place];
        let entry = &mut self.entries[id as usize];
        entry.prev = NONE;
        entry.next = head;
        entry.place = place as u32;
        if head != NONE {
            self.entries[head as usize].prev = id;
        }
        self.heads[place] = id;
        self.used[level] |= 1 << slot;
    }

    fn unlink(&mut self, id: u32) {
        let Entry { prev, next, place, .. } = self.entries[id as usize];
        if place == NONE {
            return;
        }
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        if prev != NONE {
            self.entries[prev as usize].next = next;
        } else {
            self.heads[place as usize] = next;
            if next == NONE {
                self.used[place as usize / SLOTS] &= !(1 << (place as usize % SLOTS));
            }
        }
        self.entries[id as usize].place = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The wheel against a sorted map, stepping by its own `next` and by arbitrary jumps.
        #[test]
        fn wheel_fires_each_deadline_once_and_never_early_or_late(
            steps in prop::collection::vec((0u32..20, 0u64..40_000_000_000, prop::bool::ANY, 0u64..100_000), 1..200)
        ) {
            let mut wheel = TimerWheel::new();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0u64;
            for (id, span, set, jump) in steps {
                if set {
                    let span = if id % 3 == 0 { span % 5_000 } else { span };
                    wheel.set(id, Time(now + span));
                    model.insert(id, now + span);
                } else {
                    wheel.set(id, Time::NEVER);
                    model.remove(&id);
                }
                let earliest = model.values().min().copied().unwrap_or(u64::MAX);
                prop_assert!(wheel.next().0 <= earliest);
                now = if jump % 2 == 0 { now + jump } else { wheel.next().0.clamp(now, now + 10_000_000_000) };
                while let Some(id) = wheel.expire(Time(now)) {
                    let due = model.remove(&id).expect("fired once");
                    prop_assert!(due <= now, "early");
                }
                prop_assert!(model.values().all(|&due| due > now), "late");
            }
        }
    }
}
