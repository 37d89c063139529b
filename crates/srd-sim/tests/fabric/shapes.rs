//! Planes, rails and dragonflies: what they are made of, against formulas, and every transport on each.

use crate::{begun, counters, done, port, refusal, scenario, took};
use srd_sim::input::Scenario;
use srd_sim::net::{FaultKind, PacketSizes, Role, Topology};
use srd_sim::units::Ps;
use std::collections::BTreeMap;

/// htsim's sizes: data of 4150 bytes, ACKs of 64.
const SIZES: PacketSizes = PacketSizes { data: 4150, ack: 64 };
const PLANES: &str = "kind = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 4\nplanes = 4\n";
const RAILS: &str = "kind = \"rails\"\nunits = 2\nservers = 4\ncards = 2\nspines = 4\n";
const DRAGONFLY: &str =
    "kind = \"dragonfly\"\ngroups = 5\nrouters = 4\nhosts_per_router = 2\nglobal_cables = 2\n";
const SHAPES: [&str; 3] = [PLANES, RAILS, DRAGONFLY];
/// Every transport, with what it wants of switches.
const TRANSPORTS: [&str; 8] = [
    "[transport]\nkind = \"srd\"\n",
    "[transport]\nkind = \"tcp\"\nmin_rto_us = 1000\n",
    "[transport]\nkind = \"iwarp\"\n",
    "[transport]\nkind = \"roce\"\nclass = 3\nqps = 8\n[queues]\nlossless = [3]\necn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"\n",
    "[transport]\nkind = \"nscc\"\n[queues]\necn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"\n",
    "[transport]\nkind = \"nscc\"\nclass = 1\ncontrol_class = 0\n[queues]\necn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"\ntrim = true\nclasses = \"strict\"\n",
    MRC,
    "[transport]\nkind = \"rccc\"\nclass = 1\ncontrol_class = 0\n[queues]\necn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"\necn_last_hop = false\n\
     trim = true\nclasses = \"strict\"\n",
];
/// MRC with what its authors give it: source routes, trimming, and marks everywhere but at the last hop.
const MRC: &str = "[transport]\nkind = \"mrc\"\nclass = 1\ncontrol_class = 0\n[routing]\nmode = \"source\"\n[queues]\ncapacity = \"300KB\"\n\
     ecn_min = \"20KB\"\necn_max = \"80KB\"\necn_at = \"leaving\"\necn_last_hop = false\ntrim = true\nclasses = \"strict\"\n";
const PERMUTATION: &str = "[[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n";

fn on(fabric: &str, more: &str) -> Scenario {
    scenario(&format!("[fabric]\n{fabric}{more}"))
}

fn topology(fabric: &str) -> Topology {
    on(fabric, PERMUTATION).topology
}

/// The round trip over so many cables of 1 us at 100 Gb/s.
fn round_trip(cables: u64) -> Ps {
    Ps(cables * (332_000 + 5_120 + 2_000_000))
}

/// Sum of the rates of the cables between nodes of which `left` says on which side they are, in Gb/s.
fn across(topology: &Topology, left: impl Fn(&str) -> bool) -> u64 {
    let crosses =
        topology.cables.iter().filter(|cable| left(&topology.name(cable.a)) != left(&topology.name(cable.b)));
    crosses.map(|cable| cable.rate.0 / 1_000_000_000).sum()
}

