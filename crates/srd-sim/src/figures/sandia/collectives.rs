//! Bursts in step: all-to-all of 32 KB, and barriers. The talk: short messages leave nothing by which TCP would notice a loss but its
//! timeout, so pauses must prevent it.

use super::super::{Drawn, Figure, finding};
use super::{
    INFINIBAND, LAG, LAG_PAUSE, Lab, MOVED, MOVED_PAUSE, NODES, NSCC, Network, SOURCE, SRD, TCP, complaints,
    said, scenario,
};
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static ALL_TO_ALL: Figure = Figure {
    name: "sandia-all-to-all",
    title: "All-to-all of 32 KB messages, by the number of nodes",
    source: SOURCE,
    make: all_to_all,
};

pub(in super::super) static BARRIER: Figure = Figure {
    name: "sandia-barrier",
    title: "Barrier, by the number of nodes",
    source: SOURCE,
    make: barrier,
};

/// With packets as long as SRD's.
const LAG_PAUSE_SHORT: Network = Network {
    label: "iWARP, LAG hash, pause, packets of 4200 bytes",
    sets: &["routing.mode=lag", "queues.link_pause=true", "transport.mtu=4200"],
};
const ALL_TO_ALL_NETWORKS: [Network; 9] =
    [LAG, LAG_PAUSE, LAG_PAUSE_SHORT, MOVED, MOVED_PAUSE, INFINIBAND, TCP, NSCC, SRD];
const BARRIER_NETWORKS: [Network; 7] = [LAG, MOVED, MOVED_PAUSE, INFINIBAND, TCP, NSCC, SRD];

const ALL_TO_ALL_PROGRAM: &str = r#"
[[program]]
kind = "all-to-all"
placement = "random"
size = "32KB"
warmup = 1
"#;

const BARRIER_PROGRAM: &str = r#"
[[program]]
kind = "barrier"
placement = "random"
warmup = 5
"#;

/// What a message of 32 KB takes on a link of 10 Gb/s.
const LINK_ALONE_US: f64 = 27.0;

/// An operation's time: mean and longest over ranks, times and seeds, and what the fabric dropped and hosts sent again.
#[derive(Clone, Copy)]
struct Took {
    mean: f64,
    longest: f64,
    dropped: u64,
    again: u64,
}

fn measure(
    lab: &mut Lab<'_>,
    (networks, program): (&[Network], &str),
    nodes: &[u32],
    (times, seeds): (u32, usize),
    wrong: &mut Vec<String>,
) -> Option<Vec<Vec<Option<Took>>>> {
    lab.plan(networks.len() * nodes.len() * seeds);
    let mut all = Vec::new();
    for network in networks {
        let mut of_network = Vec::new();
        for &nodes in nodes {
            let mut took: Vec<Took> = Vec::new();
            for seed in 1..=seeds as u64 {
                let more = [
                    format!("program.hosts={nodes}"),
                    format!("program.times={times}"),
                    "end_us=20000000".into(),
                ];
                let scenario = scenario(network, program, seed, &more);
                let run = lab.run(&scenario)?;
                wrong.extend(complaints(network, &run));
                took.extend(said(&scenario, &run).first().map(|figure| Took {
                    mean: figure.values.mean,
                    longest: figure.values.most,
                    dropped: run.outcome.packets_dropped,
                    again: run.outcome.packets_rtx,
                }));
            }
            of_network.push((!took.is_empty()).then(|| Took {
                mean: took.iter().map(|took| took.mean).sum::<f64>() / took.len() as f64,
                longest: took.iter().map(|took| took.longest).fold(0.0, f64::max),
                dropped: took.iter().map(|took| took.dropped).sum(),
                again: took.iter().map(|took| took.again).sum(),
            }));
        }
        all.push(of_network);
    }
    Some(all)
}

