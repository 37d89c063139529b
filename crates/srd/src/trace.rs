//! `srd trace`: why was this message late? The answer is `srd_sim::record::trace_report`'s.

use crate::output;
use srd_sim::record::trace_report::{Question, TraceFile};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd sim scenarios/dead-uplink.toml --out /tmp/dead --trace        leaves a trace
  srd trace /tmp/dead/trace.jsonl                                   tells of its slowest flows
  srd trace /tmp/dead/trace.jsonl --flow 3 --json";

/// Arguments of `srd trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The trace: trace.jsonl in the directory of --out
    file: PathBuf,
    /// Tell of the flow with this number (may be given again) [default: the slowest]
    #[arg(long, value_name = "N")]
    flow: Vec<u32>,
    /// Tell of so many of the slowest flows
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "flow")]
    slowest: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads and tells.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let question = match &args.flow[..] {
        [] => Question::Slowest(args.slowest),
        flows => Question::Flows(flows.to_vec()),
    };
    let report = TraceFile::read(&args.file)?.report(&question)?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&report.text())?;
    }
    Ok(ExitCode::SUCCESS)
}
