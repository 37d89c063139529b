//! htsim's connection matrices and topologies.

use crate::htsim_file;
use srd_sim::apps::{Place, Size, Start, TriggerKind};
use srd_sim::input::htsim::{cm_file, default_tree, topo_file};
use srd_sim::net::{FaultKind, Topology};
use srd_sim::units::Ps;
use srd_wire::BitRate;

fn matrix(body: &str) -> cm_file::Matrix {
    cm_file::parse(body, "a.cm", None).unwrap_or_else(|error| panic!("{error}"))
}

/// What a person is told about a bad `.cm` file.
fn cm_error(body: &str) -> String {
    cm_file::parse(body, "a.cm", None).unwrap_err().to_string()
}

fn topo_error(body: &str) -> String {
    topo_file::parse(body, "a.topo").unwrap_err().to_string()
}

fn topology(name: &str) -> Topology {
    let file = topo_file::parse(&htsim_file(name), name).unwrap_or_else(|error| panic!("{error}"));
    file.topology.check().unwrap();
    assert_eq!(file.notes, [""; 0]);
    file.topology
}

#[test]
fn htsims_own_files_are_read() {
    for (name, hosts, flows) in [
        ("one.cm", 16, 1),
        ("incast.cm", 16, 15),
        ("incast_128.cm", 128, 127),
        ("perm_32n_32c_2MB.cm", 32, 32),
        ("perm_1024n_1024c_0u_2000000b.cm", 1024, 1024),
    ] {
        let matrix = cm_file::parse(&htsim_file(name), name, Some(hosts)).unwrap();
        assert_eq!(matrix.traffic.flows.len(), flows, "{name}");
        assert_eq!(matrix.notes, [""; 0]);
        let all_alike = |flow: &srd_sim::apps::Flow| {
            flow.size == Size::Bytes(2_000_000) && flow.start == Start::At(Ps::ZERO) && flow.src.process == 0
        };
        assert!(matrix.traffic.flows.iter().all(all_alike), "{name}");
    }
    for (name, hosts, switches, cables) in [
        ("leaf_spine_tiny.topo", 32, 4 + 2, 32 + 8),
        ("leaf_spine_8192_400g.topo", 8192, 128 + 64, 8192 + 8192),
        ("fat_tree_128_1os.topo", 128, 32 + 32 + 16, 3 * 128),
        ("fat_tree_1024_1os.topo", 1024, 128 + 128 + 64, 3 * 1024),
    ] {
        let topology = topology(name);
        assert_eq!(
            (topology.hosts, topology.switches.len(), topology.cables.len()),
            (hosts, switches, cables),
            "{name}"
        );
    }
}

#[test]
fn the_default_tree_is_the_one_that_htsim_builds() {
    let from_file = topology("fat_tree_128_1os.topo");
    assert_eq!(default_tree(128, BitRate(100_000_000_000)).unwrap(), from_file);
    for hosts in [2, 16, 54, 1024] {
        assert_eq!(default_tree(hosts, BitRate(1)).unwrap().hosts, hosts);
    }
    let error = default_tree(100, BitRate(1)).unwrap_err();
    assert!(error.contains("nearest 54 and 128") && error.contains("--topo"), "{error}");
    assert!(default_tree(u32::MAX, BitRate(1)).is_err());
    assert!(default_tree(1, BitRate(1)).is_err());
}

const EXAMPLE: &str = "\
# a comment
Nodes 16
Connections 4

Triggers 2
Failures 0
0->13 id 1 start 0 size 2000000 send_done_trigger 1
1->12 id 2 trigger 1 size 200000 recv_done_trigger 2 
2->11 id 3 trigger 2 size 200000
3->10 id 4 start 5.25 size 200000 prio 1
trigger id 1 oneshot
trigger id 2 barrier count 1
";

