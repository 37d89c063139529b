//! Runs seeds through the world and reports the first rules that are broken.
#![deny(unsafe_code)]

use clap::Parser;
use srd_world::world::{Failure, quiet_panics};
use srd_world::{Plan, Summary, run, scenario, shrink};
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

#[allow(unsafe_code)]
mod heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// A deterministic world for OpenSRD: many devices, a hostile network, one seed.
#[derive(Parser)]
#[command(name = "srd-world")]
struct Arguments {
    /// Seeds to run, as FROM..TO.
    #[arg(long, value_parser = seeds, default_value = "0..200")]
    seeds: Range<u64>,
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Tell every event of the run. Needs --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Change the plan: NAME=VALUE, several separated by commas. Names are those that a failure prints.
    #[arg(long, value_delimiter = ',', value_parser = setting)]
    set: Vec<(String, u64)>,
    /// Worlds of the messaging layer instead of the device alone.
    #[arg(long)]
    messages: bool,
    /// Start from a plan in which nothing goes wrong instead of the one that the seed draws.
    #[arg(long)]
    calm: bool,
    /// Make a failing plan smaller.
    #[arg(long)]
    shrink: bool,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    jobs: u32,
    /// Go on after a failure, up to this many.
    #[arg(long, default_value_t = 1)]
    failures: u64,
    /// A named scenario instead of random runs; "all" for each of them, "list" for their names.
    #[arg(long)]
    scenario: Option<String>,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected FROM..TO, such as 0..2000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn setting(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Plan::calm(0).set(name, 0)?;
    Ok((name.to_string(), value.parse().map_err(|error| format!("{value}: {error}"))?))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.scenario {
        return run_scenarios(name);
    }
    quiet_panics();
    match arguments.seed {
        Some(seed) => run_one(seed, &arguments),
        None => run_many(&arguments),
    }
}

fn plan_of(seed: u64, arguments: &Arguments) -> Plan {
    let mut plan = match (arguments.calm, arguments.messages) {
        (false, false) => Plan::draw(seed),
        (false, true) => Plan::draw_messages(seed),
        (true, false) => Plan::calm(seed),
        (true, true) => Plan::calm_messages(seed),
    };
    for (name, value) in &arguments.set {
        plan.set(name, *value).expect("checked when it was parsed");
    }
    plan
}

fn run_scenarios(name: &str) -> ExitCode {
    let chosen: Vec<_> =
        scenario::ALL.iter().filter(|scenario| name == "all" || name == scenario.name).collect();
    if chosen.is_empty() {
        for scenario in scenario::ALL {
            println!("{:<20} {}", scenario.name, scenario.about);
        }
        return if name == "list" { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let mut code = ExitCode::SUCCESS;
    for scenario in chosen {
        match (scenario.run)(&heap::gauge()) {
            Ok(report) => println!("{}: {report}", scenario.name),
            Err(why) => {
                println!("{}: FAILED: {why}", scenario.name);
                println!("  cargo run --profile checked -p srd-world -- --scenario {}", scenario.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn run_one(seed: u64, arguments: &Arguments) -> ExitCode {
    let plan = plan_of(seed, arguments);
    println!("{plan:?}");
    match run(&plan, arguments.trace) {
        Ok(summary) => {
            println!("{}", describe(&summary));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            report(&failure, arguments);
            ExitCode::FAILURE
        }
    }
}

fn describe(summary: &Summary) -> String {
    let score = summary.score;
    format!(
        "hash {:016x}: {} events, {} wake-ups, {} packets ({} lost, {} overflowed, {} cut, {} duplicated, {} damaged), \
         {} messages ({} succeeded, {} failed, {} void, {} received), {:.3} virtual s",
        summary.hash,
        summary.events,
        summary.wakes,
        summary.net.sent,
        summary.net.lost,
        summary.net.overflowed,
        summary.net.trimmed,
        summary.net.duplicated,
        summary.net.damaged,
        score.posted,
        score.succeeded,
        score.failed,
        score.void,
        score.received,
        summary.end.0 as f64 / 1e9
    )
}

fn report(failure: &Failure, arguments: &Arguments) {
    print_failure(failure);
    print_command(&failure.plan);
    if arguments.shrink {
        let (smaller, runs) = shrink::shrink(Box::new(failure.clone()), 2_000);
        println!("after {runs} runs this is left of it:");
        print_failure(&smaller);
        print_command(&smaller.plan);
    }
}

fn print_failure(failure: &Failure) {
    println!(
        "FAILED {} at {:.3} us\n  {}\n  {:?}",
        failure.violation.rule,
        failure.at.0 as f64 / 1e3,
        failure.violation.detail,
        failure.plan
    );
}

/// The command that runs this plan again: the seed alone if it draws the plan, otherwise what differs from calm.
fn print_command(plan: &Plan) {
    let changes = match plan.changes() {
        _ if *plan == Plan::draw(plan.seed) => String::new(),
        _ if *plan == Plan::draw_messages(plan.seed) => " --messages".to_string(),
        none if none.is_empty() => " --calm".to_string(),
        some => format!(" --calm --set {some}"),
    };
    println!("  cargo run --profile checked -p srd-world -- --seed {} --trace{changes}", plan.seed);
}

fn run_many(arguments: &Arguments) -> ExitCode {
    let next = AtomicU64::new(arguments.seeds.start);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    let started = Instant::now();
                    let ended = run(&plan_of(seed, arguments), false);
                    let mut totals = totals.lock().expect("no thread panics while it holds this");
                    totals.add(seed, &ended, started.elapsed().as_secs_f64());
                    if let Err(failure) = &ended {
                        progress("");
                        report(failure, arguments);
                    }
                    if totals.failures >= arguments.failures {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if totals.runs % 20 == 0 {
                        let rate = totals.runs as f64 / begin.elapsed().as_secs_f64();
                        progress(&format!(
                            "{} seeds, {} failed, {rate:.0} per second",
                            totals.runs, totals.failures
                        ));
                    }
                }
            });
        }
    });
    progress("");
    let totals = totals.into_inner().expect("all threads have ended");
    totals.print(begin.elapsed().as_secs_f64());
    if totals.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Rewrites the progress line, if somebody watches.
fn progress(line: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[K{line}").and_then(|()| out.flush());
    }
}

#[derive(Default)]
struct Totals {
    runs: u64,
    failures: u64,
    events: u64,
    packets: u64,
    messages: u64,
    succeeded: u64,
    failed: u64,
    virtual_ns: u64,
    slowest: (f64, u64),
    /// Of the hashes of all runs, in any order.
    hash: u64,
}

impl Totals {
    fn add(&mut self, seed: u64, ended: &Result<Summary, Box<Failure>>, seconds: f64) {
        self.runs += 1;
        if seconds > self.slowest.0 {
            self.slowest = (seconds, seed);
        }
        match ended {
            Err(_) => self.failures += 1,
            Ok(summary) => {
                self.events += summary.events;
                self.packets += summary.net.sent;
                self.messages += summary.score.posted;
                self.succeeded += summary.score.succeeded;
                self.failed += summary.score.failed;
                self.virtual_ns += summary.end.0;
                self.hash = self.hash.wrapping_add(summary.hash);
            }
        }
    }

    fn print(&self, seconds: f64) {
        println!(
            "{} seeds, {} failed; hash {:016x}\n{} messages ({} succeeded, {} failed), {} packets, {} events, \
             {:.0} virtual s\n{:.1} s, {:.1} seeds per second; slowest: seed {} with {:.0} ms",
            self.runs,
            self.failures,
            self.hash,
            self.messages,
            self.succeeded,
            self.failed,
            self.packets,
            self.events,
            self.virtual_ns as f64 / 1e9,
            seconds,
            self.runs as f64 / seconds,
            self.slowest.1,
            self.slowest.0 * 1e3
        );
    }
}
