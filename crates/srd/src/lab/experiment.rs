//! `srd lab experiment`: the same traffic over SRD and over the kernel's TCP.

use crate::output;
use anyhow::{Context, bail};
use srd_lab::experiment::campaign::{CaseResult, Progress, Report, perform};
use srd_lab::experiment::plan::Experiment;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    // An interrupt is heeded between two runs, so that no lab stays.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).context("cannot watch for interrupts")?;
    }
    let srd = std::env::current_exe().context("cannot find the command srd")?;
    let report = perform(&experiment, name, &srd, |progress| {
        eprintln!("{}", line(&progress));
        !interrupted.load(Ordering::Relaxed)
    })?;
    let json = serde_json::to_string(&report)?;
    if let Some(out) = &args.out {
        let file = out.join("report.json");
        fs::write(&file, &json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    match args.json {
        true => output::text(&format!("{json}\n"))?,
        false => output::text(&table(&report))?,
    }
    Ok(if interrupted.load(Ordering::Relaxed) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

fn read(args: &Args) -> anyhow::Result<Experiment> {
    let text =
        fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let mut experiment = Experiment::from_toml(&text).with_context(|| args.file.display().to_string())?;
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
    let Progress { done, all, case, transport, figures, cpu_percent } = progress;
    let head = format!("{done:>3}/{all} {case}, {transport}: ");
    let Some(figures) = figures else {
        return format!("{head}discarded, processors were busy for {cpu_percent:.0} % of the time");
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
    if figures.incomplete > 0 {
        write!(line, "{} flows incomplete; ", figures.incomplete).expect("a string takes all");
    }
    for complaint in &figures.complaints {
        write!(line, "{complaint}; ").expect("a string takes all");
    }
    write!(line, "sent again {:.1} %; processors {cpu_percent:.0} %", figures.again_percent)
        .expect("a string takes all");
    line
}

/// What tables show of a summary, how it is called there, and with how many digits.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("last_by_ideal", "last/ideal", 3),
    ("last_by_first", "last/first", 2),
    ("sum_mbps", "Mbit/s", 1),
    ("of_possible", "of possible", 3),
    ("slowest_of_share", "slowest/share", 2),
    ("longest_stall_ms", "stall ms", 1),
    ("beside_mbps", "beside Mbit/s", 1),
    ("again_percent", "again %", 1),
    ("cpu_percent", "CPU %", 0),
];

/// Middles and ends, a table for each case.
fn table(report: &Report) -> String {
    let mut text = format!("\n{}\n{}\n", report.experiment.name, report.experiment.about);
    let transports = report.experiment.transports.len();
    for results in report.results.chunks(transports) {
        let there =
            |name: &str| results.iter().any(|result| result.summary.iter().any(|(other, _)| other == name));
        let columns: Vec<_> = COLUMNS.iter().filter(|(name, ..)| there(name)).collect();
        let mut rows = vec![vec![results[0].case.clone()]];
        rows[0].extend(columns.iter().map(|(_, title, _)| title.to_string()));
        rows.extend(results.iter().map(|result| row(result, &columns)));
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
        text.push_str(&remarks(results));
    }
    text.push_str("\nMiddle of all runs, and in brackets the least and the most.\n");
    if report.discarded > 0 {
        let most = report.experiment.most_cpu_percent;
        writeln!(
            text,
            "{} runs discarded: processors were busy for more than {most} % of the time",
            report.discarded
        )
        .expect("a string takes all");
    }
    text
}

fn row(result: &CaseResult, columns: &[&(&str, &str, usize)]) -> Vec<String> {
    let mut cells = vec![format!("  {}", result.transport)];
    for (name, _, digits) in columns {
        let found = result.summary.iter().find(|(other, _)| other == name);
        cells.push(found.map_or("-".into(), |(_, spread)| {
            let (median, least, most) = (spread.median, spread.least, spread.most);
            match result.runs.len() {
                1 => format!("{median:.digits$}"),
                _ => format!("{median:.digits$} ({least:.digits$}-{most:.digits$})"),
            }
        }));
    }
    cells
}

/// What a table has no column for.
fn remarks(results: &[CaseResult]) -> String {
    let mut text = String::new();
    for result in results {
        let incomplete: usize = result.runs.iter().map(|run| run.figures.incomplete).sum();
        if incomplete > 0 {
            writeln!(text, "  {}: {incomplete} flows did not finish", result.transport)
                .expect("a string takes all");
        }
        if result.runs.is_empty() {
            let why = "no run counts; try again on a quieter machine, or with --most-cpu 100";
            writeln!(text, "  {}: {why}", result.transport).expect("a string takes all");
        }
    }
    text
}