#[test]
fn every_keyword_has_its_meaning() {
    let matrix = matrix(EXAMPLE);
    let flows = &matrix.traffic.flows;
    assert_eq!(flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!((flows[0].src, flows[0].dst), (Place { host: 0, process: 0 }, Place { host: 13, process: 0 }));
    assert_eq!(flows[0].on_sent, [0]);
    assert_eq!((flows[1].start, &flows[1].on_received[..]), (Start::Trigger(0), &[1][..]));
    assert_eq!(flows[3].start, Start::At(Ps::from_nanos(5250)));
    assert_eq!(matrix.traffic.triggers[0].kind, TriggerKind::Oneshot);
    assert_eq!(matrix.traffic.triggers[1].kind, TriggerKind::Barrier(1));
    assert_eq!(matrix.traffic.triggers[1].flows, [2]);
    assert_eq!(matrix.notes, ["a.cm:10: `prio` is passed over, as htsim_uec does (1 line)"]);
}

#[test]
fn messages_share_their_connection_and_other_flows_do_not() {
    let matrix = matrix(
        "Nodes 4\nConnections 5\n0->1 id 7 start 0 size 1\n0->1 id 7 msg start 0 size 2\n0->1 start 0 size 3\n\
         0->1 id 9 msg 3 start 0 size 4\n2->1 start 0 size 5\n",
    );
    let flows: Vec<(u32, u16)> =
        matrix.traffic.flows.iter().map(|flow| (flow.id, flow.src.process)).collect();
    assert_eq!(flows, [(7, 0), (7, 0), (10, 1), (9, 2), (11, 0)]);
}

#[test]
fn unknown_words_of_the_header_are_passed_over_but_said() {
    let matrix = matrix("Nodes 2\nVersion 3\nConnections 1\n0->1 start 0 size 1");
    assert_eq!(matrix.notes.len(), 1);
    assert!(matrix.notes[0].starts_with("a.cm:2: `Version` is passed over"), "{}", matrix.notes[0]);
}

/// A file of `n` connections, from line 3 on.
fn with(n: u32, lines: &str) -> String {
    format!("Nodes 4\nConnections {n}\n{lines}\n")
}

#[test]
fn bad_connections_are_told_by_line() {
    for (line, told) in [
        ("0->1 start 0 size 1 # why", "comments stand in the header only"),
        ("0->1  start 0 size 1", "a space too many"),
        (" 0->1 start 0 size 1", "a space too many"),
        ("0->1\tstart 0 size 1", "a tab"),
        ("0->1 start 0", "no size"),
        ("0->1 size 1", "no beginning"),
        ("0->1 id 1 start 0 trigger 1 size 1", "both `start` and `trigger`"),
        ("0->1 trigger 1 id 1 size 1", "`id` before it"),
        ("0->1 id 1 trigger 1 size 1", "trigger 1 is not declared"),
        ("0->1 start 0 size 1 send_done_trigger 3", "trigger 3 is not declared"),
        ("0->1 start 0 size 0", "from 1 to 2147483647"),
        ("0->1 start 0 size 3000000000", "from 1 to 2147483647"),
        ("0->1 start 0 size 10x", "`10x` is not a value of `size`"),
        ("0->1 start -1 size 1", "write microseconds"),
        ("0->1 start nan size 1", "write microseconds"),
        ("0->1 start 1e300 size 1", "write microseconds"),
        ("0->1 start 0 start 1 size 1", "`start` comes twice"),
        ("0->1 id 0 start 0 size 1", "from 1 to"),
        ("0->1 start 0 size", "needs a value"),
        ("0->1 start 0 size 1 sta", "`sta` is not known: a connection has start, trigger"),
        ("0->1 start 0 size 1 msg", "needs the id of its connection"),
        ("0->1 start 0 size 1 addon", "write `msg`"),
        ("0->4 start 0 size 1", "there is no host 4: Nodes says 4, so hosts are 0 to 3"),
        ("2->2 start 0 size 1", "sends to itself"),
        ("0-> start 0 size 1", "write `SRC->DST`"),
        ("0->1->2 start 0 size 1", "write `SRC->DST`"),
    ] {
        let error = cm_error(&with(1, line));
        assert!(error.starts_with("a.cm:3: ") && error.contains(told), "{line}: {error}");
    }
}

#[test]
fn bad_files_are_told() {
    for (text, told) in [
        ("", "lacks a line `Nodes N`"),
        ("Nodes 4\n0->1 start 0 size 1\n", "lacks a line `Connections N`"),
        ("Nodes x\nConnections 0\n", "a.cm:1: `x` is not a value of `Nodes`"),
        ("Nodes 4 5\nConnections 0\n", "a.cm:1: `5` is too much"),
        ("Nodes 4\nNodes 4\nConnections 0\n", "a.cm:2: Nodes has been given already, in line 1"),
        (&with(2, "0->1 start 0 size 1"), "a.cm:2: Connections says 2, but the file has 1 connection:"),
        (&with(1, "0->1 start 0 size 1\n0->2 start 0 size 1"), "write 2"),
        (&with(1, "0->1 start 0 size 1\ntrigger id 1 oneshot"), "no line `Triggers 1`"),
        (&with(1, "0->1 start 0 size 1\n# done"), "a.cm:4: a comment behind the first connection"),
        (&with(1, "0->1 start 0 size 1\nNodes 4"), "a.cm:4: Nodes behind the first connection"),
        (&with(1, "0->1 start 0 size 1\nfoo"), "a.cm:4: `foo` is not known"),
        (&with(2, "0->1 id 1 start 0 size 1\n0->1 id 1 start 0 size 1"), "a.cm:4: id 1 is taken by line 3"),
        (
            &with(2, "0->1 id 1 start 0 size 1\n0->2 id 1 msg start 0 size 1"),
            "a.cm:4: id 1 is the connection 0->1",
        ),
    ] {
        let error = cm_error(text);
        assert!(error.contains(told), "{text}: {error}");
    }
    let error = cm_file::parse(&with(0, ""), "a.cm", Some(16)).unwrap_err().to_string();
    assert!(error.contains("a.cm:1: Nodes says 4, but the topology has 16 hosts"), "{error}");
}

/// A file of two flows and the triggers in `lines`, from line 4 on.
fn triggered(n: u32, first: &str, second: &str, lines: &str) -> String {
    format!(
        "Nodes 4\nConnections 2\nTriggers {n}\n{lines}\n0->1 id 1 {first} size 1\n2->3 id 2 {second} size 1\n"
    )
}

#[test]
fn triggers_that_cannot_work_are_told() {
    for (text, told) in [
        (triggered(1, "start 0", "start 0", "trigger id 1"), "without a kind"),
        (triggered(1, "start 0", "start 0", "trigger oneshot"), "without `id N`"),
        (triggered(1, "start 0", "start 0", "trigger id 1 barrier"), "needs `count K`"),
        (triggered(1, "start 0", "start 0", "trigger id 1 barrier count 0"), "from 1 to"),
        (triggered(1, "start 0", "start 0", "trigger id 1 oneshot count 2"), "goes with `barrier` alone"),
        (triggered(1, "start 0", "start 0", "trigger id 1 oneshot multishot"), "comes twice"),
        (triggered(1, "start 0", "start 0", "trigger id 1 twoshot"), "`twoshot` is not known"),
        (
            triggered(2, "start 0", "start 0", "trigger id 1 oneshot\ntrigger id 1 oneshot"),
            "a.cm:5: trigger 1 has been declared",
        ),
        (
            triggered(1, "start 0", "trigger 1", "trigger id 1 oneshot"),
            "a.cm:6: this flow waits for trigger 1 for ever",
        ),
        (
            triggered(1, "start 0 send_done_trigger 1", "trigger 1", "trigger id 1 barrier count 2"),
            "it is not fired 2 times",
        ),
        (
            triggered(1, "start 0 send_done_trigger 1", "start 0", "trigger id 1 oneshot"),
            "a.cm:4: trigger 1 is fired but starts nothing",
        ),
        (
            triggered(
                1,
                "start 0 send_done_trigger 1",
                "trigger 1 send_done_trigger 1",
                "trigger id 1 oneshot",
            ),
            "a.cm:4: trigger 1 is fired 2 times",
        ),
        (
            triggered(
                2,
                "trigger 2 send_done_trigger 1",
                "trigger 1 send_done_trigger 2",
                "trigger id 1 oneshot\ntrigger id 2 oneshot",
            ),
            "for ever",
        ),
    ] {
        let error = cm_error(&text);
        assert!(error.contains(told), "{text}: {error}");
    }
    // A multishot may be fired for nothing.
    matrix(&triggered(
        1,
        "start 0 send_done_trigger 1",
        "trigger 1 send_done_trigger 1",
        "trigger id 1 multishot",
    ));
}

#[test]
fn failures_take_the_cable_of_the_switch_away() {
    let text = "Nodes 8\nConnections 1\nFailures 1\n0->7 start 0 size 1\nfailure switch_type AGG switch_id 1 link_id 1\n";
    let topo = std::fs::read_to_string(crate::shipped().join("bundles.topo")).unwrap();
    let topology = topo_file::parse(&topo, "bundles.topo").unwrap().topology;
    let faults = matrix(text).faults(&topology).unwrap();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].kind, FaultKind::Down { noticed_after: Ps::ZERO });
    let first_of_bundle = topology.cables_named("agg1.0-core1#0").unwrap()[0].cable;
    assert_eq!(faults[0].cables, [first_of_bundle]);

    let told = |text: &str, topology: &Topology| matrix(text).faults(topology).unwrap_err().to_string();
    let other = |from: &str, to: &str| text.replace(from, to);
    assert!(
        told(&other("switch_id 1", "switch_id 2"), &topology)
            .contains("a.cm:5: there is no AGG switch 2: they are 0 to 1")
    );
    assert!(told(&other("link_id 1", "link_id 2"), &topology).contains("has no link 2: they are 0 to 1"));
    let two_tiers = self::topology("leaf_spine_tiny.topo");
    assert!(told(&text.replace("Nodes 8", "Nodes 32"), &two_tiers).contains("needs 3 tiers"));
    assert!(cm_error(&other("AGG", "TOR")).contains("write AGG"));
    assert!(cm_error(&other(" link_id 1", "")).contains("needs all of"));
    assert!(
        cm_error(&other("Failures 1", "Failures 2")).contains("Failures says 2, but the file has 1 failure:")
    );
}

