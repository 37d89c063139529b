//! Collective operations: who has heard of whom in the end, in how many rounds, with how many bytes.

use super::net::{Net, Sum, run};
use crate::apps::benchmarks::osu::{ExchangeBy, Operation, Osu, ReduceBy};
use crate::apps::benchmarks::rotate::{Pairs, Rotate};
use crate::apps::collective::Group;
use crate::apps::measure::{Summary, spans};
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use proptest::prelude::*;
use srd_wire::Nanos;

/// A script for each of `ranks`, all of them a group.
fn of_all(ranks: u32, write: impl Fn(&mut Writer, Group<'_>)) -> Vec<Script> {
    let all: Vec<u32> = (0..ranks).collect();
    let script = |own| {
        let mut writer = Writer::default();
        write(&mut writer, Group { ranks: &all, own });
        writer.script()
    };
    (0..ranks).map(script).collect()
}

fn rounds(ranks: u32) -> u64 {
    ranks.next_power_of_two().ilog2() as u64
}

proptest! {
    #[test]
    fn nobody_leaves_a_barrier_before_all_have_come(ranks in 1u32..40, late: prop::sample::Index) {
        let late = late.index(ranks as usize) as u32;
        let scripts = of_all(ranks, |writer, group| {
            if group.own == late {
                writer.compute(Nanos(1_000_000));
            }
            writer.mark();
            writer.barrier(group);
            writer.mark();
        });
        let (all, net) = run(scripts, Net::of(1000, 1));
        for rank in &all {
            prop_assert!(rank.marks()[1].0 >= 1_000_000);
            prop_assert!(rank.marks()[1].0 <= 1_000_000 + rounds(ranks) * 1000);
        }
        prop_assert_eq!((net.messages, net.bytes()), (ranks as u64 * rounds(ranks), 0));
    }

    #[test]
    fn every_vector_is_in_every_sum_of_any_number(ranks in 1u32..40) {
        let all: Sum = (0..ranks).collect();
        for halving in [false, true] {
            let net = Net { sums_up: true, adds_once: !halving, ..Net::of(1000, 1) };
            let scripts = of_all(ranks, |writer, group| match halving {
                true => writer.all_reduce_by_halving(group, 4096),
                false => writer.all_reduce(group, 8),
            });
            let (_, mut net) = run(scripts, net);
            prop_assert!((0..ranks).all(|rank| net.sum(rank) == &all));
            if halving && ranks.is_power_of_two() {
                prop_assert_eq!(net.bytes(), 2 * u64::from(ranks - 1) * 4096);
            }
        }
    }

    #[test]
    fn trees_reach_all_and_a_gather_tells_everyone_of_everyone(
        ranks in 1u32..40, root: prop::sample::Index, bytes in 0u64..20_000,
    ) {
        let root = root.index(ranks as usize) as u32;
        let all: Sum = (0..ranks).collect();
        let sums = |write: &dyn Fn(&mut Writer, Group<'_>)| {
            let net = Net { sums_up: true, ..Net::of(1000, 1) };
            let (_, mut net) = run(of_all(ranks, write), net);
            ((0..ranks).map(|rank| net.sum(rank).clone()).collect::<Vec<Sum>>(), net.bytes())
        };
        let others = u64::from(ranks - 1);
        let (up, moved) = sums(&|writer, group| writer.up(group, root, |_| bytes));
        prop_assert_eq!((&up[root as usize], moved), (&all, others * bytes));
        let (down, moved) = sums(&|writer, group| writer.down(group, root, |_| bytes));
        prop_assert!(down.iter().all(|sum| sum.contains(&root)) && moved == others * bytes);
        let (gathered, moved) = sums(&|writer, group| writer.all_gather(group, bytes));
        prop_assert!(gathered.iter().all(|sum| *sum == all) && moved == others * u64::from(ranks) * bytes);
        let (scanned, _) = sums(&|writer, group| writer.scan(group, bytes));
        prop_assert!((0..).zip(&scanned).all(|(rank, sum)| (0..=rank).all(|before| sum.contains(&before))));
        let (scattered, moved) = sums(&|writer, group| writer.down(group, 0, |below| below * bytes));
        // Each part of the tree has what is for all of it: as often as there are ranks above.
        let depths: u64 = (0..ranks).map(|rank| u64::from(rank.count_ones())).sum();
        prop_assert!(scattered.len() == ranks as usize && moved == depths * bytes);
    }

    #[test]
    fn a_ring_moves_every_part_twice_around(ranks in 1u32..20, bytes in 0u64..5000) {
        let operation = Operation::AllReduce { bytes, by: ReduceBy::Ring };
        let net = Net { sums_up: true, ..Net::of(1000, 1) };
        let (_, mut net) = run(Osu { ranks, operation, times: 2, warmup: 0 }.scripts(), net);
        let all: Sum = (0..ranks).collect();
        prop_assert!((0..ranks).all(|rank| net.sum(rank) == &all));
        prop_assert_eq!(net.bytes(), 2 * 2 * (ranks as u64 - 1) * bytes);
    }

    #[test]
    fn an_all_to_all_moves_what_each_has_for_each(
        ranks in 1u32..24, bytes in 0u64..1000, which in 0usize..4, at_once in 1u32..30, times in 1u32..4,
    ) {
        let by = [ExchangeBy::Auto, ExchangeBy::Pairs, ExchangeBy::Bruck, ExchangeBy::AtOnce(at_once)][which];
        let all_to_all = Osu { ranks, operation: Operation::AllToAll { bytes, by }, times, warmup: 1 };
        let net = Net { sums_up: true, ..Net::of(1000, 1) };
        let (all, mut net) = run(all_to_all.scripts(), net);
        let sums: Sum = (0..ranks).collect();
        let others = (ranks - 1) as u64;
        for rank in 0..ranks {
            prop_assert_eq!(&*net.sum(rank), &sums);
            prop_assert_eq!(all[rank as usize].marks().len(), 2 * times as usize);
            let moved = net.given.get(&rank).copied().unwrap_or(0);
            let at_least = (times as u64 + 1) * others * bytes;
            match by {
                ExchangeBy::Pairs | ExchangeBy::AtOnce(_) => prop_assert_eq!(moved, at_least),
                _ => prop_assert!(moved >= at_least && moved <= at_least * rounds(ranks).max(1)),
            }
        }
    }

    #[test]
    fn every_pair_meets_once(half in 1u32..12, odd: bool, tests in 1u32..3, messages in 1u32..4) {
        let pairs = Pairs::Stream { bytes: 500, messages };
        let rotate = Rotate { ranks: 2 * half + odd as u32, rotations: half, tests, pairs };
        let (all, net) = run(rotate.scripts(), Net::of(1000, 1));
        let each = 500 * (half * tests * messages) as u64;
        for rank in 0..half {
            prop_assert_eq!(net.given[&rank], each);
            prop_assert_eq!(net.taken[&(half + rank)], each);
        }
        // Sends end at once here: the last message's way is all that takes time.
        let marks: Vec<_> = all.iter().map(|rank| rank.marks().to_vec()).collect();
        let rates = rotate.rates(&marks);
        prop_assert_eq!(rates.len(), half as usize);
        let mbps = messages as f64 * 500.0 * 1e3 / 1500.0;
        prop_assert!(rates.iter().all(|of| of.least == of.most && (of.mean / mbps - 1.0).abs() < 1e-9));
    }
}

#[test]
fn barriers_are_measured_one_by_one() {
    let barriers = Osu { ranks: 12, operation: Operation::Barrier, times: 5, warmup: 2 };
    let (all, _) = run(barriers.scripts(), Net::of(1000, 1));
    let each: Vec<Nanos> = all.iter().flat_map(|rank| spans(rank.marks())).collect();
    assert_eq!(each, vec![Nanos(4000); 60]);
}

#[test]
fn libraries_choose_by_size() {
    let messages = |ranks, bytes| {
        let operation = Operation::AllToAll { bytes, by: ExchangeBy::Auto };
        let (all, _) = run(Osu { ranks, operation, times: 1, warmup: 0 }.scripts(), Net::of(1000, 0));
        Summary::of(all.iter().flat_map(|rank| spans(rank.marks())).map(Nanos::as_f64)).unwrap().mean
    };
    // Bruck: a message a round. Several at once: all in one. Pairs: one behind the other.
    assert_eq!((messages(16, 256), messages(16, 257), messages(16, 32_769)), (4000.0, 1000.0, 15_000.0));
    assert_eq!(messages(7, 256), 1000.0);
}

#[test]
fn rotation_latency_is_half_of_there_and_back() {
    let rotate = Rotate { rotations: 2, ..Rotate::latency(16) };
    let (all, _) = run(rotate.scripts(), Net::of(1234, 1));
    let marks: Vec<_> = all.iter().map(|rank| rank.marks().to_vec()).collect();
    let latencies = rotate.latencies(&marks);
    assert_eq!(latencies.len(), 2);
    assert!(latencies.iter().all(|of| of.count == 8 && of.least == 1.234 && of.most == 1.234));
}

#[test]
fn rotations_are_those_of_cbench() {
    let bandwidth = Rotate::bandwidth(128);
    assert_eq!((bandwidth.rotations, bandwidth.tests), (64, 3));
    assert_eq!(bandwidth.pairs, Pairs::Stream { bytes: 8_388_608, messages: 10 });
}
