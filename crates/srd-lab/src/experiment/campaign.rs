//! A whole experiment: every case with every transport, in turn, as often as asked for.

use super::cpu_usage::with_longest_pause_ns;
use super::interference::{BuildCache, JobFigures, Measured, Run};
use super::labs::Labs;
use super::measure::{Figures, Spread, figures};
use super::plan::{Case, Experiment, transport};
use super::run::{Account, Group, run};
use super::traffic::{flows, placed};
use crate::error::{Result, bad};
use crate::flow::protocol::Transport;
use crate::flow::tcp;
use crate::plan::Plan;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

/// How often a run is made again because the machine was too busy.
const MOST_AGAIN: u32 = 3;
/// Runs in which the machine stood still for longer count for nothing: that is no stall of a flow's.
pub const MOST_PAUSE_MS: f64 = 200.0;
/// Intervals in which arrivals are counted, for flows that have a size: completion times do not need them.
const BIN_NS: u64 = 20_000_000;

/// What came of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was asked, but for transports that this machine has not.
    pub experiment: Experiment,
    /// Those, and why they could not be run.
    pub left_out: Vec<LeftOut>,
    /// Where it ran.
    pub machine: Machine,
    /// Whether all runs were made: it was not interrupted, and none has failed.
    pub whole: bool,
    /// Every case with every transport.
    pub results: Vec<CaseResult>,
    /// Runs that count for nothing because processors were busy for a larger share of the time than allowed, or the machine
    /// stood still.
    pub discarded: u32,
}

/// A transport that could not be run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub transport: String,
    /// Why.
    pub why: String,
}

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// Release of its kernel.
    pub kernel: String,
    /// Processors that this process may use.
    pub processors: usize,
}

impl Machine {
    /// This one.
    pub fn this() -> Machine {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Machine { kernel: release.trim().to_string(), processors }
    }
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
    /// Why there are no more, if one has failed.
    pub failed: Option<String>,
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
    /// Longest time for which the machine stood still, in milliseconds.
    pub longest_pause_ms: f64,
    /// Of the case's flows.
    pub figures: Figures,
    /// Of the flows beside them.
    pub beside: Option<Figures>,
    /// Payload that arrived of each flow, Mbit/s, in each interval of `bin_ms`.
    pub bin_ms: f64,
    /// See `bin_ms`.
    pub series_mbps: Vec<Vec<f64>>,
    /// The same of the flows beside them.
    pub beside_series_mbps: Vec<Vec<f64>>,
}

impl RunResult {
    /// Whether the machine was too busy for it to count.
    pub fn is_busy(&self, experiment: &Experiment) -> bool {
        self.cpu_percent > experiment.most_cpu_percent || self.longest_pause_ms > MOST_PAUSE_MS
    }
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
    /// Longest time for which the machine stood still.
    pub longest_pause_ms: f64,
}

/// Takes transports that this machine has not out of an experiment, and says which.
pub fn leave_out(experiment: &mut Experiment) -> Result<Vec<LeftOut>> {
    let missing = |name: &String| match transport(name) {
        Ok(Transport::Tcp { congestion, .. }) => {
            tcp::check(&congestion).err().map(|error| format!("{error:#}"))
        }
        _ => None,
    };
    let beside = experiment.cases.iter().filter_map(|case| Some(&case.beside.as_ref()?.transport));
    if let Some((name, why)) = beside.into_iter().find_map(|name| Some((name, missing(name)?))) {
        return Err(bad(format!("{name}, beside which transports are to run, is not there: {why}")));
    }
    let mut left_out = Vec::new();
    experiment.transports.retain(|name| {
        let why = missing(name);
        left_out.extend(why.clone().map(|why| LeftOut { transport: name.clone(), why }));
        why.is_none()
    });
    match (experiment.transports.is_empty(), left_out.first()) {
        (true, Some(LeftOut { transport, why })) => Err(bad(format!("{transport}: {why}"))),
        _ => Ok(left_out),
    }
}

/// Runs an experiment in labs of that name. `srd` is the command srd. `tell` is told of every run. Whoever sets `interrupted` ends
/// it where it stands, without the run at hand.
pub fn perform(
    experiment: &Experiment,
    lab_name: &str,
    srd: &Path,
    interrupted: &AtomicBool,
    tell: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let labs = Labs::new(lab_name, interrupted);
    labs.watch(|| perform_in(&labs, experiment, srd, tell))
}