#[test]
fn a_topology_file_says_rates_delays_queues_and_bundles() {
    let text = htsim_file("leaf_spine_tiny.topo")
        .replace("Radix_Up 2", "Radix_Up 2\nqueue_up 1000\nQUEUE_DOWN 2000")
        .replace("Switch_Latency_ns 0\nOver", "Switch_Latency_ns 7\nOver")
        .replace("Tier 1\nDownlink_speed_Gbps 100", "Tier 1\nQueue_Down 3000\nDownlink_speed_Gbps 100");
    let topology = topo_file::parse(&text, "a.topo").unwrap().topology;
    let cable = |name: &str| topology.cables[topology.cables_named(name).unwrap()[0].cable as usize];
    assert_eq!(cable("h9-leaf1").queue_bytes, [None, Some(2000)]);
    assert_eq!(cable("leaf1-spine0").queue_bytes, [Some(1000), Some(3000)]);
    assert_eq!(cable("leaf1-spine0").delay, Ps::from_micros(1));
    assert_eq!(topology.switches[0].latency, Ps::from_nanos(7));
    let shipped = std::fs::read_to_string(crate::shipped().join("bundles.topo")).unwrap();
    let bundles = topo_file::parse(&shipped, "bundles.topo").unwrap().topology;
    assert_eq!(bundles.cables_named("leaf3-agg1.0").unwrap().len(), 2);
    assert_eq!(bundles.cables_named("agg1.0-core0").unwrap().len(), 2);
}

