//! Pauses: what they save, what they cost, and what becomes of those who wait for each other.

use crate::{begun, counters, done, gbps, outcome, paused, port, refusal, scenario, took};
use srd_sim::input::Scenario;
use srd_sim::net::{Cable, NodeId, PortId, Role, Switch, Topology};
use srd_sim::units::Ps;
use srd_wire::BitRate;

/// Senders with windows that would fill any queue.
const GREEDY: &str =
    "[transport]\nmtu = 1500\nclass = 3\npaths = 1\ncontroller = \"fixed\"\nwindow = \"8bdp\"\n";

/// Eight of one switch's hosts send to one.
fn incast(queues: &str) -> Scenario {
    scenario(&format!(
        "[fabric]\nkind = \"one-switch\"\nhosts = 9\n[queues]\n{queues}\n{GREEDY}\
         [[workload]]\nkind = \"incast\"\nsenders = 8\nsize = \"2MB\"\n"
    ))
}

#[test]
fn a_lossless_incast_drops_nothing_and_fills_at_most_what_it_may() {
    let lossy = incast("capacity = \"100KB\"");
    assert!(outcome(&mut done(&lossy)).packets_dropped > 100, "the incast is one");
    let lossless = incast("capacity = \"100KB\"\nlossless = [3]\npfc_xoff = \"100KB\"");
    let mut simulation = done(&lossless);
    let ended = outcome(&mut simulation);
    assert_eq!((ended.packets_dropped, ended.lossless_drops, ended.packets_rtx), (0, 0, 0));
    assert!(ended.pause_frames > 16 && ended.paused_us > 1000.0, "{ended:?}");
    for host in 1..=8 {
        let uplink = port(&simulation, &format!("h{host}->switch0"));
        let (held, room) = (simulation.fabric.most_held(uplink), simulation.fabric.headroom(uplink));
        assert!(held > 100_000 && held <= 100_000 + room, "{held} of {room}");
        // Two cables of 1 us at 100 Gb/s, three frames of 1538 bytes, a pause frame.
        assert_eq!(room, 25_000 + 3 * 1538 + 84);
        // It is no larger than it need be: one cable's worth and more is used.
        assert!(held > 100_000 + room * 4 / 5, "{held}");
    }
    // The receiver's link never idles: 16 MB and headers.
    assert!(ended.fct_us.unwrap().max < 1.05 * 16e6 * 1538.0 / 1400.0 * 8e-5, "{:?}", ended.fct_us);
}

#[test]
fn half_of_the_headroom_is_too_little() {
    let ended = outcome(&mut done(&incast("lossless = [3]\npfc_xoff = \"100KB\"\npfc_headroom = 14_854")));
    assert!(ended.lossless_drops > 0);
    assert_eq!(ended.packets_dropped, ended.lossless_drops);
}

#[test]
fn slow_ports_need_more_headroom() {
    let queues = "lossless = [3]\npfc_xoff = \"100KB\"\npfc_response_us = 2";
    let (usual, slow) = (incast("lossless = [3]\npfc_xoff = \"100KB\""), incast(queues));
    let room = |scenario: &Scenario| begun(scenario).fabric.headroom(PortId(2));
    assert_eq!(room(&slow), room(&usual) + 25_000);
    let ended = outcome(&mut done(&slow));
    assert_eq!(ended.lossless_drops, 0);
    let too_little = format!("{queues}\npfc_headroom = {}", room(&usual));
    assert!(outcome(&mut done(&incast(&too_little))).lossless_drops > 0);
}

#[test]
fn a_full_pool_pauses_by_what_is_free() {
    // Eight ports each hold up to an eighth of what is free: half of all is taken when these are equal.
    let simulation_of = |queues: &str| {
        let scenario = incast(queues);
        let mut simulation = done(&scenario);
        let held: u64 = (1..=8).map(|host| simulation.fabric.most_held(PortId(2 * host))).sum();
        assert_eq!(outcome(&mut simulation).packets_dropped, 0);
        held
    };
    let room = 8 * (25_000 + 3 * 1538 + 84);
    for pool in ["shared = \"2MB\"\ncapacity = \"9KB\"", "shared = \"9KB\"\nshared_lossless = \"2MB\""] {
        let held = simulation_of(&format!("lossless = [3]\n{pool}"));
        assert!((1_000_000..1_000_000 + room + 20_000).contains(&held), "{held}");
    }
    // With alpha 2, a ninth would be free.
    let held = simulation_of(
        "lossless = [3]\nshared_lossless = \"2MB\"\npfc_alpha = 2\npfc_xoff = \"20KB\"\npfc_xon = \"10KB\"",
    );
    assert!(held > 1_800_000 && held < 2_000_000 + 8 * 20_000 + room, "{held}");
}

