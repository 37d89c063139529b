//! Ways through the fabric: who chooses them, and what comes of it.

use crate::{begun, counters, done, outcome, port, refusal, scenario, took};
use srd_baselines::MixedContent;
use srd_sim::hosts::{AnyHost, SrdContent};
use srd_sim::input::Scenario;
use srd_sim::net::{FrameHead, PortId, Sight, Watcher};
use srd_sim::run::Simulation;
use srd_sim::units::Ps;
use srd_wire::Body;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A data packet that begins to leave a port: when, which, and its flow as switches see it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Ps,
    port: PortId,
    flow: (u32, u32),
    packet: (u32, u8),
}

struct Log(Rc<RefCell<Vec<Seen>>>);

impl Watcher<MixedContent<SrdContent>> for Log {
    #[allow(irrefutable_let_patterns)]
    fn see(
        &mut self,
        _: Ps,
        port: PortId,
        head: &FrameHead,
        content: &MixedContent<SrdContent>,
        sight: Sight,
    ) {
        let MixedContent::Srd(content) = content else { return };
        let (Body::Data(data), Sight::Leaves(at)) = (&content.packet.body, sight) else { return };
        let (flow, packet) = ((head.dst, head.tuple_hash), (data.psn.0, data.tx_count));
        self.0.borrow_mut().push(Seen { at, port, flow, packet });
    }
}

/// Runs a scenario and writes down every data packet on every port.
fn watched(scenario: &Scenario) -> (Simulation<'_, AnyHost>, Vec<Seen>) {
    let mut simulation = begun(scenario);
    let log = Rc::new(RefCell::new(Vec::new()));
    (0..simulation.fabric.ports()).for_each(|port| simulation.fabric.watch(PortId(port)));
    simulation.fabric.watcher = Some(Box::new(Log(log.clone())));
    simulation.run(Ps::NEVER);
    let seen = log.borrow().clone();
    (simulation, seen)
}

/// Two leaves of eight hosts, eight spines; what the sections `more` say.
fn leaf_spine(more: &str) -> Scenario {
    scenario(&format!(
        "seed = 3\n[fabric]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 8\nhosts_per_leaf = 8\n\
         [queues]\ncapacity = \"20bdp\"\n{more}"
    ))
}

/// One path for each flow, as far as the transport is concerned, and a window that fills it.
const PINNED: &str = "[transport]\nmtu = 1500\npaths = 1\ncontroller = \"fixed\"\nwindow = \"1.5bdp\"\n";
/// Each host of a leaf to one of the other.
const RACK: &str = "[[workload]]\nkind = \"rack-pairs\"\nsize = \"2MB\"\n";

/// The longest queue at a leaf's ports to the spines, in bytes.
fn longest_up(simulation: &Simulation<'_, AnyHost>) -> u64 {
    let ports = (0..8).map(|spine| counters(simulation, &format!("leaf0->spine{spine}")).most_waiting);
    ports.max().unwrap()
}

fn slowest(simulation: &Simulation<'_, AnyHost>) -> f64 {
    (0..simulation.flows.len()).map(|flow| took(simulation, flow)).fold(0.0, f64::max)
}

#[test]
fn adaptive_switches_spread_what_hashes_pile_up() {
    let alone = 2e6 * 1538.0 / 1400.0 * 8e-5;
    let ecmp = leaf_spine(&format!("{PINNED}{RACK}"));
    let ecmp = done(&ecmp);
    assert!(longest_up(&ecmp) > 100_000 && slowest(&ecmp) > 1.8 * alone, "{}", slowest(&ecmp));
    let adaptive = leaf_spine(&format!("[routing]\nmode = \"adaptive\"\n{PINNED}{RACK}"));
    let adaptive = done(&adaptive);
    // Eight flows at line rate on eight ports: about as many frames wait as ports are taken at the same moment.
    assert!(longest_up(&adaptive) <= 4 * 1538, "{}", longest_up(&adaptive));
    assert!(slowest(&adaptive) < 1.15 * alone + 10.0, "{} of {alone}", slowest(&adaptive));
    // Every port carries its part.
    let frames: Vec<u64> = (0..8).map(|n| counters(&adaptive, &format!("leaf0->spine{n}")).frames).collect();
    let (least, most) = (frames.iter().min().unwrap(), frames.iter().max().unwrap());
    assert!(*most as f64 <= 1.25 * *least as f64, "{frames:?}");
}

