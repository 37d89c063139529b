//! The slides' HPCG: 8, 16 and 32 processes on each of 8, 16 and 32 nodes.

use super::super::lab::Lab;
use super::super::{Drawn, Figure, Make, finding};
use super::{SLIDES, SOURCE, list, run};
use crate::apps::benchmarks::hpcg::Hpcg;
use srd_chart::{Axis, Chart};

pub(in crate::figures) static HPCG: Figure = Figure {
    name: "hpcg",
    title: "HPCG: rate of all processes by that of as many alone",
    source: SOURCE,
    make: Make::Code(hpcg),
};

const NODES: [u32; 3] = [8, 16, 32];
const PER_NODE: [u32; 3] = [8, 16, 32];
/// Of a process, in GFLOP/s: what memory leaves to each where there are many. The slides do not say.
const GFLOPS: f64 = 1.0;
const POINTS: u32 = 104;

fn hpcg(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (nodes, per_node) = (lab.pick(&NODES[..2], &NODES[..]), lab.pick(&PER_NODE[..1], &PER_NODE[..]));
    lab.plan(SLIDES.len() * nodes.len() * per_node.len());
    let mut findings = Vec::new();
    let mut complaints = Vec::new();
    let mut lines: Vec<Vec<f64>> = Vec::new();
    for configuration in SLIDES {
        let mut shares = Vec::new();
        let mut rates = Vec::new();
        for &per_node in per_node {
            for &nodes in nodes {
                let text = format!(
                    "[[program]]\nkind = \"hpcg\"\nhosts = {nodes}\nper_host = {per_node}\ngflops = {GFLOPS:.1}\npoints = {POINTS}\n\
                     iterations = 1\n"
                );
                let run = run(lab, &text, configuration, &["end_us=5e6".to_string()])?;
                if run.unfinished > 0 {
                    complaints.push(format!("{}: {} ranks unfinished", configuration.name, run.unfinished));
                }
                let ranks = nodes * per_node;
                let hpcg = Hpcg { ranks, points: [POINTS; 3], iterations: 1, gflops: GFLOPS };
                let gflops = hpcg.gflops_of(&run.marks).unwrap_or(f64::NAN);
                shares.push(100.0 * gflops / (GFLOPS * ranks as f64));
                rates.push((format!("{per_node} on {nodes}"), gflops));
            }
        }
        findings.push(finding(
            format!("{}, GFLOP/s of processes a node on nodes", configuration.name),
            "\"scales well in all configurations\"",
            list(rates),
        ));
        lines.push(shares);
    }
    let least = lines.iter().flatten().copied().fold(f64::MAX, f64::min);
    let names =
        per_node.iter().flat_map(|per_node| nodes.iter().map(move |nodes| format!("{per_node}x{nodes}")));
    let y = Axis::new("share of processes alone (%)", (least - 1.0).floor(), 100.0);
    let mut chart = Chart::new(HPCG.title, Axis::of_names("processes a node x nodes", names), y);
    for (number, (configuration, shares)) in SLIDES.iter().zip(&lines).enumerate() {
        let values: Vec<Option<f64>> = shares.iter().copied().map(Some).collect();
        chart.grouped_bars(configuration.name, (number, SLIDES.len()), &values);
    }
    Some(Drawn {
        chart,
        caption: format!(
            "Weakly scaled: {POINTS} points in each dimension of a process, which computes {GFLOPS} GFLOP/s; one iteration. Its 0.4 s of \
             arithmetic hide nearly all that the network does: the axis begins at {:.0} %.",
            (least - 1.0).floor()
        ),
        findings,
        complaints,
    })
}