#[test]
fn planes_are_disjoint_and_add_up() {
    let fabric = topology(PLANES);
    assert_eq!((fabric.hosts, fabric.switches.len(), fabric.cables.len()), (8, 8 + 4 * 6, 8 + 8 * 4 + 4 * 8));
    let plane = |name: &str| name.split_once('.').map(|(plane, _)| plane.to_string());
    for cable in &fabric.cables {
        let (a, b) = (plane(&fabric.name(cable.a)), plane(&fabric.name(cable.b)));
        assert!(a.is_none() || a == b, "{} to {}", fabric.name(cable.a), fabric.name(cable.b));
    }
    // A card is as fast as its ports together, and so is the way between two.
    assert_eq!(fabric.fastest_host().0, 400_000_000_000);
    assert_eq!(fabric.narrowest_rate(0, 7).0, 400_000_000_000);
    // Each plane carries between its halves what its spines' cables do: 4 planes, 4 spines, 100 Gb/s.
    let first_leaf = |name: &str| {
        name.ends_with("leaf0")
            || ["h0", "h1", "h2", "h3", "card0", "card1", "card2", "card3"].contains(&name)
    };
    assert_eq!(across(&fabric, first_leaf), 4 * 4 * 100);
    // From card to leaf to spine and back are four cables; into and out of the card a packet goes at 400 Gb/s in no time.
    let inside = Ps(2 * (83_000 + 1_280));
    assert_eq!(fabric.base_rtt(SIZES, 0, 7), round_trip(4) + inside);
    assert_eq!(fabric.base_rtt(SIZES, 0, 1), round_trip(2) + inside);
    assert_eq!(fabric.longest_base_rtt(SIZES), round_trip(4) + inside);
}

#[test]
fn cards_of_a_rail_are_two_cables_apart() {
    let fabric = topology(RAILS);
    assert_eq!((fabric.hosts, fabric.switches.len(), fabric.cables.len()), (16, 4 + 4, 16 + 4 * 4));
    // Host 2 s + g is card g of server s; a unit has four servers.
    for (host, other, cables) in [(0, 2, 2), (1, 7, 2), (0, 1, 4), (0, 8, 4), (3, 14, 4)] {
        assert_eq!(fabric.base_rtt(SIZES, host, other), round_trip(cables), "h{host} to h{other}");
    }
    assert_eq!(fabric.longest_base_rtt(SIZES), round_trip(4));
    // Four hosts and four spines at each rail switch: as much goes up as comes in.
    assert_eq!(across(&fabric, |name| name.starts_with("spine")), 16 * 100);
    assert_eq!(fabric.narrowest_rate(0, 1).0, 100_000_000_000);
}

#[test]
fn groups_of_a_dragonfly_are_cabled_to_all_others() {
    let fabric = topology(DRAGONFLY);
    let (groups, routers) = (5u32, 4u32);
    assert_eq!((fabric.hosts, fabric.switches.len()), (40, 20));
    let group = |node| match fabric.role(node) {
        Role::Router { group } => group,
        role => panic!("{role:?}"),
    };
    let (mut between, mut of_router) = (BTreeMap::new(), BTreeMap::new());
    for cable in fabric.cables.iter().skip(40) {
        *between
            .entry((group(cable.a).min(group(cable.b)), group(cable.a).max(group(cable.b))))
            .or_insert(0) += 1;
        if group(cable.a) != group(cable.b) {
            *of_router.entry(cable.a).or_insert(0) += 1;
            *of_router.entry(cable.b).or_insert(0) += 1;
        }
    }
    // Inside a group each router is cabled to each; two groups have routers x cables / (groups - 1) between them.
    for ((a, b), cables) in &between {
        assert_eq!(
            *cables,
            if a == b { routers * (routers - 1) / 2 } else { routers * 2 / (groups - 1) },
            "{a} {b}"
        );
    }
    assert_eq!(between.len() as u32, groups * (groups + 1) / 2);
    assert!(of_router.len() == 20 && of_router.values().all(|&cables| cables == 2), "{of_router:?}");
    // A shortest way has one cable between groups, one inside each, and those of the hosts: five at most.
    let far = (0..40).map(|host| fabric.base_rtt(SIZES, 0, host.max(1))).max().unwrap();
    assert_eq!((far, fabric.longest_base_rtt(SIZES)), (round_trip(5), round_trip(5)));
    // One group against four: two cables to each of them, and its own eight hosts.
    assert_eq!(across(&fabric, |name| name.starts_with("router0.")), (8 + 8) * 100);
}

