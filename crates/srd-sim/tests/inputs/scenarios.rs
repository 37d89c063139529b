//! Scenario files: defaults, units, overrides, what is refused and how, and every shipped example.

use crate::shipped;
use srd_proto::{ControllerKind, SelectorKind};
use srd_sim::apps::{Size, Start};
use srd_sim::input::{Scenario, all_keys};
use srd_sim::net::{ClassSchedule, Direction, Ecn, FaultKind, PacketSizes, SharedBuffer};
use srd_sim::units::Ps;
use srd_wire::BitRate;
use std::path::Path;

const SMALL: &str = "\
[fabric]
kind = \"leaf-spine\"
leaves = 2
spines = 4
hosts_per_leaf = 4
[[workload]]
kind = \"flows\"
pairs = [\"0->4\"]
size = \"2MB\"
";

fn parse(text: &str, sets: &[&str]) -> Result<Scenario, String> {
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    Scenario::parse(text, "a.toml", &shipped(), &sets).map_err(|error| error.to_string())
}

fn good(text: &str, sets: &[&str]) -> Scenario {
    parse(text, sets).unwrap_or_else(|error| panic!("{error}"))
}

/// SMALL with another line at its end, which is line 10.
fn extended(line: &str) -> String {
    format!("{SMALL}{line}\n")
}

#[test]
fn defaults_make_sense() {
    let scenario = good(SMALL, &[]);
    let Scenario { settings, topology, traffic, notes } = &scenario;
    assert_eq!((settings.name.as_str(), settings.seed), ("a", 1));
    assert_eq!((topology.hosts, topology.fastest_host()), (8, BitRate(100_000_000_000)));
    assert_eq!(topology.cables[0].delay, Ps::from_micros(1));
    assert_eq!(settings.transport().mtu, 9000);
    assert_eq!(settings.transport().srd().unwrap().paths, 64);
    assert_eq!(settings.transport().srd().unwrap().selector, SelectorKind::Reps);
    assert_eq!(settings.transport().srd().unwrap().controller, srd_proto::Config::default().controller);
    assert_eq!(settings.transport().srd().unwrap().ack_every, None);
    assert_eq!(settings.frame_overhead, 24);
    assert_eq!((settings.queues.ecn, settings.queues.shared, settings.queues.trim), (None, None, false));
    assert_eq!(settings.queues.classes, ClassSchedule::None);
    // 100 Gb/s for the longest round trip: 8 hops of 1 us, 4 of 9038 bytes and 4 of 118.
    let rtt = topology.longest_base_rtt(PacketSizes::of(9000, 24));
    assert_eq!(rtt, Ps(8_000_000 + 4 * 723_040 + 4 * 9_440));
    assert_eq!(settings.queues.capacity, rtt.0 * 100 / 8000);
    assert_eq!(settings.sample_every, Ps::ZERO);
    assert_eq!(traffic.flows.len(), 1);
    assert_eq!(traffic.workloads, ["flows"]);
    assert!(settings.faults.is_empty() && notes.is_empty());
}

#[test]
fn values_are_read_in_the_units_of_people() {
    let text = extended(
        "until_us = 0\n[queues]\ncapacity = \"1MB\"\nshared = \"12MiB\"\nshared_alpha = 2\necn_min = \"0.5bdp\"\necn_max = 500_000\n\
         ecn_probability = 0.5\ntrim = true\nclasses = \"weighted\"\nclass_weights = [8, 1, 1, 1, 1, 1, 1, 1]\n[host]\n\
         per_packet_us = 0.05\nlatency_us = 1.5\nreceive_ring = 256\nqueues = 4\njitter_us = 50\n[transport]\nmtu = 4096\npaths = 16\n\
         selector = \"oblivious\"\ncontroller = \"fixed\"\nwindow = \"1.5bdp\"\nbase_rtt_us = 10\nline_rate_gbps = 80\nreceiver_hint = false\n\
         ack_every = 1\n[law]\nslope = 0\n[sample]\nevery_us = 10",
    )
    .replace("until_us = 0\n", "");
    let settings = good(&text, &[]).settings;
    assert_eq!(settings.queues.capacity, 1_000_000);
    assert_eq!(settings.queues.shared, Some(SharedBuffer { bytes: 12 << 20, alpha: 2.0 }));
    let ecn = Ecn {
        min_bytes: 50_000,
        max_bytes: 500_000,
        max_probability: 0.5,
        on_leaving: false,
        at_last_hop: true,
    };
    assert_eq!(settings.queues.ecn, Some(ecn));
    assert!(settings.queues.trim);
    assert_eq!(settings.queues.classes, ClassSchedule::Weighted([8, 1, 1, 1, 1, 1, 1, 1]));
    assert_eq!(
        (settings.hosts.per_packet, settings.hosts.latency),
        (Ps::from_nanos(50), Ps::from_nanos(1500))
    );
    assert_eq!((settings.hosts.receive_ring, settings.hosts.queues), (256, 4));
    assert_eq!(settings.hosts.jitter, Ps::from_micros(50));
    assert_eq!(
        (
            settings.transport().mtu,
            settings.transport().srd().unwrap().paths,
            settings.transport().srd().unwrap().ack_every
        ),
        (4096, 16, Some(1))
    );
    let srd = settings.transport().srd().unwrap();
    assert_eq!((srd.controller, srd.fixed_window_bytes), (ControllerKind::Fixed, 150_000));
    assert_eq!(settings.transport().srd().unwrap().selector, SelectorKind::Oblivious);
    assert_eq!(settings.transport().base_rtt, Some(Ps::from_micros(10)));
    assert_eq!(settings.transport().line_rate, Some(BitRate(80_000_000_000)));
    assert_eq!(settings.transport().srd().unwrap().receiver_hint, Some(false));
    assert_eq!(settings.transport().srd().unwrap().law.slope, 0.0);
    assert_eq!(settings.sample_every, Ps::from_micros(10));
}

#[test]
fn a_round_trip_may_be_given_instead_of_cables() {
    for (fabric, mtu) in [
        ("kind = \"one-switch\"\nhosts = 8", 9000),
        ("kind = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 4\nspine_gbps = 25", 1500),
        ("kind = \"fat-tree\"\nk = 4\nswitch_latency_us = 0.3", 4136),
        (
            "kind = \"clos\"\npods = 2\nleaves_per_pod = 1\naggs_per_pod = 2\ncores = 4\nhosts_per_leaf = 4",
            9000,
        ),
    ] {
        let text = format!(
            "[fabric]\n{fabric}\nbase_rtt_us = 12\n[transport]\nmtu = {mtu}\n[[workload]]\nkind = \"flows\"\npairs = [\"0->7\"]\nsize = 1\n"
        );
        let rtt = good(&text, &[]).topology.longest_base_rtt(PacketSizes::of(mtu, 24));
        assert!(rtt <= Ps::from_micros(12) && rtt + Ps(20) > Ps::from_micros(12), "{fabric}: {rtt:?}");
        let error = parse(&text, &["fabric.base_rtt_us=0.1"]).unwrap_err();
        assert!(error.contains("packets and switches alone take"), "{error}");
        let error = parse(&text, &["fabric.cable_us=1"]).unwrap_err();
        assert!(error.contains("not together with `base_rtt_us`"), "{error}");
    }
}

#[test]
fn overrides_are_applied_and_blamed() {
    let scenario = good(
        SMALL,
        &["seed=7", "transport.selector=pinned", "workload.size=1bdp", "queues.capacity = \"2bdp\""],
    );
    assert_eq!(scenario.settings.seed, 7);
    assert_eq!(scenario.settings.transport().srd().unwrap().selector, SelectorKind::Pinned);
    let Size::Bytes(bytes) = scenario.traffic.flows[0].size else { panic!("a size was given") };
    assert!(scenario.settings.queues.capacity.abs_diff(2 * bytes) <= 1);
    for (set, told) in [
        (
            "transport.paths=0",
            "--set transport.paths=0: [transport] paths: 0 cannot be: write a whole number from 1 to 256",
        ),
        (
            "transport.path=3",
            "--set transport.path=3: [transport] has no key `path`: [transport] may have kind, name, mtu,",
        ),
        ("workload.1.size=3", "there is no workload.1"),
        ("seed", "write `section.key=value`"),
        ("=3", "write `section.key=value`"),
    ] {
        let error = parse(SMALL, &[set]).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn whatever_is_wrong_is_told_with_its_line_and_what_to_write() {
    for (text, told) in [
        ("seed = ".to_string(), "a.toml:1: this is not TOML"),
        (SMALL.replace("leaves = 2", "leaves = 2\nleaves = 2"), "a.toml:4: this is not TOML"),
        (
            SMALL.replace("leaves = 2", "leafs = 2"),
            "a.toml:3: [fabric] has no key `leafs`: [fabric] may have kind,",
        ),
        (
            SMALL.replace("leaves = 2", ""),
            "a.toml:1: [fabric]: `leaves` is missing: write, for example, `leaves = 8`",
        ),
        (
            SMALL.replace("leaves = 2", "leaves = \"two\""),
            "a.toml:3: [fabric] leaves: \"two\" cannot be: write a whole number",
        ),
        (SMALL.replace("leaves = 2", "leaves = -2"), "[fabric] leaves: -2 cannot be"),
        (SMALL.replace("leaves = 2", "leaves = 2000000"), "at most 1048576"),
        (
            SMALL.replace("leaf-spine", "leaf-spline"),
            "write one of \"one-switch\", \"leaf-spine\", \"clos\", \"fat-tree\", \"rails\", \"dragonfly\" or \"topo\"",
        ),
        (
            SMALL.replace("[fabric]", "[fabrics]"),
            "a.toml:1: the top level has no key `fabrics`: the top level may have name,",
        ),
        (SMALL.replace("[[workload]]", "[workload]"), "a.toml:6: write [[workload]], in double brackets"),
        (SMALL.replace("size = \"2MB\"", ""), "exactly one of `size`"),
        (
            SMALL.replace("\"2MB\"", "\"2XB\""),
            "a.toml:9: [[workload]] 0 (flows) size: \"2XB\" cannot be: write bytes",
        ),
        (SMALL.replace("\"2MB\"", "0"), "size: 0 cannot be"),
        (SMALL.replace("\"2MB\"", "\"10GB\""), "a flow of 10000000000 bytes: at most"),
        (
            SMALL.replace("0->4", "0->8"),
            "a.toml:6: [[workload]] 0 (flows): there is no host 8: this fabric has hosts 0 to 7",
        ),
        (SMALL.replace("0->4", "4->4"), "would send to itself"),
        (SMALL.replace("0->4", "0>4"), "a.toml:8: [[workload]] 0 (flows) pairs: \"0>4\" cannot be"),
        (
            SMALL.replace("0->4", "0..4194303->0..4194303"),
            "a.toml:8: [[workload]] 0 (flows) pairs: this would make 17592186044416 flows: at most 4194304",
        ),
        (SMALL.replace("0->4", "3..1->4"), "pairs: \"3..1->4\" cannot be"),
        (SMALL.replace("[[workload]]", "[[fault]]"), "there is no workload"),
        (
            extended("[transport]\nmtu = 500"),
            "a.toml:11: [transport] mtu: 500 cannot be: write a whole number from 576 to 9216",
        ),
        (extended("[transport]\nmtu = 65536"), "from 576 to 9216"),
        (extended("[transport]\npaths = 257"), "from 1 to 256"),
        (extended("[transport]\nselector = \"best\""), "write one of \"pinned\""),
        (extended("[transport]\nwindow = 5"), "only together with `controller = \"fixed\"`"),
        (extended("[transport]\nline_rate_gbps = 0"), "above 0"),
        (extended("[host]\njitter_us = -1"), "microseconds, from 0"),
        (extended("[host]\njitter_us = inf"), "(no finite number) cannot be"),
        (extended("[host]\nqueues = 0"), "from 1 to 1024"),
        (extended("[queues]\ncapacity = 0"), "at least 1"),
        (extended("[queues]\nshared_alpha = 1"), "say how many bytes"),
        (extended("[queues]\necn_max = 1"), "`ecn_min` is missing"),
        (extended("[queues]\necn_min = 10\necn_max = 5"), "fewer than ecn_min's"),
        (extended("[queues]\necn_min = \"5bdp\""), "nothing would be marked"),
        (extended("[queues]\necn_min = 5\necn_probability = 1.5"), "a number from 0 to 1"),
        (extended("[queues]\nclasses = \"weighted\""), "`class_weights` is missing"),
        (extended("[queues]\nclasses = \"weighted\"\nclass_weights = [1, 2]"), "8 whole numbers"),
        (extended("[law]\nslop = 1"), "[law] has no key `slop`"),
        (extended("[sample]\nevery = 1"), "may have every_us"),
        (format!("end_us = 0\n{SMALL}"), "write microseconds above 0"),
        (format!("fabric = 3\n{}", &SMALL[SMALL.find("[[").unwrap()..]), "a section with keys of its own"),
        (format!("when = 2020-01-01\n{SMALL}"), "no key `when`"),
        (format!("seed = 2020-01-01\n{SMALL}"), "(a date or time) cannot be"),
        (format!("seed = 99999999999999999999\n{SMALL}"), "(a number too large) cannot be"),
    ] {
        let error = parse(&text, &[]).map(|_| ()).unwrap_err();
        assert!(error.starts_with("a.toml") && error.contains(told), "{text}\n{told}\n{error}");
    }
}

#[test]
fn impossible_workloads_are_told() {
    let with = |workload: &str| format!("{}[[workload]]\n{workload}\n", &SMALL[..SMALL.find("[[").unwrap()]);
    for (workload, told) in [
        (
            "kind = \"incast\"\nsenders = 8\nsize = 1",
            "a.toml:8: [[workload]] 0 (incast) senders: 8 are too many: besides the receiver this fabric has 7 hosts",
        ),
        ("kind = \"incast\"\nsize = 1", "`senders` is missing"),
        ("kind = \"incast\"\nsenders = 2\nsender_hosts = [1]\nsize = 1", "not together with `sender_hosts`"),
        ("kind = \"incast\"\nsender_hosts = [1, 9]\nsize = 1", "there is no host 9"),
        ("kind = \"incast\"\nsenders = 2\nreceiver = 8\nsize = 1", "receiver: this fabric has hosts 0 to 7"),
        ("kind = \"incast\"\nsenders = 2\npersistent = true", "write `end_us` at the top level"),
        ("kind = \"incast\"\nsenders = 2\nuntil_us = 100", "`end_us` is missing"),
        ("kind = \"incast\"\nsenders = 2\nsize = 1\nrounds = 2\nrepeats = 2", "either rounds or repeats"),
        ("kind = \"incast\"\nsenders = 2\nuntil_us = 100\nstart_us = 100", "flows begin up to 100 us"),
        ("kind = \"incast\"\nsenders = 2\nsize = 1\nprocesses = 5000", "from 1 to 512"),
        ("kind = \"permutation\"\nsize = 1\nhosts = 9", "this fabric has 8 from host 0 on"),
        ("kind = \"permutation\"\nsize = 1\nhosts = 1", "at least 2 hosts"),
        ("kind = \"permutation\"\nsize = 1\nfirst_host = 8", "hosts 0 to 7"),
        ("kind = \"rack-pairs\"\nsize = 1\nto_leaf = 2", "leaves 0 to 1"),
        ("kind = \"all-to-all\"\nsize = 1\nat_once = 0", "from 1 to"),
        ("kind = \"all-to-all\"\nsize = 1\nrounds = 1000000", "at most 4194304"),
        ("kind = \"ring-all-reduce\"", "`size` is missing"),
        ("kind = \"tree-all-reduce\"\nsize = 10\nchunks = 11", "1 byte per chunk"),
        ("kind = \"join-leave\"\nsenders = 2", "`every_us` is missing"),
        ("kind = \"join-leave\"\nsenders = 2\nevery_us = 10", "`end_us` is missing"),
        ("kind = \"background\"\npairs = [\"0->1\"]", "write `end_us`"),
        ("kind = \"cm\"", "`file` is missing"),
        ("kind = \"cm\"\nfile = \"nowhere.cm\"", "nowhere.cm: there is no such file"),
        ("kind = \"flows\"\npairs = []\nsize = 1", "no pairs"),
        ("kind = \"flows\"\npairs = [\"0->1\"]\nsize = 1\nstart_us = 1e8", "begins at 100000000 us"),
        (
            "kind = \"flows\"\nname = \"x\"\npairs = [\"0->1\"]\nsize = 1\n[[workload]]\nname = \"x\"\nkind = \"flows\"\npairs = [\"0->1\"]\nsize = 1",
            "another workload has this name",
        ),
    ] {
        let error = parse(&with(workload), &[]).map(|_| ()).unwrap_err();
        assert!(error.contains(told), "{workload}\n{told}\n{error}");
    }
    let text = format!("end_us = 50\n{}", with("kind = \"join-leave\"\nsenders = 2\nevery_us = 20"));
    assert!(parse(&text, &[]).unwrap_err().contains("goes on until 60 us"));
    let two = with(
        "kind = \"flows\"\npairs = [\"0->1\"]\nsize = 1\n[[workload]]\nkind = \"flows\"\npairs = [\"0->1\"]\nsize = 1",
    );
    assert_eq!(good(&two, &[]).traffic.workloads, ["flows", "flows-2"]);
    let ids: Vec<u32> = good(&two, &[]).traffic.flows.iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn ranges_of_hosts_are_pairs_and_pairs_may_have_several_flows() {
    let flows = |pairs: &str| {
        let scenario = good(&extended("connections = 2"), &[&format!("workload.pairs={pairs}")]);
        let flows = scenario.traffic.flows.iter().map(|flow| (flow.src.host, flow.dst.host));
        flows.collect::<Vec<_>>()
    };
    let twice = |pairs: &[(u32, u32)]| pairs.iter().flat_map(|pair| [*pair; 2]).collect::<Vec<_>>();
    assert_eq!(flows("[\"1..3->0\", \"7->6\"]"), twice(&[(1, 0), (2, 0), (3, 0), (7, 6)]));
    assert_eq!(flows("[\"0..2->0..2\"]"), twice(&[(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]));
    assert_eq!(flows("[\"5->0..2\"]"), twice(&[(5, 0), (5, 1), (5, 2)]));
}

#[test]
fn a_matrix_with_another_number_of_hosts_is_blamed_itself() {
    let text = SMALL.replace("hosts_per_leaf = 4", "hosts_per_leaf = 5").replace(
        "kind = \"flows\"\npairs = [\"0->4\"]\nsize = \"2MB\"",
        "kind = \"cm\"\nfile = \"triggers.cm\"",
    );
    let error = parse(&text, &[]).unwrap_err();
    assert!(error.contains("triggers.cm:2: Nodes says 8, but the topology has 10 hosts"), "{error}");
}

#[test]
fn faults_come_go_and_come_again() {
    let fault = |keys: &str| extended(&format!("[[fault]]\n{keys}"));
    let faults = |keys: &str| good(&fault(keys), &["end_us=10000"]).settings.faults;
    let one = faults("kind = \"down\"\nlink = \"leaf0-spine1\"\nat_us = 5");
    assert_eq!(one.len(), 1);
    assert_eq!((one[0].at, one[0].direction), (Ps::from_micros(5), Direction::Both));
    assert_eq!(one[0].kind, FaultKind::Down { noticed_after: Ps::from_micros(10_000) });
    assert_eq!(one[0].cables, [9]);

    let flapping = faults(
        "kind = \"black-hole\"\nlink = \"leaf0-spine1\"\nat_us = 5\nfor_us = 2\nperiod_us = 10\ntimes = 3",
    );
    let times: Vec<(u64, bool)> =
        flapping.iter().map(|fault| (fault.at.0 / 1_000_000, fault.kind == FaultKind::Heal)).collect();
    assert_eq!(times, [(5, false), (7, true), (15, false), (17, true), (25, false), (27, true)]);

    let both_ways =
        faults("kind = \"loss\"\nprobability = 0.01\nlink = \"leaf0-*\"\ndirection = \"forward\"\nat_us = 0");
    let ways: Vec<(Direction, &[u32])> =
        both_ways.iter().map(|fault| (fault.direction, &fault.cables[..])).collect();
    assert_eq!(ways, [(Direction::BToA, &[0, 1, 2, 3][..]), (Direction::AToB, &[8, 9, 10, 11][..])]);
    let reversed = faults(
        "kind = \"rate\"\nshare = 0.25\nlinks = [\"spine1-leaf0\"]\ndirection = \"forward\"\nat_us = 0",
    );
    assert_eq!((reversed[0].direction, reversed[0].kind), (Direction::BToA, FaultKind::Rate(0.25)));
    let twice = faults("kind = \"delay\"\nextra_us = 3\nlinks = [\"leaf0-*\", \"leaf0-spine0\"]\nat_us = 0");
    assert_eq!(twice[0].cables, [0, 1, 2, 3, 8, 9, 10, 11]);
    let sorted = format!(
        "{}[[fault]]\nkind = \"heal\"\nlink = \"*\"\nat_us = 1\n",
        fault("kind = \"corruption\"\nprobability = 1\nlink = \"*\"\nat_us = 2")
    );
    assert_eq!(good(&sorted, &[]).settings.faults[0].kind, FaultKind::Heal);

    for (keys, told) in [
        (
            "kind = \"down\"\nlink = \"leaf0-spine9\"\nat_us = 5",
            "a.toml:12: [[fault]] 0 (down) link: no cable is called `leaf0-spine9`. There are h0-leaf0 to h7-leaf1 (8), leaf0-spine0 to leaf1-spine3 (8)",
        ),
        ("kind = \"down\"\nat_us = 5", "write either `link`"),
        ("kind = \"down\"\nlink = \"*\"\nlinks = [\"*\"]\nat_us = 5", "write either `link`"),
        ("kind = \"down\"\nlinks = []\nat_us = 5", "is empty"),
        ("kind = \"down\"\nlink = \"*\"", "`at_us` is missing"),
        ("kind = \"down\"\nlink = \"*\"\nat_us = 10000", "nobody would see this fault"),
        ("kind = \"down\"\nlink = \"*\"\nat_us = 9000\nfor_us = 2000", "before the fault does (11000 us)"),
        (
            "kind = \"down\"\nlink = \"*\"\nat_us = 1\nfor_us = 5\nperiod_us = 5\ntimes = 2",
            "must be less than `period_us`",
        ),
        ("kind = \"down\"\nlink = \"*\"\nat_us = 1\nperiod_us = 5\ntimes = 2", "go together"),
        (
            "kind = \"down\"\nlink = \"*\"\nat_us = 1\nfor_us = 1\nperiod_us = 5\ntimes = 100000",
            "before the fault does",
        ),
        ("kind = \"loss\"\nlink = \"*\"\nat_us = 1", "`probability` is missing"),
        ("kind = \"loss\"\nlink = \"*\"\nat_us = 1\nprobability = 2", "a number from 0 to 1"),
        ("kind = \"rate\"\nlink = \"*\"\nat_us = 1\nshare = 0", "share: 0 cannot be"),
        ("kind = \"heal\"\nlink = \"*\"\nat_us = 1\nfor_us = 3", "no key `for_us`"),
        ("kind = \"black-hole\"\nlink = \"*\"\nat_us = 1\nshare = 3", "no key `share`"),
        (
            "kind = \"loss\"\nprobability = 0.1\nlink = \"*\"\nat_us = 1\ndirection = \"up\"",
            "\"both\", \"forward\" or \"backward\"",
        ),
    ] {
        let error = parse(&fault(keys), &["end_us=10000"]).map(|_| ()).unwrap_err();
        assert!(error.contains(told), "{keys}\n{told}\n{error}");
    }
}

#[test]
fn every_shipped_scenario_is_read() {
    let files = std::fs::read_dir(shipped()).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(files.len() >= 12);
    for path in files {
        let scenario = Scenario::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Some(scenario.settings.name.as_str()), path.file_stem().unwrap().to_str());
        assert_eq!(scenario.notes, [""; 0], "{}", path.display());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} begins with what it shows", path.display());
    }
}

fn load(name: &str) -> Scenario {
    Scenario::load(&shipped().join(name), &[]).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_papers_figures_have_the_papers_numbers() {
    for name in
        ["fig2-incast-48.toml", "fig2-48-servers.toml", "fig4-persistent.toml", "fig6-rack-pairs.toml"]
    {
        let Scenario { settings, topology, .. } = load(name);
        let rtt =
            topology.longest_base_rtt(PacketSizes::of(settings.transport().mtu, settings.frame_overhead));
        assert_eq!(settings.transport().mtu, 9000);
        assert_eq!(topology.fastest_host(), BitRate(100_000_000_000));
        assert!(rtt.0.abs_diff(12_000_000) < 20, "{name}: {rtt:?}");
        assert_eq!(settings.queues.capacity, rtt.0 * 100 / 8000);
    }
    let first_round = |name: &str| {
        let flows = load(name).traffic.flows;
        flows.into_iter().filter(|flow| matches!(flow.start, Start::At(_))).collect::<Vec<_>>()
    };
    for (name, servers) in
        [("fig2-incast-48.toml", 4), ("fig2-48-servers.toml", 48), ("fig4-persistent.toml", 4)]
    {
        let flows = first_round(name);
        let mut senders: Vec<u32> = flows.iter().map(|flow| flow.src.host).collect();
        senders.dedup();
        assert_eq!((flows.len(), senders.len()), (48, servers), "{name}");
    }
    assert_eq!(first_round("fig6-rack-pairs.toml").len(), 8 * 16);
}

#[test]
fn triggers_of_a_matrix_survive_in_a_scenario() {
    let scenario = load("htsim-triggers.toml");
    assert_eq!(scenario.traffic.triggers.len(), 2);
    assert_eq!(scenario.traffic.workloads, ["cm"]);
    assert_eq!(scenario.topology.cables_named("agg0.0-core0").unwrap().len(), 2);
}

#[test]
fn the_reference_explains_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SCENARIOS.md");
    let page = std::fs::read_to_string(path).unwrap();
    for (section, keys) in all_keys() {
        assert!(page.contains(section), "docs/SCENARIOS.md does not mention {section}");
        for key in keys {
            assert!(
                page.contains(&format!("`{key}`")),
                "docs/SCENARIOS.md does not explain `{key}` of {section}"
            );
        }
    }
}

#[test]
fn a_missing_scenario_is_told() {
    let error = Scenario::load(&shipped().join("nothing.toml"), &[]).unwrap_err().to_string();
    assert!(error.contains("nothing.toml: there is no such file"), "{error}");
}
