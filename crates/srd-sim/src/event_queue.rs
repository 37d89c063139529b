//! Events in order of time: a wheel of buckets for what is near, a heap for what is far.
//!
//! A bucket is a list that is sorted when its time comes, so that inserting costs the same however much is pending.
//! Events of one moment come out in the order in which they were put in (those that waited in the heap count from when
//! they left it), so a run depends on nothing but its scenario.

use crate::units::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Width of a bucket: 2^12 ps, four nanoseconds; a fabric of a thousand busy hosts has some tens of events in it.
const WIDTH: u32 = 12;
/// Buckets: 67 us, more than a packet takes through a fabric.
const BUCKETS: usize = 1 << 14;
const NONE: u32 = u32::MAX;

struct Far<E> {
    at: Ps,
    order: u64,
    event: E,
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Far<E>) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Far<E> {}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Far<E>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Far<E> {
    fn cmp(&self, other: &Far<E>) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// See the module.
pub struct EventQueue<E> {
    /// Events of buckets, in the order of insertion. Lists are used again as soon as they are empty, so that few of them
    /// serve, and the processor's caches hold these.
    lists: Vec<Vec<(Ps, E)>>,
    free: Vec<u32>,
    /// The list of each bucket.
    heads: Vec<u32>,
    /// Which buckets are not empty, and which words of that are not zero.
    used: Vec<u64>,
    used_words: [u64; BUCKETS / 64 / 64],
    /// Number (time divided by the width) of the bucket that is open.
    open: u64,
    /// Its events in order, and how many of them have been taken out.
    current: Vec<(Ps, E)>,
    cursor: usize,
    far: BinaryHeap<Reverse<Far<E>>>,
    far_order: u64,
    /// Events taken out so far.
    pub taken: u64,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue::new()
    }
}

impl<E: Copy> EventQueue<E> {
    /// Empty, at time zero.
    pub fn new() -> EventQueue<E> {
        EventQueue {
            lists: Vec::new(),
            free: Vec::new(),
            heads: vec![NONE; BUCKETS],
            used: vec![0; BUCKETS / 64],
            used_words: [0; BUCKETS / 64 / 64],
            open: 0,
            current: Vec::new(),
            cursor: 0,
            far: BinaryHeap::new(),
            far_order: 0,
            taken: 0,
        }
    }

    /// Puts an event in. A moment that has passed counts as the present.
    #[inline]
    pub fn push(&mut self, at: Ps, event: E) {
        let bucket = at.0 >> WIDTH;
        if bucket <= self.open {
            let rest = &self.current[self.cursor..];
            let place = self.cursor + rest.partition_point(|&(other, _)| other <= at);
            self.current.insert(place, (at, event));
        } else if bucket - self.open < BUCKETS as u64 {
            self.put(at, event);
        } else {
            self.far_order += 1;
            self.far.push(Reverse(Far { at, order: self.far_order, event }));
        }
    }

