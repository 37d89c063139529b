//! Programs over the messaging layer in a simulated fabric.

use srd_sim::apps::Script;
use srd_sim::apps::benchmarks::all_reduce::AllReduce;
use srd_sim::apps::benchmarks::pairs::{ping_pong, stream};
use srd_sim::hosts::{AnyHost, OnNode};
use srd_sim::input::Scenario;
use srd_sim::run::{Ended, Offer, Simulation, drive, place, prepare_hosts, to_end};
use srd_wire::BitRate;

const FABRIC: &str = r#"
[fabric]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
host_gbps = 100
base_rtt_us = 12

[transport]
mtu = 9000
"#;

fn run(
    scripts: impl IntoIterator<Item = Script>,
    per_host: u32,
    change: impl FnOnce(&mut Scenario),
) -> Ended {
    let programs = place(scripts, per_host);
    let mut scenario = Scenario::of_programs(FABRIC, "fabric", &[], programs).unwrap();
    change(&mut scenario);
    let ended = to_end(&scenario, &mut || true).expect("nobody stops it");
    assert_eq!(ended.complaints, [] as [String; 0]);
    ended
}

fn half_round_trip_us(bytes: u64, change: impl FnOnce(&mut Scenario)) -> f64 {
    let times = 10;
    let ended = run(ping_pong(bytes, times), 1, change);
    ended.span_of(0).unwrap().as_micros() / (2 * times) as f64
}

#[test]
fn a_ping_pong_takes_the_time_of_the_fabric_and_the_same_again() {
    for bytes in [0, 8, 8192, 65_536, 1 << 20] {
        let run = || run(ping_pong(bytes, 4), 1, |_| {});
        let ended = run();
        assert_eq!(ended, run(), "{bytes} bytes");
        assert!(ended.messages.iter().all(|counters| counters.expected + counters.unexpected == 4));
        assert!(ended.marks.iter().all(|marks| marks.len() == 2), "{bytes} bytes: {ended:?}");
        // Not faster than the way and the bytes, and not much slower.
        let half = ended.span_of(0).unwrap().as_micros() / 8.0;
        let least = 1.0 + bytes as f64 * 8e-5;
        assert!((least..least * 2.0 + 25.0).contains(&half), "{bytes} bytes: {half} us, {least} at best");
    }
}

#[test]
fn a_window_that_covers_the_round_trip_fills_the_link() {
    let (bytes, messages) = (32 << 10, 400);
    let gbps = |window| {
        let ended = run(stream(bytes, messages, window), 1, |_| {});
        bytes as f64 * 8.0 * messages as f64 / ended.span().unwrap().as_micros() / 1e3
    };
    let (one, many) = (gbps(1), gbps(32));
    assert!(one < 45.0 && many > 85.0, "{one} and {many} Gb/s");
}

#[test]
fn data_ahead_of_a_rendezvous_saves_time_and_never_cost_much() {
    let time = |bytes, ahead| {
        half_round_trip_us(bytes, |scenario| {
            scenario.settings.messages.medium_limit = 0;
            scenario.settings.messages.eager_ahead = ahead;
        })
    };
    for bytes in [1024, 8192, 65_536, 262_144, 1 << 20] {
        let without = time(bytes, 0);
        let (little, much) = (time(bytes, 16 << 10), time(bytes, 256 << 10));
        // A packet with data is behind one without at every switch, and so is the read that it begins.
        assert!(little <= 1.03 * without, "{bytes} bytes: {little} us, {without} us without");
        assert!(much < 0.99 * without, "{bytes} bytes: {much} us, {without} us without");
        assert!(bytes > 8192 || little < 0.8 * without, "{bytes} bytes: {little} us, {without} us without");
    }
}

#[test]
fn an_all_reduce_ends_and_does_the_same_again() {
    let adds = BitRate(80_000_000_000);
    let all_reduce = AllReduce { nodes: 4, per_node: 4, bytes: 4096, adds };
    let flat = || run(all_reduce.flat(true, 2), 4, |_| {});
    let aware =
        || run(all_reduce.on_node_first(2), 4, |it| it.settings.hosts.intra_node = Some(OnNode::default()));
    assert_eq!(flat(), flat());
    assert_eq!(aware(), aware());
    assert!(aware().span() < flat().span());
}

#[test]
fn programs_of_a_host_reach_each_other_through_the_card_or_past_it() {
    let through = |intra_node| {
        let ended = run(ping_pong(8, 10), 2, |scenario| scenario.settings.hosts.intra_node = intra_node);
        ended.span_of(0).unwrap().as_micros() / 20.0
    };
    let (card, memory) = (through(None), through(Some(OnNode::default())));
    // 0.3 us, and a nanosecond for the bytes.
    assert!((0.3..0.32).contains(&memory), "{memory} us");
    assert!(card > 1.0, "{card} us");
}

/// The programs of a scenario in the small fabric.
fn run_scenario(programs: &str) -> (Ended, Scenario) {
    let text = format!("{FABRIC}{programs}");
    let scenario = Scenario::parse(&text, "test.toml", std::path::Path::new(""), &[]).unwrap();
    let ended = to_end(&scenario, &mut || true).expect("nobody stops it");
    (ended, scenario)
}