/// Host 1 takes part in an incast of class 3 on host 0, and sends class 0 to host 5.
fn two_classes(queues: &str) -> Scenario {
    scenario(&format!(
        "[fabric]\nkind = \"one-switch\"\nhosts = 6\n[queues]\n{queues}\n{GREEDY}\
         [[rival]]\nkind = \"srd\"\nname = \"other\"\nmtu = 1500\npaths = 1\ncontroller = \"fixed\"\nwindow = \"2bdp\"\n\
         [[workload]]\nkind = \"flows\"\npairs = [\"1->5\"]\nsize = \"4MB\"\ntransport = \"other\"\n\
         [[workload]]\nkind = \"incast\"\nsenders = 4\nsize = \"8MB\"\n"
    ))
}

#[test]
fn a_pause_reaches_the_host_and_stops_its_class_alone() {
    let by_class = two_classes("lossless = [3]\ncapacity = \"4bdp\"");
    let mut simulation = done(&by_class);
    assert!(paused(&simulation, "h1->switch0") > 100.0);
    assert!(counters(&simulation, "switch0->h0").frames > 0);
    assert_eq!(paused(&simulation, "h5->switch0"), 0.0);
    // A quarter of the link is what the incast leaves class 3; class 0 gets the rest.
    let alone = gbps(&mut simulation, 0);
    assert!((65.0..75.0).contains(&alone), "{alone}");

    // Where the whole link is paused, it carries twice the incast's share: frames of both classes take turns.
    let whole = two_classes("link_pause = true");
    let mut simulation = done(&whole);
    let stopped = gbps(&mut simulation, 0);
    assert!((19.0..30.0).contains(&stopped), "{stopped}");
    assert_eq!(outcome(&mut simulation).lossless_drops, 0);
}

/// On the way from leaf 0 to leaf 1, host 0's part of an incast on host 4 (with hosts 5 to 7), and host 1's flow to host 8.
fn victim(queues: &str, host: &str) -> Scenario {
    scenario(&format!(
        "end_us = 3000\n[fabric]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_leaf = 5\n[queues]\n{queues}\n{host}{GREEDY}\
         [[workload]]\nkind = \"flows\"\npairs = [\"1->9\", \"0->5\", \"6->5\", \"7->5\", \"8->5\"]\nsize = \"1GB\"\n"
    ))
}

#[test]
fn a_victim_is_slowed_to_the_share_of_the_incast() {
    let lossless = victim("lossless = [3]\npfc_xoff = \"200KB\"", "");
    let mut simulation = done(&lossless);
    assert_eq!(outcome(&mut simulation).packets_dropped, 0);
    // Four ports share the receiver's link; host 0's frames, a quarter of it, take turns with the victim's on the way there.
    let share = 100.0 / 4.0 * 1400.0 / 1538.0;
    for flow in 0..5 {
        let rate = gbps(&mut simulation, flow);
        assert!((rate / share - 1.0).abs() < 0.1, "flow {flow}: {rate} beside {share}");
    }
    assert!(paused(&simulation, "spine0->leaf1") > 1000.0);
    assert!(paused(&simulation, "leaf0->spine0") > 1000.0);
    assert!(paused(&simulation, "h1->leaf0") > 1000.0);
    // In a class of its own that is not so.
    let mut text = String::from("[[rival]]\nkind = \"srd\"\nname = \"own\"\nmtu = 1500\npaths = 1\n");
    text += "controller = \"fixed\"\nwindow = \"3bdp\"\n";
    text += "[[workload]]\nkind = \"flows\"\npairs = [\"1->9\"]\nsize = \"1GB\"\ntransport = \"own\"\n";
    let apart = scenario(&format!(
        "end_us = 3000\n[fabric]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_leaf = 5\n\
         [queues]\nlossless = [3]\npfc_xoff = \"200KB\"\ncapacity = \"4bdp\"\n{GREEDY}{text}\
         [[workload]]\nkind = \"flows\"\npairs = [\"0->5\", \"6->5\", \"7->5\", \"8->5\"]\nsize = \"1GB\"\n"
    ));
    let mut simulation = done(&apart);
    let rate = gbps(&mut simulation, 0);
    assert!(rate > 2.5 * share, "{rate} beside {share}");
}