/// How often a data packet overtakes another of its flow between its host and its last port.
fn overtakings(simulation: &Simulation<'_, AnyHost>, seen: &[Seen]) -> usize {
    let mut sent: BTreeMap<(u32, u32), Vec<(u32, u8)>> = BTreeMap::new();
    let mut came: BTreeMap<(u32, u32), Vec<(u32, u8)>> = BTreeMap::new();
    for seen in seen {
        let name = simulation.fabric.port_name(seen.port);
        if name.starts_with('h') {
            sent.entry(seen.flow).or_default().push(seen.packet);
        } else if name.contains("->h") {
            came.entry(seen.flow).or_default().push(seen.packet);
        }
    }
    assert!(!came.is_empty());
    let overtaken = |(flow, came): (&(u32, u32), &Vec<(u32, u8)>)| {
        let places: BTreeMap<_, usize> =
            sent[flow].iter().enumerate().map(|(n, packet)| (*packet, n)).collect();
        let places: Vec<usize> = came.iter().map(|packet| places[packet]).collect();
        places.windows(2).filter(|pair| pair[0] > pair[1]).count()
    };
    came.iter().map(overtaken).sum()
}

/// A spine whose cables are twice as long as others makes packets overtake each other.
const LONG_WAY: &str = "[[fault]]\nkind = \"delay\"\nlink = \"leaf0-spine0\"\nat_us = 0\nextra_us = 5\n";

#[test]
fn strict_order_undoes_what_adaptive_routing_does() {
    let run = |routing: &str| {
        let scenario = leaf_spine(&format!("[routing]\n{routing}\n{PINNED}{RACK}{LONG_WAY}"));
        let (simulation, seen) = watched(&scenario);
        let (held, late) = simulation.fabric.held_and_late();
        (overtakings(&simulation, &seen), held, late)
    };
    let (loose, held, _) = run("mode = \"adaptive\"");
    assert!(loose > 1000 && held == 0, "{loose}");
    let (strict, held, late) = run("mode = \"adaptive\"\nstrict_order = true");
    assert_eq!((strict, late), (0, 0));
    assert!(held > 1000, "{held}");
    // Those who wait too short a time wait for nothing.
    let (hasty, _, late) = run("mode = \"adaptive\"\nstrict_order = true\nstrict_timeout_us = 1");
    assert!(hasty > 100 && late > 100, "{hasty} {late}");
    assert_eq!(run("mode = \"ecmp\"").0, 0);
}

#[test]
fn strict_order_goes_on_without_what_is_lost() {
    let loss = "[[fault]]\nkind = \"loss\"\nlink = \"leaf0-spine1\"\nat_us = 0\nprobability = 0.01\n";
    let scenario = leaf_spine(&format!(
        "[routing]\nmode = \"adaptive\"\nstrict_order = true\nstrict_timeout_us = 30\n{PINNED}{RACK}{loss}"
    ));
    let (mut simulation, _) = watched(&scenario);
    let ended = outcome(&mut simulation);
    assert_eq!(ended.finished, 8);
    assert!(ended.packets_lost > 0 && simulation.fabric.held_and_late().0 > 0);
}

