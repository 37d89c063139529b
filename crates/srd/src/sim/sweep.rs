//! `srd sim sweep`: many scenarios with one thing or another changed.

use super::batch::{self, Manner};
use crate::output;
use anyhow::Context;
use srd_sim::input::InputError;
use srd_sim::run::{self, MemoryEstimate};
use srd_sim::sweep::{Row, Sweep, csv};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd sim sweep sweeps/ablations.toml                            tables on standard output
  srd sim sweep sweeps/ablations.toml --markdown ABLATIONS.md --csv ablations.csv
  srd sim sweep sweeps/ablations.toml --set transport.receiver_hint=false --json

docs/SCENARIOS.md, \"Sweeps\", explains the files. Each figure in a table is the worst of its seeds.";

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
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the tables to this file instead of to standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    markdown: Option<PathBuf>,
    /// Print JSON: an array with an object for each run
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    manner: Manner,
}

/// Runs and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sweep = Sweep::load(&args.sweep, &args.set)?;
    let jobs = sweep.jobs();
    let estimate = largest(&sweep)?;
    let results = batch::run_all(jobs.len(), &args.manner, &estimate, &|number, watch| {
        let job = &jobs[number];
        let scenario = sweep.scenario(job);
        let ran = scenario.map(|scenario| run::run_watched(&scenario, watch)).transpose()?;
        Some(ran.map(|ran| sweep.row(job, ran)))
    })?;
    let rows: Vec<Row> = results.all.iter().flatten().cloned().collect::<Result<_, InputError>>()?;
    for row in rows.iter().filter(|row| !row.complaints.is_empty()) {
        eprintln!("srd: {}: {}", name(row), row.complaints.join("; "));
    }
    for row in rows.iter().filter(|row| !row.warnings.is_empty()) {
        eprintln!("srd: {}: warning: {}", name(row), row.warnings.join("; "));
    }
    if let Some(path) = &args.csv {
        write(path, &csv::of_sweep(&sweep, &rows))?;
    }
    match (args.json, &args.markdown) {
        (true, _) => output::json(&rows)?,
        (false, Some(path)) => write(path, &sweep.markdown(&rows))?,
        (false, None) => output::text(&sweep.markdown(&rows))?,
    }
    // Flows that do not come to their end are a result here: the tables say so.
    Ok(results.conclude(&|number| sweep.describe(&jobs[number]), false))
}

fn name(row: &Row) -> String {
    let changes = row.changes.iter().map(|change| format!(", {} {}", change.axis, change.value));
    format!("{}{}, seed {}", row.case, changes.collect::<String>(), row.seed)
}

fn write(path: &PathBuf, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What the largest run needs. Seeds make no difference.
fn largest(sweep: &Sweep) -> Result<MemoryEstimate, InputError> {
    let mut jobs = sweep.jobs();
    jobs.dedup_by(|later, first| (later.case, &later.changes) == (first.case, &first.changes));
    let mut largest: Option<MemoryEstimate> = None;
    for job in &jobs {
        let estimate = MemoryEstimate::of(&sweep.scenario(job)?);
        if largest.as_ref().is_none_or(|most| estimate.bytes() > most.bytes()) {
            largest = Some(estimate);
        }
    }
    Ok(largest.unwrap_or_default())
}
