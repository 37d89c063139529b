//! Collective operations of a step, as operations of a graph.

use crate::apps::graph::{Act, Dependency, Graph, Op, Until};
use srd_wire::Nanos;

/// Computes; sends and collects: a rank has two processors, so that one does not wait for the other.
const COMPUTES: u8 = 0;
const SENDS: u8 = 1;

/// Parts of a tree's vector: of so many bytes at least, and at most so many parts.
const PART: u64 = 1 << 20;
pub(super) const MOST_PARTS: u64 = 16;

/// Ranks that do something together, and the place of one of them.
pub(super) struct Circle {
    pub ranks: Vec<u32>,
    pub own: usize,
}

impl Circle {
    fn size(&self) -> u64 {
        self.ranks.len() as u64
    }
}

/// Operations of a rank, as they are written. An operation is named by its number.
#[derive(Default)]
pub(super) struct Loom {
    ops: Vec<Op>,
    dependencies: Vec<Dependency>,
}

impl Loom {
    fn add(&mut self, act: Act, processor: u8, after: &[u32]) -> u32 {
        let op = self.ops.len() as u32;
        self.ops.push(Op { act, processor });
        self.dependencies.extend(after.iter().map(|&on| Dependency { op, on, until: Until::Done }));
        op
    }

    /// Computes behind those.
    pub fn compute(&mut self, span: Nanos, after: &[u32]) -> u32 {
        self.add(Act::Calc(span), COMPUTES, after)
    }

    /// Sends behind those.
    pub fn send(&mut self, to: u32, tag: u64, bytes: u64, after: &[u32]) -> u32 {
        self.add(Act::Send { to, tag, bytes }, SENDS, after)
    }

    /// Receives behind those.
    pub fn recv(&mut self, from: u32, tag: u64, bytes: u64, after: &[u32]) -> u32 {
        self.add(Act::Recv { from, tag, bytes }, SENDS, after)
    }

    /// The end of all of those.
    pub fn join(&mut self, after: &[u32]) -> u32 {
        self.add(Act::Calc(Nanos::ZERO), SENDS, after)
    }

    pub fn graph(self) -> Graph {
        Graph::new(self.ops, &self.dependencies).expect("operations wait for earlier ones only")
    }

    /// Parts go round (Patarasuk and Yuan, 2009): `rounds` of them, n - 1 for a reduce-scatter or an all-gather, twice as many for an
    /// all-reduce, where the part of the first is `first` places back.
    fn round(&mut self, circle: &Circle, tag: u64, bytes: u64, rounds: u64, after: u32) -> u32 {
        let (size, own) = (circle.size(), circle.own as u64);
        let part = |number: u64| bytes / size + u64::from(number % size < bytes % size);
        let next = circle.ranks[((own + 1) % size) as usize];
        let before = circle.ranks[((own + size - 1) % size) as usize];
        let mut come = after;
        let mut sent = after;
        for round in 0..rounds {
            let number = own + 2 * size - round;
            let received = self.recv(before, tag, part(number + size - 1), &[after]);
            sent = self.send(next, tag, part(number), &[come]);
            come = received;
        }
        self.join(&[come, sent])
    }

    /// All have the sum of what each had, in a ring.
    pub fn all_reduce(&mut self, circle: &Circle, tag: u64, bytes: u64, after: u32) -> u32 {
        match circle.size() {
            0 | 1 => after,
            size => self.round(circle, tag, bytes, 2 * (size - 1), after),
        }
    }

    /// Each has its part of the sum; or all have the parts of each.
    pub fn half_reduce(&mut self, circle: &Circle, tag: u64, bytes: u64, after: u32) -> u32 {
        match circle.size() {
            0 | 1 => after,
            size => self.round(circle, tag, bytes, size - 1, after),
        }
    }

    /// All have the sum of what each had: up a binary tree and down again.
    pub fn tree_reduce(&mut self, circle: &Circle, tag: u64, bytes: u64, after: u32) -> u32 {
        let (size, own) = (circle.ranks.len(), circle.own);
        if size < 2 {
            return after;
        }
        let parts = bytes.div_ceil(PART).clamp(1, MOST_PARTS);
        let children: Vec<u32> =
            [2 * own + 1, 2 * own + 2].iter().filter_map(|&child| circle.ranks.get(child)).copied().collect();
        let parent = own.checked_sub(1).map(|below| circle.ranks[below / 2]);
        let mut ends = vec![after];
        for part in 0..parts {
            let bytes = bytes / parts + u64::from(part < bytes % parts);
            let summed: Vec<u32> =
                children.iter().map(|&child| self.recv(child, tag, bytes, &[after])).collect();
            let summed = self.join(if summed.is_empty() { &ends[..1] } else { &summed });
            let whole = match parent {
                None => summed,
                Some(parent) => {
                    let come = self.recv(parent, tag, bytes, &[after]);
                    ends.push(self.send(parent, tag, bytes, &[summed]));
                    come
                }
            };
            ends.push(whole);
            for &child in &children {
                ends.push(self.send(child, tag, bytes, &[whole]));
            }
        }
        self.join(&ends)
    }

    /// Everyone has something for everyone: `to` and `from` say how much, by place.
    pub fn all_to_all(
        &mut self,
        circle: &Circle,
        tag: u64,
        to: impl Fn(usize) -> u64,
        from: impl Fn(usize) -> u64,
        after: u32,
    ) -> u32 {
        let size = circle.ranks.len();
        let mut ends = vec![after];
        for step in 1..size {
            let (next, before) = ((circle.own + step) % size, (circle.own + size - step) % size);
            ends.push(self.recv(circle.ranks[before], tag, from(before), &[after]));
            ends.push(self.send(circle.ranks[next], tag, to(next), &[after]));
        }
        self.join(&ends)
    }
}
