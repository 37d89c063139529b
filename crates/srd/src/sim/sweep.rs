//! `srd sim sweep`: many scenarios with one thing or another changed.

use super::batch::{self, Manner};
use super::job_file::{JobFile, Kind};
use super::needs::Needs;
use super::recording::shell_word;
use super::shards::{self, Sharing, Wanted};
use crate::output;
use anyhow::Context;
use srd_sim::input::InputError;
use srd_sim::record::write_whole;
use srd_sim::run::{self, MemoryEstimate};
use srd_sim::sweep::{Job, Kept, Key, Results, Row, Shard, Sweep, csv};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd sim sweep sweeps/ablations.toml                            tables on standard output
  srd sim sweep sweeps/ablations.toml --markdown ABLATIONS.md --csv ablations.csv
  srd sim sweep sweeps/ablations.toml --set transport.receiver_hint=false --json
  srd sim sweep sweeps/ablations.toml --results DIR              goes on where it was interrupted
  srd sim sweep sweeps/ablations.toml --results DIR --shard 2/8  the second of eight parts, anywhere
  srd sim sweep sweeps/ablations.toml --merge DIR                what they have come to
  srd sim sweep sweeps/ablations.toml --results DIR --emit slurm --shards 8 > job.sh

docs/SCENARIOS.md, \"Sweeps\", explains the files, docs/CLUSTER.md how many machines share a sweep. Each figure in a table is
the worst of its seeds.";

/// Arguments of `srd sim sweep`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The sweep: a TOML file
    sweep: PathBuf,
    /// Change a value of every scenario, before the sweep's own changes (may be given again)
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Write one line per run to this file, as comma-separated values
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shard", "emit"])]
    csv: Option<PathBuf>,
    /// Write the tables to this file instead of to standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "shard", "emit"])]
    markdown: Option<PathBuf>,
    /// Print JSON: an array with an object for each run
    #[arg(long, conflicts_with_all = ["shard", "emit"])]
    json: bool,
    #[command(flatten)]
    sharing: Sharing,
    #[command(flatten)]
    manner: Manner,
}

/// Runs and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sweep = Sweep::load(&args.sweep, &args.set)?;
    let jobs = sweep.jobs();
    match args.sharing.wanted()? {
        Wanted::All => run_all(args, &sweep, &jobs),
        Wanted::Kept(results, shard) => run_shard(args, &sweep, &results, shard),
        Wanted::Merged(results) => {
            let kept: Vec<Kept> =
                shards::merge(&results, &keys(&sweep, &jobs)?, &command(args, "srd", &args.sweep))?;
            present(args, &sweep, &kept.into_iter().map(Row::from).collect::<Vec<_>>())?;
            Ok(ExitCode::SUCCESS)
        }
        Wanted::Others(results, kind, shards) => emit(args, &sweep, &jobs, results.directory(), kind, shards),
    }
}

/// Runs all, and leaves nothing behind.
fn run_all(args: &Args, sweep: &Sweep, jobs: &[Job]) -> anyhow::Result<ExitCode> {
    let results = batch::run_all(jobs.len(), &args.manner, &largest(sweep, jobs)?, &|number, watch| {
        run_one(sweep, &jobs[number], watch)
    })?;
    let rows: Vec<Row> = results.all.iter().flatten().cloned().collect::<Result<_, InputError>>()?;
    present(args, sweep, &rows)?;
    // Flows that do not come to their end are a result here: the tables say so.
    Ok(results.conclude(&|number| sweep.describe(&jobs[number]), false))
}

/// Runs what is missing of a shard in the directory; of the whole sweep, if no shard is named, with its tables.
fn run_shard(
    args: &Args,
    sweep: &Sweep,
    results: &Results,
    named: Option<Shard>,
) -> anyhow::Result<ExitCode> {
    let shard = named.unwrap_or(Shard::WHOLE);
    let all = sweep.jobs().into_iter().enumerate();
    let jobs: Vec<Job> = all.filter(|(number, _)| shard.holds(*number)).map(|(_, job)| job).collect();
    let estimate = |todo: &[usize]| {
        let todo: Vec<Job> = todo.iter().map(|&number| jobs[number].clone()).collect();
        Ok(largest(sweep, &todo)?)
    };
    let done =
        shards::complete(results, shard, &keys(sweep, &jobs)?, &args.manner, &estimate, &|number, watch| {
            Some(run_one(sweep, &jobs[number], watch)?.map(Kept::from))
        })?;
    match named {
        Some(shard) => shards::report(shard, &done),
        None => {
            let rows: Vec<Row> = done.results.all.iter().flatten().cloned().map(Row::from).collect();
            present(args, sweep, &rows)?;
        }
    }
    Ok(done.results.conclude(&|number| sweep.describe(&jobs[number]), false))
}

