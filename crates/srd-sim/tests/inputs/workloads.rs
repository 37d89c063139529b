//! Generators: what flows they make, and that all of these can start and end.

use srd_sim::apps::workload::*;
use srd_sim::apps::{Draw, Flow, Place, Size, Start, Traffic, TrafficFault, Trigger, TriggerKind};
use srd_sim::net::{LeafSpine, Tier, Topology};
use srd_sim::units::Ps;
use srd_wire::BitRate;

fn fabric() -> Topology {
    let tier = Tier::of(BitRate(100_000_000_000), Ps::from_micros(1));
    LeafSpine { leaves: 4, spines: 2, hosts_per_leaf: 4, tiers: [tier; 2] }.build().unwrap()
}

fn start() -> Ps {
    Ps::from_micros(3)
}

fn made(kind: Kind, seed: u64) -> Result<Traffic, String> {
    let mut traffic = Traffic::default();
    let topology = fabric();
    let workload = Workload { name: "test".to_string(), start: start(), transport: 0, kind };
    workload.add_to(&mut traffic, &topology, seed)?;
    traffic.check(topology.hosts).map_err(|fault| fault.to_string())?;
    Ok(traffic)
}

fn at(host: u32, process: u16) -> Place {
    Place { host, process }
}

/// Follows the triggers as if flows ended in the order in which they began. Returns the order.
fn order_of_starts(traffic: &Traffic) -> Vec<u32> {
    let mut fired = vec![0; traffic.triggers.len()];
    let at_a_time = |&flow: &u32| matches!(traffic.flows[flow as usize].start, Start::At(_));
    let mut order: Vec<u32> = (0..traffic.flows.len() as u32).filter(at_a_time).collect();
    let mut done = 0;
    while let Some(&flow) = order.get(done) {
        done += 1;
        let flow = &traffic.flows[flow as usize];
        for &trigger in flow.on_sent.iter().chain(&flow.on_received) {
            fired[trigger as usize] += 1;
            let Trigger { kind, flows } = &traffic.triggers[trigger as usize];
            match (kind, fired[trigger as usize]) {
                (TriggerKind::Oneshot, 1) => order.extend(flows),
                (TriggerKind::Barrier(count), n) if n == *count => order.extend(flows),
                (TriggerKind::Multishot, n) => order.extend(flows.get(n as usize - 1)),
                (_, n) => assert!(n < 2 || matches!(kind, TriggerKind::Barrier(_))),
            }
        }
    }
    order
}

