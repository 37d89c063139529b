//! CBench's rotate bandwidth: half of the nodes send to the other half, one to one, all at once, in one pairing after the other.

use super::super::{Drawn, Figure, finding};
use super::{
    ECMP, INFINIBAND, LAG, Lab, MOVED, MOVED_SHORT, NODES, NSCC, Network, ROTATE, SOURCE, SRD, Spread, TCP,
    complaints, said, scenario,
};
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static SLOWEST: Figure = Figure {
    name: "sandia-rotate-slowest",
    title: "Rotate bandwidth: the slowest pair, by the number of nodes",
    source: SOURCE,
    make: slowest,
};

pub(in super::super) static AVERAGE: Figure = Figure {
    name: "sandia-rotate-average",
    title: "Rotate bandwidth: the average of all pairs, by the number of nodes",
    source: SOURCE,
    make: average,
};

/// SRD with packets as long as iWARP's, for the table.
const SRD_LONG: Network =
    Network { label: "SRD, packets of 9000 bytes", sets: &["routing.mode=ecmp", "transport.kind=srd"] };

const NETWORKS: [Network; 9] = [LAG, ECMP, MOVED, MOVED_SHORT, INFINIBAND, TCP, NSCC, SRD, SRD_LONG];

/// Pairs' bandwidths in MB/s, of all pairings and seeds: of the slowest pair of each, of the mean, of the fastest.
struct Rates {
    slowest: Spread,
    mean: Spread,
    fastest: Spread,
}

/// Those of each network by nodes, and complaints.
type Measured = (Vec<u32>, Vec<Vec<Rates>>, Vec<String>);

fn measured(lab: &mut Lab<'_>) -> Option<Measured> {
    let nodes: Vec<u32> = lab.pick(vec![32, NODES], vec![16, 32, 64, 96, NODES]);
    let (rotations, seeds) = lab.pick((2, 1), (4, 3));
    lab.plan(NETWORKS.len() * nodes.len() * seeds);
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for network in &NETWORKS {
        let mut of_network = Vec::new();
        for &nodes in &nodes {
            let mut parts = [Vec::new(), Vec::new(), Vec::new()];
            for seed in 1..=seeds as u64 {
                let more = [
                    format!("program.hosts={nodes}"),
                    format!("program.rotations={rotations}"),
                    "end_us=20000000".into(),
                ];
                let scenario = scenario(network, ROTATE, seed, &more);
                let run = lab.run(&scenario)?;
                wrong.extend(complaints(network, &run));
                for (part, figure) in parts.iter_mut().zip(said(&scenario, &run)) {
                    part.push(figure.values);
                }
            }
            // Over seeds and pairings; the catalogue's order is slowest, mean, fastest.
            let spread = |n: usize| {
                let ends = |of: fn(&crate::apps::Summary) -> f64| parts[n].iter().map(of);
                let mean = Spread::of(ends(|summary| summary.mean))?.mean;
                let (least, most) =
                    (Spread::of(ends(|summary| summary.least))?, Spread::of(ends(|summary| summary.most))?);
                Some(Spread { least: least.least, mean, most: most.most })
            };
            if let (Some(slowest), Some(mean), Some(fastest)) = (spread(0), spread(1), spread(2)) {
                of_network.push(Rates { slowest, mean, fastest });
            }
        }
        all.push(of_network);
    }
    Some((nodes, all, wrong))
}

const CAPTION: &str = "8 MB a pair (80 MB there); all pairs of a pairing at once, four of the pairings, three placements of the ranks. \
     Lines are means of these. The switch has as much bandwidth inside as ports: only routes that meet waste it. LAG hash: one \
     route for each pair of hosts; ECMP hash: for each connection; adaptive: the first chip moves a flow when the queues on its \
     route are 14 KB longer than on another. InfiniBand has 8 Gb/s, and routes by destination. No pauses on Ethernet.";

fn chart(title: &str, nodes: &[u32], all: &[Vec<Rates>], value: fn(&Rates) -> f64) -> Chart {
    let x = Axis::new("nodes", nodes[0] as f64, NODES as f64);
    let mut chart = Chart::new(title, x, Axis::new("bandwidth of a pair (MB/s)", 0.0, 1250.0));
    for (network, rates) in NETWORKS.iter().zip(all) {
        chart.line(
            network.label,
            nodes.iter().zip(rates).map(|(&nodes, rates)| (nodes as f64, Some(value(rates)))),
        );
    }
    chart
}

/// At all nodes, of a network: mean, and from where to where.
fn last(all: &[Vec<Rates>], network: &Network, value: fn(&Rates) -> Spread) -> (f64, String) {
    let at = NETWORKS.iter().position(|other| other.label == network.label);
    match at.and_then(|at| all[at].last()).map(value) {
        Some(spread) => {
            let range = format!("{} to {}", plain(spread.least), plain(spread.most));
            (spread.mean, format!("{} MB/s ({range})", plain(spread.mean)))
        }
        None => (f64::NAN, "did not end".into()),
    }
}

fn slowest(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (nodes, all, complaints) = measured(lab)?;
    let value = |rates: &Rates| rates.slowest;
    let words = |network: &Network| last(&all, network, value);
    let ratio = words(&MOVED).0 / words(&LAG).0;
    Some(Drawn {
        chart: chart(SLOWEST.title, &nodes, &all, |rates| rates.slowest.mean),
        caption: CAPTION.into(),
        findings: vec![
            finding(
                "Adaptive by LAG hash, slowest pair of 128 nodes",
                "dynamic routing significantly improves the measurable bisectional bandwidth",
                format!("{} times", plain(ratio)),
            ),
            finding("iWARP, LAG hash", "limited by static hashes", words(&LAG).1),
            finding("iWARP, ECMP hash", "", words(&ECMP).1),
            finding("iWARP, adaptive", "scaling looks excellent", words(&MOVED).1),
            finding("iWARP, adaptive, packets of 4200 bytes", "", words(&MOVED_SHORT).1),
            finding("SDR InfiniBand, static", "limited by strict static routing", words(&INFINIBAND).1),
            finding("TCP (CUBIC), ECMP hash", "", words(&TCP).1),
            finding("NSCC, cut packets, ECMP hash", "", words(&NSCC).1),
            finding("SRD, ECMP hash", "", words(&SRD).1),
            finding("SRD, packets of 9000 bytes", "", words(&SRD_LONG).1),
        ],
        complaints,
    })
}

fn average(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (nodes, all, complaints) = measured(lab)?;
    let value = |rates: &Rates| rates.mean;
    let words = |network: &Network| last(&all, network, value);
    let fastest = |network: &Network| last(&all, network, |rates| rates.fastest).0;
    let peaks = NETWORKS.iter().map(|network| format!("{}: {}", network.label, plain(fastest(network))));
    let mut findings: Vec<_> = NETWORKS
        .iter()
        .map(|network| {
            let published = match network.label {
                label if label == MOVED.label => "scaling looks excellent",
                label if label == INFINIBAND.label || label == LAG.label => "limited by static routes",
                _ => "",
            };
            finding(network.label, published, words(network).1)
        })
        .collect();
    findings.push(finding(
        "Fastest pair (MB/s)",
        "a graph of its own: what a route without neighbours carries",
        peaks.collect::<Vec<_>>().join("; "),
    ));
    Some(Drawn {
        chart: chart(AVERAGE.title, &nodes, &all, |rates| rates.mean.mean),
        caption: CAPTION.into(),
        findings,
        complaints,
    })
}
