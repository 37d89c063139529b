//! Builders, checks, names of cables, distances.

use proptest::prelude::*;
use srd_sim::net::{Cable, Clos, LeafSpine, NodeId, OneSwitch, PacketSizes, Role, Switch, Tier, Topology};
use srd_sim::units::Ps;
use srd_wire::BitRate;

const GBPS_100: BitRate = BitRate(100_000_000_000);
/// htsim's sizes: data of 4150 bytes, ACKs of 64.
const SIZES: PacketSizes = PacketSizes { data: 4150, ack: 64 };

fn tier() -> Tier {
    Tier::of(GBPS_100, Ps::from_micros(1))
}

fn leaf_spine(leaves: u32, spines: u32, hosts_per_leaf: u32) -> Topology {
    LeafSpine { leaves, spines, hosts_per_leaf, tiers: [tier(); 2] }.build().unwrap()
}

fn fat_tree(k: u32) -> Topology {
    Clos::fat_tree(k, tier()).unwrap().build().unwrap()
}

/// Names of the cables of one node.
fn cables_of(topology: &Topology, name: &str) -> Vec<String> {
    let own = |cable: &&Cable| [cable.a, cable.b].iter().any(|&end| topology.name(end) == name);
    let named = topology.cables.iter().filter(own);
    named.map(|cable| format!("{}-{}", topology.name(cable.a), topology.name(cable.b))).collect()
}

#[test]
fn builders_count_right() {
    for (topology, hosts, switches, cables) in [
        (OneSwitch { hosts: 5, tier: tier() }.build().unwrap(), 5, 1, 5),
        (leaf_spine(4, 3, 8), 32, 7, 32 + 12),
        (fat_tree(4), 16, 8 + 8 + 4, 16 + 16 + 16),
        (fat_tree(16), 1024, 128 + 128 + 64, 3 * 1024),
    ] {
        topology.check().unwrap();
        assert_eq!(topology.hosts, hosts);
        assert_eq!(topology.switches.len(), switches);
        assert_eq!(topology.cables.len(), cables);
    }
}

#[test]
fn a_clos_is_wired_as_htsim_wires_it() {
    let tiers = [tier(), Tier { bundle: 2, ..tier() }, tier()];
    let clos = Clos { pods: 2, leaves_per_pod: 2, aggs_per_pod: 2, cores: 4, hosts_per_leaf: 2, tiers };
    let topology = clos.build().unwrap();
    topology.check().unwrap();
    assert_eq!(cables_of(&topology, "h5"), ["h5-leaf2"]);
    assert_eq!(
        cables_of(&topology, "leaf2"),
        ["h4-leaf2", "h5-leaf2", "leaf2-agg1.0", "leaf2-agg1.0", "leaf2-agg1.1", "leaf2-agg1.1"]
    );
    // Position p goes to cores p + aggs_per_pod l: docs/design/htsim-formats.md, "Format of .topo files".
    let upwards = |agg: &str| {
        cables_of(&topology, agg).into_iter().filter(|name| name.contains("core")).collect::<Vec<_>>()
    };
    assert_eq!(upwards("agg0.0"), ["agg0.0-core0", "agg0.0-core2"]);
    assert_eq!(upwards("agg1.1"), ["agg1.1-core1", "agg1.1-core3"]);
}

#[test]
fn impossible_counts_are_refused() {
    let refused = |topology: Result<Topology, String>| topology.unwrap_err();
    assert!(refused(OneSwitch { hosts: 1, tier: tier() }.build()).contains("at least 2"));
    let shape = LeafSpine { leaves: 2, spines: 0, hosts_per_leaf: 2, tiers: [tier(); 2] };
    assert!(refused(shape.build()).contains("at least 1"));
    let huge = LeafSpine { leaves: u32::MAX, spines: 2, hosts_per_leaf: u32::MAX, tiers: [tier(); 2] };
    assert!(refused(huge.build()).contains("at most 1048576"));
    let dense = LeafSpine { leaves: 10_000, spines: 10_000, hosts_per_leaf: 1, tiers: [tier(); 2] };
    assert!(refused(dense.build()).contains("cables are too many"));
    let uneven =
        Clos { pods: 2, leaves_per_pod: 2, aggs_per_pod: 2, cores: 3, hosts_per_leaf: 2, tiers: [tier(); 3] };
    assert!(refused(uneven.build()).contains("multiple"));
    let dead = Tier { rate: BitRate(0), ..tier() };
    assert!(refused(OneSwitch { hosts: 2, tier: dead }.build()).contains("above 0"));
    assert!(Clos::fat_tree(3, tier()).unwrap_err().contains("even"));
}

