//! `srd trace`: why was this message late? The answer is `srd-trace`'s. With `--record` it makes such a
//! trace, of a process that runs (`record`).

mod record;

use crate::output;
use srd_trace::{Form, Question, TraceFile, Wanted, list};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Lines of a recording, unless other many are asked for: some 300 MB, as the simulator's at most.
const MOST_LINES: u64 = 2_000_000;

const EXAMPLES: &str = "\
Examples:
  srd sim scenarios/dead-uplink.toml --out /tmp/dead --trace        leaves a trace
  srd trace /tmp/dead/trace.jsonl                                   tells of its slowest flows
  srd trace /tmp/dead/trace.jsonl --flow 3 --json
  srd trace /tmp/dead/trace.jsonl --event packet_lost --event path_changed
  srd trace /tmp/dead/trace.jsonl --flow 3 --from 500 --to 520      lists all that happened in 20 us

  srd trace --record 4711 --for 2 --out /tmp/4711.jsonl             records 2 s of what process 4711 decides
  srd trace /tmp/4711.jsonl                                         tells of its slowest messages

With --event, --from or --to it lists lines of the trace, otherwise it tells why flows, or a process's messages, were late.
docs/OUTPUTS.md names the events of packets and flows, docs/EVENTS.md those by which the transports decide. A process is
recorded until the time is over, ^C, or so many lines; it records nothing any more as soon as this command has ended, however
that was. It loses no time to it: what it cannot keep up with is left out, and the trace says how much.";

/// Arguments of `srd trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The trace: trace.jsonl in the directory of --out, or what --record has made
    #[arg(required_unless_present = "record")]
    file: Option<PathBuf>,
    /// Record what the transport of this process decides, into --out
    #[arg(long, value_name = "PID", requires = "out", conflicts_with_all = ["file", "flow", "slowest", "event", "from", "to", "json"])]
    record: Option<u32>,
    /// Record for so long [default: until ^C]
    #[arg(long = "for", value_name = "SECONDS", requires = "record", value_parser = seconds)]
    duration: Option<Duration>,
    /// The file to record into; an existing one is replaced
    #[arg(long, value_name = "FILE", requires = "record")]
    out: Option<PathBuf>,
    /// Which of a process's instances to record, by its address, if it has several (`srd top` shows them)
    #[arg(long, value_name = "ADDR:PORT", requires = "record")]
    address: Option<String>,
    /// Record so many lines at most
    #[arg(long, value_name = "N", requires = "record", default_value_t = MOST_LINES, value_parser = clap::value_parser!(u64).range(1..))]
    lines: u64,
    /// Tell of the flow with this number, or list what concerns it (may be given again) [default: the slowest; all]
    #[arg(long, value_name = "N")]
    flow: Vec<u32>,
    /// Tell of so many of the slowest flows, or of a process's slowest messages
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

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.001 to 86400".into()),
    }
}

/// Reads and tells, or records.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let (Some(pid), Some(out)) = (args.record, &args.out) {
        let address = args.address.as_deref();
        return record::run(&record::Order { pid, address, duration: args.duration, out, lines: args.lines });
    }
    let Some(file) = &args.file else { anyhow::bail!("name the trace to read, or the process to --record") };
    if !args.event.is_empty() || args.from.is_some() || args.to.is_some() {
        return show(args, file);
    }
    let question = match &args.flow[..] {
        [] => Question::Slowest(args.slowest as usize),
        flows => Question::Flows(flows.to_vec()),
    };
    let trace = TraceFile::read(file)?;
    if let Some(report) = trace.host_report(args.slowest as usize) {
        if !args.flow.is_empty() {
            anyhow::bail!(
                "{}: a process has recorded this trace, which knows messages and no flows; leave out --flow",
                file.display()
            );
        }
        if args.json {
            output::json(&report)?;
        } else {
            output::text(&report.text())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = trace.report(&question)?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&report.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists lines.
fn show(args: &Args, file: &Path) -> anyhow::Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && to < from
    {
        anyhow::bail!("--to {to} lies before --from {from}: no time is between them");
    }
    let wanted =
        Wanted { flows: args.flow.clone(), events: args.event.clone(), from_us: args.from, to_us: args.to };
    let form = if args.json { Form::Json } else { Form::Text };
    let mut out = BufWriter::new(io::stdout().lock());
    let listed = list(file, &wanted, form, &mut |line| out.write_all(line.as_bytes()));
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