#[test]
fn every_transport_runs_on_every_shape() {
    for (fabric, transport) in
        SHAPES.iter().flat_map(|fabric| TRANSPORTS.map(|transport| (fabric, transport)))
    {
        let scenario = on(fabric, &format!("{transport}{PERMUTATION}"));
        let simulation = done(&scenario);
        for (number, flow) in simulation.flows.iter().enumerate() {
            assert!(flow.received.is_some(), "flow {number} of {transport}on {fabric}");
        }
    }
}

#[test]
fn a_sender_of_many_paths_fills_all_planes_alike() {
    for transport in [TRANSPORTS[0], TRANSPORTS[5], MRC] {
        let scenario = on(
            PLANES,
            &format!("{transport}[[workload]]\nkind = \"flows\"\npairs = [\"0->7\"]\nsize = \"8MB\"\n"),
        );
        let simulation = done(&scenario);
        let bytes: Vec<u64> =
            (0..4).map(|p| counters(&simulation, &format!("card0->p{p}.leaf0")).bytes).collect();
        let (least, most) = (*bytes.iter().min().unwrap() as f64, *bytes.iter().max().unwrap() as f64);
        assert!(least > 0.8 * most, "{transport}: {bytes:?}");
        // 8 MB at 400 Gb/s, and headers.
        assert!(took(&simulation, 0) < 1.2 * 160.0 + 10.0, "{transport}: {}", took(&simulation, 0));
    }
}

#[test]
fn a_card_goes_on_without_a_port_and_without_a_plane() {
    for lost in ["card0-p1.leaf0", "*-p2.*"] {
        for transport in TRANSPORTS {
            let more = format!(
                "{transport}[[workload]]\nkind = \"flows\"\npairs = [\"0->7\", \"5->0\"]\nsize = \"4MB\"\n\
                 [[fault]]\nkind = \"down\"\nlink = \"{lost}\"\nat_us = 20\nnoticed_after_us = 100\n"
            );
            let scenario = on(PLANES, &more);
            let simulation = done(&scenario);
            assert!(simulation.flows.iter().all(|flow| flow.received.is_some()), "{transport}without {lost}");
        }
    }
}

#[test]
fn what_leaves_a_card_is_neither_dropped_nor_marked_there() {
    let scenario = on(PLANES, &format!("{}{PERMUTATION}", TRANSPORTS[3].replace("qps = 8", "qps = 1")));
    let simulation = done(&scenario);
    for (card, plane) in (0..8).flat_map(|card| (0..4).map(move |plane| (card, plane))) {
        let counters = counters(&simulation, &format!("card{card}->p{plane}.leaf{}", card / 4));
        assert_eq!((counters.dropped, counters.marked), (0, 0));
    }
    assert!(simulation.flows.iter().all(|flow| flow.received.is_some()));
}

/// Gb/s at which every host of a group sends to one of the next group, with this mode.
fn to_the_next_group(mode: &str) -> f64 {
    let pairs: Vec<String> = (0..40).map(|host| format!("\"{host}->{}\"", (host + 8) % 40)).collect();
    let scenario = on(
        DRAGONFLY,
        &format!(
            "[routing]\nmode = \"{mode}\"\n[[workload]]\nkind = \"flows\"\nsize = \"4MB\"\npairs = [{}]\n",
            pairs.join(", ")
        ),
    );
    let simulation = done(&scenario);
    let slowest = (0..40).map(|flow| took(&simulation, flow)).fold(0.0, f64::max);
    4e6 * 8e-3 / slowest
}

#[test]
fn detours_carry_what_the_shortest_ways_cannot() {
    // Eight hosts of a group share the two cables to the next: 25 Gb/s each. Over all other groups there are eight.
    let [shortest, valiant, ugal] = ["ecmp", "valiant", "ugal"].map(to_the_next_group);
    assert!(shortest < 25.0, "{shortest}");
    assert!(valiant > 1.25 * shortest && ugal > 1.25 * shortest, "{shortest} {valiant} {ugal}");
}