#[test]
fn bad_topology_files_are_told() {
    let tiny = htsim_file("leaf_spine_tiny.topo");
    let tree = htsim_file("fat_tree_128_1os.topo");
    let changed = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        topo_error(&text.replacen(from, to, 1))
    };
    for (error, told) in [
        (topo_error(""), "lacks a line `Nodes N`"),
        (changed(&tiny, "Tiers 2\n", ""), "lacks a line `Tiers N`"),
        (changed(&tiny, "Tiers 2", "Tiers 4"), "a.topo:2: Tiers is 4: it may be 2 or 3"),
        (changed(&tiny, "Tiers 2", "Tiers 3"), "there is no `Tier 2`"),
        (changed(&tiny, "Podsize 32", "Podsize 16"), "Podsize must be 32"),
        (changed(&tree, "Podsize 16", "Podsize 24"), "does not divide Nodes 128"),
        (changed(&tiny, "Nodes 32", "Nodes 32\nNodes 32"), "a.topo:2: Nodes has been given already"),
        (changed(&tiny, "Nodes 32", "Nodes thirty"), "`thirty` is not a value of `Nodes`"),
        (changed(&tiny, "Nodes 32", "Nodes  32"), "a space too many"),
        (changed(&tiny, "Nodes 32", "Nodes 32\nRadix_Up 2"), "belongs behind a line `Tier 0`"),
        (
            changed(&tiny, "Radix_Up 2", "Radix_Sideways 2"),
            "`Radix_Sideways` is not known: a tier has Downlink_speed_Gbps,",
        ),
        (changed(&tiny, "Radix_Up 2\n", ""), "tier 0 lacks a line `Radix_Up N`"),
        (changed(&tiny, "Downlink_Latency_ns 1000", "Downlink_Latency_ns 0"), "from 1 to"),
        (
            changed(&tiny, "Downlink_Latency_ns 1000\nSwitch_Latency_ns 0\nOver", "Over"),
            "tier 0 lacks a line `Downlink_Latency_ns N`",
        ),
        (changed(&tiny, "Radix_Down 4", "Radix_Down 4\nRadix_Up 2"), "nothing leads up"),
        (changed(&tiny, "Tier 1", "Tier 0"), "tier 0 has begun already, in line 5"),
        (changed(&tiny, "Tier 1", "Tier 7"), "there is no tier 7"),
        (
            changed(&tiny, "Oversubscribed 4", "Oversubscribed 2"),
            "Radix_Down / Radix_Up must be Oversubscribed",
        ),
        (changed(&tiny, "Radix_Down 8", "Radix_Down 12"), "does not divide Podsize"),
        (changed(&tiny, "Radix_Down 4", "Radix_Down 3"), "must be a whole number"),
        (changed(&tiny, "Radix_Down 4", "Radix_Down 8"), "with `Bundle 2` in tier 1 they would"),
        (changed(&tiny, "Radix_Down 4", "Radix_Down 4\nBundle 3"), "a Bundle of 3 does not divide 4"),
        (changed(&tiny, "Radix_Up 2", "Radix_Up 2\nBundle 2"), "a host has one cable"),
        (changed(&tree, "Radix_Down 8", "Radix_Down 16"), "with `Bundle 2` in tier 2 they would"),
        (changed(&tree, "Radix_Down 8", "Radix_Down 128"), "not a multiple of the 4"),
        (changed(&tree, "Nodes 128", "Nodes 2147483647"), "does not divide"),
    ] {
        assert!(error.starts_with("a.topo") && error.contains(told), "{told}: {error}");
    }
}
