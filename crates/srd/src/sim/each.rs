//! `srd sim each`: starts processes of several commands, and says which was the first that failed.

use anyhow::Context;
use nix::sys::wait::{WaitStatus, waitpid};
use srd_virtual::RANK_VARIABLE;
use srd_virtual::job::Job;
use std::ffi::OsString;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How often it is looked what processes do.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// So often in a row they must all have waited for something until those of the next command begin, and for no longer than so these wait: a server
/// is to be there before its clients.
const QUIET_LOOKS: u32 = 10;
const LONGEST_START: Duration = Duration::from_secs(10);

/// What a shell adds to the number of the signal that has ended a process.
const SIGNALLED: i32 = 128;

/// Arguments of `srd sim each`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Processes of each command
    #[arg(short, value_name = "N")]
    n: u32,
    /// What stands in front of each command, and the commands, with colons between
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Waits until no process that runs does anything by itself.
fn await_quiet() {
    let began = Instant::now();
    let mut quiet = 0;
    while quiet < QUIET_LOOKS && began.elapsed() < LONGEST_START {
        std::thread::sleep(LOOK_EVERY);
        quiet = if Job::default().is_quiet(&|_| false) { quiet + 1 } else { 0 };
    }
}

/// Runs them.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut commands = args.words.split(|word| word == ":");
    let front = commands.next().unwrap_or_default();
    let mut running: Vec<Child> = Vec::new();
    for command in commands {
        if !running.is_empty() {
            await_quiet();
        }
        for _ in 0..args.n {
            let rank = running.len();
            let mut process = Command::new(&front[0]);
            process.args(&front[1..]).args(command).env(RANK_VARIABLE, rank.to_string());
            if rank > 0 {
                process.stdin(Stdio::null());
            }
            running.push(process.spawn().with_context(|| format!("cannot run {}", front[0].display()))?);
        }
    }
    let mut open = running.len();
    while open > 0 {
        let (process, code, how) = match waitpid(None, None)? {
            WaitStatus::Exited(process, code) => (process, code, format!("code {code}")),
            WaitStatus::Signaled(process, signal, _) => {
                (process, SIGNALLED + signal as i32, signal.to_string())
            }
            _ => continue,
        };
        let Some(rank) = running.iter().position(|own| own.id() as i32 == process.as_raw()) else { continue };
        open -= 1;
        if code != 0 {
            // What the others wait for may never come.
            Job::default().kill();
            eprintln!("srd: process {rank}, counted from 0, has ended with {how}");
            return Ok(ExitCode::from(code as u8));
        }
    }
    Ok(ExitCode::SUCCESS)
}
