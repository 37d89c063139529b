//! Programs over a network of which only two numbers are known: a message takes a time of its own and one for each byte
//! (the model of Hockney, 1994). Messages carry whose vectors are summed in them.

use super::all_reduce::AllReduce;
use super::script::Script;
use super::*;
use proptest::prelude::*;
use srd_wire::{BitRate, Nanos};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

type Sum = BTreeSet<u32>;

/// Sender, receiver, tag.
type Envelope = (u32, u32, u64);

#[derive(Default)]
struct Net {
    arrivals: BinaryHeap<Reverse<(Time, u64, u32)>>,
    serial: u64,
    /// Messages by envelope, and when they come.
    sent: HashMap<Envelope, VecDeque<(Time, Sum)>>,
    /// Receives that wait, with the bytes of what is expected.
    posted: HashMap<Envelope, VecDeque<(u32, u64)>>,
    done: HashMap<u32, VecDeque<Completion>>,
    /// Whose vectors each rank has summed.
    sums: HashMap<u32, Sum>,
    /// Sums are made of vectors that are not in them yet.
    adds_once: bool,
    per_message: Nanos,
    per_byte: Nanos,
    /// Messages that a rank may have begun in one moment.
    room: u32,
    begun: HashMap<(u32, Time), u32>,
    messages: u64,
}

struct Port<'a> {
    net: &'a mut Net,
    rank: u32,
}

impl Net {
    fn sum(&mut self, rank: u32) -> &mut Sum {
        self.sums.entry(rank).or_insert_with(|| Sum::from([rank]))
    }

    fn wake(&mut self, at: Time, rank: u32) {
        self.serial += 1;
        self.arrivals.push(Reverse((at, self.serial, rank)));
    }

    /// Lets receives of a rank take what has come.
    fn settle(&mut self, now: Time, rank: u32) {
        let envelopes: Vec<Envelope> = self.posted.keys().copied().filter(|&(_, to, _)| to == rank).collect();
        for envelope in envelopes {
            let arrived = |net: &Net| net.sent.get(&envelope)?.front().map(|&(at, _)| at <= now);
            while arrived(self) == Some(true)
                && let Some((request, _)) = self.posted.get_mut(&envelope).and_then(VecDeque::pop_front)
            {
                let (_, sum) = self.sent.get_mut(&envelope).and_then(VecDeque::pop_front).unwrap();
                let adds_once = self.adds_once;
                let own = self.sum(rank);
                let once = own.is_disjoint(&sum) || own.is_subset(&sum);
                assert!(once || !adds_once, "a vector is added twice");
                own.extend(sum);
                self.done.entry(rank).or_default().push_back(Completion { request, failed: None });
            }
        }
    }
}

impl Messaging for Port<'_> {
    fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) -> bool {
        let begun = self.net.begun.entry((self.rank, now)).or_default();
        if *begun == self.net.room {
            self.net.wake(now + Nanos(1), self.rank);
            return false;
        }
        *begun += 1;
        self.net.messages += 1;
        let at = now + self.net.per_message + Nanos(self.net.per_byte.0 * bytes);
        let sum = self.net.sum(self.rank).clone();
        self.net.sent.entry((self.rank, to, tag)).or_default().push_back((at, sum));
        self.net.wake(at, to);
        self.net.done.entry(self.rank).or_default().push_back(Completion { request, failed: None });
        self.net.wake(now, self.rank);
        true
    }

    fn recv(&mut self, now: Time, from: u32, tag: u64, bytes: u64, request: u32) -> bool {
        self.net.posted.entry((from, self.rank, tag)).or_default().push_back((request, bytes));
        self.net.wake(now, self.rank);
        true
    }

    fn poll(&mut self, now: Time) -> Option<Completion> {
        self.net.settle(now, self.rank);
        self.net.done.get_mut(&self.rank)?.pop_front()
    }
}

