//! `srd`, the command of OpenSRD: what a host offers, what holds it back, running programs over it, measuring it,
//! simulating it.
#![deny(unsafe_code)]

mod consumer;
mod doctor;
mod env;
mod figures;
mod host;
mod info;
mod key;
mod lab;
mod libraries;
mod machine;
mod metrics;
mod mpi;
mod output;
mod perf;
mod run;
mod sealed;
mod sim;
mod top;
mod trace;
mod variables;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::sync::LazyLock;

const AFTER_HELP: &str = "\
Examples:
  srd info                                  what this host offers
  srd doctor nodeb                          what would hold SRD back between here and nodeb
  srd run -- mpirun -np 2 ./program         a program written for EFA, over this host's network
  srd run --sealed -- mpirun -np 2 ./program    the same, every packet encrypted and authenticated
  srd top                                   who talks to whom on this host, how fast, and over what
  srd metrics --listen 127.0.0.1:9417       the same for Prometheus
  srd perf server                           on one host, and on another:
  srd perf client nodeb --test latency --vs-tcp
  srd sim scenarios/fig2-incast-48.toml     48 flows into one 100 Gb/s port, simulated
  srd lab up                                a fabric of namespaces with faults to choose from
  srd figures --out figures                 what others have published, made again

Exit code: 0 if all went well, 1 if something failed, 2 if the command line makes no sense.";

static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (commit {})", env!("CARGO_PKG_VERSION"), srd_sim::record::COMMIT));

#[derive(Parser, Debug)]
#[command(name = "srd", version = VERSION.as_str(), about = "Scalable Reliable Datagram and a software EFA", after_help = AFTER_HELP)]
#[command(disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show what this host offers: addresses, limits, offloads, versions
    Info(info::Args),
    /// Find what would hold SRD back here, or on the way to another host, and how to mend it
    Doctor(doctor::Args),
    /// Print shell exports that put OpenSRD under existing programs, or list its variables
    Env(env::Args),
    /// Run a program over OpenSRD
    Run(run::Args),
    /// List machines with EFA devices (`srd run --machine`), or enter one
    Machine(machine::Args),
    /// Make a key with which packets are sealed, or check one
    Key(key::Args),
    /// Measure latency, bandwidth and message rate between two hosts
    Perf(perf::Args),
    /// Show live what the processes of this host that use SRD do: peers, paths, round trips, rates, retransmissions
    Top(top::Args),
    /// Simulate SRD on fabrics that one does not have: 100 to 800 Gb/s, thousands of hosts, faults
    Sim(Box<sim::Args>),
    /// Make published figures again, in the simulator, as one HTML page
    Figures(figures::Args),
    /// Build a fabric of network namespaces with several paths, run programs on it, and let parts of it fail
    Lab(Box<lab::Args>),
    /// Give the counters of this host's processes to Prometheus, or as JSON
    Metrics(metrics::Args),
    /// Tell from a trace why messages were late: of a simulated run, or of a process that this records
    Trace(trace::Args),
}

fn main() -> ExitCode {
    // clap itself ends with code 2 on a command line that makes no sense.
    let result = match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Machine(args) => machine::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("srd: {error:#}");
        ExitCode::FAILURE
    })
}
