//! Runs of other transports than SRD, of several at once, and of programs: they leave the same files.

use crate::captures::{Frame, frames, ones_sum, short, whole};
use crate::{directory, record, rows, scenario, text};
use srd_sim::record as recorder;
use srd_sim::record::{PAGE, Recording, TRACE, Traced};
use srd_sim::run::{self, Outcome};
use srd_trace::{Question, TraceFile};
use std::collections::BTreeMap;
use std::fs;

/// Eight flows into one port that loses some of their packets.
const INCAST: &str = "\
seed = 7
[fabric]
kind = \"leaf-spine\"
leaves = 3
spines = 2
hosts_per_leaf = 4
[queues]
capacity = \"60KB\"
ecn_min = \"15KB\"
ecn_max = \"45KB\"
[[workload]]
kind = \"incast\"
senders = 8
size = \"300KB\"
[transport]
mtu = 4200
";

/// Each rival in the ways in which its packets differ.
const BASELINES: [(&str, &str); 9] = [
    ("tcp", "kind = \"tcp\""),
    ("tcp-marked", "kind = \"tcp\"\ncongestion = \"dctcp\""),
    ("iwarp", "kind = \"iwarp\""),
    ("iwarp-markers", "kind = \"iwarp\"\nmarkers = true"),
    ("roce", "kind = \"roce\""),
    ("roce-irn", "kind = \"roce\"\nrecovery = \"irn\"\ndcqcn = true"),
    ("nscc", "kind = \"nscc\""),
    ("rccc", "kind = \"rccc\""),
    ("nscc-trim", "kind = \"nscc\"\n[queues]\ntrim = true"),
];

/// The incast over a rival.
fn over(rival: &str) -> String {
    match rival.strip_suffix("\n[queues]\ntrim = true") {
        Some(rival) => format!("{INCAST}{rival}\n").replace("[queues]\n", "[queues]\ntrim = true\n"),
        None => format!("{INCAST}{rival}\n"),
    }
}

fn everything(name: &str) -> Recording {
    Recording { pcap: vec!["*".into()], traced: Traced::All, ..Recording::to(directory(name)) }
}

/// All four at once, with a program.
fn mixed() -> String {
    let workload = |name: &str| {
        format!(
            "[[workload]]\nname = \"{name}\"\nkind = \"incast\"\nsenders = 2\nsize = \"100KB\"\ntransport = \"{name}\"\n"
        )
    };
    let rivals = "[[rival]]\nkind = \"tcp\"\n[[rival]]\nkind = \"roce\"\n[[rival]]\nkind = \"nscc\"\n";
    let program = "[[program]]\nname = \"b\"\nkind = \"barrier\"\ntimes = 5\ntransport = \"tcp\"\n";
    let workloads: String = ["tcp", "roce", "nscc"].map(workload).concat();
    format!("{INCAST}{rivals}{workloads}{program}")
}

#[test]
fn recording_changes_no_outcome_of_any_transport() {
    for (name, rival) in BASELINES {
        let scenario = scenario(&over(rival), &[]);
        let plain = run::run(&scenario);
        let recorded = record(&scenario, &everything(name)).ran.outcome;
        assert_eq!(Outcome { cost: plain.cost, ..recorded }, plain, "{name}");
        assert!(plain.packets_rtx > 0, "{name}: nothing was lost");
    }
    let scenario = scenario(&mixed(), &[]);
    let plain = run::run(&scenario);
    let recording = Recording { verify: true, ..everything("mixed") };
    let recorded = record(&scenario, &recording).ran.outcome;
    assert_eq!(Outcome { cost: plain.cost, ..recorded }, plain);
}

