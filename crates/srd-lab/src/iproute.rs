//! `ip` and `tc`, many commands in one process: starting a process takes as long as ten commands.

use crate::error::{Doing, Error, Result};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// One of iproute2's programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    Ip,
    Tc,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Ip => "ip",
            Program::Tc => "tc",
        }
    }

    /// Where it is. Users' PATH often lacks the directories of administrators' programs.
    pub(crate) fn locate(self) -> Result<PathBuf> {
        ["", "/usr/sbin/", "/sbin/"]
            .iter()
            .find_map(|directory| which::which(format!("{directory}{}", self.name())).ok())
            .ok_or(Error::MissingProgram { program: self.name(), package: "iproute2" })
    }
}

/// Runs commands, a line each, in the calling thread's namespace, which is called `namespace` in errors. Stops at the first
/// that fails.
pub(crate) fn batch(program: Program, namespace: &str, commands: &str) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    let output = run(program, &["-batch", "-"], commands)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // "Command failed -:12", after what was wrong
    let line = said.rsplit("Command failed -:").next().and_then(|number| number.trim().parse::<usize>().ok());
    let failed = line.and_then(|line| commands.lines().nth(line - 1)).unwrap_or("-batch");
    let reason = said.lines().find(|line| !line.starts_with("Command failed")).unwrap_or("no reason given");
    Err(Error::Refused {
        namespace: namespace.into(),
        program: program.name(),
        command: failed.into(),
        reason: reason.trim_start_matches("Error: ").into(),
    })
}

fn run(program: Program, arguments: &[&str], input: &str) -> Result<std::process::Output> {
    let what = || format!("cannot run {}", program.name());
    let mut child = Command::new(program.locate()?)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .doing(what)?;
    let mut stdin = child.stdin.take().expect("piped");
    thread::scope(|scope| {
        // A program that has failed reads no further, and that is told by its status.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().doing(what)
    })
}