#[test]
fn a_slow_receiver_pauses_all_who_share_its_way() {
    // Host 5 takes 1.2 us for what its link brings in 0.12.
    let slow = "[host]\nslow_hosts = [5]\nslow_per_packet_us = 1.2304\nreceive_ring = 64\n";
    let storm = victim("lossless = [3]\npfc_xoff = \"50KB\"", slow);
    let mut simulation = done(&storm);
    let ended = outcome(&mut simulation);
    assert_eq!((ended.packets_dropped, ended.deadlocks.len()), (0, 0));
    for name in ["leaf1->h5", "spine0->leaf1", "leaf0->spine0", "h0->leaf0", "h1->leaf0", "h6->leaf1"] {
        assert!(paused(&simulation, name) > 1500.0, "{name}: {}", paused(&simulation, name));
    }
    let victim_rate = gbps(&mut simulation, 0);
    assert!(victim_rate < 6.0, "{victim_rate}");

    // Without pauses its ring drops what it cannot take, and the victim has what is left of the link.
    let lossy = victim("capacity = \"50KB\"", slow);
    let mut simulation = done(&lossy);
    assert!(simulation.host_losses.ring > 100);
    assert!(gbps(&mut simulation, 0) > 5.0 * victim_rate);

    // A watchdog drops what has waited for too long, and so lets others go on.
    let dead = "[host]\nslow_hosts = [5]\nslow_per_packet_us = 400\nreceive_ring = 64\n";
    let stuck = victim("lossless = [3]\npfc_xoff = \"50KB\"", dead);
    let watched = victim("lossless = [3]\npfc_xoff = \"50KB\"\npfc_watchdog_us = 200", dead);
    let (mut stuck_run, mut watched_run) = (done(&stuck), done(&watched));
    assert!(outcome(&mut watched_run).watchdog_drops > 0);
    assert_eq!(outcome(&mut stuck_run).watchdog_drops, 0);
    let (stuck, watched) = (gbps(&mut stuck_run, 0), gbps(&mut watched_run, 0));
    assert!(stuck < 2.0 && watched > 30.0, "{stuck} and {watched}");
}

/// So many switches in a ring, two hosts on each; shortest ways of two cables lead round and round.
fn ring(switches: u32, queues: &str) -> Scenario {
    let hosts = 2 * switches;
    let pairs: Vec<String> = (0..hosts).map(|host| format!("\"{host}->{}\"", (host + 4) % hosts)).collect();
    let mut scenario = scenario(&format!(
        "end_us = 20000\n[fabric]\nkind = \"one-switch\"\nhosts = {hosts}\n[queues]\n{queues}\n{GREEDY}\
         [[workload]]\nkind = \"flows\"\npairs = [{}]\nsize = \"20MB\"\n",
        pairs.join(", ")
    ));
    let cable = |a, b| Cable {
        a: NodeId(a),
        b: NodeId(b),
        rate: BitRate(100_000_000_000),
        delay: Ps::from_micros(1),
        queue_bytes: [None; 2],
    };
    let up = (0..hosts).map(|host| cable(host, hosts + host / 2));
    let around = (0..switches).map(|n| cable(hosts + n, hosts + (n + 1) % switches));
    scenario.topology = Topology {
        hosts,
        switches: (0..switches)
            .map(|n| Switch { name: format!("s{n}"), latency: Ps::ZERO, role: Role::Switch })
            .collect(),
        cables: up.chain(around).collect(),
    };
    scenario.topology.check().unwrap();
    scenario
}

#[test]
fn ways_in_a_circle_lock_up_and_that_is_told() {
    let lossless = "lossless = [3]\npfc_xoff = \"50KB\"";
    // Five switches: every way of two cables leads round in one sense, and each pair of them has but one.
    let scenario = ring(5, lossless);
    let mut simulation = done(&scenario);
    let ended = outcome(&mut simulation);
    assert_eq!(ended.deadlocks.len(), 1, "{ended:?}");
    let deadlock = &ended.deadlocks[0];
    let mut ports = deadlock.ports.clone();
    ports.sort();
    assert_eq!(ports, ["s0->s1", "s1->s2", "s2->s3", "s3->s4", "s4->s0"]);
    assert_eq!(deadlock.class, 3);
    assert!(
        ended.sim_us < deadlock.at_us + 500.0,
        "the run ends there: {} and {}",
        ended.sim_us,
        deadlock.at_us
    );
    let told = srd_sim::run::run_watched(&scenario, 1, &mut |_| true).unwrap().complaints;
    assert!(
        told.iter().any(|line| line.starts_with("deadlock: since ") && line.contains("s3->s4")),
        "{told:?}"
    );

    // With watchdogs, or without pauses, it goes on.
    let watched = outcome(&mut done(&ring(5, &format!("{lossless}\npfc_watchdog_us = 300"))));
    assert!(watched.watchdog_drops > 0 && watched.sim_us == 20_000.0, "{watched:?}");
    assert!(watched.packet_hops > 10 * ended.packet_hops, "{} {}", watched.packet_hops, ended.packet_hops);
    let lossy = outcome(&mut done(&ring(5, "")));
    assert_eq!((lossy.finished, lossy.deadlocks.len()), (10, 0));
}