#[test]
fn programs_of_scenarios_run_over_the_messaging_layer() {
    for (keys, what, range) in [
        ("kind = \"barrier\"\ntimes = 5", "time of an operation", 10.0..80.0),
        ("kind = \"all-to-all\"\nsize = \"4KiB\"\ntimes = 3", "time of an operation", 5.0..100.0),
        ("kind = \"all-reduce\"\nsize = \"1MiB\"\ntimes = 3", "time of an operation", 150.0..600.0),
        (
            "kind = \"rotate-bandwidth\"\nsize = \"8MiB\"\nmessages = 2\nrotations = 2",
            "mean of a rotation",
            6e3..12.5e3,
        ),
        ("kind = \"rotate-latency\"\nmessages = 5", "mean of a rotation", 3.0..30.0),
        ("kind = \"hpcg\"\ngflops = 5\npoints = 32\niterations = 2", "rate of all ranks", 5.0..40.0),
        ("kind = \"lammps\"\nbenchmark = \"lj\"\nsteps = 2", "efficiency", 0.9..1.0),
        ("kind = \"hpl\"\norder = 1000\ngflops = 10", "rate of all ranks", 1.0..80.0),
        (
            "kind = \"imb\"\nbenchmark = \"exchange\"\nsize = 1000\niterations = 5",
            "time of a message or exchange",
            3.0..30.0,
        ),
        ("kind = \"file-servers\"\nservers = 2\nblocks = 8", "rate of a client", 1e3..12.5e3),
        (
            "kind = \"file-servers\"\nservers = 2\nblocks = 8\noperation = \"read\"",
            "rate of a client",
            1e3..12.5e3,
        ),
    ] {
        let (ended, scenario) = run_scenario(&format!("[[program]]\n{keys}\n"));
        assert_eq!(ended.complaints, [] as [String; 0], "{keys}");
        let figures = scenario.traffic.jobs[0].figures(&ended.marks);
        let figure = figures.iter().find(|figure| figure.what == what);
        let mean = figure.map(|figure| figure.values.mean);
        assert!(mean.is_some_and(|mean| range.contains(&mean)), "{keys}: {figures:?}");
    }
}

#[test]
fn congestors_congest_until_the_victims_are_done() {
    let figure = |congestors: &str| {
        let keys =
            "kind = \"gpcnet\"\ntest = \"latency\"\nhosts = 10\nrings = 2\niterations = 20\nwarmup = 5";
        let fabric = FABRIC.replace("hosts_per_leaf = 4", "hosts_per_leaf = 5");
        let text = format!("{fabric}[[program]]\n{keys}\ncongestors = \"{congestors}\"\n");
        let scenario = Scenario::parse(&text, "test.toml", std::path::Path::new(""), &[]).unwrap();
        let ended = to_end(&scenario, &mut || true).expect("nobody stops it");
        assert_eq!(ended.complaints, [] as [String; 0], "{congestors}");
        let figures = scenario.traffic.jobs[0].figures(&ended.marks);
        (figures[0].values.mean, figures[1].values.mean, ended.events)
    };
    let alone = figure("none");
    assert!(alone.0 > 1.0 && alone.1 < 50.0, "{alone:?}");
    for congestors in ["all", "all-to-all", "incast", "put-incast", "get-broadcast"] {
        let among = figure(congestors);
        assert!(
            among.0 >= alone.0 * 0.99 && among.2 > alone.2 * 5 / 4,
            "{congestors}: {among:?}, {alone:?} alone"
        );
    }
}

#[test]
fn programs_run_over_transports_that_move_flows() {
    for transport in ["", "kind = \"tcp\"\n"] {
        for (keys, what, range) in [
            ("kind = \"file-servers\"\nservers = 2\nblocks = 8", "rate of a client", 1e3..12.5e3),
            (
                "kind = \"file-servers\"\nservers = 2\nblocks = 8\noperation = \"read\"",
                "rate of a client",
                1e3..12.5e3,
            ),
            ("kind = \"hpcg\"\ngflops = 5\npoints = 16\niterations = 2", "rate of all ranks", 1.0..50.0),
            (
                "kind = \"gpcnet\"\ntest = \"latency\"\nrings = 1\niterations = 5\nwarmup = 1",
                "average",
                1.0..500.0,
            ),
        ] {
            let text = format!(
                "{}[[program]]\n{keys}\n",
                FABRIC.replace("hosts_per_leaf = 4", "hosts_per_leaf = 5") + transport
            );
            let scenario = Scenario::parse(&text, "test.toml", std::path::Path::new(""), &[]).unwrap();
            let offer = Offer::of(&scenario);
            let mut simulation: Simulation<'_, AnyHost> = prepare_hosts(&scenario, &offer);
            assert!(drive(&mut simulation, &scenario, &offer, &mut |_| true));
            assert!(simulation.complete(), "{transport}{keys}");
            let messages = simulation.messages().expect("there are programs");
            let marks: Vec<_> = messages.ranks().map(|rank| rank.marks().to_vec()).collect();
            let figures = scenario.traffic.jobs[0].figures(&marks);
            let mean = figures.iter().find(|figure| figure.what == what).map(|figure| figure.values.mean);
            assert!(mean.is_some_and(|mean| range.contains(&mean)), "{transport}{keys}: {figures:?}");
        }
    }
}
