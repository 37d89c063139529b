//! `srd run`: replaces itself with a program that runs over OpenSRD, or, where the program is to have a key of its own, starts it
//! and waits for its end.

use crate::env::Layer;
use crate::machine;
use crate::sealed;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const EXAMPLES: &str = "\
Examples:
  srd run -- fi_info -p efa                         the software EFA as libfabric sees it
  srd run -- mpirun -np 2 ./program                 all ranks on this host
  mpirun -np 2 --host a,b srd run -- ./program      ranks on other hosts: srd starts each rank there
  srd run --preload -- python3 train.py             programs that bundle a libibverbs of their own
  srd run -- env FI_EFA_ENABLE_SHM_TRANSFER=1 CMD   change one of the variables that srd sets
  srd run --provider -- mpirun -np 2 ./program      the libfabric provider srd; Open MPI, MPICH and Intel MPI take it
  srd run --provider --as-efa -- python3 serve.py   the provider under the name efa
  srd run --efa --machine p5 -- ibv_devinfo         in a machine with the 32 devices of a p5.48xlarge in /sys and /dev
  srd run --provider --sealed -- mpirun -np 2 ./program   every packet encrypted and authenticated, with a key for this job

Open MPI passes the environment on to other hosts only in part, so on several hosts put `srd run --` before the program instead
of before mpirun; both at once do no harm.

What --provider sets takes the place of what would lead a program elsewhere, and srd says so; options of the mpirun that
it starts (--mca, -genv) count for more.

--sealed belongs before mpirun: it makes a key, names its file in SRD_KEY_FILE, and removes it when CMD ends. Each host of the
job must find the file under that name: give --key-dir a directory that they share. (An mpirun of Open MPI that has options -x,
or that a script starts, also needs -x SRD_KEY_FILE.)
Without such a directory bring a key to the hosts once (`srd key new`). Where SRD_KEY_FILE is set that key is used.

--machine takes a user namespace, or root. In front of mpirun all its ranks on this host are in the one machine; what they count
is added up in /sys/class/infiniband/*/ports/1/hw_counters.

Exit code: that of CMD; 1 if the libraries are missing or there can be no machine, 126 if CMD cannot be executed, 127 if it is not found.";

/// Arguments of `srd run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    layer: Layer,
    #[command(flatten)]
    machine: machine::Choice,
    #[command(flatten)]
    sealing: Sealing,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Whether a job gets a key.
#[derive(clap::Args, Debug)]
pub struct Sealing {
    /// Encrypt and authenticate every packet, with a key that is made for this run and removed after it
    #[arg(long)]
    pub sealed: bool,
    /// Where the key is kept meanwhile: a directory that all hosts of the job see [default: one of this user's on this host]
    #[arg(long, value_name = "DIR", requires = "sealed")]
    pub key_dir: Option<PathBuf>,
}

/// Replaces this process; comes back only if that fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let variables = args.layer.variables()?;
    // A job that was killed may have left some, and none of this one's processes need use any.
    srd_shm::clear_away_the_dead(Path::new(srd_shm::DIRECTORY));
    let machine = args.machine.make()?;
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.into_iter().map(|variable| (variable.name, variable.value)));
    let key_dir = args.sealing.key_dir.as_deref();
    match (machine, args.sealing.sealed) {
        (Some(machine), true) => return machine.attend_sealed(command, key_dir),
        (Some(machine), false) => return machine.attend(command),
        (None, true) => return sealed::run(command, key_dir),
        (None, false) => {}
    }
    let error = command.exec();
    eprintln!("srd: cannot run {}: {error}", program.display());
    // As env(1) and the shells do, so that launchers understand it.
    Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }))
}
