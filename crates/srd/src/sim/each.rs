//! `srd sim each`: starts processes of several commands, and says which was the first that failed.

use anyhow::Context;
use srd_virtual::RANK_VARIABLE;
use srd_virtual::job::Job;
use std::ffi::OsString;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How often it is looked what processes do.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// So often in a row they must all have waited for something until those of the next command begin, and for no longer than so these wait: a server
/// is to be there before its clients.
const QUIET_LOOKS: u32 = 5;
const LONGEST_START: Duration = Duration::from_secs(10);

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
    while !running.is_empty() {
        let mut open = Vec::new();
        for mut process in running {
            match process.try_wait()? {
                None => open.push(process),
                Some(status) if status.success() => {}
                // What the others wait for may never come.
                Some(status) => {
                    Job::default().kill();
                    return Ok(ExitCode::from(status.code().map_or(1, |code| code as u8)));
                }
            }
        }
        running = open;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(ExitCode::SUCCESS)
}