#[test]
fn what_strict_order_has_held_finds_room_on_lossless_links() {
    for routing in ["adaptive", "reroute"] {
        let scenario = scenario(&format!(
            "seed = 1\n[fabric]\nkind = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4\nhost_gbps = 10\n\
             cable_us = 0.05\nswitch_latency_us = 0.5\n[routing]\nmode = \"{routing}\"\nstrict_order = true\n\
             [queues]\nshared = \"256KB\"\ncapacity = \"1MB\"\nlink_pause = true\n\
             [transport]\nkind = \"iwarp\"\n[[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n"
        ));
        let mut simulation = begun(&scenario);
        while simulation.run(simulation.now + Ps::from_micros(100)) {}
        let (held, _) = simulation.fabric.held_and_late();
        let ended = outcome(&mut simulation);
        assert!(held > 50 && ended.pause_frames > 0, "{routing}: {held}");
        assert_eq!((ended.finished, ended.lossless_drops), (16, 0), "{routing}");
    }
}

/// The ports to the spines that each flow took, with the moments at which its packets left there.
fn ways(simulation: &Simulation<'_, AnyHost>, seen: &[Seen]) -> BTreeMap<(u32, u32), Vec<(Ps, PortId)>> {
    let mut ways: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for seen in seen {
        if simulation.fabric.port_name(seen.port).starts_with("leaf0->spine") {
            ways.entry(seen.flow).or_default().push((seen.at, seen.port));
        }
    }
    ways
}

#[test]
fn a_flow_takes_another_way_after_a_pause_alone() {
    let bursts: String = (0..12)
        .map(|n| {
            format!(
                "[[workload]]\nkind = \"flows\"\npairs = [\"0->8\"]\nsize = \"30KB\"\nstart_us = {}\n",
                n * 200
            )
        })
        .collect();
    let scenario = leaf_spine(&format!("[routing]\nmode = \"flowlet\"\nflowlet_us = 50\n{PINNED}{bursts}"));
    let (simulation, seen) = watched(&scenario);
    let ways = ways(&simulation, &seen);
    let (_, ports) = ways.iter().max_by_key(|(_, ports)| ports.len()).unwrap();
    let mut all = BTreeSet::new();
    for pair in ports.windows(2) {
        let ((before, old), (after, new)) = (pair[0], pair[1]);
        assert!(old == new || after - before > Ps::from_micros(50), "{before:?} {after:?}");
        all.extend([old, new]);
    }
    assert!(all.len() >= 6, "twelve bursts in turn over eight ways: {all:?}");
}

#[test]
fn flowlets_that_begin_together_take_different_ways() {
    let scenario = leaf_spine(&format!("[routing]\nmode = \"flowlet\"\n{PINNED}{RACK}"));
    let simulation = done(&scenario);
    let alone = 2e6 * 1538.0 / 1400.0 * 8e-5;
    assert!(slowest(&simulation) < 1.15 * alone + 10.0, "{} of {alone}", slowest(&simulation));
}

#[test]
fn static_ways_follow_the_destination() {
    let flows = |pairs: &str| {
        let flows = format!("[[workload]]\nkind = \"flows\"\npairs = [{pairs}]\nsize = \"2MB\"\n");
        leaf_spine(&format!("[routing]\nmode = \"static\"\n{PINNED}{flows}"))
    };
    // Hosts 8 to 15 modulo 8: one spine each.
    let apart = flows("\"0->9\", \"1->10\", \"2->11\", \"3->12\"");
    let apart = done(&apart);
    for spine in 0..8 {
        let carries = counters(&apart, &format!("leaf0->spine{spine}")).frames > 1000;
        assert_eq!(carries, (1..=4).contains(&spine), "spine {spine}");
    }
    assert!(longest_up(&apart) <= 2 * 1538);

    // On a leaf of four spines, 8 and 12 share one.
    let text = |pairs: &str| {
        scenario(&format!(
            "[fabric]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 8\n[queues]\ncapacity = \"20bdp\"\n\
             [routing]\nmode = \"static\"\n{PINNED}[[workload]]\nkind = \"flows\"\npairs = [{pairs}]\nsize = \"2MB\"\n"
        ))
    };
    let (together, apart) = (text("\"0->8\", \"1->12\""), text("\"0->8\", \"1->13\""));
    let (together, apart) = (slowest(&done(&together)), slowest(&done(&apart)));
    assert!(together > 1.8 * apart, "{together} {apart}");
}