fn all_to_all(lab: &mut Lab<'_>) -> Option<Drawn> {
    let nodes: Vec<u32> = lab.pick(vec![16, 64], vec![16, 32, 64, 96, NODES]);
    let (times, seeds) = lab.pick((1, 1), (3, 3));
    let mut wrong = Vec::new();
    let networks = &ALL_TO_ALL_NETWORKS;
    let all = measure(lab, (networks, ALL_TO_ALL_PROGRAM), &nodes, (times, seeds), &mut wrong)?;
    let most = nodes[nodes.len() - 1];
    let words = |took: &Vec<Option<Took>>| match took.last().copied().flatten() {
        Some(Took { mean, longest, dropped, again }) => {
            format!(
                "{} us, at most {}; {dropped} packets dropped, {again} sent again",
                plain(mean),
                plain(longest)
            )
        }
        None => "did not end".into(),
    };
    let of_node = |nodes: u32, took: &Option<Took>| took.map(|took| took.mean / f64::from(nodes));
    let x = Axis::new("nodes", nodes[0] as f64, NODES as f64);
    let mut chart = Chart::new(ALL_TO_ALL.title, x, Axis::new("time by number of nodes (us)", 20.0, 70.0));
    for (network, took) in networks.iter().zip(&all).filter(|(network, _)| network.label != TCP.label) {
        chart.line(
            network.label,
            nodes.iter().zip(took).map(|(&nodes, took)| (nodes as f64, of_node(nodes, took))),
        );
    }
    chart.level("a link of 10 Gb/s alone", LINK_ALONE_US);
    let published = |label: &str| match label {
        label if label == TCP.label => "short messages: dropped packets recovered via retransmit timeout",
        label if label.starts_with("iWARP") && label.contains("pause") => "use pause to prevent packet loss",
        _ => "",
    };
    let rows = networks.iter().zip(&all);
    Some(Drawn {
        chart,
        caption: "MPI's way for this size: 32 messages of each node under way, each of which asks first. Lines are means over \
                  ranks, operations and placements, by the number of nodes; InfiniBand's link alone would take 34 us. TCP is \
                  in the table only: its timeouts are beyond the chart."
            .into(),
        findings: rows
            .map(|(network, took)| {
                finding(format!("{}, {most} nodes", network.label), published(network.label), words(took))
            })
            .collect(),
        complaints: wrong,
    })
}

fn barrier(lab: &mut Lab<'_>) -> Option<Drawn> {
    let nodes: Vec<u32> = lab.pick(vec![16, 64], vec![8, 16, 32, 64, NODES]);
    let (times, seeds) = lab.pick((10, 1), (100, 1));
    let mut wrong = Vec::new();
    let networks = &BARRIER_NETWORKS;
    let all = measure(lab, (networks, BARRIER_PROGRAM), &nodes, (times, seeds), &mut wrong)?;
    let most = nodes[nodes.len() - 1];
    let words = |took: &Vec<Option<Took>>| match took.last().copied().flatten() {
        Some(Took { mean, longest, .. }) => format!("{} us, at most {}", plain(mean), plain(longest)),
        None => "did not end".into(),
    };
    let highest = all.iter().flatten().flatten().map(|took| took.mean).fold(0.0, f64::max);
    let x = Axis::new("nodes", nodes[0] as f64, NODES as f64);
    let mut chart = Chart::new(BARRIER.title, x, Axis::new("time (us)", 0.0, highest * 1.1));
    for (network, took) in networks.iter().zip(&all) {
        let points = nodes.iter().zip(took).map(|(&nodes, took)| (nodes as f64, took.map(|took| took.mean)));
        chart.line(network.label, points);
    }
    let rows = networks.iter().zip(&all);
    let published = |label: &str| {
        if label == MOVED_PAUSE.label { "a graph of its own, whose values are lost" } else { "" }
    };
    Some(Drawn {
        chart,
        caption: "Dissemination: every node tells one other in each of log2(nodes) rounds. Nothing queues, so neither pauses nor \
                  routes matter; lines for iWARP lie on each other. Latencies of cards and hosts are put in: 6 us, \
                  InfiniBand's 3 us, TCP 14 us."
            .into(),
        findings: rows
            .map(|(network, took)| {
                finding(format!("{}, {most} nodes", network.label), published(network.label), words(took))
            })
            .collect(),
        complaints: wrong,
    })
}
