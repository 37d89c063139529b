//! GPCNeT's table: how much worse three tests on a fifth of the nodes get when the others congest the network.

use super::super::lab::{Lab, Planned, Run};
use super::super::{Drawn, Figure, Make, finding};
use super::{SOURCE, planned};
use crate::apps::benchmarks::gpcnet::{Congestors, Figures, GpcNet, Test};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};

pub(in crate::figures) static GPCNET: Figure = Figure {
    name: "gpcnet",
    title: "Congestion impact of GPCNeT on 32 nodes, by configuration",
    source: SOURCE,
    make: Make::Code { runs, draw: gpcnet },
};

const NODES: u32 = 32;
const CONFIGURATIONS: [&str; 8] = [
    "RoCE, CC only",
    "RoCE, CC and PFC",
    "RoCE, PFC only",
    "TCP (CUBIC)",
    "TCP (DCTCP)",
    "iWARP",
    "NSCC",
    "SRD",
];

/// A test: what the slides call it, what scenarios do, what was published of the first three configurations, and what is
/// simulated of it.
struct Row {
    name: &'static str,
    short: &'static str,
    word: &'static str,
    test: Test,
    published: [f64; 3],
    rings: u32,
    iterations: u32,
}

static ROWS: [Row; 3] = [
    Row {
        name: "RR two-sided latency (8 B)",
        short: "latency",
        word: "latency",
        test: Test::Latency,
        published: [1.8, 1.8, 120.9],
        rings: 3,
        iterations: 20,
    },
    Row {
        name: "RR two-sided BW+sync (131072 B)",
        short: "bandwidth",
        word: "bandwidth",
        test: Test::Bandwidth,
        published: [3.9, 4.6, 7.9],
        rings: 2,
        iterations: 2,
    },
    Row {
        name: "Multiple allreduce (8 B)",
        short: "allreduce",
        word: "all-reduce",
        test: Test::AllReduce,
        published: [1.7, 1.5, 79.8],
        rings: 1,
        iterations: 40,
    },
];

/// A test of a configuration with one placement.
struct Cell {
    alone: Figures,
    among: Figures,
    impact: f64,
    unfinished: usize,
}

/// Placements of each test, and processes of each node.
fn seeds_and_processes(quick: bool) -> (u64, u32) {
    if quick { (1, 8) } else { (3, 16) }
}

impl Row {
    fn iterations(&self, quick: bool) -> u32 {
        if quick { self.iterations.div_ceil(2) } else { self.iterations }
    }

    /// Its run without congestors, and that with all of them.
    fn runs(&self, configuration: &str, seed: u64, quick: bool) -> [Planned; 2] {
        let (word, rings, iterations) = (self.word, self.rings, self.iterations(quick));
        let (_, per_node) = seeds_and_processes(quick);
        let head_start_us = if quick { 2_000 } else { 5_000 };
        let text = format!(
            "[[program]]\nkind = \"gpcnet\"\ntest = \"{word}\"\nper_host = {per_node}\nrings = {rings}\niterations = {iterations}\n\
         warmup = 1\nhead_start_us = {head_start_us}\n"
        );
        ["none", "all"].map(|congestors| {
            let sets = [
                format!("seed={seed}"),
                "end_us=300000".to_string(),
                format!("program.congestors={congestors}"),
            ];
            planned(&text, configuration, &sets)
        })
    }

    /// What those have come to.
    fn cell(&self, runs: &[Run], quick: bool) -> Cell {
        let (_, per_node) = seeds_and_processes(quick);
        let (rings, iterations) = (self.rings, self.iterations(quick));
        let gpcnet = GpcNet { rings, iterations, ..GpcNet::new(NODES, per_node, self.test, Congestors::All) };
        let figures =
            |run: &Run| gpcnet.figures(&run.marks).expect("some rank measures something before the end");
        let (alone, among) = (figures(&runs[0]), figures(&runs[1]));
        Cell { alone, among, impact: gpcnet.impact(alone, among).0, unfinished: runs[1].unfinished }
    }
}

