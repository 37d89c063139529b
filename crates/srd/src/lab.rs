//! `srd lab`: a fabric of network namespaces on this machine.

mod emulate;
mod exec;
mod experiment;
mod fault;
mod flap;
mod interrupt;
mod mpirun;
mod shape;
mod ssh;
mod status;
mod worker;

use crate::output;
use clap::Subcommand;
use srd_lab::{Found, Lab};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

const EXAMPLES: &str = "\
Examples:
  srd lab up                                       16 hosts, 4 leaves, 4 spines, 100 Mbit/s
  srd lab up --lab big --pods 2 --leaves 8 --aggs-per-pod 2 --cores 4
  srd lab exec host0 -- ping -c 3 10.128.1.1       a program in a host; status lists addresses
  srd lab status                                   packets, bytes, queue and drops of every link
  srd lab fault blackhole spine1                   a spine swallows everything
  srd lab fault loss 'leaf0>spine1' 2              one way of a link loses 2 %
  srd lab heal                                     ends all faults
  srd lab mpirun -n 4 --hosts h0,h4,h8,h12 -- ./program
  srd lab down                                     removes everything

It needs root. A lab lies in namespaces of its own; this machine's network is not touched. docs/LAB.md tells more.";

/// Arguments of `srd lab`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Args {
    /// Which lab; several may be up side by side
    #[arg(long = "lab", value_name = "NAME", default_value = "lab", global = true)]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Build a fabric
    Up(shape::Args),
    /// Remove a fabric with all that runs in it, also one that was left behind or not finished
    Down {
        /// Every lab of this machine
        #[arg(long)]
        all: bool,
    },
    /// Run a program in a host or a router
    Exec(exec::Args),
    /// Show hosts, faults, and what every link has carried, holds and has dropped
    Status(status::Args),
    /// Let something go wrong
    Fault(fault::Args),
    /// End faults: all of them, or those whose numbers are given
    Heal {
        /// Numbers that `fault` and `status` tell
        #[arg(value_name = "NUMBER")]
        faults: Vec<u32>,
    },
    /// Run an MPI program across hosts
    Mpirun(mpirun::Args),
    /// Run the same traffic over SRD and over the kernel's TCP, several times, in labs made for it
    Experiment(experiment::Args),
    /// Stands in for ssh
    #[command(hide = true)]
    Ssh(ssh::Args),
    /// The process that switches links off and on
    #[command(hide = true)]
    Flap(flap::Args),
    /// The process that plays a host's programs in an experiment
    #[command(hide = true)]
    Worker,
    /// The process that delays packets
    #[command(hide = true)]
    Emulate(emulate::Args),
}

/// Runs one of the commands.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = &args.name;
    match &args.command {
        Command::Up(shape) => up(name, shape)?,
        Command::Down { all: true } => {
            for name in Lab::names() {
                down(&name)?;
            }
        }
        Command::Down { all: false } => down(name)?,
        Command::Exec(args) => return exec::run(&Lab::open(name)?, args),
        Command::Status(args) => status::run(&Lab::open(name)?, args)?,
        Command::Fault(args) => return fault::run(&Lab::open(name)?, args),
        Command::Mpirun(args) => return mpirun::run(&Lab::open(name)?, args),
        Command::Ssh(args) => return ssh::run(&Lab::open(name)?, args),
        Command::Flap(args) => flap::run(&Lab::open(name)?, args)?,
        Command::Emulate(args) => emulate::run(args)?,
        Command::Experiment(args) => return experiment::run(name, args),
        Command::Worker => worker::run()?,
        Command::Heal { faults } => heal(&Lab::open(name)?, faults)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(name: &str, shape: &shape::Args) -> anyhow::Result<()> {
    let shape = shape.shape()?;
    // An interrupt must not leave half a lab: it is heeded when the lab is up.
    let interrupted = interrupt::watch()?;
    let began = std::time::Instant::now();
    let lab = Lab::up(name, &shape)?;
    if interrupted.load(Ordering::Relaxed) {
        lab.down()?;
        anyhow::bail!("interrupted; the lab {name} is removed again");
    }
    if !Lab::has_hash_seeds() {
        eprintln!(
            "srd: note: before Linux 6.11 all routers hash alike, and otherwise after each start of the machine"
        );
    }
    let took_ms = began.elapsed().as_millis();
    output::text(&format!(
        "{}\nup in {took_ms} ms; srd lab status --lab {name} shows it\n",
        status::headline(&lab)
    ))
}

fn down(name: &str) -> anyhow::Result<()> {
    let what = match Lab::remove(name)? {
        Found::Whole => "removed",
        Found::HalfBuilt => "was half built, removed",
    };
    output::text(&format!("lab {name}: {what}\n"))
}

fn heal(lab: &Lab, faults: &[u32]) -> anyhow::Result<()> {
    if faults.is_empty() {
        lab.heal_all()?;
    }
    for fault in faults {
        lab.heal(*fault)?;
    }
    Ok(())
}
