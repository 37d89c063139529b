//! Events in order of time: a wheel of buckets for what is near, a heap for what is far.
//!
//! A bucket is a list that is sorted when its time comes, so that inserting costs the same however much is pending. Events
//! of one moment come out by their rank, those of the same rank in the order in which they were put in, so a run depends on
//! nothing but its scenario.
//!
//! A large fabric is more than the processor's caches hold: an event here, the next one at another host, and each waits for
//! memory. But what happens at one node touches no other before a frame has crossed a cable. So within a bucket that is no
//! longer than the shortest cable, events may come out node by node, those of each node in order ([`EventQueue::by_node`]):
//! what a node needs is fetched once for many events, and nothing else changes.

use srd_baselines::units::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Buckets of a wheel.
const BUCKETS: usize = 1 << 14;
/// Width of a bucket where events come in order of time: a fabric of a thousand busy hosts has some tens of events in it, and
/// the wheel reaches 66 us, more than a packet takes through a fabric.
const IN_ORDER: Ps = Ps::from_nanos(4);
/// Narrowest bucket for which grouping by node pays.
const LEAST_BY_NODE: Ps = Ps::from_nanos(64);
/// Widest: caches hold no more of a node's frames.
const MOST_BY_NODE: Ps = Ps::from_micros(2);
const NONE: u32 = u32::MAX;

/// Time cut into spans of equal length, to a picosecond.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    /// Spans in a picosecond, times 2^64, rounded up: so no span is longer than it should be.
    per_ps: u64,
}

impl Spans {
    /// Of this length, at least two picoseconds.
    pub fn of(length: Ps) -> Spans {
        Spans { per_ps: (1u128 << 64).div_ceil(length.0.max(2) as u128) as u64 }
    }

    /// Such that events of different nodes within one may come in any order, where what happens at one node touches no other
    /// sooner than `lookahead` later.
    pub fn by_node(lookahead: Ps) -> Spans {
        Spans::of(lookahead.min(MOST_BY_NODE))
    }

    /// The number of the span in which a moment lies.
    #[inline]
    pub fn number(self, at: Ps) -> u64 {
        ((at.0 as u128 * self.per_ps as u128) >> 64) as u64
    }

    /// The last moment of the span in which `at` lies.
    pub fn end(self, at: Ps) -> Ps {
        self.end_of(self.number(at))
    }

    /// The last moment of the span with this number.
    pub fn end_of(self, number: u64) -> Ps {
        let next = ((number as u128 + 1) << 64).div_ceil(self.per_ps as u128);
        Ps(u64::try_from(next - 1).unwrap_or(u64::MAX))
    }
}

/// What can be put into a queue.
pub trait Scheduled: Copy {
    /// Which of several events of one moment, `at`, comes first.
    fn rank(self, at: Ps) -> u64;
}

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

/// Events of a chunk.
const CHUNK: usize = 20;

/// Some events of a bucket, in the order of insertion.
struct Chunk<E> {
    events: [(Ps, E); CHUNK],
    count: u32,
    /// The chunk before it in its bucket, or the next free one.
    before: u32,
}

/// The open bucket, group by group.
struct Groups<E> {
    /// Node at which an event happens.
    node_of: Box<dyn Fn(E) -> u32 + Send>,
    /// Of each node: where its events begin in `events`; one entry more than there are nodes.
    starts: Vec<u32>,
    events: Vec<(Ps, E)>,
    /// Of each of them, from the last that was put in to the first: its node.
    nodes: Vec<u32>,
    /// The next node.
    next: usize,
}

/// In place of a node's keeper: whoever puts its events in knows whose they are ([`EventQueue::push_abroad`]).
pub const SHARED: u16 = u16::MAX;

/// Events of nodes that somebody else looks after.
struct Abroad<E> {
    /// Who looks after each node.
    keeper_of: Arc<[u16]>,
    /// Who we are.
    own: u16,
    /// They wait to be taken there, and to whom.
    events: Vec<(u16, Ps, E)>,
}

/// See the module.
pub struct EventQueue<E> {
    /// Events of buckets. Chunks are used again as soon as they are empty, so that few of them serve, and the processor's
    /// caches hold these.
    chunks: Vec<Chunk<E>>,
    free: u32,
    /// The last chunk of each bucket.
    tails: Vec<u32>,
    /// Which buckets are not empty, and which words of that are not zero.
    used: Vec<u64>,
    used_words: [u64; BUCKETS / 64 / 64],
    /// The buckets.
    spans: Spans,
    /// Number of the bucket that is open; 0 is before the beginning.
    open: u64,
    /// Its events in order, or those of one node, and how many of them have been taken out.
    current: Vec<(Ps, E)>,
    cursor: usize,
    groups: Option<Groups<E>>,
    abroad: Option<Abroad<E>>,
    far: BinaryHeap<Reverse<Far<E>>>,
    far_order: u64,
    /// Events taken out so far.
    pub taken: u64,
}

