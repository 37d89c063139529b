//! `srd sim`: runs scenarios in the simulator, htsim's inputs among them, and sweeps of many.

pub(crate) mod batch;
mod each;
mod guard;
mod htsim;
pub(crate) mod job_file;
mod jobs;
mod join;
mod mpirun;
pub(crate) mod needs;
pub(crate) mod recording;
mod rivals;
mod room;
mod run;
mod scenario;
pub(crate) mod shards;
mod sweep;
mod table;

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd sim scenarios/fig2-incast-48.toml                          what 48 flows into one port come to
  srd sim scenarios/fig2-incast-48.toml --set workload.size=64KB --set transport.selector=oblivious
  srd sim scenarios/permutation-128.toml --seeds 1..8 --json     eight runs at once, one JSON array
  srd sim scenarios/dead-uplink.toml --out /tmp/dead             with what is worth looking at in a directory
  srd sim htsim --cm incast.cm --transport srd --link-gbps 100 --paths 64
  srd sim sweep sweeps/ablations.toml --csv ablations.csv

docs/SCENARIOS.md explains scenario files, --set and sweeps. A run depends on its scenario and seed alone: apart from
`cost`, its JSON has the same bytes on any machine and with any number of threads.

Exit code: 0 if every flow came to its end (of a sweep: if every run did), 1 if not or if the input is at fault, 130 after
an interrupt, which prints what is finished and says what is missing.";

/// Arguments of `srd sim`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    override_usage = "srd sim [OPTIONS] <SCENARIO>\n       srd sim htsim [OPTIONS] --cm <FILE>\n       srd sim sweep [OPTIONS] <SWEEP>"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    scenario: scenario::Args,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Run htsim's connection matrices and topologies
    Htsim(htsim::Args),
    /// Run an MPI program, unchanged, on the hosts of a simulated fabric, in its time
    Mpirun(mpirun::OfMpi),
    /// Run programs of libfabric, unchanged, on the hosts of a simulated fabric, in its time
    Run(run::Args),
    /// Start a process of such a program (a launcher does)
    #[command(hide = true)]
    Join(join::Args),
    /// Start the processes of several commands
    #[command(hide = true)]
    Each(each::Args),
    /// Run the launcher of such a program, and end all when the simulator ends
    #[command(hide = true)]
    Guard(guard::Args),
    /// Run a sweep: scenarios with one thing or another changed, for several seeds
    Sweep(sweep::Args),
}

/// Runs what was asked for.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => scenario::run(&args.scenario),
        Some(Command::Htsim(args)) => htsim::run(args),
        Some(Command::Mpirun(args)) => mpirun::run(args),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Each(args)) => each::run(args),
        Some(Command::Join(args)) => join::run(args),
        Some(Command::Guard(args)) => guard::run(args),
        Some(Command::Sweep(args)) => sweep::run(args),
    }
}