fn perform_in(
    labs: &Labs<'_>,
    experiment: &Experiment,
    srd: &Path,
    mut tell: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let mut experiment = experiment.clone();
    let left_out = leave_out(&mut experiment)?;
    let mut build_cache = BuildCache::open(&experiment, srd, labs.name())?;
    let all = experiment.repeats * (experiment.cases.len() * experiment.transports.len()) as u32;
    let mut results: Vec<CaseResult> = Vec::new();
    for case in &experiment.cases {
        for name in &experiment.transports {
            let (case, transport) = (case.name.clone(), name.clone());
            let (runs, summary) = (Vec::new(), Vec::new());
            results.push(CaseResult { case, transport, runs, discarded: 0, failed: None, summary });
        }
    }
    let mut done = 0;
    'all: for repeat in 0..u64::from(experiment.repeats) {
        for (index, result) in results.iter_mut().enumerate() {
            let case = &experiment.cases[index / experiment.transports.len()];
            let seed = experiment.seed.wrapping_add(repeat);
            for attempt in 0..=MOST_AGAIN {
                let outcome = match case.traffic.job() {
                    None => once(&experiment, case, &result.transport, seed, labs, srd),
                    Some(job) => {
                        let transport = &result.transport;
                        let run = Run { experiment: &experiment, case, job, transport, seed, labs, srd };
                        once_with_job(&run, &mut build_cache)
                    }
                };
                let (run, busy) = match outcome {
                    Ok(outcome) => outcome,
                    Err(_) if labs.are_interrupted() => break 'all,
                    Err(error) if done == 0 => return Err(error),
                    // What there is must not be lost over it.
                    Err(error) => {
                        result.failed = Some(error.to_string());
                        break 'all;
                    }
                };
                let counts = !busy || attempt == MOST_AGAIN && result.runs.is_empty();
                done += u32::from(counts || attempt == MOST_AGAIN);
                let progress = Progress {
                    done,
                    all,
                    case: &result.case,
                    transport: &result.transport,
                    figures: counts.then_some(&run.figures),
                    cpu_percent: run.cpu_percent,
                    longest_pause_ms: run.longest_pause_ms,
                };
                tell(progress);
                match counts {
                    true => result.runs.push(run),
                    false => result.discarded += 1,
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
    let whole = done == all;
    Ok(Report { experiment, left_out, machine: Machine::this(), whole, results, discarded })
}

/// One run of an MPI job; whether the machine was too busy for it to count.
fn once_with_job(run: &Run<'_>, build_cache: &mut BuildCache) -> Result<(RunResult, bool)> {
    let (outcome, pause_ns) = with_longest_pause_ns(|| run.perform(build_cache));
    let outcome = outcome?;
    let result = RunResult {
        seed: run.seed,
        cpu_percent: outcome.cpu_percent,
        longest_pause_ms: pause_ns as f64 / 1e6,
        figures: outcome.figures,
        beside: outcome.beside,
        bin_ms: BIN_NS as f64 / 1e6,
        series_mbps: Vec::new(),
        beside_series_mbps: Vec::new(),
    };
    let busy = result.is_busy(run.experiment);
    Ok((result, busy))
}

/// One run; whether the machine was too busy for it to count.
fn once(
    experiment: &Experiment,
    case: &Case,
    name: &str,
    seed: u64,
    labs: &Labs<'_>,
    srd: &Path,
) -> Result<(RunResult, bool)> {
    let own = transport(name)?;
    let marks = matches!(own, Transport::Tcp { ecn: true, .. });
    let shape = experiment.shape(case, marks);
    let plan = Plan::new(&shape)?;
    let mut random = SmallRng::seed_from_u64(seed);
    let places = case.places(&plan, &mut random);
    let other = case.beside.as_ref().map(|beside| beside.transport(name)).transpose()?;
    let mut groups = vec![Group { transport: &own, flows: placed(flows(&case.traffic, &plan)?, &places) }];
    if let (Some(beside), Some(other)) = (&case.beside, &other) {
        groups.push(Group { transport: other, flows: placed(flows(&beside.traffic, &plan)?, &places) });
    }
    let lab = labs.up("", &shape)?;
    let outcome = run(&lab, srd, &groups, &case.faults, BIN_NS, || random.random())?;
    drop(lab);
    let of = |group: usize, possible| {
        figures(&groups[group].flows, &outcome.accounts[group], BIN_NS, &shape, possible)
    };
    let run = RunResult {
        seed,
        cpu_percent: outcome.cpu_percent,
        longest_pause_ms: outcome.longest_pause_ns as f64 / 1e6,
        figures: of(0, case.possible_mbps),
        beside: (groups.len() > 1).then(|| of(1, None)),
        bin_ms: BIN_NS as f64 / 1e6,
        series_mbps: series(&outcome.accounts[0]),
        beside_series_mbps: outcome.accounts.get(1).map(series).unwrap_or_default(),
    };
    let busy = run.is_busy(experiment);
    Ok((run, busy))
}

fn series(account: &Account) -> Vec<Vec<f64>> {
    let mbps = |bytes: &u64| *bytes as f64 * 8e3 / BIN_NS as f64;
    account.received.iter().map(|received| received.bins.iter().map(mbps).collect()).collect()
}

fn job(run: &RunResult) -> Option<&JobFigures> {
    run.figures.job.as_ref()
}

/// A job's time in other circumstances by that alone.
fn by_alone(
    run: &RunResult,
    then: impl Fn(&JobFigures) -> Option<&Measured>,
    time: impl Fn(&Measured) -> Option<f64>,
) -> Option<f64> {
    let job = job(run)?;
    Some(time(then(job)?)? / time(&job.alone)?)
}

fn mean(measured: &Measured) -> Option<f64> {
    Some(measured.operation.as_ref()?.mean_us)
}

fn median(measured: &Measured) -> Option<f64> {
    Some(measured.operation.as_ref()?.median_us())
}

fn p99(measured: &Measured) -> Option<f64> {
    Some(measured.operation.as_ref()?.p99_us())
}

/// Of a program, which is run from its beginning to its end.
fn whole(measured: &Measured) -> Option<f64> {
    measured.operation.is_none().then_some(measured.seconds)
}

/// Middle and ends of everything.
fn summary(runs: &[RunResult]) -> Vec<(String, Spread)> {
    type Value = fn(&RunResult) -> Option<f64>;
    let values: [(&str, Value); 25] = [
        ("last_by_ideal", |run| Some(run.figures.completion?.last_by_ideal)),
        ("last_by_first", |run| Some(run.figures.completion?.last_by_first)),
        ("first_ms", |run| Some(run.figures.completion?.first_ms)),
        ("median_ms", |run| Some(run.figures.completion?.median_ms)),
        ("last_ms", |run| Some(run.figures.completion?.last_ms)),
        ("sum_mbps", |run| Some(run.figures.throughput.as_ref()?.sum_mbps)),
        ("of_possible", |run| Some(run.figures.throughput.as_ref()?.of_possible)),
        ("slowest_of_share", |run| Some(run.figures.throughput.as_ref()?.slowest_of_share)),
        ("longest_stall_ms", |run| Some(run.figures.throughput.as_ref()?.longest_stall_ms)),
        ("jain", |run| run.figures.throughput.as_ref()?.jain),
        ("settled_ms", |run| Some(run.figures.throughput.as_ref()?.settling?.settled_ms)),
        ("off_share_percent", |run| Some(run.figures.throughput.as_ref()?.settling?.off_share_percent)),
        ("beside_mbps", |run| Some(run.beside.as_ref()?.throughput.as_ref()?.sum_mbps)),
        ("mean_us", |run| Some(job(run)?.alone.operation.as_ref()?.mean_us)),
        ("p99_us", |run| Some(job(run)?.alone.operation.as_ref()?.p99_us())),
        ("mean_by_alone", |run| by_alone(run, |job| job.disturbed.as_ref(), mean)),
        ("median_by_alone", |run| by_alone(run, |job| job.disturbed.as_ref(), median)),
        ("p99_by_alone", |run| by_alone(run, |job| job.disturbed.as_ref(), p99)),
        ("mean_elsewhere_by_alone", |run| by_alone(run, |job| job.elsewhere.as_ref(), mean)),
        ("p99_elsewhere_by_alone", |run| by_alone(run, |job| job.elsewhere.as_ref(), p99)),
        ("alone_s", |run| whole(&job(run)?.alone)),
        ("by_alone", |run| by_alone(run, |job| job.disturbed.as_ref(), whole)),
        ("elsewhere_by_alone", |run| by_alone(run, |job| job.elsewhere.as_ref(), whole)),
        ("again_percent", |run| run.figures.again_percent),
        ("cpu_percent", |run| Some(run.cpu_percent)),
    ];
    let spread =
        |(name, value): (&str, Value)| Some((name.to_string(), Spread::of(runs.iter().filter_map(value))?));
    values.into_iter().filter_map(spread).collect()
}