impl<E: Scheduled> EventQueue<E> {
    /// Empty, at time zero; events come in order of time.
    pub fn in_order() -> EventQueue<E> {
        EventQueue {
            chunks: Vec::new(),
            free: NONE,
            tails: vec![NONE; BUCKETS],
            used: vec![0; BUCKETS / 64],
            used_words: [0; BUCKETS / 64 / 64],
            spans: Spans::of(IN_ORDER),
            open: 0,
            current: Vec::new(),
            cursor: 0,
            groups: None,
            abroad: None,
            far: BinaryHeap::new(),
            far_order: 0,
            taken: 0,
        }
    }

    /// Empty, at time zero; events come node by node. `node_of` tells where an event happens, below `nodes`; what happens at
    /// one node puts in events of others no sooner than `lookahead` later. `None` if that is too short to be of use.
    pub fn by_node(
        lookahead: Ps,
        nodes: u32,
        node_of: impl Fn(E) -> u32 + Send + 'static,
    ) -> Option<EventQueue<E>> {
        let starts = vec![0; nodes as usize + 1];
        let groups = Groups {
            node_of: Box::new(node_of),
            starts,
            events: Vec::new(),
            nodes: Vec::new(),
            next: nodes as usize,
        };
        let spans = Spans::by_node(lookahead);
        (lookahead >= LEAST_BY_NODE).then(|| EventQueue {
            spans,
            groups: Some(groups),
            ..EventQueue::in_order()
        })
    }

    /// Whether events come node by node.
    pub fn is_by_node(&self) -> bool {
        self.groups.is_some()
    }

    /// Where events come node by node: from now on only those of nodes that `own` keeps stay here. What there is already of others is
    /// left out; what is put in of them later is to be taken to their keepers ([`EventQueue::take_abroad`]).
    pub fn keep(&mut self, keeper_of: Arc<[u16]>, own: u16) {
        let mut events = Vec::new();
        while let Some(event) = self.pop(Ps::NEVER) {
            events.push(event);
        }
        (self.open, self.taken) = (0, 0);
        self.abroad = Some(Abroad { keeper_of, own, events: Vec::new() });
        events.into_iter().for_each(|(at, event)| self.push(at, event));
        self.take_abroad().for_each(drop);
    }

    /// Whether others keep some of the nodes.
    pub fn is_part(&self) -> bool {
        self.abroad.is_some()
    }

    /// Puts an event of somebody else's in: to be taken to him.
    pub fn push_abroad(&mut self, keeper: u16, at: Ps, event: E) {
        if let Some(abroad) = &mut self.abroad {
            abroad.events.push((keeper, at, event));
        }
    }

    /// Events of nodes that others keep, and who.
    pub fn take_abroad(&mut self) -> impl Iterator<Item = (u16, Ps, E)> {
        self.abroad.as_mut().map(|abroad| abroad.events.drain(..)).into_iter().flatten()
    }

    /// The span in which the next event lies that has not been taken. Only at the end of a span.
    pub fn next_span(&self) -> Option<u64> {
        let far = self.far.peek().map(|Reverse(far)| self.bucket(far.at));
        self.next_used().into_iter().chain(far).min().map(|bucket| bucket - 1)
    }

    /// The first moment from `at` on at which events may be left for later.
    pub fn next_stop(&self, at: Ps) -> Ps {
        if self.groups.is_some() { self.spans.end(at) } else { at }
    }

    /// Number of the bucket of a moment.
    #[inline]
    fn bucket(&self, at: Ps) -> u64 {
        self.spans.number(at) + 1
    }

    /// Puts an event in. A moment that has passed counts as the present.
    #[inline]
    pub fn push(&mut self, at: Ps, event: E) {
        if let (Some(abroad), Some(groups)) = (&mut self.abroad, &self.groups) {
            let keeper = abroad.keeper_of[(groups.node_of)(event) as usize];
            if keeper != abroad.own && keeper != SHARED {
                return abroad.events.push((keeper, at, event));
            }
        }
        let bucket = self.bucket(at);
        if bucket <= self.open {
            self.push_soon(at, event);
        } else if bucket - self.open < BUCKETS as u64 {
            self.put(at, event);
        } else {
            self.far_order += 1;
            self.far.push(Reverse(Far { at, order: self.far_order, event }));
        }
    }

