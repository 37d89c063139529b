//! `srd lab experiment`: the same traffic over SRD and over the kernel's TCP.

use super::interrupt;
use crate::output;
use crate::sim::recording::command_line;
use anyhow::{Context, bail};
use srd_lab::experiment::campaign::{LeftOut, MOST_PAUSE_MS, Progress, Report, leave_out, perform};
use srd_lab::experiment::columns::{Column, Shown, cell, names, remarks};
use srd_lab::experiment::interference::{JobFigures, Measured};
use srd_lab::experiment::page::page;
use srd_lab::experiment::plan::Experiment;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// What a shell ends with after SIGINT.
const INTERRUPTED: u8 = 130;

/// Pauses of the machine that explain the stall of a flow.
const PAUSE_WORTH_TELLING_MS: f64 = 10.0;

/// Arguments of `srd lab experiment`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to run: one of labs/*.toml, or your own (docs/LAB.md, "Experiments")
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Run each case so often, instead of as the file says
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only these transports, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    transports: Option<Vec<String>>,
    /// Let runs count while processors are busy up to this share of the time, in percent
    #[arg(long, value_name = "PERCENT")]
    most_cpu: Option<f64>,
    /// Write report.json and index.html there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. The lab is called `name` while it is up.
pub fn run(name: &str, args: &Args) -> anyhow::Result<ExitCode> {
    let experiment = read(args)?;
    if let Some(out) = &args.out {
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    }
    for LeftOut { transport, why } in leave_out(&mut experiment.clone())? {
        eprintln!("srd: {transport} is left out: {why}");
    }
    let interrupted = interrupt::watch()?;
    let srd = std::env::current_exe().context("cannot find the command srd")?;
    let report = perform(&experiment, name, &srd, &interrupted, |progress| eprintln!("{}", line(&progress)))?;
    if !args.json
        && interrupted.load(Ordering::Relaxed)
        && report.results.iter().all(|result| result.runs.is_empty())
    {
        eprintln!("srd: interrupted before a run was over");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let json = serde_json::to_string(&report)?;
    if let Some(out) = &args.out {
        let page = page(&report, &command_line(), &srd_sim::record::program());
        for (name, text) in [("report.json", &json), ("index.html", &page)] {
            let file = out.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    match args.json {
        true => output::text(&format!("{json}\n"))?,
        false => output::text(&table(&report))?,
    }
    let failed = report.results.iter().any(|result| result.failed.is_some());
    Ok(match (interrupted.load(Ordering::Relaxed), failed) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

fn read(args: &Args) -> anyhow::Result<Experiment> {
    let text =
        fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let mut experiment = Experiment::from_toml(&text).with_context(|| args.file.display().to_string())?;
    experiment.directory = args.file.parent().map(Into::into).unwrap_or_default();
    if let Some(only) = &args.only {
        let names: Vec<String> = experiment.cases.iter().map(|case| case.name.clone()).collect();
        experiment.cases.retain(|case| case.name.contains(only.as_str()));
        if experiment.cases.is_empty() {
            bail!("no case has {only:?} in its name; there are {}", names.join("; "));
        }
    }
    experiment.repeats = args.repeats.unwrap_or(experiment.repeats);
    experiment.most_cpu_percent = args.most_cpu.unwrap_or(experiment.most_cpu_percent);
    if let Some(transports) = &args.transports {
        experiment.transports.clone_from(transports);
    }
    experiment.check()?;
    Ok(experiment)
}

/// What a run has given, in a line.
fn line(progress: &Progress<'_>) -> String {
    let Progress { done, all, case, transport, figures, cpu_percent, longest_pause_ms } = progress;
    let head = format!("{done:>3}/{all} {case}, {transport}: ");
    let Some(figures) = figures else {
        let still = format!("the machine stood still for {longest_pause_ms:.0} ms at most");
        return format!("{head}discarded, processors were busy for {cpu_percent:.0} % of the time, {still}");
    };
    let mut line = head;
    if let Some(completion) = &figures.completion {
        let (last, by_ideal) = (completion.last_ms, completion.last_by_ideal);
        write!(line, "last after {last:.1} ms, {by_ideal:.3} of ideal; ").expect("a string takes all");
    }
    if let Some(throughput) = &figures.throughput {
        let (sum, stall) = (throughput.sum_mbps, throughput.longest_stall_ms);
        write!(line, "{sum:.1} Mbit/s, longest stall {stall:.1} ms; ").expect("a string takes all");
    }
    if let Some(job) = &figures.job {
        line += &job_line(job);
    }
    if figures.incomplete > 0 {
        write!(line, "{} flows incomplete; ", figures.incomplete).expect("a string takes all");
    }
    for complaint in &figures.complaints {
        write!(line, "{complaint}; ").expect("a string takes all");
    }
    if let Some(again_percent) = figures.again_percent {
        write!(line, "sent again {again_percent:.1} %; ").expect("a string takes all");
    }
    write!(line, "processors {cpu_percent:.0} %").expect("a string takes all");
    if *longest_pause_ms > PAUSE_WORTH_TELLING_MS {
        write!(line, "; the machine stood still for {longest_pause_ms:.0} ms").expect("a string takes all");
    }
    line
}

/// What an MPI job has taken, alone and otherwise.
fn job_line(job: &JobFigures) -> String {
    let times = |taken: &Measured| match &taken.operation {
        Some(times) => (times.mean_us / 1e3, times.p99_us() / 1e3),
        None => (taken.seconds * 1e3, taken.seconds * 1e3),
    };
    let (alone, alone_p99) = times(&job.alone);
    let mut line = match job.alone.operation {
        Some(_) => format!("{alone:.2} ms alone, 99 % within {alone_p99:.2}; "),
        None => format!("{:.2} s alone; ", alone / 1e3),
    };
    for (taken, words) in [(&job.disturbed, "disturbed"), (&job.elsewhere, "with those flows in another lab")]
    {
        let Some(taken) = taken else { continue };
        let (mean, p99) = times(taken);
        write!(line, "{:.2} times as long", mean / alone).expect("a string takes all");
        if taken.operation.is_some() {
            write!(line, " (99 %: {:.2})", p99 / alone_p99).expect("a string takes all");
        }
        write!(line, " {words}; ").expect("a string takes all");
    }
    line
}

/// Middles and ends, a table for each case.
fn table(report: &Report) -> String {
    let mut text = format!("\n{}\n{}\n", report.experiment.name, report.experiment.about);
    let transports = report.experiment.transports.len();
    for results in report.results.chunks(transports) {
        let names = names(results);
        let shown: Vec<&str> =
            names.into_iter().filter(|name| Column::is_shown(name, Shown::InTables)).collect();
        let mut rows = vec![vec![results[0].case.clone()]];
        rows[0].extend(shown.iter().map(|name| Column::title(name).to_string()));
        rows.extend(results.iter().map(|result| {
            let cells = shown.iter().map(|name| cell(result, name));
            [format!("  {}", result.transport)].into_iter().chain(cells).collect()
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        text.push('\n');
        for row in &rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(line, "  {cell:>width$}").expect("a string takes all");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for remark in results.iter().flat_map(|result| remarks(result, &report.experiment)) {
            writeln!(text, "  {remark}").expect("a string takes all");
        }
    }
    text.push_str("\nMiddle of all runs, and in brackets the least and the most.\n");
    if !report.whole {
        text.push_str("NOT ALL RUNS WERE MADE.\n");
    }
    if report.discarded > 0 {
        let most = report.experiment.most_cpu_percent;
        writeln!(
            text,
            "{} runs discarded: processors were busy for more than {most} % of the time, or the machine stood still for more \
             than {MOST_PAUSE_MS} ms",
            report.discarded
        )
        .expect("a string takes all");
    }
    for LeftOut { transport, why } in &report.left_out {
        writeln!(text, "{transport} was left out: {why}").expect("a string takes all");
    }
    text
}