#[test]
fn on_a_fat_tree_static_ways_part_at_the_second_tier_too() {
    // From pod 0 to all hosts of pod 1, one each, and so on around: every cable up carries one flow (Zahavi, 2012).
    let pairs: Vec<String> = (0..16).map(|host| format!("\"{host}->{}\"", (host + 4) % 16)).collect();
    let run = |mode: &str| {
        let scenario = scenario(&format!(
            "[fabric]\nkind = \"fat-tree\"\nk = 4\n[queues]\ncapacity = \"20bdp\"\n[routing]\nmode = \"{mode}\"\n{PINNED}\
             [[workload]]\nkind = \"flows\"\npairs = [{}]\nsize = \"1MB\"\n",
            pairs.join(", ")
        ));
        let simulation = done(&scenario);
        let ports = (0..simulation.fabric.ports()).map(PortId);
        ports.map(|port| simulation.fabric.counters(port).most_waiting).max().unwrap()
    };
    assert!(run("static") <= 4 * 1538, "{}", run("static"));
    assert!(run("ecmp") > 20_000);
}

#[test]
fn a_lag_keeps_one_way_for_each_pair_of_hosts() {
    let spraying = "[transport]\nmtu = 1500\nselector = \"oblivious\"\n";
    let run = |mode: &str| {
        let scenario = leaf_spine(&format!("[routing]\nmode = \"{mode}\"\n{spraying}{RACK}"));
        let (simulation, seen) = watched(&scenario);
        let mut ports: BTreeMap<u32, BTreeSet<PortId>> = BTreeMap::new();
        for ((dst, _), way) in ways(&simulation, &seen) {
            ports.entry(dst).or_default().extend(way.iter().map(|&(_, port)| port));
        }
        ports
    };
    let lag = run("lag");
    assert!(lag.values().all(|ports| ports.len() == 1), "{lag:?}");
    let all: BTreeSet<&PortId> = lag.values().flatten().collect();
    assert!((3..8).contains(&all.len()), "eight pairs by chance: {all:?}");
    assert!(run("ecmp").values().all(|ports| ports.len() == 8));
}

#[test]
fn the_edge_moves_flows_away_from_congestion_and_leaves_others() {
    let run = |routing: &str| {
        let scenario = leaf_spine(&format!("{routing}{PINNED}{RACK}"));
        let (simulation, seen) = watched(&scenario);
        let moves =
            |ports: &Vec<(Ps, PortId)>| ports.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        let moves: Vec<usize> = ways(&simulation, &seen).values().map(moves).collect();
        (slowest(&simulation), moves)
    };
    let (ecmp, none) = run("");
    assert!(none.iter().all(|&moves| moves == 0));
    let (rerouted, moves) = run("[routing]\nmode = \"reroute\"\n");
    let alone = 2e6 * 1538.0 / 1400.0 * 8e-5;
    assert!(ecmp > 1.8 * alone && rerouted < 1.4 * alone, "{ecmp} {rerouted} {alone}");
    assert!(moves.contains(&0) && moves.iter().sum::<usize>() < 30, "{moves:?}");
}

#[test]
fn rerouted_flows_keep_their_order_where_that_is_strict() {
    let run = |strict: &str| {
        let scenario = leaf_spine(&format!("[routing]\nmode = \"reroute\"\n{strict}{PINNED}{RACK}"));
        let (simulation, seen) = watched(&scenario);
        overtakings(&simulation, &seen)
    };
    assert!(run("") > 0);
    assert_eq!(run("strict_order = true\n"), 0);
}