#[test]
fn a_cable_is_as_long_as_it_says() {
    let fabric =
        topology(&format!("{DRAGONFLY}host_cable_m = 100\nlocal_cable_m = 100\nglobal_cable_m = 40000\n"));
    let delay = |name: &str| fabric.cables[fabric.cables_named(name).unwrap()[0].cable as usize].delay;
    assert_eq!(delay("h0-router0.0"), Ps::from_nanos(500));
    assert_eq!(delay("router0.0-router0.1"), Ps::from_nanos(500));
    assert_eq!(delay("router0.*-router1.*"), Ps::from_micros(200));
}

#[test]
fn shapes_that_contradict_themselves_are_told() {
    let refused = |fabric: &str| refusal(&format!("[fabric]\n{fabric}{PERMUTATION}"));
    for (fabric, says) in [
        (PLANES.replace("planes = 4", "planes = 17"), "1 to 16 ports, one on each plane, not 17"),
        (
            PLANES.replace("hosts_per_leaf = 4\nplanes = 4", "hosts_per_leaf = 4000\nplanes = 8"),
            "at most 60000. Write fewer",
        ),
        (DRAGONFLY.replace("groups = 5", "groups = 1"), "at least 2 groups, not 1"),
        (DRAGONFLY.replace("groups = 5", "groups = 4"), "do not divide among 3 other groups: write `groups`"),
        (DRAGONFLY.replace("global_cables = 2", "global_cables = 0"), "global_cables"),
        (RAILS.replace("cards = 2\n", ""), "cards"),
        (
            format!("{RAILS}cable_m = 100\ncable_us = 1\n"),
            "not together with `cable_us`: leave one of them out",
        ),
        (format!("{RAILS}cable_m = 100\nbase_rtt_us = 20\n"), "not together with `base_rtt_us`"),
        (format!("{RAILS}[routing]\nmode = \"ugal\"\n"), "only with `kind = \"dragonfly\"`"),
    ] {
        let told = refused(&fabric);
        assert!(told.contains(says), "{fabric}\n{told}");
    }
}

#[test]
fn ports_of_planes_have_their_names() {
    let scenario = on(PLANES, PERMUTATION);
    let simulation = begun(&scenario);
    for name in ["h3->card3", "card3->p2.leaf0", "p3.leaf1->p3.spine0"] {
        port(&simulation, name);
    }
}

#[test]
fn cables_flap_as_often_as_they_should() {
    let flaps = |per_day: &str, seed: u64, end_us: &str| {
        scenario(&format!(
            "seed = {seed}\nend_us = {end_us}\n[fabric]\n{RAILS}{PERMUTATION}[[fault]]\nkind = \"flaps\"\nlink = \"rail*-spine*\"\n\
             per_day = {per_day}\nmean_us = 2e6\n"
        ))
    };
    // Sixteen cables, 1000 flaps a day each, ten minutes: 111, less what falls into a flap.
    let faults = flaps("1000", 1, "6e8").settings.faults;
    let downs = faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Down { .. })).count();
    assert!((85..=140).contains(&downs), "{downs}");
    let spans: Vec<f64> = faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::Heal)
        .map(|heal| {
            let before = faults.iter().filter(|down| down.cables == heal.cables && down.at < heal.at);
            (heal.at - before.map(|down| down.at).max().unwrap()).as_micros()
        })
        .collect();
    let mean = spans.iter().sum::<f64>() / spans.len() as f64;
    assert!((1.4e6..2.6e6).contains(&mean), "{mean}");
    assert_eq!(faults, flaps("1000", 1, "6e8").settings.faults);
    assert_ne!(faults, flaps("1000", 2, "6e8").settings.faults);
    let quiet = flaps("0.001", 1, "6e8");
    assert!(quiet.settings.faults.is_empty() && quiet.notes[0].contains("none of these cables flaps"));
    let many = format!(
        "end_us = 6e11\n[fabric]\n{RAILS}{PERMUTATION}[[fault]]\nkind = \"flaps\"\nlink = \"*\"\nper_day = 1e6\nmean_us = 1\n"
    );
    assert!(refusal(&many).contains("makes more than 100000 flaps"), "{}", refusal(&many));
    let late = many.replace("mean_us = 1\n", "mean_us = 1\nat_us = 7e11\n");
    assert!(refusal(&late).contains("nobody would see this fault"), "{}", refusal(&late));
}

