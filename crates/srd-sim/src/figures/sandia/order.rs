//! Strict against relaxed order of packets in the switch, and what pauses do: rotate bandwidth of all nodes.

use super::super::{Drawn, Figure, Make, finding};
use super::{Lab, Network, Run, SOURCE, Spread, complaints, network, own, scenario};
use crate::apps::catalogue;
use crate::input::Scenario;
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static ORDER: Figure = Figure {
    name: "sandia-order",
    title: "Rotate bandwidth of 128 nodes: strict and relaxed order of packets, with and without pauses",
    source: SOURCE,
    make: Make::Code(order),
};

/// Rotate bandwidth: a tenth of the 80 MB, once instead of three times.
const ROTATE: &str = r#"
[[program]]
kind = "rotate-bandwidth"
placement = "random"
size = "4MB"
messages = 2
tests = 1
"#;

/// What the one program of a run says: its figures by their order in the catalogue, empty where it did not come to its end.
fn said(scenario: &Scenario, run: &Run) -> Vec<catalogue::Figure> {
    scenario.traffic.jobs[0].figures(&run.marks)
}

fn networks() -> [Network; 7] {
    let by_packet_strict = ["routing.mode=adaptive", "routing.strict_order=true"];
    [
        network("iWARP, LAG hash"),
        Network { label: "adaptive, relaxed".into(), ..network("iWARP, adaptive") },
        own(
            "adaptive, strict: held at the last chip",
            &["routing.mode=reroute", "routing.strict_order=true"],
        ),
        own("adaptive, strict: moved in gaps only", &["routing.mode=flowlet"]),
        own("each packet its way, relaxed", &["routing.mode=adaptive"]),
        own("each packet its way, strict", &by_packet_strict),
        network("SRD, ECMP hash"),
    ]
}

/// The nodes of the cluster; the switch has ports for 144.
const NODES: u32 = 128;
/// A card that takes segments only in order.
const IN_ORDER: &str = "transport.placement=in-order";

fn order(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (rotations, seeds) = lab.pick((1, 1), (4, 3));
    let networks = networks();
    lab.plan((2 * networks.len() + 2) * seeds);
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
    for network in &networks {
        rows.push((measure(network, "")?, measure(network, "queues.link_pause=true")?));
    }
    let in_order = [measure(&network("iWARP, adaptive"), IN_ORDER)?, measure(&networks[4], IN_ORDER)?];
    let x = Axis::of_names("", ["slowest pair", "mean", "slowest, pauses", "mean, pauses"]);
    let mut chart = Chart::new(ORDER.title, x, Axis::new("bandwidth of a pair (MB/s)", 0.0, 1250.0));
    for (n, (network, (without, with))) in networks.iter().zip(&rows).enumerate() {
        let values =
            [without[0], without[1], with[0], with[1]].map(|value| value.is_finite().then_some(value));
        chart.grouped_bars(&network.label, (n, networks.len()), &values);
    }
    let words = |of: &[f64; 3]| {
        format!("slowest {}, mean {} MB/s, {} % again for nothing", plain(of[0]), plain(of[1]), plain(of[2]))
    };
    let published = |label: &str| match label {
        label if label.contains("relaxed") => "working well",
        label if label.contains("strict") => "impacts bandwidth",
        _ => "",
    };
    let mut findings: Vec<_> = networks
        .iter()
        .zip(&rows)
        .flat_map(|(network, (without, with))| {
            [
                finding(&network.label, published(&network.label), words(without)),
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