#[test]
fn tables_tell_of_flows_of_any_transport() {
    for (name, rival) in BASELINES {
        let recording =
            Recording { traced: Traced::No, ..Recording::to(directory(&format!("{name}-tables"))) };
        record(&scenario(&over(rival), &["sample.every_us=2"]), &recording);
        let flows = rows(&recording, "flows.csv");
        assert!(flows.iter().all(|row| rival.contains(&format!("\"{}\"", row["transport"]))), "{flows:?}");
        assert!(flows.iter().all(|row| row["delivered_bytes"] == "300000"), "{flows:?}");
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for row in rows(&recording, "rates.csv") {
            let (sum, last) = sums.entry(row["flow"].clone()).or_default();
            let time: f64 = row["time_us"].parse().unwrap();
            *sum += row["delivered_gbps"].parse::<f64>().unwrap() * 125.0 * (time - *last);
            *last = time;
            assert!(row["window_bytes"].is_empty() && row["rtt_us"].is_empty(), "only SRD tells: {row:?}");
        }
        assert!(sums.len() == 8 && sums.values().all(|(sum, _)| (sum - 300_000.0).abs() < 400.0), "{sums:?}");
        let (mut all, mut last) = (0.0, 0.0);
        for row in rows(&recording, "totals.csv") {
            let time: f64 = row["time_us"].parse().unwrap();
            all += row["delivered_gbps"].parse::<f64>().unwrap() * 125.0 * (time - last);
            last = time;
        }
        assert!((all - 2_400_000.0).abs() < 3_000.0, "{name}: {all}");
        let queues = rows(&recording, "queues.csv");
        assert!(queues.iter().any(|row| row["port"] == "leaf0->h0" && row["waiting_bytes"] != "0"), "{name}");
        assert!(rows(&recording, "paths.csv").is_empty(), "only SRD tells of its paths");
    }
}

#[test]
fn several_transports_and_programs_share_the_files() {
    let recording = everything("together");
    let recorded = record(&scenario(&mixed(), &[]), &recording);
    let flows = rows(&recording, "flows.csv");
    for (transport, expected) in [("srd", 8), ("tcp", 2), ("roce", 2), ("nscc", 2)] {
        let of = flows.iter().filter(|row| row["transport"] == transport);
        assert_eq!(of.count(), expected, "{transport}");
    }
    let programs = rows(&recording, "programs.csv");
    assert!(
        programs.len() == 1 && programs[0]["program"] == "b" && programs[0]["unit"] == "us",
        "{programs:?}"
    );
    let mean: f64 = programs[0]["mean"].parse().unwrap();
    assert!((mean - recorded.ran.outcome.programs[0].figures[0].mean).abs() < 1e-3);
    let page = text(&recording, PAGE);
    assert!(page.contains("<td>b<td>") && page.contains("tcp (tcp)") && !page.contains("NaN"));
    // Decisions are those of SRD's processes, and flows of others between the same two are not theirs.
    let trace = TraceFile::read(&recording.dir.join(TRACE)).unwrap();
    let report = trace.report(&Question::Flows(vec![9])).unwrap();
    let story = serde_json::to_value(&report.stories[0]).unwrap();
    assert_eq!((story["src"].as_str(), story["dst"].as_str()), (Some("h1.0/tcp"), Some("h0.0/tcp")));
    assert!(text(&recording, TRACE).contains("\"event\":\"packet_sent\""), "SRD's decisions are there");
}

#[test]
fn a_run_of_programs_alone_has_tables_and_a_page() {
    let at = INCAST.find("[[workload]]").unwrap();
    let rest = &INCAST[INCAST.find("[transport]").unwrap()..];
    let program = "[[program]]\nkind = \"all-reduce\"\nsize = \"64KB\"\ntimes = 3\n";
    let scenario = scenario(&format!("{}{rest}{program}", &INCAST[..at]), &[]);
    let recording = Recording { traced: Traced::No, ..everything("programs") };
    let recorded = record(&scenario, &recording);
    assert!(recorded.files.contains(&"programs.csv".to_string()) && rows(&recording, "flows.csv").is_empty());
    let delivered = rows(&recording, "totals.csv").iter().any(|row| row["delivered_gbps"] != "0");
    assert!(delivered, "messages are payload");
    let page = text(&recording, PAGE);
    assert!(page.contains("1 program on a fabric of 12 hosts.") && !page.contains("NaN"), "{page}");
    let told =
        recorder::run(&scenario, &everything("programs-traced"), &mut |_| true).unwrap_err().to_string();
    assert!(told.contains("messages of programs are not traced"), "{told}");
}