#[test]
fn the_check_finds_what_is_wrong() {
    let good = leaf_spine(2, 2, 2);
    let spoiled = |spoil: &dyn Fn(&mut Topology)| {
        let mut topology = good.clone();
        spoil(&mut topology);
        topology.check().unwrap_err()
    };
    assert!(spoiled(&|t| t.cables.retain(|cable| cable.a != NodeId(1))).contains("h1 has 0 cables"));
    assert!(spoiled(&|t| t.cables.push(t.cables[1])).contains("h1 has 2 cables"));
    assert!(spoiled(&|t| t.cables[0].b = NodeId(1)).contains("no switch"));
    assert!(spoiled(&|t| t.cables[0].b = NodeId(99)).contains("node 99"));
    assert!(spoiled(&|t| t.cables[5].rate = BitRate(0)).contains("leaf0-spine1 has a rate of 0"));
    assert!(spoiled(&|t| t.cables[5].b = t.cables[5].a).contains("where it begins"));
    assert!(spoiled(&|t| t.cables[5].queue_bytes[1] = Some(0)).contains("queue of 0 bytes"));
    assert!(spoiled(&|t| t.cables.truncate(4)).contains("h0 and h2 cannot reach each other"));
    assert!(
        spoiled(&|t| t.switches[1].name = "leaf0".to_string()).contains("two switches are called `leaf0`")
    );
    assert!(spoiled(&|t| t.switches[1].name = "h3".to_string()).contains("cannot be called `h3`"));
    assert!(spoiled(&|t| t.hosts = 1).contains("at least 2 hosts"));
}

#[test]
fn cables_are_found_by_name() {
    let tiers = [tier(), Tier { bundle: 2, ..tier() }];
    let topology = LeafSpine { leaves: 3, spines: 2, hosts_per_leaf: 2, tiers }.build().unwrap();
    let found = |name: &str| {
        let cables = topology.cables_named(name).unwrap();
        cables.into_iter().map(|found| (found.cable, found.reversed)).collect::<Vec<_>>()
    };
    assert_eq!(found("h3-leaf1"), [(3, false)]);
    assert_eq!(found("leaf0-spine1"), [(8, false), (9, false)]);
    assert_eq!(found("spine1-leaf0"), [(8, true), (9, true)]);
    assert_eq!(found("leaf0-spine1#1"), [(9, false)]);
    assert_eq!(found("leaf2-*"), [(4, true), (5, true), (14, false), (15, false), (16, false), (17, false)]);
    assert_eq!(found("*-spine0").len(), 6);
    assert_eq!(found("leaf*-spine0#0").len(), 3);
    assert_eq!(found("*").len(), topology.cables.len());
}

#[test]
fn a_name_that_means_nothing_says_what_there_is() {
    let topology = leaf_spine(3, 2, 2);
    for name in ["leaf3-spine0", "leaf0", "", "leaf0-spine0#1", "leaf0-leaf1"] {
        let error = topology.cables_named(name).unwrap_err();
        assert!(error.contains("h0-leaf0 to h5-leaf2 (6), leaf0-spine0 to leaf2-spine1 (6)"), "{error}");
    }
    assert!(topology.cables_named("leaf0-spine0#x").unwrap_err().contains("number in its bundle"));
}

#[test]
fn the_round_trip_is_that_of_store_and_forward() {
    // Three hops of 1 us there and three back within a pod; a packet is sent in full on each.
    let tree = fat_tree(4);
    let hops = |n: u64| Ps(n * (332_000 + 5_120 + 2_000_000));
    assert_eq!(tree.base_rtt(SIZES, 0, 1), hops(2));
    assert_eq!(tree.base_rtt(SIZES, 0, 2), hops(4));
    assert_eq!(tree.base_rtt(SIZES, 0, 15), hops(6));
    // htsim prints 14.022 us for its default tree: main_uec.cpp, calculate_rtt.
    assert_eq!(tree.longest_base_rtt(SIZES), Ps(14_022_720));
}

#[test]
fn the_quickest_of_equal_paths_counts_and_the_farthest_pair() {
    let mut topology = leaf_spine(3, 2, 2);
    let usual = topology.longest_base_rtt(SIZES);
    let slow = topology.cables_named("*-spine1").unwrap();
    slow.iter().for_each(|found| topology.cables[found.cable as usize].delay = Ps::from_micros(50));
    assert_eq!(topology.longest_base_rtt(SIZES), usual);
    topology.switches[0].latency = Ps::from_micros(3);
    assert_eq!(topology.base_rtt(SIZES, 0, 2), usual + Ps::from_micros(6));
    assert_eq!(topology.base_rtt(SIZES, 2, 4), usual);
    // Two far hosts of one leaf are farther from each other than from anyone else.
    topology.cables[4].delay = Ps::from_micros(100);
    topology.cables[5].delay = Ps::from_micros(100);
    assert_eq!(topology.longest_base_rtt(SIZES), topology.base_rtt(SIZES, 4, 5));
}

