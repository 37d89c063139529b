//! Processes of programs in hosts: which there are, ending them, starting them again as they were.

use crate::error::{Doing, Error, Result};
use crate::iproute::Program;
use crate::namespace;
use crate::state;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How a process was started, so that it can be again.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Ended {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: OsString,
}

/// How long a program that is started again is watched: one that cannot run ends at once.
const FIRST_MOMENTS: Duration = Duration::from_millis(100);

/// Whether a process exists and is no zombie.
pub(crate) fn lives(pid: Pid) -> bool {
    // proc(5): pid, name in parentheses, state.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// What a process is called: the last part of its program's path.
fn name(pid: Pid) -> String {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = arguments.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = Path::new(std::ffi::OsStr::from_bytes(first));
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Ends those processes of a host that have a name or a number; at least one has.
pub(crate) fn end(namespace: &str, fault: &str, program: &str) -> Result<Vec<Ended>> {
    let all: Vec<_> =
        namespace::processes(&[namespace.to_owned()]).into_iter().map(|(_, pid)| (pid, name(pid))).collect();
    let wanted = |(pid, name): &&(Pid, String)| name == program || pid.to_string() == program;
    let found: Vec<_> = all.iter().filter(wanted).map(|(pid, _)| *pid).collect();
    if found.is_empty() {
        let there: Vec<_> = all.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
        let there = if there.is_empty() { "nothing runs there".into() } else { there.join(", ") };
        return Err(Error::BadFault(format!("{fault}: no such program runs there; processes: {there}")));
    }
    let mut ended = Vec::new();
    for pid in found {
        ended.extend(describe(pid));
        match kill(pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            result => result.doing(|| format!("cannot kill process {pid}"))?,
        }
    }
    Ok(ended)
}

/// Nothing if it has just gone.
fn describe(pid: Pid) -> Option<Ended> {
    let strings = |file: &str| -> Option<Vec<OsString>> {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        Some(bytes.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec())).collect())
    };
    let pair = |variable: OsString| {
        let bytes = variable.as_bytes();
        let split = bytes.iter().position(|byte| *byte == b'=')?;
        Some((OsString::from_vec(bytes[..split].to_vec()), OsString::from_vec(bytes[split + 1..].to_vec())))
    };
    Some(Ended {
        arguments: strings("cmdline")?,
        environment: strings("environ")?.into_iter().filter_map(pair).collect(),
        directory: fs::read_link(format!("/proc/{pid}/cwd")).ok()?.into_os_string(),
    })
}

/// Starts processes again in their host. What they say goes to a file beside the lab's notes.
pub(crate) fn start(lab: &str, namespace: &str, fault: u32, ended: &[Ended]) -> Result<()> {
    let log = state::directory(lab).join(format!("restarted-{fault}.log"));
    let what = || format!("cannot write {}", log.display());
    let open = || File::options().create(true).append(true).open(&log);
    for process in ended {
        let child = Command::new(Program::Ip.locate()?)
            .args(["netns", "exec", namespace])
            .args(&process.arguments)
            .env_clear()
            .envs(process.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&process.directory)
            .stdin(Stdio::null())
            .stdout(open().doing(what)?)
            .stderr(open().doing(what)?)
            .process_group(0)
            .spawn();
        let program = process.arguments.first().cloned().unwrap_or_default();
        let mut child = child.doing(|| format!("cannot start {} again", program.display()))?;
        let began = Instant::now();
        while began.elapsed() < FIRST_MOMENTS {
            if let Some(status) = child.try_wait().doing(what)? {
                if !status.success() {
                    let said = fs::read_to_string(&log).unwrap_or_default();
                    return Err(Error::BadFault(format!(
                        "{} was started again and ended at once ({status}): {}",
                        program.display(),
                        said.lines().last().unwrap_or("it said nothing")
                    )));
                }
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}