#[test]
fn traces_tell_where_rivals_packets_have_been() {
    for (name, rival) in BASELINES {
        let recording =
            Recording { traced: Traced::All, ..Recording::to(directory(&format!("{name}-trace"))) };
        let recorded = record(&scenario(&over(rival), &[]), &recording);
        let trace = text(&recording, TRACE);
        let lines: Vec<serde_json::Value> =
            trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count() as u64;
        let outcome = &recorded.ran.outcome;
        assert_eq!(count("frame_sent"), outcome.packets_new + outcome.packets_rtx, "{name}");
        assert_eq!((count("flow_started"), count("flow_sent"), count("flow_received")), (8, 8, 8), "{name}");
        assert_eq!(count("packet_acked"), outcome.packets_new, "{name}: each packet is acknowledged once");
        let why = if name.ends_with("trim") { "trimmed" } else { "queue_full" };
        let lost = lines.iter().filter(|line| line["why"] == why).count() as u64;
        assert!(lost > 0 && lost <= outcome.packets_dropped + outcome.packets_trimmed, "{name}: {lost}");
        assert_eq!(count("frame_sent"), count("frame_arrived") + count("frame_lost"), "{name}");
        let again =
            lines.iter().filter(|line| line["event"] == "frame_sent" && line["tx"] != 0).count() as u64;
        assert_eq!(again, outcome.packets_rtx, "{name}");
        let report =
            TraceFile::read(&recording.dir.join(TRACE)).unwrap().report(&Question::Slowest(1)).unwrap();
        let parts: f64 = report.stories[0].parts.iter().map(|part| part.us).sum();
        let total = outcome.fct_us.unwrap().max;
        assert!((parts - total).abs() < 0.01, "{name}: parts of {parts} us, and it took {total} us");
    }
}

/// A frame's IP header, checked, and what follows it; and the hosts.
fn ip(bytes: &[u8]) -> (u8, &[u8], [u8; 8]) {
    let ip = &bytes[14..];
    assert_eq!((&bytes[12..14], ip[0], ones_sum(ip[..20].iter().copied())), (&[8, 0][..], 0x45, 0xFFFF));
    (ip[9], &ip[20..short(&ip[2..])], ip[12..20].try_into().unwrap())
}

fn checked(protocol: u8, addresses: [u8; 8], rest: &[u8]) {
    let length = (rest.len() as u16).to_be_bytes();
    let pseudo = addresses.into_iter().chain([0, protocol]).chain(length);
    assert_eq!(ones_sum(pseudo.chain(rest.iter().copied())), 0xFFFF, "checksum");
}

