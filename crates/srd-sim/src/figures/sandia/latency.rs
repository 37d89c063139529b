//! CBench's rotate latency, and PingPong of the Intel MPI Benchmarks. What cards and hosts take is put in: how long these times
//! are is no result, only how they change.

use super::super::{Drawn, Figure, finding};
use super::{
    INFINIBAND, LAG, Lab, MOVED, NODES, NSCC, Network, SOURCE, SRD, TCP, complaints, said, scenario,
};
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static ROTATE: Figure = Figure {
    name: "sandia-rotate-latency",
    title: "Rotate latency: half a round trip of an empty message, the slowest pair, by the number of nodes",
    source: SOURCE,
    make: rotate,
};

pub(in super::super) static PING_PONG: Figure = Figure {
    name: "sandia-ping-pong",
    title: "Half a round trip of a message between two nodes, by size",
    source: SOURCE,
    make: ping_pong,
};

const NETWORKS: [Network; 6] = [LAG, MOVED, INFINIBAND, TCP, NSCC, SRD];

const ROTATE_PROGRAM: &str = r#"
[[program]]
kind = "rotate-latency"
placement = "random"
"#;

const PING_PONG_PROGRAM: &str = r#"
[[program]]
kind = "imb"
benchmark = "pingpong"
hosts = 2
first_host = 11
iterations = 20
"#;
const SIZES: [u64; 7] = [8, 128, 1024, 4096, 16_384, 65_536, 262_144];

const INPUTS: &str = "Put in: 6 us for iWARP's card and both hosts (SRD the same, TCP in software 8 us more), 3 us for InfiniBand's; 0.5 us \
     for each chip of the Ethernet switch, 0.2 us for InfiniBand's.";

fn rotate(lab: &mut Lab<'_>) -> Option<Drawn> {
    let nodes: Vec<u32> = lab.pick(vec![32, NODES], vec![16, 32, 64, 96, NODES]);
    let (rotations, messages) = lab.pick((2, 20), (8, 100));
    lab.plan(NETWORKS.len() * nodes.len());
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for network in &NETWORKS {
        let mut of_network = Vec::new();
        for &nodes in &nodes {
            let more = [
                format!("program.hosts={nodes}"),
                format!("program.rotations={rotations}"),
                format!("program.messages={messages}"),
                "end_us=2000000".into(),
            ];
            let scenario = scenario(network, ROTATE_PROGRAM, 1, &more);
            let run = lab.run(&scenario)?;
            wrong.extend(complaints(network, &run));
            // Quickest, mean and slowest of the pairings.
            let of = |n: usize| said(&scenario, &run).get(n).map(|figure| figure.values);
            of_network.push([of(0).map(|of| of.least), of(1).map(|of| of.mean), of(2).map(|of| of.most)]);
        }
        all.push(of_network);
    }
    let highest = all.iter().flatten().filter_map(|of| of[2]).fold(0.0, f64::max);
    let x = Axis::new("nodes", nodes[0] as f64, NODES as f64);
    let mut chart =
        Chart::new(ROTATE.title, x, Axis::new("latency of the slowest pair (us)", 0.0, highest * 1.1));
    for (network, of_network) in NETWORKS.iter().zip(&all) {
        chart.line(network.label, nodes.iter().zip(of_network).map(|(&nodes, of)| (nodes as f64, of[2])));
    }
    let words = |of_network: &Vec<[Option<f64>; 3]>| {
        let last = of_network[of_network.len() - 1].map(|us| plain(us.unwrap_or(f64::NAN)));
        format!("quickest pair {}, mean {}, slowest {} us", last[0], last[1], last[2])
    };
    let published = ["", "close to SDR InfiniBand", "", "", "", ""];
    let rows = NETWORKS.iter().zip(&all).zip(published);
    Some(Drawn {
        chart,
        caption: format!(
            "All pairs of a pairing at once; so small messages meet nobody, and routes make no difference. {INPUTS}"
        ),
        findings: rows
            .map(|((network, of), published)| {
                finding(format!("{}, 128 nodes", network.label), published, words(of))
            })
            .collect(),
        complaints: wrong,
    })
}

fn ping_pong(lab: &mut Lab<'_>) -> Option<Drawn> {
    const NETWORKS: [Network; 5] = [MOVED, INFINIBAND, TCP, NSCC, SRD];
    lab.plan(NETWORKS.len() * SIZES.len());
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for network in &NETWORKS {
        let mut of_network = Vec::new();
        for size in SIZES {
            let more = [format!("program.size={size}"), "end_us=2000000".into()];
            let scenario = scenario(network, PING_PONG_PROGRAM, 1, &more);
            let run = lab.run(&scenario)?;
            wrong.extend(complaints(network, &run));
            of_network.push(said(&scenario, &run).first().map(|figure| figure.values.mean));
        }
        all.push(of_network);
    }
    let times = || all.iter().flatten().flatten().copied();
    let (low, high) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
    let x = Axis::new("size (B)", SIZES[0] as f64, SIZES[SIZES.len() - 1] as f64).logarithmic();
    let y = Axis::new("time (us)", low * 0.7, high * 1.4).logarithmic();
    let mut chart = Chart::new(PING_PONG.title, x, y);
    for (network, of_network) in NETWORKS.iter().zip(&all) {
        chart.line(network.label, SIZES.iter().zip(of_network).map(|(&size, &us)| (size as f64, us)));
    }
    let words = |of: &Vec<Option<f64>>| {
        let at = |n: usize| plain(of[n].unwrap_or(f64::NAN));
        format!("8 B: {} us, 4 KiB: {}, 64 KiB: {}, 256 KiB: {}", at(0), at(3), at(5), at(6))
    };
    let published = ["latency is getting close to SDR InfiniBand", "", "", "", ""];
    let rows = NETWORKS.iter().zip(&all).zip(published);
    Some(Drawn {
        chart,
        caption: format!(
            "Two nodes at different line cards, alone (PingPong of the Intel MPI Benchmarks); above 16 KiB the receiver is asked \
             first. Chips send a packet on when all of it is there: at 10 Gb/s each of the four cables costs 7 us for the \
             first packet of 9000 bytes, 1.7 us for one of InfiniBand's. {INPUTS}"
        ),
        findings: rows
            .map(|((network, of), published)| finding(network.label, published, words(of)))
            .collect(),
        complaints: wrong,
    })
}