#[test]
fn incasts_and_permutations_on_a_tree_do_not_lock_up() {
    let scenario = scenario(&format!(
        "[fabric]\nkind = \"fat-tree\"\nk = 4\n[queues]\nlossless = [3]\npfc_xoff = \"20KB\"\n{GREEDY}\
         [[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n[[workload]]\nkind = \"incast\"\nsenders = 15\nsize = \"500KB\"\n"
    ));
    let ended = outcome(&mut done(&scenario));
    assert_eq!((ended.finished, ended.deadlocks.len(), ended.packets_dropped), (31, 0, 0));
}

#[test]
fn a_class_is_marked_by_its_own_queue() {
    let run = |classes: &str| {
        let scenario = two_classes(&format!("lossless = [3]\necn_min = \"30KB\"\n{classes}"));
        let simulation = done(&scenario);
        (counters(&simulation, "switch0->h0").marked, counters(&simulation, "switch0->h5").marked)
    };
    let (incast, other) = run("");
    assert!(incast > 1000, "{incast}");
    assert_eq!(other, 0, "class 0 has no queue");
    assert_eq!(run("ecn_classes = [3]"), (incast, 0));
    assert_eq!(run("ecn_classes = [0, 7]"), (0, 0));
}

#[test]
fn the_order_of_nodes_makes_no_difference_with_pauses() {
    for queues in
        ["lossless = [3]", "lossless = [3]\nshared = \"300KB\"\npfc_watchdog_us = 20", "link_pause = true"]
    {
        let scenario = scenario(&format!(
            "seed = 7\n[fabric]\nkind = \"leaf-spine\"\nleaves = 3\nspines = 2\nhosts_per_leaf = 4\nswitch_latency_us = 0.5\n\
             [queues]\n{queues}\necn_min = \"20KB\"\necn_max = \"90KB\"\necn_probability = 0.3\n\
             [host]\nslow_hosts = [3]\nslow_per_packet_us = 0.4\nreceive_ring = 32\n{GREEDY}\
             [[workload]]\nkind = \"permutation\"\nsize = \"300KB\"\n[[workload]]\nkind = \"incast\"\nsenders = 9\nsize = \"200KB\"\n"
        ));
        let ran = |in_order: bool| {
            let mut simulation = begun(&scenario);
            if in_order {
                simulation.keep_order();
            }
            while simulation.run(simulation.now + Ps::from_micros(7)) {}
            (simulation.flows.iter().map(|flow| flow.received).collect::<Vec<_>>(), outcome(&mut simulation))
        };
        let first = ran(false);
        assert!(first.1.pause_frames > 0);
        assert_eq!(first, ran(true), "{queues}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let told = |queues: &str| {
        let hosts = "[fabric]\nkind = \"one-switch\"\nhosts = 4\n";
        refusal(&format!("{hosts}{queues}\n[[workload]]\nkind = \"incast\"\nsenders = 3\nsize = 1\n"))
    };
    for (queues, part) in [
        ("[queues]\nlossless = [8]", "from 0 to 7"),
        ("[queues]\nlossless = [3]\nlink_pause = true", "not together with `lossless`"),
        ("[queues]\npfc_xoff = 1000", "nothing is paused"),
        ("[queues]\nshared_lossless = 1000", "nothing is paused"),
        ("[queues]\nlossless = [3]\npfc_alpha = 1", "say how many bytes are shared"),
        ("[queues]\nlossless = [3]\npfc_xon = 1", "write both"),
        ("[queues]\nlossless = [3]\npfc_xoff = 1\npfc_xon = 2", "more than pfc_xoff's"),
        ("[queues]\nlossless = [3]\nclasses = \"none\"", "queues of their own"),
        ("[queues]\necn_classes = [3]", "without `ecn_min`"),
        ("[host]\nslow_hosts = [4]\nslow_per_packet_us = 1", "there is no host 4"),
        ("[host]\nslow_hosts = [3]", "`slow_per_packet_us` is missing"),
        ("[host]\nslow_per_packet_us = 3", "without `slow_hosts`"),
    ] {
        let message = told(queues);
        assert!(message.contains(part), "{queues}: {message}");
    }
}

#[test]
fn a_receiver_in_time_has_its_flow_in_time() {
    // Nobody is paused where nobody is too slow: the fabric is as fast as one without pauses.
    let text = |queues: &str| {
        scenario(&format!(
            "[fabric]\nkind = \"one-switch\"\nhosts = 3\n[queues]\n{queues}\n{GREEDY}\
             [[workload]]\nkind = \"flows\"\npairs = [\"0->1\", \"1->2\"]\nsize = \"1MB\"\n"
        ))
    };
    let (with, without) = (text("lossless = [3]"), text(""));
    let (mut with, without) = (done(&with), done(&without));
    assert_eq!(outcome(&mut with).pause_frames, 0);
    assert_eq!(took(&with, 0), took(&without, 0));
}