fn runs(quick: bool) -> Vec<Planned> {
    let (seeds, _) = seeds_and_processes(quick);
    let of_row = |configuration: &'static str, row: &'static Row| {
        (1..=seeds).flat_map(move |seed| row.runs(configuration, seed, quick))
    };
    let of = |configuration| ROWS.iter().flat_map(move |row| of_row(configuration, row));
    CONFIGURATIONS.into_iter().flat_map(of).collect()
}

fn gpcnet(lab: &mut Lab<'_>) -> Option<Drawn> {
    let quick = lab.is_quick();
    let (seeds, per_node) = seeds_and_processes(quick);
    let runs = lab.all(&runs(quick), Ps::NEVER)?;
    let mut runs = runs.chunks(2 * seeds as usize);
    let mut means: Vec<Vec<f64>> = Vec::new();
    let mut findings = Vec::new();
    for (number, configuration) in CONFIGURATIONS.into_iter().enumerate() {
        let mut of_rows = Vec::new();
        for row in &ROWS {
            let of_row = runs.next().expect("each row of each configuration has its runs");
            let cells: Vec<Cell> = of_row.chunks(2).map(|pair| row.cell(pair, quick)).collect();
            let published = row.published.get(number).map_or(String::new(), |value| format!("{value}"));
            findings.push(finding(format!("{}: {}", row.name, configuration), published, words(row, &cells)));
            of_rows.push(mean(cells.iter().map(|cell| cell.impact)));
        }
        means.push(of_rows);
    }
    let y = Axis::new("congested by isolated average", 0.8, 1000.0).logarithmic();
    let mut chart = Chart::new(GPCNET.title, Axis::of_names("", ROWS.iter().map(|row| row.short)), y);
    let count = CONFIGURATIONS.len();
    for (number, (configuration, values)) in CONFIGURATIONS.iter().zip(&means).enumerate() {
        let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        chart.grouped_bars(configuration, (number, count), &values);
    }
    let at = |row: usize, number: usize| row as f64 - 0.4 + (number as f64 + 0.5) * 0.8 / count as f64;
    let diamonds = ROWS.iter().enumerate().flat_map(|(row, of)| {
        of.published.into_iter().enumerate().map(move |(number, value)| (at(row, number), value))
    });
    chart.published("the slides", &diamonds.collect::<Vec<_>>());
    Some(Drawn {
        chart,
        caption: format!(
            "Seven of 32 nodes run the test, 25 congest: all-to-all, incast, put incast and get broadcast of 4 KiB, {} processes a \
             node, placed at random; {} placements. Leaves with 8 hosts and 4 uplinks of 100 Gb/s, switches with 11.2 MB. \
             Marks from 50 KB on. One pass of a test instead of ten seconds of them.",
            per_node, seeds
        ),
        findings,
        complaints: Vec::new(),
    })
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Impact with its range, and the averages that it is made of.
fn words(row: &Row, cells: &[Cell]) -> String {
    let impacts = || cells.iter().map(|cell| cell.impact);
    let (least, most) = (impacts().fold(f64::MAX, f64::min), impacts().fold(0.0, f64::max));
    let mut words = format!(
        "{} ({} to {}); {} {} alone, {} among congestors (99 of 100: {})",
        plain(mean(impacts())),
        plain(least),
        plain(most),
        plain(mean(cells.iter().map(|cell| cell.alone.average))),
        row.test.unit(),
        plain(mean(cells.iter().map(|cell| cell.among.average))),
        plain(mean(cells.iter().map(|cell| cell.among.tail))),
    );
    let unfinished: usize = cells.iter().map(|cell| cell.unfinished).sum();
    if unfinished > 0 {
        words += &format!(" (of what was done when the run ended: {unfinished} ranks were not)");
    }
    words
}