/// The longest round trip, found by looking at every pair.
fn longest_of_pairs(topology: &Topology) -> Ps {
    let hosts = 0..topology.hosts;
    let pairs = hosts.clone().flat_map(|a| hosts.clone().map(move |b| (a, b))).filter(|(a, b)| a != b);
    pairs.map(|(a, b)| topology.base_rtt(SIZES, a, b)).max().unwrap()
}

#[test]
fn the_longest_round_trip_is_that_of_the_farthest_pair() {
    let slow = Tier { rate: BitRate(25_000_000_000), latency: Ps::from_nanos(300), ..tier() };
    let two = LeafSpine { leaves: 8, spines: 3, hosts_per_leaf: 4, tiers: [tier(), slow] }.build().unwrap();
    let bundles = [tier(), slow, Tier { bundle: 2, ..tier() }];
    let three =
        Clos { pods: 3, leaves_per_pod: 2, aggs_per_pod: 2, cores: 4, hosts_per_leaf: 2, tiers: bundles };
    let one = OneSwitch { hosts: 3, tier: slow }.build().unwrap();
    for topology in [two, three.build().unwrap(), one] {
        assert_eq!(topology.longest_base_rtt(SIZES), longest_of_pairs(&topology));
    }
}

proptest! {
    #[test]
    fn the_longest_round_trip_is_found_in_any_fabric(
        switches in 2u32..9,
        extra in prop::collection::vec((0u32..9, 0u32..9, 1u64..3), 0..20),
        hosts in prop::collection::vec((0u32..9, 1u64..4), 2..8),
        latencies in prop::collection::vec(0u64..2, 9),
    ) {
        let n = hosts.len() as u32;
        let cable = |a: u32, b: u32, micros: u64| Cable {
            a: NodeId(a),
            b: NodeId(b),
            rate: GBPS_100,
            delay: Ps::from_micros(micros),
            queue_bytes: [None; 2],
        };
        let named = |n: u32| Switch { name: format!("s{n}"), latency: Ps::from_micros(latencies[n as usize]), role: Role::Switch };
        let to_hosts = hosts.iter().enumerate().map(|(host, &(switch, delay))| cable(host as u32, n + switch % switches, delay));
        // A path through all of them, and what else there may be.
        let path = (1..switches).map(|s| cable(n + s - 1, n + s, 1));
        let others = extra.iter().map(|&(a, b, delay)| (a % switches, b % switches, delay)).filter(|(a, b, _)| a != b);
        let cables = to_hosts.chain(path).chain(others.map(|(a, b, delay)| cable(n + a, n + b, delay))).collect();
        let topology = Topology { hosts: n, switches: (0..switches).map(named).collect(), cables };
        prop_assert_eq!(topology.check(), Ok(()));
        prop_assert_eq!(topology.longest_base_rtt(SIZES), longest_of_pairs(&topology));
    }
}

#[test]
fn the_narrowest_layer_limits_a_pair() {
    let up = Tier { rate: BitRate(10_000_000_000), bundle: 2, ..tier() };
    let topology =
        LeafSpine { leaves: 2, spines: 3, hosts_per_leaf: 2, tiers: [tier(), up] }.build().unwrap();
    assert_eq!(topology.narrowest_rate(0, 1), GBPS_100);
    assert_eq!(topology.narrowest_rate(0, 2), BitRate(60_000_000_000));
    assert_eq!(fat_tree(4).narrowest_rate(0, 15), GBPS_100);
    assert_eq!(fat_tree(4).fastest_host(), GBPS_100);
}

#[test]
fn switches_may_be_joined_in_any_shape() {
    // A ring of four switches, one host each, cables of hosts not in order: nothing but `check` is relied on.
    let mut topology = Topology { hosts: 4, ..Topology::default() };
    let cable = |a: u32, b: u32| Cable {
        a: NodeId(a),
        b: NodeId(b),
        rate: GBPS_100,
        delay: Ps::from_micros(1),
        queue_bytes: [None; 2],
    };
    topology.switches =
        (0..4).map(|n| Switch { name: format!("ring{n}"), latency: Ps::ZERO, role: Role::Switch }).collect();
    topology.cables =
        (0..4).map(|n| cable(4 + n, 4 + (n + 1) % 4)).chain((0..4).map(|n| cable(3 - n, 7 - n))).collect();
    topology.check().unwrap();
    let hops = |n: u64| Ps(n * (332_000 + 5_120 + 2_000_000));
    assert_eq!(topology.base_rtt(SIZES, 0, 3), hops(3));
    assert_eq!(topology.base_rtt(SIZES, 0, 2), hops(4));
    assert_eq!(topology.longest_base_rtt(SIZES), hops(4));
}
