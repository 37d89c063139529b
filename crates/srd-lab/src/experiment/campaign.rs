//! A whole experiment: every case with every transport, in turn, as often as asked for.

use super::measure::{Figures, Spread, figures};
use super::plan::{Case, Experiment, transport};
use super::run::{Account, Group, run};
use super::traffic::flows;
use crate::error::Result;
use crate::flow::order::Transport;
use crate::lab::Lab;
use crate::plan::Plan;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::path::Path;

/// How often a run is made again because the machine was too busy.
const MOST_AGAIN: u32 = 3;
/// Intervals in which arrivals are counted, for flows that have a size: completion times do not need them.
const BIN_NS: u64 = 20_000_000;

/// What came of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was asked.
    pub experiment: Experiment,
    /// Every case with every transport.
    pub results: Vec<CaseResult>,
    /// Runs that count for nothing because processors were busy for a larger share of the time than allowed.
    pub discarded: u32,
}

/// A case with a transport.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CaseResult {
    /// The case.
    pub case: String,
    /// The transport.
    pub transport: String,
    /// Of each run.
    pub runs: Vec<RunResult>,
    /// Runs that were discarded.
    pub discarded: u32,
    /// Middle and ends of what was measured, by name.
    pub summary: Vec<(String, Spread)>,
}

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunResult {
    /// What follows from it and the experiment's file is the same in every run: source ports of TCP flows.
    pub seed: u64,
    /// How busy the processors were, in percent.
    pub cpu_percent: f64,
    /// Of the case's flows.
    pub figures: Figures,
    /// Of the flows beside them.
    pub beside: Option<Figures>,
    /// Payload that arrived of each flow, Mbit/s, in each interval of `bin_ms`.
    pub bin_ms: f64,
    /// See `bin_ms`.
    pub series_mbps: Vec<Vec<f64>>,
}

/// How far an experiment is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Runs that count, so far, and how many there will be.
    pub done: u32,
    /// See `done`.
    pub all: u32,
    /// What was last run.
    pub case: &'a str,
    /// Over what.
    pub transport: &'a str,
    /// Its figures; `None` if the run was discarded.
    pub figures: Option<&'a Figures>,
    /// How busy the processors were.
    pub cpu_percent: f64,
}

/// Runs an experiment in labs of that name. `srd` is the command srd. `watch` is told of every run, and ends the experiment
/// where it stands by answering no.
pub fn perform(
    experiment: &Experiment,
    lab_name: &str,
    srd: &Path,
    mut watch: impl FnMut(Progress<'_>) -> bool,
) -> Result<Report> {
    let all = experiment.repeats * (experiment.cases.len() * experiment.transports.len()) as u32;
    let mut results: Vec<CaseResult> = Vec::new();
    for case in &experiment.cases {
        for name in &experiment.transports {
            let (case, transport) = (case.name.clone(), name.clone());
            results.push(CaseResult { case, transport, runs: Vec::new(), discarded: 0, summary: Vec::new() });
        }
    }
    let mut done = 0;
    'all: for repeat in 0..u64::from(experiment.repeats) {
        for (index, result) in results.iter_mut().enumerate() {
            let case = &experiment.cases[index / experiment.transports.len()];
            let seed = experiment.seed.wrapping_add(repeat);
            for attempt in 0..=MOST_AGAIN {
                let (run, busy) = once(experiment, case, &result.transport, seed, lab_name, srd)?;
                let counts = !busy || attempt == MOST_AGAIN && result.runs.is_empty();
                done += u32::from(counts || attempt == MOST_AGAIN);
                let progress = Progress {
                    done,
                    all,
                    case: &result.case,
                    transport: &result.transport,
                    figures: counts.then_some(&run.figures),
                    cpu_percent: run.cpu_percent,
                };
                let go_on = watch(progress);
                match counts {
                    true => result.runs.push(run),
                    false => result.discarded += 1,
                }
                if !go_on {
                    break 'all;
                }
                if counts {
                    break;
                }
            }
        }
    }
    for result in &mut results {
        result.summary = summary(&result.runs);
    }
    let discarded = results.iter().map(|result| result.discarded).sum();
    Ok(Report { experiment: experiment.clone(), results, discarded })
}

/// One run; whether the machine was too busy for it to count.
fn once(
    experiment: &Experiment,
    case: &Case,
    name: &str,
    seed: u64,
    lab_name: &str,
    srd: &Path,
) -> Result<(RunResult, bool)> {
    let own = transport(name)?;
    let marks = matches!(own, Transport::Tcp { ecn: true, .. });
    let shape = experiment.shape(case, marks);
    let plan = Plan::new(&shape)?;
    let other = case.beside.as_ref().map(|beside| transport(&beside.transport)).transpose()?;
    let mut groups = vec![Group { transport: &own, flows: flows(&case.traffic, &plan)? }];
    if let (Some(beside), Some(other)) = (&case.beside, &other) {
        groups.push(Group { transport: other, flows: flows(&beside.traffic, &plan)? });
    }
    let lab = Lab::up(lab_name, &shape)?;
    let mut random = SmallRng::seed_from_u64(seed);
    let outcome = run(&lab, srd, &groups, &case.faults, BIN_NS, || random.random());
    let down = lab.down();
    let outcome = outcome?;
    down?;
    let of =
        |group: usize, possible| figures(&groups[group].flows, &outcome.accounts[group], &shape, possible);
    let run = RunResult {
        seed,
        cpu_percent: outcome.cpu_percent,
        figures: of(0, case.possible_mbps),
        beside: (groups.len() > 1).then(|| of(1, None)),
        bin_ms: BIN_NS as f64 / 1e6,
        series_mbps: series(&outcome.accounts[0]),
    };
    Ok((run, outcome.cpu_percent > experiment.most_cpu_percent))
}

fn series(account: &Account) -> Vec<Vec<f64>> {
    let mbps = |bytes: &u64| *bytes as f64 * 8e3 / BIN_NS as f64;
    account.received.iter().map(|received| received.bins.iter().map(mbps).collect()).collect()
}

/// Middle and ends of everything.
fn summary(runs: &[RunResult]) -> Vec<(String, Spread)> {
    type Value = fn(&RunResult) -> Option<f64>;
    let values: [(&str, Value); 12] = [
        ("last_by_ideal", |run| Some(run.figures.completion?.last_by_ideal)),
        ("last_by_first", |run| Some(run.figures.completion?.last_by_first)),
        ("first_ms", |run| Some(run.figures.completion?.first_ms)),
        ("median_ms", |run| Some(run.figures.completion?.median_ms)),
        ("last_ms", |run| Some(run.figures.completion?.last_ms)),
        ("sum_mbps", |run| Some(run.figures.throughput.as_ref()?.sum_mbps)),
        ("of_possible", |run| Some(run.figures.throughput.as_ref()?.of_possible)),
        ("slowest_of_share", |run| Some(run.figures.throughput.as_ref()?.slowest_of_share)),
        ("longest_stall_ms", |run| Some(run.figures.throughput.as_ref()?.longest_stall_ms)),
        ("beside_mbps", |run| Some(run.beside.as_ref()?.throughput.as_ref()?.sum_mbps)),
        ("again_percent", |run| Some(run.figures.again_percent)),
        ("cpu_percent", |run| Some(run.cpu_percent)),
    ];
    let spread =
        |(name, value): (&str, Value)| Some((name.to_string(), Spread::of(runs.iter().filter_map(value))?));
    values.into_iter().filter_map(spread).collect()
}
