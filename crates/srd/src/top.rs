//! `srd top`: what the processes of this host that use SRD do now: peers, paths, round trips, rates, retransmissions, and
//! who reaches whom through shared memory.

pub mod answer;
mod cells;
mod draw;
mod rates;
pub mod sample;
mod terminal;
mod text;
mod view;

use crate::output;
use rates::{Overview, compare};
use sample::{Chosen, Sample};
use serde::Serialize;
use srd_net::stats_directory::unusable;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  srd top                                   live, all processes of this user on this host
  srd top 4711 4712                         these processes
  srd top --program lmp                     those of a program
  srd top --once --paths                    with every path of the busiest peers
  srd top --once                            tables as text, of the second that follows
  srd top --json --interval 0.5 | jq '.processes[] | {pid, rates}'

Keys: q ends, up and down (or j and k) choose a process, s changes the order, p freezes and goes on.

Rates are of payload, in 10^9 bits per second; \"rtx\" are packets retransmitted, \"compl\" completions of work requests,
\"fail\" those of them with an error. Paths are active, suspect (asked whether they work), down or probing (asked whether they work
again); each is listed for the 4 peers with the most traffic. A peer over the network is a process (its
address and UDP port); a peer through shared memory is an endpoint (its address and number; which process has it, the lines
of processes say), and its bytes include what is copied out of its memory. A process can be seen unless it runs with
SRD_TOP=off, whichever network namespace it is in.

JSON, one line each interval: time_s, processes [{pid, program, address, endpoints, interface, mtu, sealed, rates,
peer_count, shared_memory_peers, peers, paths, causes, stats}], silent [{pid, program, why}]; stats are all counters of the
process, as SRD_STATS writes them.";

const HOW_TO_START: &str = "`srd run -- PROGRAM` starts one that does, unless SRD_TOP=off is set";

/// Arguments of `srd top`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// These processes [default: all]
    pids: Vec<u32>,
    /// Processes of this program
    #[arg(long, value_name = "NAME", conflicts_with = "pids")]
    program: Option<String>,
    /// Look once, over one interval, and print tables as text (the default where the output is no terminal)
    #[arg(long)]
    once: bool,
    /// In tables as text, list every path of the peers with the most traffic, not only those out of use
    #[arg(long)]
    paths: bool,
    /// Print JSON, one line each interval
    #[arg(long)]
    json: bool,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.05 to 3600".into()),
    }
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970.
    time_s: f64,
    #[serde(flatten)]
    overview: &'a Overview,
}

/// Looks, once or until it is told to end.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let chosen = Chosen { pids: args.pids.clone(), program: args.program.clone() };
    if args.json && !args.once {
        let mut before = sample::take(&chosen);
        loop {
            let overview = next(&chosen, &mut before, args.interval);
            print_json(&overview)?;
        }
    }
    if args.once || args.json || !std::io::stdout().is_terminal() {
        return look_once(args, &chosen);
    }
    terminal::run(chosen, args.interval)
}

fn look_once(args: &Args, chosen: &Chosen) -> anyhow::Result<ExitCode> {
    let mut before = sample::take(chosen);
    let is_empty = |sample: &Sample| sample.instances.is_empty() && sample.silent.is_empty();
    let overview =
        if is_empty(&before) { Overview::default() } else { next(chosen, &mut before, args.interval) };
    let is_empty = overview.processes.is_empty() && overview.silent.is_empty();
    if args.json {
        print_json(&overview)?;
    } else if !is_empty {
        output::text(&text::describe(&overview, args.paths))?;
    }
    for why in unusable() {
        eprintln!("srd: {why}");
    }
    if is_empty {
        anyhow::bail!("{}; {HOW_TO_START}", nobody(chosen));
    }
    Ok(ExitCode::SUCCESS)
}

/// Who is missing if there is nothing to see.
fn nobody(chosen: &Chosen) -> String {
    match (&chosen.program, chosen.pids.as_slice()) {
        (Some(program), _) => format!("no process of a program {program} on this host uses SRD"),
        (None, []) => "no process of this user on this host uses SRD".into(),
        (None, [pid]) => format!("there is no process {pid} of this user on this host that uses SRD"),
        (None, _) => "none of these processes is one of this user on this host that uses SRD".into(),
    }
}

/// The overview of an interval that begins with the sample `before`, and ends with what is there afterwards.
fn next(chosen: &Chosen, before: &mut Sample, interval: Duration) -> Overview {
    std::thread::sleep(interval);
    let now = sample::take(chosen);
    let overview = compare(before, &now);
    *before = now;
    overview
}

fn print_json(overview: &Overview) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    output::json(&Line { time_s: now.as_secs_f64(), overview })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(interval("1"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("0.5s"), Ok(Duration::from_millis(500)));
        for text in ["", "s", "0", "1m", "1e9", "nan", "-1"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
