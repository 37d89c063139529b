//! `srd sim run`: programs of libfabric and no MPI, unchanged, on the hosts of a simulated fabric.

use crate::sim::mpirun;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// What stands between commands.
const NEXT: &str = ":";

const EXAMPLES: &str = "\
Examples:
  srd sim run --fabric scenarios/fabrics/leaf-spine-64.toml -- fi_pingpong -p srd -e rdm : fi_pingpong -p srd -e rdm h0
  srd sim run --fabric fabric.toml --place 0,32 --transport srd,tcp,roce -- ./server : ./client h0
  srd sim run -n 4 --fabric fabric.toml -- ./program

Commands are separated by a colon; each runs on a host of its own, h0, h1 and so on, and with -n so many times, one after the other.
SRD_SIM_RANK tells a process the how manieth it is, from 0. The processes find each other by TCP as on a network: h0 is the first
one's host, 10.0.0.0 its address. docs/VIRTUAL.md.

Exit code: 0 if all processes ended well, that of the first one that did not otherwise; 124 if the file's end_us came before
their end, 130 after a signal, 1 if anything else went wrong.";

/// Arguments of `srd sim run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    common: mpirun::Args,
}

/// Runs them.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let commands = common.command.split(|word| word == NEXT).count();
    if common.command.split(|word| word == NEXT).any(<[OsString]>::is_empty) {
        bail!("nothing stands on one side of a colon: write a command there, or leave the colon out");
    }
    let srd = std::env::current_exe().context("the path of this program is unknown")?;
    let starter = |_: usize, words: &[OsString], _: &_| {
        let mut command = Command::new(&srd);
        command
            .args(["sim", "each", "-n", &common.ranks.n.to_string(), "--"])
            .args(words)
            .arg(NEXT)
            .args(&common.command);
        Ok(command)
    };
    mpirun::run_without_mpi(common, common.ranks.n * commands as u32, &starter)
}
