//! `srd trace`: why was this message late? The answer is `srd_sim::record::trace_report`'s.

use crate::output;
use srd_sim::record::trace_report::{Form, Question, TraceFile, Wanted, list};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd sim scenarios/dead-uplink.toml --out /tmp/dead --trace        leaves a trace
  srd trace /tmp/dead/trace.jsonl                                   tells of its slowest flows
  srd trace /tmp/dead/trace.jsonl --flow 3 --json
  srd trace /tmp/dead/trace.jsonl --event packet_lost --event path_changed
  srd trace /tmp/dead/trace.jsonl --flow 3 --from 500 --to 520      lists all that happened in 20 us

With --event, --from or --to it lists lines of the trace, otherwise it tells why flows were late. docs/OUTPUTS.md names the
events of packets and flows, docs/EVENTS.md those by which the transports decide.";

/// Arguments of `srd trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The trace: trace.jsonl in the directory of --out
    file: PathBuf,
    /// Tell of the flow with this number, or list what concerns it (may be given again) [default: the slowest; all]
    #[arg(long, value_name = "N")]
    flow: Vec<u32>,
    /// Tell of so many of the slowest flows
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["flow", "event", "from", "to"])]
    slowest: u32,
    /// List the lines of this event (may be given again) [default: all]
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// List lines from this time on
    #[arg(long, value_name = "US", allow_negative_numbers = true, value_parser = micros)]
    from: Option<f64>,
    /// List lines until this time
    #[arg(long, value_name = "US", allow_negative_numbers = true, value_parser = micros)]
    to: Option<f64>,
    /// Print JSON: one object, or the lines as they are
    #[arg(long)]
    json: bool,
}

fn micros(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if us.is_finite() && us >= 0.0 => Ok(us),
        _ => Err("a number of microseconds from the beginning of the run, such as 1250.5".into()),
    }
}

/// Reads and tells.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.event.is_empty() || args.from.is_some() || args.to.is_some() {
        return show(args);
    }
    let question = match &args.flow[..] {
        [] => Question::Slowest(args.slowest as usize),
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

/// Lists lines.
fn show(args: &Args) -> anyhow::Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && to < from
    {
        anyhow::bail!("--to {to} lies before --from {from}: no time is between them");
    }
    let wanted =
        Wanted { flows: args.flow.clone(), events: args.event.clone(), from_us: args.from, to_us: args.to };
    let form = if args.json { Form::Json } else { Form::Text };
    let mut out = BufWriter::new(io::stdout().lock());
    let listed = list(&args.file, &wanted, form, &mut |line| out.write_all(line.as_bytes()));
    match listed.and_then(|missing| out.flush().map(|()| missing)) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(error.into()),
        Ok(0) => Ok(ExitCode::SUCCESS),
        Ok(missing) => {
            eprintln!("srd: the trace is cut short: {missing} lines at its end are missing");
            Ok(ExitCode::SUCCESS)
        }
    }
}
