//! `srd run`: replaces itself with a program that runs over OpenSRD.

use crate::env::Layer;
use crate::{consumer, libraries};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const EXAMPLES: &str = "\
Examples:
  srd run -- fi_info -p efa                         the software EFA as libfabric sees it
  srd run -- mpirun -np 2 ./program                 all ranks on this host
  mpirun -np 2 --host a,b srd run -- ./program      ranks on other hosts: srd starts each rank there
  srd run --preload -- python3 train.py             programs that bundle a libibverbs of their own
  srd run -- env FI_EFA_ENABLE_SHM_TRANSFER=1 CMD   change one of the variables that srd sets

mpirun passes the environment on to other hosts only in part (Open MPI needs -x for each variable), so on several
hosts put `srd run --` before the program instead of before mpirun; both at once do no harm.

Exit code: that of CMD; 1 if the libraries are missing, 126 if CMD cannot be executed, 127 if it is not found.";

/// Arguments of `srd run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    layer: Layer,
    /// Also force the libraries in with LD_PRELOAD, for programs that bundle their own libibverbs under another name
    #[arg(long)]
    preload: bool,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Replaces this process; comes back only if that fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.layer.check()?;
    let variables = consumer::efa(&libraries::locate()?, args.preload);
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.into_iter().map(|variable| (variable.name, variable.value)));
    let error = command.exec();
    eprintln!("srd: cannot run {}: {error}", program.display());
    // As env(1) and the shells do, so that launchers understand it.
    Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }))
}