#[test]
fn one_seed_has_one_outcome() {
    for routing in [
        "mode = \"adaptive\"",
        "mode = \"adaptive\"\nstrict_order = true",
        "mode = \"flowlet\"",
        "mode = \"reroute\"\nreroute_us = 5",
        "mode = \"static\"",
        "mode = \"lag\"",
    ] {
        let scenario = scenario(&format!(
            "seed = 11\n[fabric]\nkind = \"fat-tree\"\nk = 4\n[queues]\nlossless = [3]\npfc_xoff = \"30KB\"\n[routing]\n{routing}\n\
             [transport]\nmtu = 1500\nclass = 3\n[[workload]]\nkind = \"permutation\"\nsize = \"200KB\"\n\
             [[workload]]\nkind = \"incast\"\nsenders = 9\nsize = \"100KB\"\n"
        ));
        let ran = |in_order: bool| {
            let mut simulation = begun(&scenario);
            if in_order {
                simulation.keep_order();
            }
            while simulation.run(simulation.now + Ps::from_micros(7)) {}
            outcome(&mut simulation)
        };
        let first = ran(false);
        assert_eq!((first.finished, first.packets_dropped), (25, 0), "{routing}");
        assert_eq!(first, ran(false), "{routing}");
        assert_eq!(first, ran(true), "{routing}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let told = |routing: &str| {
        let hosts = "[fabric]\nkind = \"one-switch\"\nhosts = 4\n[routing]\n";
        refusal(&format!("{hosts}{routing}\n[[workload]]\nkind = \"incast\"\nsenders = 3\nsize = 1\n"))
    };
    for (routing, part) in [
        ("mode = \"random\"", "ecmp"),
        ("flowlet_us = 3", "only together with `mode = \"flowlet\"`"),
        ("reroute_us = 3", "only together with `mode = \"reroute\"`"),
        ("mode = \"adaptive\"\nstrict_timeout_us = 3", "strict_order"),
        ("mode = \"static\"\nstrict_order = true", "packets keep their order"),
        ("paths = 3", "has no key"),
    ] {
        let message = told(routing);
        assert!(message.contains(part), "{routing}: {message}");
    }
}

#[test]
fn rivals_are_told_what_the_fabric_does() {
    let routing = |text: &str| leaf_spine(&format!("[routing]\n{text}\n{PINNED}{RACK}")).settings.routing;
    assert!(routing("mode = \"adaptive\"").reorders());
    assert!(!routing("mode = \"adaptive\"\nstrict_order = true").reorders());
    assert!(!routing("mode = \"flowlet\"").reorders());
    let hosts = "[fabric]\nkind = \"one-switch\"\nhosts = 4\n[queues]\n";
    let queues = |text: &str| {
        let load = "[[workload]]\nkind = \"incast\"\nsenders = 3\nsize = 1\n";
        scenario(&format!("{hosts}{text}\n{load}")).settings.queues
    };
    assert_eq!(queues("lossless = [3, 5]").lossless(), 0b10_1000);
    assert_eq!(queues("link_pause = true").lossless(), 0xFF);
    assert_eq!(queues("").lossless(), 0);
    let marked = queues("ecn_min = \"20KB\"\necn_classes = [3]\ntrim = true\nlossless = [5]");
    assert!(marked.marks(3) && !marked.marks(0) && marked.trims(3) && !marked.trims(5));
}

#[test]
fn every_port_has_its_name() {
    let scenario = leaf_spine(&format!("{PINNED}{RACK}"));
    let simulation = begun(&scenario);
    let up = port(&simulation, "leaf0->spine3");
    assert_eq!(simulation.fabric.port_name(up.other_end()), "spine3->leaf0");
}

/// 256 spines with a way to each of 257 leaves are more lists of ways than fit 16 bits.
#[test]
fn ways_of_large_fabrics_are_told_apart() {
    let text = "[fabric]\nkind = \"leaf-spine\"\nleaves = 257\nspines = 256\nhosts_per_leaf = 1\n\
                [[workload]]\nkind = \"flows\"\npairs = [\"0->256\", \"256->255\", \"100->0\", \"7->254\"]\nsize = \"500KB\"\n";
    let scenario = scenario(text);
    let ended = srd_sim::run::run(&scenario);
    assert_eq!((ended.finished, ended.packets_dropped, ended.packets_lost), (4, 0, 0));
    assert_eq!(ended.packet_hops, 4 * (ended.packets_new + ended.packets_rtx + ended.packets_bare));
}
