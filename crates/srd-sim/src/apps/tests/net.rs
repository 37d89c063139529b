//! A network of which only two numbers are known: a message takes a time of its own and one for each byte (the model of
//! Hockney, 1994). Messages carry whose vectors are summed in them.

use crate::apps::messaging::{Completion, Messaging};
use crate::apps::rank::Rank;
use crate::apps::script::Script;
use srd_wire::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

pub type Sum = BTreeSet<u32>;

/// Sender, receiver, tag.
type Envelope = (u32, u32, u64);

/// A request's end: when, the how manieth, which, and what came with it.
type End = Reverse<(Time, u64, u32, Sum)>;

#[derive(Default)]
pub struct Net {
    pub(super) wakes: BinaryHeap<Reverse<(Time, u64, u32)>>,
    pub(super) serial: u64,
    /// Messages by envelope: when they come, and their bytes.
    pub(super) sent: BTreeMap<Envelope, VecDeque<(Time, u64, Sum)>>,
    /// Receives that wait.
    pub(super) posted: BTreeMap<Envelope, VecDeque<(u32, u64)>>,
    pub(super) ends: BTreeMap<u32, BinaryHeap<End>>,
    /// Whose vectors each rank has summed, if that is asked for.
    pub(super) sums: BTreeMap<u32, Sum>,
    pub sums_up: bool,
    /// Sums are made of vectors that are not in them yet.
    pub adds_once: bool,
    pub per_message: Nanos,
    pub per_byte: Nanos,
    /// Messages that a rank may have begun in one moment.
    pub room: u32,
    pub(super) begun: BTreeMap<u32, (Time, u32)>,
    pub messages: u64,
    /// Messages by their bytes.
    pub(super) sizes: BTreeMap<u64, u64>,
    /// Bytes that each rank has sent, put or given to a get.
    pub given: BTreeMap<u32, u64>,
    /// Bytes that each has received, got or had put.
    pub taken: BTreeMap<u32, u64>,
    /// Nothing happens later.
    pub until: Option<Time>,
}

struct Port<'a> {
    net: &'a mut Net,
    rank: u32,
}

impl Net {
    pub fn of(per_message: u64, per_byte: u64) -> Net {
        Net { per_message: Nanos(per_message), per_byte: Nanos(per_byte), room: u32::MAX, ..Net::default() }
    }

    pub fn sum(&mut self, rank: u32) -> &mut Sum {
        self.sums.entry(rank).or_insert_with(|| Sum::from([rank]))
    }

    /// All bytes that went from one rank to another.
    pub fn bytes(&self) -> u64 {
        self.given.values().sum()
    }

    /// Messages of so many bytes.
    pub fn messages_of(&self, bytes: u64) -> u64 {
        self.sizes.get(&bytes).copied().unwrap_or(0)
    }

    fn wake(&mut self, at: Time, rank: u32) {
        self.serial += 1;
        self.wakes.push(Reverse((at, self.serial, rank)));
    }

    fn ends(&mut self, at: Time, rank: u32, request: u32, sum: Sum) {
        self.wake(at, rank);
        self.ends.entry(rank).or_default().push(Reverse((at, self.serial, request, sum)));
    }

    fn carried(&mut self, from: u32, to: u32, bytes: u64) -> Nanos {
        assert!(from != to, "rank {from} talks to itself");
        self.messages += 1;
        *self.sizes.entry(bytes).or_default() += 1;
        *self.given.entry(from).or_default() += bytes;
        *self.taken.entry(to).or_default() += bytes;
        self.per_message + Nanos(self.per_byte.0 * bytes)
    }

    fn match_up(&mut self, now: Time, envelope: Envelope) {
        let (Some(sent), Some(posted)) = (self.sent.get_mut(&envelope), self.posted.get_mut(&envelope))
        else {
            return;
        };
        while !sent.is_empty() && !posted.is_empty() {
            let (at, bytes, sum) = sent.pop_front().unwrap();
            let (request, expected) = posted.pop_front().unwrap();
            assert_eq!(bytes, expected, "message {envelope:?}");
            self.serial += 1;
            let end = (at.max(now), self.serial, request, sum);
            self.wakes.push(Reverse((end.0, self.serial, envelope.1)));
            self.ends.entry(envelope.1).or_default().push(Reverse(end));
        }
    }
}