#[test]
fn rounds_wait_for_all_and_repeats_for_themselves() {
    let pairs = vec![(at(0, 0), at(4, 0)), (at(1, 0), at(5, 0)), (at(2, 1), at(6, 3))];
    let rounds = Load { rounds: 3, ..Load::once(1000) };
    let traffic = made(Kind::Pairs(Pairs { pairs: pairs.clone(), load: rounds }), 1).unwrap();
    assert_eq!(traffic.flows.len(), 9);
    assert_eq!(traffic.triggers.iter().map(|t| t.kind).collect::<Vec<_>>(), [TriggerKind::Barrier(3); 2]);
    assert_eq!(order_of_starts(&traffic), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(traffic.flows[0].start, Start::At(start()));
    assert_eq!((traffic.flows[8].src, traffic.flows[8].dst), pairs[2]);

    let repeats = Load { repeats: 3, ..Load::once(1000) };
    let traffic = made(Kind::Pairs(Pairs { pairs: pairs.clone(), load: repeats }), 1).unwrap();
    assert_eq!(order_of_starts(&traffic), [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    let both = Load { rounds: 2, repeats: 2, ..Load::once(1000) };
    assert!(
        made(Kind::Pairs(Pairs { pairs, load: both }), 1).unwrap_err().contains("either rounds or repeats")
    );
}

#[test]
fn an_incast_is_from_every_process_of_every_sender() {
    let incast = Incast {
        senders: vec![4, 8, 12],
        processes: 4,
        receiver: 0,
        receiver_processes: 12,
        load: Load::until(Ps::from_micros(100)),
    };
    let traffic = made(Kind::Incast(incast.clone()), 1).unwrap();
    assert_eq!(traffic.flows.len(), 12);
    let mut senders: Vec<Place> = traffic.flows.iter().map(|flow| flow.src).collect();
    senders.dedup();
    assert_eq!(senders.len(), 12);
    let receivers: Vec<Place> = traffic.flows.iter().map(|flow| flow.dst).collect();
    assert_eq!(receivers, (0..12).map(|process| at(0, process)).collect::<Vec<_>>());
    assert!(traffic.flows.iter().all(|flow| flow.size == Size::Until(Ps::from_micros(100))));
    assert_eq!(traffic.flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), (1..13).collect::<Vec<_>>());

    let refused = |change: &dyn Fn(&mut Incast)| {
        let mut incast = incast.clone();
        change(&mut incast);
        made(Kind::Incast(incast), 1).unwrap_err()
    };
    assert!(refused(&|incast| incast.receiver = 8).contains("cannot be a sender"));
    assert!(refused(&|incast| incast.senders[0] = 16).contains("hosts 0 to 15"));
    assert!(refused(&|incast| incast.receiver = 99).contains("there is no host 99"));
    assert!(refused(&|incast| incast.senders[0] = 12).contains("listed twice"));
    assert!(refused(&|incast| incast.processes = 0).contains("at least one"));
}

#[test]
fn a_permutation_is_one_and_comes_from_its_seed() {
    let kind =
        || Kind::Permutation(Permutation { hosts: (0..16).collect(), processes: 3, load: Load::once(1) });
    let traffic = made(kind(), 7).unwrap();
    for process in 0..3 {
        let own: Vec<&Flow> = traffic.flows.iter().filter(|flow| flow.src.process == process).collect();
        let mut receivers: Vec<u32> = own.iter().map(|flow| flow.dst.host).collect();
        receivers.sort_unstable();
        assert_eq!(receivers, (0..16).collect::<Vec<_>>());
        assert!(own.iter().all(|flow| flow.src.host != flow.dst.host && flow.dst.process == process));
    }
    assert_eq!(traffic, made(kind(), 7).unwrap());
    assert_ne!(traffic, made(kind(), 8).unwrap());
}

#[test]
fn a_seed_means_the_same_for_ever() {
    // Known answers: results are compared across machines and years.
    let mut draw = Draw::of(1, 0);
    assert_eq!(std::array::from_fn::<u64, 4, _>(|_| draw.below(1000)), [DRAWN.0, DRAWN.1, DRAWN.2, DRAWN.3]);
    assert_eq!(Draw::of(1, 1).derangement(8), DERANGED);
}
const DRAWN: (u64, u64, u64, u64) = (432, 425, 539, 817);
const DERANGED: [u32; 8] = [3, 0, 7, 5, 1, 4, 2, 6];

#[test]
fn derangements_are_all_alike() {
    // 9 derangements of 4: each should come in about 1000 of 9000 draws; 5 standard deviations are 150.
    let mut draw = Draw::of(3, 0);
    let mut seen = std::collections::BTreeMap::new();
    (0..9000).for_each(|_| *seen.entry(draw.derangement(4)).or_insert(0) += 1);
    assert_eq!(seen.len(), 9);
    assert!(seen.values().all(|n| (850..1150).contains(n)), "{seen:?}");
}

#[test]
fn rack_pairs_join_equal_places_of_two_leaves() {
    let pairs = RackPairs { from_leaf: 1, to_leaf: 3, hosts: Some(2), processes: 2, load: Load::once(5) };
    let traffic = made(Kind::RackPairs(pairs.clone()), 1).unwrap();
    let ends: Vec<(Place, Place)> = traffic.flows.iter().map(|flow| (flow.src, flow.dst)).collect();
    assert_eq!(
        ends,
        [(at(4, 0), at(12, 0)), (at(4, 1), at(12, 1)), (at(5, 0), at(13, 0)), (at(5, 1), at(13, 1))]
    );
    let refused = |pairs: RackPairs| made(Kind::RackPairs(pairs), 1).unwrap_err();
    assert!(refused(RackPairs { to_leaf: 4, ..pairs.clone() }).contains("leaves 0 to 3"));
    assert!(refused(RackPairs { to_leaf: 1, ..pairs.clone() }).contains("the same leaf"));
    assert!(refused(RackPairs { hosts: Some(5), ..pairs.clone() }).contains("it has 1 to 4"));
}

#[test]
fn spread_delays_starts_at_random_within_its_span() {
    let load = Load { spread: Ps::from_micros(10), ..Load::once(5) };
    let kind = Kind::Permutation(Permutation { hosts: (0..16).collect(), processes: 4, load });
    let traffic = made(kind, 1).unwrap();
    let starts: Vec<Ps> = traffic
        .flows
        .iter()
        .map(|flow| match flow.start {
            Start::At(at) => at,
            Start::Trigger(_) => panic!("no triggers here"),
        })
        .collect();
    assert!(starts.iter().all(|&at| (start()..=start() + Ps::from_micros(10)).contains(&at)));
    let mut distinct = starts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 60);
}

#[test]
fn all_to_all_reaches_every_pair_with_a_limit_at_once() {
    for at_once in [None, Some(1), Some(4), Some(15), Some(100)] {
        let all = AllToAll { hosts: (0..16).collect(), bytes: 10, at_once, rounds: 2 };
        let traffic = made(Kind::AllToAll(all), 1).unwrap();
        assert_eq!(traffic.flows.len(), 2 * 16 * 15);
        let mut pairs: Vec<(u32, u32)> =
            traffic.flows.iter().map(|flow| (flow.src.host, flow.dst.host)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 16 * 15);
        let first = traffic.flows.iter().filter(|flow| matches!(flow.start, Start::At(_))).count();
        assert_eq!(first, 16 * at_once.unwrap_or(15).min(15) as usize);
        let order = order_of_starts(&traffic);
        assert_eq!(order.len(), traffic.flows.len());
        assert!(
            order[..240].iter().all(|&flow| flow < 240),
            "the second round begins when the first is over"
        );
    }
}

/// Which hosts' data each host has, after flows end in the order in which they begin.
fn spread_of_data(traffic: &Traffic, hosts: u32) -> Vec<u32> {
    let mut has: Vec<u32> = (0..hosts).map(|host| 1 << host).collect();
    for flow in order_of_starts(traffic) {
        let flow = &traffic.flows[flow as usize];
        has[flow.dst.host as usize] |= has[flow.src.host as usize];
    }
    has
}

#[test]
fn a_ring_moves_chunks_in_steps_and_everyone_has_all() {
    let ring = RingAllReduce { hosts: (0..5).collect(), bytes: 1001, rounds: 2 };
    let traffic = made(Kind::RingAllReduce(ring), 1).unwrap();
    assert_eq!(traffic.flows.len(), 2 * 5 * 8);
    assert!(traffic.flows.iter().all(|flow| flow.size == Size::Bytes(201)));
    assert!(traffic.flows.iter().all(|flow| flow.dst.host == (flow.src.host + 1) % 5));
    let order = order_of_starts(&traffic);
    assert_eq!(order.len(), 80);
    assert!(order[..40].iter().all(|&flow| flow < 40));
    assert!(spread_of_data(&traffic, 5).iter().all(|&has| has == 0b11111));
    // A host goes on when it has the chunk of the host before it, not earlier.
    let second = &traffic.flows[5];
    let Start::Trigger(trigger) = second.start else { panic!("the second step waits") };
    let from_before = traffic.flows.iter().position(|flow| flow.on_received.contains(&trigger)).unwrap();
    assert_eq!(traffic.flows[from_before].dst, second.src);
    assert!(from_before < 5);
}

#[test]
fn a_tree_gathers_at_the_root_and_spreads_from_there() {
    for (hosts, chunks, rounds) in [(2, 1, 1), (7, 1, 1), (6, 3, 1), (16, 4, 2)] {
        let tree = TreeAllReduce { hosts: (0..hosts).collect(), bytes: 1000, chunks, rounds };
        let traffic = made(Kind::TreeAllReduce(tree), 1).unwrap();
        assert_eq!(traffic.flows.len() as u32, 2 * (hosts - 1) * chunks * rounds);
        let order = order_of_starts(&traffic);
        assert_eq!(order.len(), traffic.flows.len());
        assert!(spread_of_data(&traffic, hosts).iter().all(|&has| has.count_ones() == hosts));
        let leaf_starts = traffic.flows.iter().filter(|flow| matches!(flow.start, Start::At(_))).count();
        assert_eq!(leaf_starts as u32, hosts.div_ceil(2), "chunks follow one another");
    }
}

#[test]
fn flows_join_and_leave_in_turn() {
    let flows = JoinLeave { senders: vec![4, 5, 6], receiver: 0, every: Ps::from_micros(10) };
    assert_eq!(flows.duration(), Ps::from_micros(50));
    let traffic = made(Kind::JoinLeave(flows), 1).unwrap();
    let spans: Vec<(Start, Size)> = traffic.flows.iter().map(|flow| (flow.start, flow.size)).collect();
    let span = |from, to| (Start::At(Ps::from_micros(from)), Size::Until(Ps::from_micros(to)));
    assert_eq!(spans, [span(3, 33), span(13, 43), span(23, 53)]);
}

#[test]
fn too_many_flows_are_refused_before_they_are_made() {
    let all = |rounds| AllToAll { hosts: (0..16).collect(), bytes: 10, at_once: None, rounds };
    assert!(made(Kind::AllToAll(all(1_000_000)), 1).unwrap_err().contains("at most 4194304"));
    let tree = TreeAllReduce { hosts: (0..16).collect(), bytes: 1 << 40, chunks: u32::MAX, rounds: u32::MAX };
    assert!(made(Kind::TreeAllReduce(tree), 1).unwrap_err().contains("at most 4194304"));
}

#[test]
fn the_check_of_traffic_finds_what_cannot_be() {
    let mut traffic = Traffic::default();
    traffic.add_workload("test");
    let trigger = traffic.add_trigger(TriggerKind::Oneshot);
    let flow = |start| Flow {
        id: 1,
        workload: 0,
        transport: 0,
        src: at(0, 0),
        dst: at(1, 0),
        size: Size::Bytes(1),
        start,
        on_sent: Vec::new(),
        on_received: Vec::new(),
    };
    traffic.add_flow(flow(Start::At(Ps::ZERO)));
    traffic.add_flow(flow(Start::Trigger(trigger)));
    let fault = |change: &dyn Fn(&mut Traffic)| {
        let mut traffic = traffic.clone();
        traffic.flows[0].on_sent = vec![0];
        assert_eq!(traffic.check(2), Ok(()));
        change(&mut traffic);
        traffic.check(2).unwrap_err()
    };
    assert_eq!(fault(&|t| t.flows[1].dst.host = 2), TrafficFault::NoSuchHost { flow: 1, host: 2 });
    assert_eq!(fault(&|t| t.flows[1].dst.host = 0), TrafficFault::ToItself { flow: 1 });
    assert_eq!(fault(&|t| t.flows[1].size = Size::Bytes(0)), TrafficFault::Empty { flow: 1 });
    assert_eq!(fault(&|t| t.flows[0].size = Size::Until(Ps::ZERO)), TrafficFault::Empty { flow: 0 });
    assert_eq!(fault(&|t| t.flows[0].on_received.push(9)), TrafficFault::NoSuchTrigger { flow: 0 });
    assert_eq!(fault(&|t| t.flows[1].start = Start::Trigger(9)), TrafficFault::NoSuchTrigger { flow: 1 });
    assert_eq!(fault(&|t| t.flows[0].on_sent.clear()), TrafficFault::NeverStarts { flow: 1, trigger: 0 });
    assert_eq!(
        fault(&|t| t.flows[0].on_received.push(0)),
        TrafficFault::FiredTooOften { trigger: 0, fired: 2 }
    );
    let nothing = |t: &mut Traffic| {
        t.triggers[0].flows.clear();
        t.flows[1].start = Start::At(Ps::ZERO);
    };
    assert_eq!(fault(&nothing), TrafficFault::StartsNothing { trigger: 0 });
}

#[test]
fn traffic_joined_to_other_traffic_keeps_its_shape() {
    let rounds = |bytes| {
        let load = Load { rounds: 2, ..Load::once(bytes) };
        made(Kind::Pairs(Pairs { pairs: vec![(at(0, 0), at(4, 0)), (at(1, 0), at(5, 0))], load }), 1).unwrap()
    };
    let mut traffic = rounds(1);
    traffic.append(rounds(2), Ps::from_micros(10));
    assert_eq!(traffic.check(16), Ok(()));
    assert_eq!(traffic.workloads.len(), 2);
    assert_eq!(traffic.flows[4].start, Start::At(Ps::from_micros(13)));
    assert_eq!(traffic.flows[6].start, Start::Trigger(1));
    assert_eq!(traffic.triggers[1].flows, [6, 7]);
    assert_eq!(traffic.flows[6].workload, 1);
    assert_eq!(traffic.next_id(), 5);
}
