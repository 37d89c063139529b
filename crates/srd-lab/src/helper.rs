//! Processes that faults need while they last: the command srd, as one of its hidden commands. They run in the lab's management
//! namespace, so that they end with the lab.

use crate::error::{Doing, Error, Result};
use crate::iproute::Program;
use crate::namespace;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const COMMAND: &str = "srd";
/// What the process says when it does its work.
const READY: &str = "ready";

/// Starts `srd lab ARGUMENTS`, and waits until it says that it is ready.
pub(crate) fn start(management: &str, arguments: &[String]) -> Result<Pid> {
    let mut child = Command::new(Program::Ip.locate()?)
        .args(["netns", "exec", management])
        .arg(program()?)
        .arg("lab")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .doing(|| format!("cannot start srd lab {}", arguments[0]))?;
    let mut line = String::new();
    let said = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
    if said.is_ok() && line.trim() == READY {
        return Ok(Pid::from_raw(child.id() as i32));
    }
    let mut reason = String::new();
    let _ = child.stderr.take().expect("piped").read_to_string(&mut reason);
    let _ = child.kill();
    let _ = child.wait();
    Err(Error::BadFault(format!("the fault's process ended at once: {}", reason.trim())))
}

/// What such a process says.
pub(crate) fn say_ready() -> Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).doing(|| "cannot say that all is ready".into())
}

/// The command `srd`: this one, or one beside this program.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().doing(|| "the path of this program is unknown".into())?;
    if own.file_name().is_some_and(|name| name == COMMAND) {
        return Ok(own);
    }
    // Tests lie one directory below.
    let beside = own.ancestors().skip(1).take(2).map(|directory| directory.join(COMMAND));
    beside.chain([COMMAND.into()]).find_map(|command| which::which(command).ok()).ok_or_else(|| {
        Error::BadFault("this fault needs the command srd beside this program or in PATH".into())
    })
}

/// Ends the process; its devices go with it.
pub(crate) fn end(management: &str, pid: Pid) -> Result<()> {
    // Numbers of processes are used again: only what is in that namespace is ours.
    if !namespace::processes(&[management.to_owned()]).iter().any(|(_, other)| *other == pid) {
        return Ok(());
    }
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        result => result.doing(|| format!("cannot end process {pid}")),
    }
}