impl Messaging for Port<'_> {
    fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) -> bool {
        let (at, begun) = self.net.begun.entry(self.rank).or_default();
        if *at != now {
            (*at, *begun) = (now, 0);
        }
        if *begun == self.net.room {
            self.net.wake(now + Nanos(1), self.rank);
            return false;
        }
        *begun += 1;
        let at = now + self.net.carried(self.rank, to, bytes);
        let sum = if self.net.sums_up { self.net.sum(self.rank).clone() } else { Sum::new() };
        let envelope = (self.rank, to, tag);
        self.net.sent.entry(envelope).or_default().push_back((at, bytes, sum));
        self.net.ends(now, self.rank, request, Sum::new());
        self.net.match_up(now, envelope);
        true
    }

    fn recv(&mut self, now: Time, from: u32, tag: u64, bytes: u64, request: u32) -> bool {
        let envelope = (from, self.rank, tag);
        self.net.posted.entry(envelope).or_default().push_back((request, bytes));
        self.net.match_up(now, envelope);
        true
    }

    fn put(&mut self, now: Time, to: u32, bytes: u64, request: u32) -> bool {
        let at = now + self.net.carried(self.rank, to, bytes);
        self.net.ends(at, self.rank, request, Sum::new());
        true
    }

    fn get(&mut self, now: Time, from: u32, bytes: u64, request: u32) -> bool {
        let at = now + self.net.per_message + self.net.carried(from, self.rank, bytes);
        self.net.ends(at, self.rank, request, Sum::new());
        true
    }

    fn poll(&mut self, now: Time) -> Option<Completion> {
        let ends = self.net.ends.get_mut(&self.rank)?;
        if ends.peek()?.0.0 > now {
            return None;
        }
        let Reverse((_, _, request, sum)) = ends.pop()?;
        if self.net.sums_up && !sum.is_empty() {
            let adds_once = self.net.adds_once;
            let own = self.net.sum(self.rank);
            let once = own.is_disjoint(&sum) || own.is_subset(&sum);
            assert!(once || !adds_once, "a vector is added twice");
            own.extend(sum);
        }
        Some(Completion { request, failed: None })
    }
}

/// Runs scripts to their end.
pub fn run(scripts: impl IntoIterator<Item = Script>, net: Net) -> (Vec<Rank>, Net) {
    run_ranks(scripts.into_iter().map(Rank::new).collect(), net)
}

/// Runs ranks until those that have an end have come to it; then no message of theirs may be left over.
pub fn run_ranks(mut ranks: Vec<Rank>, mut net: Net) -> (Vec<Rank>, Net) {
    let mut left = ranks.iter().filter(|rank| !rank.is_endless() && !rank.is_done()).count();
    (0..ranks.len()).for_each(|rank| net.wake(Time(0), rank as u32));
    while let Some(Reverse((now, _, rank))) = net.wakes.pop()
        && net.until.is_none_or(|until| now <= until)
        && (left > 0 || net.until.is_some())
    {
        let of = &mut ranks[rank as usize];
        let was_done = of.is_done();
        of.advance(now, &mut Port { net: &mut net, rank });
        assert_eq!(of.failed(), None, "rank {rank}");
        left -= (of.is_done() && !was_done) as usize;
        if of.wakes_at() != Time::NEVER && of.wakes_at() > now {
            net.wake(of.wakes_at(), rank);
        }
    }
    for (number, rank) in ranks.iter().enumerate() {
        assert!(rank.is_endless() || rank.is_done(), "rank {number} hangs: {rank:?}");
    }
    let is_over = |&rank: &u32| !ranks[rank as usize].is_endless();
    let left_over = |(envelope, count): (&Envelope, usize)| {
        assert!(count == 0 || !is_over(&envelope.1), "{count} messages {envelope:?} are left over");
    };
    net.sent.iter().map(|(envelope, messages)| (envelope, messages.len())).for_each(left_over);
    net.posted.iter().map(|(envelope, receives)| (envelope, receives.len())).for_each(left_over);
    (ranks, net)
}
