//! `srd sim guard`: stands between the simulator and the MPI's launcher, and ends what that has started when the simulator ends, however it does.
//! Processes whose parent has ended become its children, so it finds all.

use crate::sim::batch::INTERRUPTED;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use srd_virtual::job::Job;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Arguments of `srd sim guard`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The simulator's process
    #[arg(long, value_name = "PID")]
    simulator: i32,
    /// Its directory, which goes with it
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// The launcher and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The signals that mean an end. `nohup` has one of them ignored, and so it stays.
fn ends() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let hangs_up = ignored >> (SIGHUP - 1) & 1 == 0;
    [SIGINT, SIGTERM].into_iter().chain(hangs_up.then_some(SIGHUP)).collect()
}

/// Set when one of them comes; each ends whatever descends from this process.
pub fn end_on_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let mut signals = Signals::new(ends())?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            stopped.store(true, Ordering::Relaxed);
            Job::default().kill();
        }
    });
    Ok(stop)
}

/// Runs the launcher, and has its code.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new(ends().into_iter().chain([SIGCHLD]))?;
    prctl::set_child_subreaper(true)?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    // It may have ended before.
    if nix::unistd::getppid().as_raw() == args.simulator {
        let mut launcher = Command::new(&args.command[0]).args(&args.command[1..]).spawn()?;
        for signal in signals.forever() {
            if signal != SIGCHLD {
                break;
            }
            if let Some(status) = launcher.try_wait()? {
                return Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)));
            }
        }
    }
    Job::default().kill();
    let _ = fs::remove_dir_all(&args.directory); // unless the simulator has done it
    Ok(ExitCode::from(INTERRUPTED))
}