/// Gb/s of payload of 100 MB from one leaf to another over eight planes of 100 Gb/s, and what the sections `more` say.
fn over_eight_planes(more: &str) -> f64 {
    let scenario = on(
        "kind = \"leaf-spine\"\nleaves = 2\nspines = 8\nhosts_per_leaf = 8\nplanes = 8\ncable_m = 100\nswitch_latency_us = 0.3\n",
        &format!("{MRC}[[workload]]\nkind = \"flows\"\npairs = [\"0->8\"]\nsize = \"100MB\"\n{more}"),
    );
    100e6 * 8e-3 / took(&done(&scenario), 0)
}

#[test]
fn mrc_does_what_its_authors_have_measured() {
    // 770 Gb/s between hosts of different leaves (arXiv 2605.04333, section 5.2.1).
    let whole = over_eight_planes("");
    assert!((0.9..1.1).contains(&(whole / 770.0)), "{whole}");
    // A card that has lost one port of eight goes on with the other seven (section 2). Nobody tells anybody: packets are lost, and
    // their paths are left.
    let lame = over_eight_planes("[[fault]]\nkind = \"black-hole\"\nlink = \"card0-p3.leaf0\"\nat_us = 0\n");
    assert!((0.9..1.1).contains(&(lame / whole / 0.875)), "{lame} of {whole}");
}

#[test]
fn an_incast_over_mrc_leaves_others_alone() {
    // Seven to one across spines, and a flow to another host of that rack (arXiv 2605.04333, section 5.2.8): it loses nothing.
    let flow = |incast: &str| {
        let scenario = on(
            "kind = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4\nhost_gbps = 400\ncable_m = 100\nswitch_latency_us = 0.3\n",
            &format!(
                "{}[[workload]]\nkind = \"flows\"\npairs = [\"7->1\"]\nsize = \"20MB\"\n{incast}",
                MRC.replace("300KB", "1.2MB")
                    .replace("20KB", "80KB")
                    .replace("\"80KB\"\necn_at", "\"320KB\"\necn_at")
            ),
        );
        20e6 * 8e-3 / took(&done(&scenario), 0)
    };
    let alone = flow("");
    let beside = flow(
        "[[workload]]\nkind = \"flows\"\npairs = [\"4->0\", \"5->0\", \"6->0\", \"8->0\", \"9->0\", \"12->0\", \"13->0\"]\nsize = \"10MB\"\n",
    );
    assert!(alone > 370.0 && beside > 0.95 * alone, "{beside} of {alone}");
}

#[test]
fn mrc_needs_switches_that_mark_and_cut() {
    let refused = |queues: &str| {
        refusal(&format!("[fabric]\n{PLANES}[transport]\nkind = \"mrc\"\n{queues}{PERMUTATION}"))
    };
    assert!(refused("").contains("write `trim = true` in [queues]"), "{}", refused(""));
    let unmarked = refused("[queues]\ntrim = true\n");
    assert!(unmarked.contains("write `ecn_min = \"0.2bdp\"`"), "{unmarked}");
}

#[test]
fn a_source_port_names_plane_and_uplink() {
    // 128 entropy values in turn: 16 for each plane, two for each of eight spines.
    let scenario = on(
        "kind = \"leaf-spine\"\nleaves = 2\nspines = 8\nhosts_per_leaf = 8\nplanes = 8\n",
        &format!("{MRC}[[workload]]\nkind = \"flows\"\npairs = [\"0->8\"]\nsize = \"8MB\"\n"),
    );
    let simulation = done(&scenario);
    let ports = (0..64).map(|n| format!("p{0}.leaf0->p{0}.spine{1}", n / 8, n % 8));
    let frames: Vec<u64> = ports.map(|name| counters(&simulation, &name).frames).collect();
    let (least, most) = (frames.iter().min().unwrap(), frames.iter().max().unwrap());
    assert!(*least > 20 && most - least <= 10, "{frames:?}");
}