fn run_one(sweep: &Sweep, job: &Job, watch: &mut dyn FnMut(f64) -> bool) -> Option<Result<Row, InputError>> {
    let ran = sweep.scenario(job).map(|scenario| run::run_watched(&scenario, 1, watch)).transpose()?;
    Some(ran.map(|ran| sweep.row(job, ran)))
}

fn keys(sweep: &Sweep, jobs: &[Job]) -> Result<Vec<Key>, InputError> {
    jobs.iter().map(|job| Ok(sweep.key(job, &sweep.scenario(job)?))).collect()
}

/// Says what the rows have to say, where it is wanted.
fn present(args: &Args, sweep: &Sweep, rows: &[Row]) -> anyhow::Result<()> {
    for row in rows.iter().filter(|row| !row.complaints.is_empty()) {
        eprintln!("srd: {}: {}", name(row), row.complaints.join("; "));
    }
    for row in rows.iter().filter(|row| !row.warnings.is_empty()) {
        eprintln!("srd: {}: warning: {}", name(row), row.warnings.join("; "));
    }
    if let Some(path) = &args.csv {
        write(path, &csv::of_sweep(sweep, rows))?;
    }
    match (args.json, &args.markdown) {
        (true, _) => output::json(&rows),
        (false, Some(path)) => write(path, &sweep.markdown(rows)),
        (false, None) => output::text(&sweep.markdown(rows)),
    }
}

fn name(row: &Row) -> String {
    let changes = row.changes.iter().map(|change| format!(", {} {}", change.axis, change.value));
    format!("{}{}, seed {}", row.case, changes.collect::<String>(), row.seed)
}

/// A file keeps what it had until all of the text is written; a pipe gets it as it comes.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.exists() && !path.is_file() {
        return std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let path = path.canonicalize().unwrap_or(path.to_path_buf());
    let mut part = path.clone().into_os_string();
    part.push(format!(".{}.part", std::process::id()));
    Ok(write_whole(&path, Path::new(&part), text)?)
}

/// What the largest of some runs needs. Seeds make no difference.
fn largest(sweep: &Sweep, jobs: &[Job]) -> Result<MemoryEstimate, InputError> {
    let mut largest: Option<MemoryEstimate> = None;
    for job in points(jobs) {
        let estimate = MemoryEstimate::of(&sweep.scenario(job)?);
        if largest.as_ref().is_none_or(|most| estimate.bytes() > most.bytes()) {
            largest = Some(estimate);
        }
    }
    Ok(largest.unwrap_or_default())
}

/// One of each that differ in more than their seeds.
fn points(jobs: &[Job]) -> Vec<&Job> {
    let mut points: Vec<&Job> = jobs.iter().collect();
    points.dedup_by(|later, first| (later.case, &later.changes) == (first.case, &first.changes));
    points
}

/// The command that runs the sweep.
fn command(args: &Args, program: &str, sweep: &Path) -> String {
    let sets = args.set.iter().map(|set| format!(" --set {}", shell_word(set))).collect::<String>();
    format!("{} sim sweep {}{sets}", shell_word(program), shell_word(&sweep.to_string_lossy()))
}

/// Prints what has others run the shards.
fn emit(
    args: &Args,
    sweep: &Sweep,
    jobs: &[Job],
    directory: &Path,
    kind: Kind,
    shards: u32,
) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe()?;
    let points = points(jobs);
    let needs = Needs::of(&[points.len()], &|_, point| sweep.scenario(points[point]))?;
    let times = needs.times.map(|times| {
        let mut point = 0;
        let of_job = |job: &Job| {
            point += usize::from((job.case, &job.changes) != (points[point].case, &points[point].changes));
            times[0][point]
        };
        jobs.iter().map(of_job).collect()
    });
    let job_file = JobFile {
        name: &sweep.name,
        runs: jobs.len(),
        called: "runs",
        command: command(args, &program.to_string_lossy(), &std::path::absolute(&args.sweep)?),
        tables: format!(" --markdown {}", shell_word(&directory.join("tables.markdown").to_string_lossy())),
        directory,
        shards,
        manner: &args.manner,
        bytes: needs.bytes,
        times,
    };
    output::text(&job_file.text(kind)?)?;
    Ok(ExitCode::SUCCESS)
}
