//! Strict against relaxed order of packets in the switch, and what pauses do: rotate bandwidth of all nodes.

use super::super::{Drawn, Figure, finding};
use super::{LAG, Lab, MOVED, NODES, Network, ROTATE, SOURCE, SRD, Spread, complaints, said, scenario};
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static ORDER: Figure = Figure {
    name: "sandia-order",
    title: "Rotate bandwidth of 128 nodes: strict and relaxed order of packets, with and without pauses",
    source: SOURCE,
    make: order,
};

const MOVED_HELD: Network = Network {
    label: "adaptive, strict: held at the last chip",
    sets: &["routing.mode=reroute", "routing.strict_order=true"],
};
const IN_GAPS: Network =
    Network { label: "adaptive, strict: moved in gaps only", sets: &["routing.mode=flowlet"] };
const BY_PACKET: Network =
    Network { label: "each packet its way, relaxed", sets: &["routing.mode=adaptive"] };
const BY_PACKET_HELD: Network = Network {
    label: "each packet its way, strict",
    sets: &["routing.mode=adaptive", "routing.strict_order=true"],
};
const NETWORKS: [Network; 7] = [
    LAG,
    Network { label: "adaptive, relaxed", sets: MOVED.sets },
    MOVED_HELD,
    IN_GAPS,
    BY_PACKET,
    BY_PACKET_HELD,
    SRD,
];
/// A card that takes segments only in order.
const IN_ORDER: &str = "transport.placement=in-order";

fn order(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (rotations, seeds) = lab.pick((1, 1), (4, 3));
    lab.plan((2 * NETWORKS.len() + 2) * seeds);
    let mut wrong = Vec::new();
    // Means over seeds and pairings of the slowest pair and of the mean, and what was retransmitted for nothing.
    let mut measure = |network: &Network, set: &str| -> Option<[f64; 3]> {
        let mut values = [Vec::new(), Vec::new(), Vec::new()];
        for seed in 1..=seeds as u64 {
            let mut more = vec![
                format!("program.hosts={NODES}"),
                format!("program.rotations={rotations}"),
                "end_us=2000000".into(),
            ];
            more.extend((!set.is_empty()).then(|| set.to_string()));
            let scenario = scenario(network, ROTATE, seed, &more);
            let run = lab.run(&scenario)?;
            wrong.extend(complaints(network, &run));
            let said = said(&scenario, &run);
            for (value, figure) in values[..2].iter_mut().zip(&said) {
                value.push(figure.values.mean);
            }
            values[2].push(100.0 * run.outcome.packets_spurious as f64 / run.outcome.packets_new as f64);
        }
        Some(values.map(|values| Spread::of(values).map_or(f64::NAN, |spread| spread.mean)))
    };
    let mut rows = Vec::new();
    for network in &NETWORKS {
        rows.push((measure(network, "")?, measure(network, "queues.link_pause=true")?));
    }
    let in_order = [measure(&MOVED, IN_ORDER)?, measure(&BY_PACKET, IN_ORDER)?];
    let x = Axis::of_names("", ["slowest pair", "mean", "slowest, pauses", "mean, pauses"]);
    let mut chart = Chart::new(ORDER.title, x, Axis::new("bandwidth of a pair (MB/s)", 0.0, 1250.0));
    for (n, (network, (without, with))) in NETWORKS.iter().zip(&rows).enumerate() {
        let values =
            [without[0], without[1], with[0], with[1]].map(|value| value.is_finite().then_some(value));
        chart.grouped_bars(network.label, (n, NETWORKS.len()), &values);
    }
    let words = |of: &[f64; 3]| {
        format!("slowest {}, mean {} MB/s, {} % again for nothing", plain(of[0]), plain(of[1]), plain(of[2]))
    };
    let published = |label: &str| match label {
        label if label.contains("relaxed") => "working well",
        label if label.contains("strict") => "impacts bandwidth",
        _ => "",
    };
    let mut findings: Vec<_> = NETWORKS
        .iter()
        .zip(&rows)
        .flat_map(|(network, (without, with))| {
            [
                finding(network.label, published(network.label), words(without)),
                finding(format!("{}, pauses", network.label), "", words(with)),
            ]
        })
        .collect();
    findings.push(finding(
        "adaptive, relaxed; the card takes segments in order only",
        "",
        words(&in_order[0]),
    ));
    findings.push(finding(
        "each packet its way; the card takes segments in order only",
        "",
        words(&in_order[1]),
    ));
    Some(Drawn {
        chart,
        caption: "The slides do not say how the switch kept order. Held: the last chip holds what comes early, in memory of its \
                  own, without limit. In gaps: a flow moves only after a pause of one unloaded round trip, when nothing of it should \
                  be on its way. Adaptive: by flow, as the Woven switch did; each packet its way: by the shortest queue. All iWARP, \
                  which writes segments in any order, but for SRD. Right: with pauses of whole links."
            .into(),
        findings,
        complaints: wrong,
    })
}