    fn push_soon(&mut self, at: Ps, event: E) {
        let rest = &self.current[self.cursor..];
        let before = |&(when, other): &(Ps, E)| when < at || when == at && other.rank(at) <= event.rank(at);
        self.current.insert(self.cursor + rest.partition_point(before), (at, event));
    }

    #[inline]
    fn put(&mut self, at: Ps, event: E) {
        let slot = self.bucket(at) as usize % BUCKETS;
        let tail = self.tails[slot];
        if let Some(chunk) = self.chunks.get_mut(tail as usize)
            && let Some(place) = chunk.events.get_mut(chunk.count as usize)
        {
            *place = (at, event);
            chunk.count += 1;
            return;
        }
        self.tails[slot] = self.new_chunk(at, event, tail);
        self.used[slot / 64] |= 1 << (slot % 64);
        self.used_words[slot / 4096] |= 1 << (slot / 64 % 64);
    }

    /// A chunk with one event in it, behind chunk `before`.
    fn new_chunk(&mut self, at: Ps, event: E, before: u32) -> u32 {
        let number = self.free;
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            self.free = chunk.before;
            chunk.events[0] = (at, event);
            (chunk.count, chunk.before) = (1, before);
            return number;
        }
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact(64 + self.chunks.len() / 4); // doubling would waste too much
        }
        self.chunks.push(Chunk { events: [(at, event); CHUNK], count: 1, before });
        (self.chunks.len() - 1) as u32
    }

    /// Takes the next event if it is due at `until` or before. Where events come node by node, `until` is the end of a bucket
    /// or the end of all: later events of a bucket of which some have been taken are lost.
    #[inline]
    pub fn pop(&mut self, until: Ps) -> Option<(Ps, E)> {
        loop {
            match self.current.get(self.cursor) {
                Some(&(at, event)) if at <= until => {
                    self.cursor += 1;
                    self.taken += 1;
                    return Some((at, event));
                }
                Some(_) if self.groups.is_none() => return None,
                _ => {}
            }
            if !self.next_group() && !self.open_next(until) {
                return None;
            }
        }
    }

    /// An event that comes soon: the one after `distance` others, if its bucket is open.
    #[inline]
    pub fn soon(&self, distance: usize) -> Option<E> {
        self.current.get(self.cursor + distance).map(|&(_, event)| event)
    }

    /// Goes on with the events of the next node that has any in the open bucket.
    fn next_group(&mut self) -> bool {
        let Some(groups) = &mut self.groups else { return false };
        while let Some(&[start, end]) = groups.starts.get(groups.next..groups.next + 2) {
            groups.next += 1;
            if start < end {
                self.current.clear();
                self.current.extend_from_slice(&groups.events[start as usize..end as usize]);
                self.sort();
                return true;
            }
        }
        false
    }

    /// Begins with what is in `current`.
    fn sort(&mut self) {
        self.cursor = 0;
        // Stable.
        self.current.sort_by(|&(at, event), &(when, other)| {
            at.cmp(&when).then_with(|| event.rank(at).cmp(&other.rank(at)))
        });
    }

    /// Opens the next bucket that has something in it, unless it begins after `until`.
    fn open_next(&mut self, until: Ps) -> bool {
        let Some(bucket) = self.next_span().map(|span| span + 1) else { return false };
        if bucket > self.bucket(until) {
            return false;
        }
        self.open = bucket;
        // What lay beyond the wheel's reach and no longer does. Its bucket may be the one that opens now.
        while let Some(Reverse(far)) = self.far.peek()
            && self.bucket(far.at) - bucket < BUCKETS as u64
        {
            let Some(Reverse(far)) = self.far.pop() else { unreachable!("just seen") };
            self.put(far.at, far.event);
        }
        let slot = bucket as usize % BUCKETS;
        let mut number = std::mem::replace(&mut self.tails[slot], NONE);
        self.used[slot / 64] &= !(1 << (slot % 64));
        if self.used[slot / 64] == 0 {
            self.used_words[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
        self.current.clear();
        if let Some(groups) = &mut self.groups {
            groups.split(&self.chunks, number);
        }
        while let Some(chunk) = self.chunks.get_mut(number as usize) {
            if self.groups.is_none() {
                self.current.extend(chunk.events[..chunk.count as usize].iter().rev());
            }
            (number, chunk.before, self.free) = (chunk.before, self.free, number);
        }
        if self.groups.is_none() {
            self.current.reverse();
            self.sort();
        }
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

impl<E: Scheduled> Groups<E> {
    /// Sorts the events of a bucket by node, and leaves those of a node in their order. The bucket's last chunk is `tail`.
    fn split(&mut self, chunks: &[Chunk<E>], tail: u32) {
        let Groups { node_of, starts, events, nodes, next } = self;
        let backwards = || {
            let chunks =
                std::iter::successors(chunks.get(tail as usize), |chunk| chunks.get(chunk.before as usize));
            chunks.flat_map(|chunk| chunk.events[..chunk.count as usize].iter().rev())
        };
        starts.fill(0);
        nodes.clear();
        for &(_, event) in backwards() {
            let node = node_of(event);
            starts[node as usize] += 1;
            nodes.push(node);
        }
        let mut end = 0;
        for start in starts.iter_mut() {
            end += *start;
            *start = end;
        }
        if let Some(&any) = backwards().next() {
            events.reserve_exact((end as usize).saturating_sub(events.len()));
            events.resize(end as usize, any);
        }
        // Filled from its end, each node's place shrinks to its start.
        for (&(at, event), &node) in backwards().zip(nodes.iter()) {
            let start = &mut starts[node as usize];
            *start -= 1;
            events[*start as usize] = (at, event);
        }
        *next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A name, which tells nothing of a rank.
    impl Scheduled for u32 {
        fn rank(self, _: Ps) -> u64 {
            0
        }
    }

    proptest! {
        /// Spans follow each other without gap, none longer than it should be.
        #[test]
        fn spans_divide_time(length in 2u64..10_000_000, at in 0u64..1 << 60) {
            let spans = Spans::of(Ps(length));
            let end = spans.end(Ps(at));
            prop_assert!(end.0 >= at && end.0 - at < length);
            prop_assert_eq!(spans.number(end), spans.number(Ps(at)));
            prop_assert_eq!(spans.number(Ps(end.0 + 1)), spans.number(Ps(at)) + 1);
            prop_assert!(spans.end(Ps(end.0 + 1)).0 - end.0 <= length);
        }

        /// Node by node, each node gets the events that it gets in order of time, in the same order.
        #[test]
        fn by_node_each_node_sees_the_same(
            first in prop::collection::vec((0u64..2_000_000, 0u32..20), 1..60),
            spans in prop::collection::vec((0u64..3_000_000, 1u32..20), 1..12),
        ) {
            const LOOKAHEAD: u64 = 200_000;
            // An event's node is the rest of its number by 20. It puts in events of its own node soon, and of others after
            // the lookahead.
            let run = |mut queue: EventQueue<u32>| {
                let mut seen: Vec<Vec<(Ps, u32)>> = vec![Vec::new(); 20];
                first.iter().for_each(|&(at, event)| queue.push(Ps(at), event));
                while let Some((at, event)) = queue.pop(Ps::NEVER) {
                    let node = event % 20;
                    seen[node as usize].push((at, event));
                    let generation = event / 20 + 1;
                    if let Some(&(span, step)) = spans.get(generation as usize - 1) {
                        queue.push(Ps(at.0 + span / 50), node + 20 * generation);
                        // Every moment is another one, so that no order of insertion shows.
                        let later = Ps(at.0 + LOOKAHEAD + span * 20 + node as u64);
                        queue.push(later, (node + step) % 20 + 20 * generation);
                    }
                }
                seen
            };
            let by_node = EventQueue::by_node(Ps(LOOKAHEAD), 20, |event: u32| event % 20).unwrap();
            let mut in_order = run(EventQueue::in_order());
            let mut grouped = run(by_node);
            for events in in_order.iter_mut().chain(&mut grouped) {
                prop_assert!(events.is_sorted_by_key(|&(at, _)| at));
                events.sort(); // those of one moment
            }
            prop_assert_eq!(in_order, grouped);
        }

        /// Against a sorted list: every event comes once, in order of time, and of insertion where times are equal
        /// and near.
        #[test]
        fn events_come_in_order(steps in prop::collection::vec((0u64..200_000_000, 0u8..4, 1usize..5), 1..300)) {
            let mut queue = EventQueue::in_order();
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
        let mut queue = EventQueue::in_order();
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
