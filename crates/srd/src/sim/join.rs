//! `srd sim join`: what a launcher starts in place of a program's process: puts the provider and the simulation's clock under it, and
//! becomes it.

use crate::consumer;
use crate::libraries::Libraries;
use anyhow::Context;
use srd_virtual::{RANK_VARIABLE, WORLD_VARIABLE};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Where launchers write a process's rank; the first is ours ([`crate::sim::each`]).
const RANKS: [&str; 5] = [RANK_VARIABLE, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// What else keeps MPIs from going past the fabric: to them all ranks are on one host. MPICH and Intel MPI have a switch for all of their ways
/// through shared memory; Open MPI is told of no others there (`srd-preload`).
const NOTHING_NEAR: [(&str, &str); 2] = [("MPIR_CVAR_NOLOCAL", "1"), ("I_MPI_FABRICS", "ofi")];

/// Open MPI asks its launcher for the addresses of all others while MPI begins, as it does for those of its own host, and not for one at each first
/// message: no time passes while ranks wait for their launcher, and each answer takes the machine 10 ms.
const ALL_ADDRESSES_AT_ONCE: (&str, &str) = ("OMPI_MCA_mpi_add_procs_cutoff", "4294967295");

/// Arguments of `srd sim join`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Number of its job's first rank among those of all jobs
    #[arg(long, value_name = "NUMBER")]
    first: u32,
    /// The simulator's shared memory
    #[arg(long, value_name = "FILE")]
    world: PathBuf,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Becomes the program.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok());
    let rank = rank.with_context(|| {
        format!(
            "no rank in the environment ({}): this is for launchers, by way of `srd sim mpirun`",
            RANKS.join(", ")
        )
    })?;
    let rank: u32 = rank.parse().with_context(|| format!("{rank:?} in the environment is no rank"))?;
    let (variables, _) = consumer::provider(&Libraries::Provider.locate()?);
    let clock = Libraries::Clock.locate()?.join(Libraries::Clock.names()[0]);
    let mut preload = clock.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables.into_iter().map(|variable| (variable.name, variable.value)))
        .envs(NOTHING_NEAR)
        .envs([ALL_ADDRESSES_AT_ONCE])
        .env("LD_PRELOAD", preload)
        .env(WORLD_VARIABLE, &args.world)
        .env(RANK_VARIABLE, (args.first + rank).to_string())
        .env("SRD_SHM", "off")
        .env("SRD_TOP", "off");
    let error = command.exec();
    Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
}
