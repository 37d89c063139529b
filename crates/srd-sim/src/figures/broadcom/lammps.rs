//! The slides' LAMMPS: how efficiently 32,000 atoms a process scale, lj and eam, with 1 and 8 processes a node.

use super::super::lab::Lab;
use super::super::{Drawn, Figure, Make, finding};
use super::{SLIDES, SOURCE, list, run};
use crate::apps::benchmarks::lammps::{Benchmark, Lammps};
use srd_chart::{Axis, Chart};

pub(in crate::figures) static LJ: Figure = Figure {
    name: "lammps-lj",
    title: "LAMMPS, lj: scaling efficiency by nodes, 8 processes a node",
    source: SOURCE,
    make: Make::Code(|lab| efficiency(lab, &LJ, "lj", Benchmark::Lj)),
};

pub(in crate::figures) static EAM: Figure = Figure {
    name: "lammps-eam",
    title: "LAMMPS, eam: scaling efficiency by nodes, 8 processes a node",
    source: SOURCE,
    make: Make::Code(|lab| efficiency(lab, &EAM, "eam", Benchmark::Eam)),
};

const NODES: [u32; 6] = [1, 2, 4, 8, 16, 32];
const PER_NODE: [u32; 2] = [1, 8];
/// As many as there are from one list of neighbours to the next, or some more.
const STEPS: u32 = 20;

fn efficiency(lab: &mut Lab<'_>, figure: &Figure, word: &str, benchmark: Benchmark) -> Option<Drawn> {
    let nodes = lab.pick(&NODES[..4], &NODES[..]);
    let steps = lab.pick(4, STEPS);
    lab.plan(SLIDES.len() * PER_NODE.len() * nodes.len());
    let mut findings = Vec::new();
    let mut complaints = Vec::new();
    let mut lines = Vec::new();
    for configuration in SLIDES {
        for per_node in PER_NODE {
            let mut values = Vec::new();
            for &nodes in nodes {
                let text = format!(
                    "[[program]]\nkind = \"lammps\"\nbenchmark = \"{word}\"\nhosts = {nodes}\nper_host = {per_node}\nsteps = {steps}\n\
                     thermo_every = {steps}\n"
                );
                let run = run(lab, &text, configuration, &["end_us=5e6".to_string()])?;
                if run.unfinished > 0 {
                    complaints.push(format!("{}: {} ranks unfinished", configuration.name, run.unfinished));
                }
                let lammps = Lammps { steps, ..Lammps::new(nodes * per_node, benchmark) };
                values.push(100.0 * lammps.efficiency(&run.marks).unwrap_or(f64::NAN));
            }
            let words = nodes.iter().zip(&values).map(|(nodes, value)| (format!("{nodes}"), *value));
            findings.push(finding(
                format!("{}, {per_node} a node, % by nodes", configuration.name),
                "a chart without numbers; RoCE \"significantly\" above TCP",
                list(words),
            ));
            if per_node == PER_NODE[1] {
                lines.push(values);
            }
        }
    }
    let least = lines.iter().flatten().copied().fold(f64::MAX, f64::min).floor();
    let x = Axis::new("nodes", nodes[0] as f64, nodes[nodes.len() - 1] as f64).logarithmic();
    let mut chart = Chart::new(figure.title, x, Axis::new("efficiency (%)", least, 100.0));
    for (configuration, values) in SLIDES.iter().zip(&lines) {
        chart.line(
            configuration.name,
            nodes.iter().zip(values).map(|(&nodes, &value)| (nodes as f64, Some(value))),
        );
    }
    Some(Drawn {
        chart,
        caption: format!(
            "{steps} of the benchmark's 100 steps; a step takes {} ms on one process (the slides' loop time). The axis begins at \
             {least} %. Here all processes compute equally fast and TCP takes no processor time from them; on real hosts both are most of what is missing to 100 %.",
            benchmark.step_alone().as_f64() / 1e6
        ),
        findings,
        complaints,
    })
}