/// Runs scripts to their end.
fn run(scripts: Vec<Script>, mut net: Net) -> (Vec<Rank>, Net) {
    let mut ranks: Vec<Rank> = scripts.into_iter().map(Rank::new).collect();
    (0..ranks.len()).for_each(|rank| net.wake(Time(0), rank as u32));
    while let Some(Reverse((now, _, rank))) = net.arrivals.pop() {
        let of = &mut ranks[rank as usize];
        of.advance(now, &mut Port { net: &mut net, rank });
        if of.wakes_at() != Time::NEVER {
            net.wake(of.wakes_at(), rank);
        }
    }
    for (number, rank) in ranks.iter().enumerate() {
        assert!(rank.is_done() && rank.failed().is_none(), "rank {number} hangs: {rank:?}");
    }
    (ranks, net)
}

fn net_of(per_message: u64, per_byte: u64) -> Net {
    Net { per_message: Nanos(per_message), per_byte: Nanos(per_byte), room: u32::MAX, ..Net::default() }
}

fn between_marks(rank: &Rank) -> u64 {
    let [first, last] = rank.marks() else { panic!("two marks: {rank:?}") };
    last.0 - first.0
}

#[test]
fn a_ping_pong_takes_two_messages_a_round() {
    let (ranks, net) = run(pairs::ping_pong(10, 7).into(), net_of(1000, 3));
    assert_eq!(between_marks(&ranks[0]), 7 * 2 * 1030);
    assert_eq!(net.messages, 14);
}

#[test]
fn a_stream_is_bound_by_its_window_and_by_room() {
    for (window, room) in [(1, u32::MAX), (4, u32::MAX), (100, 1)] {
        let (ranks, net) = run(pairs::stream(10, 20, window).into(), Net { room, ..net_of(1000, 3) });
        assert_eq!(net.messages, 21);
        // Sends end at once here, so what remains is the last message's way, the answer's, and the wait for room.
        let waits = if room == 1 { 19 } else { 0 };
        assert_eq!(between_marks(&ranks[0]), 1030 + 1000 + waits, "window {window}");
    }
}

#[test]
fn a_request_that_fails_ends_the_program() {
    struct Broken(Option<Completion>);
    impl Messaging for Broken {
        fn send(&mut self, _: Time, _: u32, _: u64, _: u64, _: u32) -> bool {
            true
        }
        fn recv(&mut self, _: Time, _: u32, _: u64, _: u64, _: u32) -> bool {
            true
        }
        fn poll(&mut self, _: Time) -> Option<Completion> {
            self.0.take()
        }
    }
    let [script, _] = pairs::ping_pong(10, 1);
    let mut rank = Rank::new(script);
    rank.advance(Time(1), &mut Broken(None));
    assert!(!rank.is_done());
    rank.advance(Time(5), &mut Broken(Some(Completion { request: 2, failed: Some("peer lost") })));
    assert!(rank.is_done() && rank.marks().len() == 1);
    assert_eq!(rank.failed(), Some((script::Step::Send { to: 1, tag: 1, bytes: 10 }, "peer lost")));
}

proptest! {
    #[test]
    fn every_vector_is_in_every_sum_once(
        nodes in 0u32..4, per_node in 0u32..4, aware: bool, scattered: bool,
    ) {
        let (nodes, per_node) = (1 << nodes, 1 << per_node);
        let adds = BitRate(100_000_000_000);
        let all_reduce = AllReduce { nodes, per_node, bytes: 100, adds };
        let scripts = |times| match aware {
            true => all_reduce.on_node_first(times),
            false => all_reduce.flat(scattered, times),
        };
        let (ranks, mut net) = run(scripts(1), Net { adds_once: true, ..net_of(1000, 1) });
        let all: Sum = (0..nodes * per_node).collect();
        for rank in 0..nodes * per_node {
            prop_assert_eq!(&*net.sum(rank), &all);
        }
        // A round is a message and an addition; a tree has no addition on its way down.
        let (n, p) = (nodes.ilog2() as u64, per_node.ilog2() as u64);
        let rounds = if aware { n + 2 * p } else { n + p };
        let slowest = ranks.iter().map(between_marks).max();
        prop_assert_eq!(slowest, Some(rounds * 1100 + (n + p) * 8));
        // One behind the other, they do not mix.
        let (_, net) = run(scripts(3), Net { adds_once: true, ..net_of(1000, 1) });
        prop_assert!(net.sums.values().all(|sum| sum == &all));
    }
}