    #[inline]
    fn put(&mut self, at: Ps, event: E) {
        let slot = (at.0 >> WIDTH) as usize % BUCKETS;
        let mut list = self.heads[slot];
        if list == NONE {
            list = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                (self.lists.len() - 1) as u32
            });
            self.heads[slot] = list;
            self.used[slot / 64] |= 1 << (slot % 64);
            self.used_words[slot / 4096] |= 1 << (slot / 64 % 64);
        }
        self.lists[list as usize].push((at, event));
    }

    /// Takes the next event if it is due at `until` or before.
    #[inline]
    pub fn pop(&mut self, until: Ps) -> Option<(Ps, E)> {
        loop {
            if let Some(&(at, event)) = self.current.get(self.cursor) {
                if at > until {
                    return None;
                }
                self.cursor += 1;
                self.taken += 1;
                return Some((at, event));
            }
            if !self.open_next() {
                return None;
            }
        }
    }

    /// An event that comes soon: the one after `distance` others, if its bucket is open.
    #[inline]
    pub fn soon(&self, distance: usize) -> Option<E> {
        self.current.get(self.cursor + distance).map(|&(_, event)| event)
    }

    /// Opens the next bucket that has something in it.
    fn open_next(&mut self) -> bool {
        let near = self.next_used();
        let far = self.far.peek().map(|Reverse(far)| far.at.0 >> WIDTH);
        let Some(bucket) = near.into_iter().chain(far).min() else { return false };
        self.open = bucket;
        // What lay beyond the wheel's reach and no longer does. Its bucket may be the one that opens now.
        while let Some(Reverse(far)) = self.far.peek()
            && (far.at.0 >> WIDTH) - bucket < BUCKETS as u64
        {
            let Some(Reverse(far)) = self.far.pop() else { unreachable!("just seen") };
            self.put(far.at, far.event);
        }
        let slot = bucket as usize % BUCKETS;
        let list = std::mem::replace(&mut self.heads[slot], NONE);
        self.used[slot / 64] &= !(1 << (slot % 64));
        if self.used[slot / 64] == 0 {
            self.used_words[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
        self.current.clear();
        self.cursor = 0;
        std::mem::swap(&mut self.current, &mut self.lists[list as usize]);
        self.free.push(list);
        self.current.sort_by_key(|&(at, _)| at); // stable
        true
    }

    /// The first bucket after the open one that is not empty.
    fn next_used(&self) -> Option<u64> {
        let start = (self.open as usize + 1) % BUCKETS;
        let found = self.find_used(start, BUCKETS).or_else(|| self.find_used(0, start))?;
        let distance = (found + BUCKETS - start) % BUCKETS;
        Some(self.open + 1 + distance as u64)
    }

    fn find_used(&self, from: usize, to: usize) -> Option<usize> {
        if from >= to {
            return None;
        }
        let first = self.used[from / 64] >> (from % 64);
        let found = if first != 0 {
            from + first.trailing_zeros() as usize
        } else {
            let mut word = from / 64 + 1;
            loop {
                if word >= self.used.len() {
                    return None;
                }
                let summary = self.used_words[word / 64] >> (word % 64);
                if summary == 0 {
                    word = (word / 64 + 1) * 64;
                    continue;
                }
                word += summary.trailing_zeros() as usize;
                break word * 64 + self.used[word].trailing_zeros() as usize;
            }
        };
        (found < to).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list: every event comes once, in order of time, and of insertion where times are equal
        /// and near.
        #[test]
        fn events_come_in_order(steps in prop::collection::vec((0u64..200_000_000, 0u8..4, 1usize..5), 1..300)) {
            let mut queue = EventQueue::new();
            let mut model: Vec<(Ps, u32)> = Vec::new();
            let (mut now, mut name) = (Ps(0), 0u32);
            for (span, scale, pops) in steps {
                let at = Ps(now.0 + (span >> (8 * scale)));
                queue.push(at, name);
                model.push((at, name));
                name += 1;
                for _ in 0..pops - 1 {
                    let Some((at, event)) = queue.pop(Ps::NEVER) else { break };
                    let least = model.iter().map(|&(at, _)| at).min().unwrap();
                    prop_assert_eq!(at, least);
                    prop_assert!(at >= now);
                    now = at;
                    let place = model.iter().position(|&(other, name)| (other, name) == (at, event)).expect("once");
                    model.remove(place);
                }
            }
            while let Some((at, event)) = queue.pop(Ps::NEVER) {
                prop_assert!(at >= now);
                now = at;
                let place = model.iter().position(|&other| other == (at, event)).expect("once");
                model.remove(place);
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn events_of_one_moment_come_in_the_order_of_insertion() {
        let mut queue = EventQueue::new();
        for name in 0..50 {
            queue.push(Ps(5_000), name);
        }
        assert!(queue.pop(Ps(4_999)).is_none());
        for name in 0..50 {
            assert_eq!(queue.pop(Ps(5_000)), Some((Ps(5_000), name)));
            queue.push(Ps(5_000), 100 + name);
        }
        for name in 0..50 {
            assert_eq!(queue.pop(Ps::NEVER), Some((Ps(5_000), 100 + name)));
        }
    }
}
