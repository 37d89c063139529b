//! `srd lab mpirun`: an MPI program across hosts of a lab.

use crate::libraries::Libraries;
use crate::mpi;
use crate::run::Sealing;
use crate::sealed;
use anyhow::Context;
use clap::ValueEnum;
use srd_lab::{Lab, MpiJob, Transport};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd lab mpirun -n 4 --hosts h0,h4,h8,h12 -- ./program
  srd lab mpirun -n 8 --transport tcp --mpi debian -- lmp -in in.lj
  srd lab mpirun -n 2 --hosts h0,h15 --mpi mpich --prefix .venv/mpich -- ./program

Without --hosts all hosts of the lab are taken, as many as there are ranks. Exit code: that of the MPI's launcher.";

/// Arguments of `srd lab mpirun`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Ranks
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    n: u32,
    /// Hosts, as in h0,h4
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// What carries messages
    #[arg(long, value_enum, default_value = "srd")]
    transport: Carrier,
    #[command(flatten)]
    stack: mpi::Choice,
    #[command(flatten)]
    sealing: Sealing,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Carrier {
    /// SRD by libfabric's efa provider, over the software EFA
    Efa,
    /// SRD by the libfabric provider srd
    Srd,
    /// The kernel's TCP
    Tcp,
}

/// Replaces this process by the MPI's launcher, or waits for its end, if it has a key to remove then.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<ExitCode> {
    let srd = std::env::current_exe().context("the path of this program is unknown")?;
    let all = || lab.hosts().into_iter().take(args.n as usize).map(|host| host.name).collect();
    let job = MpiJob {
        mpi: args.stack.mpi(),
        prefix: args.stack.prefix(&srd)?,
        transport: match args.transport {
            Carrier::Efa => Transport::Efa,
            Carrier::Srd => Transport::Srd,
            Carrier::Tcp => Transport::Tcp,
        },
        ranks: args.n as usize,
        hosts: if args.hosts.is_empty() { all() } else { args.hosts.clone() },
        options: args.stack.options.clone(),
        program: args.command.clone(),
    };
    let mut command = job.command(lab, &srd)?;
    // `srd run` would say it in each rank.
    match args.transport {
        Carrier::Efa => drop(Libraries::Efa.locate()?),
        Carrier::Srd => drop(Libraries::Provider.locate()?),
        Carrier::Tcp => {}
    }
    if args.sealing.sealed {
        anyhow::ensure!(!matches!(args.transport, Carrier::Tcp), "the kernel's TCP cannot be --sealed");
        return sealed::run(command, args.sealing.key_dir.as_deref());
    }
    let error = command.exec();
    Err(anyhow::Error::new(error).context("cannot start the MPI's launcher"))
}
