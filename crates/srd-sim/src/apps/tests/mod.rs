//! Programs over a model network.

mod applications;
mod calls;
mod collectives;
mod net;
mod traces;

use super::benchmarks::all_reduce::AllReduce;
use super::benchmarks::pairs;
use super::*;
use net::{Net, Sum, run, run_ranks};
use proptest::prelude::*;
use script::Step;
use srd_wire::Time;
use srd_wire::{BitRate, Nanos};

fn between_marks(rank: &Rank) -> u64 {
    let [first, last] = rank.marks() else { panic!("two marks: {rank:?}") };
    last.since(*first).0
}

#[test]
fn a_ping_pong_takes_two_messages_a_round() {
    let (ranks, net) = run(pairs::ping_pong(10, 7), Net::of(1000, 3));
    assert_eq!(between_marks(&ranks[0]), 7 * 2 * 1030);
    assert_eq!(net.messages, 14);
}

#[test]
fn a_stream_is_bound_by_its_window_and_by_room() {
    for (window, room) in [(1, u32::MAX), (4, u32::MAX), (100, 1)] {
        let (ranks, net) = run(pairs::stream(10, 20, window), Net { room, ..Net::of(1000, 3) });
        assert_eq!(net.messages, 21);
        // Sends end at once here, so what remains is the last message's way, the answer's, and the wait for room.
        let waits = if room == 1 { 19 } else { 0 };
        assert_eq!(between_marks(&ranks[0]), 1030 + 1000 + waits, "window {window}");
    }
}

/// Messages that do not come to their end, but for one that is told.
struct Broken(Option<Completion>);

impl Messaging for Broken {
    fn send(&mut self, _: Time, _: u32, _: u64, _: u64, _: u32) -> bool {
        true
    }
    fn recv(&mut self, _: Time, _: u32, _: u64, _: u64, _: u32) -> bool {
        true
    }
    fn put(&mut self, _: Time, _: u32, _: u64, _: u32) -> bool {
        true
    }
    fn get(&mut self, _: Time, _: u32, _: u64, _: u32) -> bool {
        true
    }
    fn poll(&mut self, _: Time) -> Option<Completion> {
        self.0.take()
    }
}

#[test]
fn a_request_that_fails_ends_the_program() {
    let [script, _] = pairs::ping_pong(10, 1);
    let mut rank = Rank::new(script);
    rank.advance(Time(1), &mut Broken(None));
    assert!(!rank.is_done());
    rank.advance(Time(5), &mut Broken(Some(Completion { request: 2, failed: Some("peer lost") })));
    assert!(rank.is_done() && rank.marks().len() == 1);
    assert_eq!(rank.failed(), Some((Step::Send { to: 1, tag: 1, bytes: 10 }, "peer lost")));
}

/// Two ranks: the first sends as `steps` say, the second receives `messages`, in order.
fn against(steps: Vec<Step>, messages: impl Iterator<Item = u64>) -> (Vec<Rank>, Net) {
    let receives = messages.map(|bytes| Step::Recv { from: 0, tag: 0, bytes }).collect();
    run([steps.into(), receives], Net::of(100, 1))
}

#[test]
fn steps_are_taken_as_often_as_they_are_repeated() {
    let send = |bytes| Step::Send { to: 1, tag: 0, bytes };
    let repeat = |steps, times| Step::Repeat { steps, times };
    // 1, then twice (2, then three times 3).
    let steps = vec![send(1), send(2), send(3), repeat(1, 2), repeat(3, 1), send(4), repeat(1, 0)];
    let (_, net) = against(steps, [1, 2, 3, 3, 3, 2, 3, 3, 3, 4].into_iter());
    assert_eq!(net.messages, 10);
}

#[test]
fn who_counts_repeated_steps_knows_how_far_it_is() {
    let compute = Step::Compute(Nanos(100));
    let repeat = |steps, times| Step::Repeat { steps, times };
    // One, then twice (one, then three times one), then one: ten in all.
    let steps = vec![compute, compute, compute, repeat(1, 2), repeat(3, 1), compute];
    let mut rank = Rank::new(steps.into());
    for taken in 1..=10 {
        rank.advance(Time(100 * (taken - 1)), &mut Broken(None));
        assert_eq!((rank.done(), rank.is_done()), (Some(taken as f64 / 10.0), false));
    }
    rank.advance(Time(1000), &mut Broken(None));
    assert_eq!((rank.done(), rank.is_done()), (Some(1.0), true));
    assert_eq!(Rank::default().forever(true).done(), None);
}

#[test]
fn one_sided_transfers_need_no_script_over_there() {
    let steps = vec![
        Step::Mark,
        Step::Put { to: 1, bytes: 10 },
        Step::Wait { open: 0 },
        Step::Mark,
        Step::Mark,
        Step::Get { from: 1, bytes: 20 },
        Step::Wait { open: 0 },
        Step::Mark,
    ];
    let (ranks, net) = run([steps.into(), vec![].into()], Net::of(100, 1));
    assert_eq!(measure::spans(ranks[0].marks()).collect::<Vec<_>>(), [Nanos(110), Nanos(220)]);
    assert_eq!((net.given[&0], net.given[&1], net.messages), (10, 20, 2));
}

#[test]
fn an_endless_script_goes_on_until_the_others_end() {
    let pass = vec![Step::Mark, Step::Put { to: 1, bytes: 100 }, Step::Wait { open: 0 }, Step::Mark];
    let other = vec![Step::Compute(Nanos(10_000_050))].into();
    let ranks = vec![Rank::new(pass.into()).forever(true), Rank::new(other)];
    let (ranks, net) = run_ranks(ranks, Net::of(900, 1));
    assert_eq!((ranks[0].passes(), net.messages), (10_000, 10_001));
    assert!(!ranks[0].is_done() && ranks[0].is_endless());
    assert_eq!(ranks[0].marks().len(), 4096);
}

#[test]
fn an_endless_script_without_waits_lets_time_pass() {
    for steps in [vec![], vec![Step::Mark], vec![Step::Compute(Nanos(0))]] {
        let ranks =
            vec![Rank::new(steps.into()).forever(true), Rank::new(vec![Step::Compute(Nanos(1000))].into())];
        let (ranks, _) = run_ranks(ranks, Net::of(1, 1));
        assert!((1001..=2002).contains(&ranks[0].passes()), "{}", ranks[0].passes());
    }
}

#[test]
fn marks_are_summed_up() {
    let marks = [1, 4, 10, 12, 99].map(Time);
    assert_eq!(measure::spans(&marks).collect::<Vec<_>>(), [Nanos(3), Nanos(2)]);
    let of = measure::Summary::of((1..=200).rev().map(f64::from)).unwrap();
    assert_eq!((of.count, of.least, of.mean, of.p99, of.most), (200, 1.0, 100.5, 198.0, 200.0));
    assert_eq!(measure::Summary::of([7.0]).unwrap().p99, 7.0);
    assert_eq!(measure::Summary::of([]), None);
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
        let (ranks, mut net) = run(scripts(1), Net { sums_up: true, adds_once: true, ..Net::of(1000, 1) });
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
        let (_, mut net) = run(scripts(3), Net { sums_up: true, adds_once: true, ..Net::of(1000, 1) });
        prop_assert!((0..nodes * per_node).all(|rank| net.sum(rank) == &all));
    }
}