fn long(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// The frames on the first sender's cable, and on that of the receiver.
fn captured(name: &str, rival: &str) -> [Vec<Frame>; 2] {
    let cables = vec!["h4-leaf1".to_string(), "h0-leaf0".to_string()];
    let recording = Recording { pcap: cables, traced: Traced::No, ..Recording::to(directory(name)) };
    record(&scenario(&over(rival), &[]), &recording);
    ["h4-leaf1.pcap", "h0-leaf0.pcap"].map(|file| frames(&fs::read(recording.dir.join(file)).unwrap()).0)
}

#[test]
fn captures_of_tcp_are_tcp() {
    for (name, rival) in
        BASELINES.iter().filter(|(name, _)| name.starts_with("tcp") || name.starts_with("iwarp"))
    {
        let [sender, receiver] = captured(&format!("{name}-pcap"), rival);
        let (mut next, mut acked, mut blocks, mut echoes) = (1, 0, 0, 0);
        for frame in &sender {
            let bytes = whole(frame);
            let (protocol, tcp, addresses) = ip(&bytes);
            assert_eq!(protocol, 6);
            checked(6, addresses, tcp);
            let header = (tcp[12] >> 4) as usize * 4;
            let (sequence, payload) = (long(&tcp[4..]), (tcp.len() - header) as u32);
            assert!(frame.bytes.len() <= 14 + 20 + 60, "headers only");
            if addresses[3] == 4 {
                assert_eq!(
                    (long(&tcp[8..]), tcp[13] & 0x10),
                    (1, 0x10),
                    "{name}: only the other side sends no data"
                );
                assert!(payload > 0 && sequence <= next, "{name}: a hole before {sequence}");
                next = next.max(sequence + payload);
            } else {
                assert_eq!(payload, 0);
                let acknowledged = long(&tcp[8..]);
                assert!(acknowledged <= next, "{name}: what was not sent is acknowledged");
                acked = acked.max(acknowledged);
                blocks += (header > 32) as u32;
                echoes += (tcp[13] & 0x40 != 0) as u32;
                if header > 32 {
                    assert_eq!((tcp[34], tcp[35] as usize), (5, header - 34), "{name}: SACK");
                    let (begin, end) = (long(&tcp[36..]), long(&tcp[40..]));
                    assert!(begin < end && end <= next, "{name}: {begin} to {end}");
                }
            }
        }
        assert_eq!(next, acked, "{name}: all is acknowledged");
        let carried = next - 1;
        assert!(carried >= 300_000 && (name.starts_with("iwarp") || carried == 300_000), "{name}: {carried}");
        assert!(blocks > 0, "{name}: losses are in SACK");
        assert_eq!(echoes > 0, *name == "tcp-marked", "{name}: ECE");
        assert!(receiver.len() > sender.len());
    }
}

#[test]
fn captures_of_roce_are_ib_over_udp() {
    for (name, rival) in BASELINES.iter().filter(|(name, _)| name.starts_with("roce")) {
        let [sender, _] = captured(&format!("{name}-pcap"), rival);
        let mut of = BTreeMap::new();
        for frame in &sender {
            let bytes = whole(frame);
            let (protocol, udp, addresses) = ip(&bytes);
            assert_eq!((protocol, short(&udp[2..]), short(&udp[4..])), (17, 4791, udp.len()));
            checked(17, addresses, udp);
            let bth = &udp[8..];
            assert_eq!(&bth[2..4], [0xFF, 0xFF]);
            *of.entry(bth[0]).or_insert(0) += 1;
            match bth[0] {
                0x06 | 0x0A => {
                    assert!((1..=300_000).contains(&long(&bth[24..])), "{name}: length of the write")
                }
                0x07 => assert_eq!(bth.len(), 12 + 4096 + 4),
                0x11 => assert!([0x1F, 0x60].contains(&bth[12]), "{name}: syndrome"),
                0x08 | 0x81 => {}
                other => panic!("{name}: opcode {other:#x}"),
            }
        }
        let expected: &[u8] =
            if name.ends_with("irn") { &[0x06, 0x0A, 0x11, 0x81] } else { &[0x06, 0x07, 0x08, 0x11] };
        assert!(expected.iter().all(|opcode| of.contains_key(opcode)), "{name}: {of:?}");
    }
}

#[test]
fn captures_of_ultra_ethernet_are_udp() {
    for (name, rival) in BASELINES.iter().filter(|(name, _)| name.starts_with("nscc") || *name == "rccc") {
        let [_, receiver] = captured(&format!("{name}-pcap"), rival);
        let (mut kinds, mut cut) = (BTreeMap::new(), 0);
        for frame in &receiver {
            let bytes = whole(frame);
            let (protocol, udp, addresses) = ip(&bytes);
            assert_eq!((protocol, short(&udp[2..]), short(&udp[4..])), (17, 4793, udp.len()));
            checked(17, addresses, udp);
            *kinds.entry(udp[8]).or_insert(0) += 1;
            cut += (udp[8] == 1 && udp.len() == 30) as u32;
        }
        assert!(kinds[&1] > 8 * 70 && kinds[&2] > 0, "{name}: {kinds:?}");
        assert_eq!(kinds.contains_key(&5), *name == "rccc", "credit of {name}: {kinds:?}");
        assert_eq!(
            (cut > 0, kinds.contains_key(&3)),
            (name.ends_with("trim"), name.ends_with("trim")),
            "{name}"
        );
    }
}
