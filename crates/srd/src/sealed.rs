//! A key for one job: `srd run --sealed` makes it, brings it to all that the job starts, and removes it when the job ends.
//!
//! It is brought as a file that only its owner can read, named in SRD_KEY_FILE. Not on a command line, which everybody on a
//! host can read; and not in the environment, which ends up in core dumps, in what launchers print when they are asked what
//! they do, and in every program of the job.

use crate::key;
use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpgid, getpid, getsid};
use rand::TryRngCore;
use rand::rngs::OsRng;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::{Origin, WithOrigin};
use signal_hook::low_level::siginfo::Cause;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};

const PREFIX: &str = "job-";
const SUFFIX: &str = ".key";
/// Of one that is not whole yet.
const BEGUN: &str = ".new";
/// So often another file is begun when somebody's sweep has taken one that was not locked yet for one that was left.
const MOST_BEGUN: usize = 10;
/// What launchers give to each of the processes that they start.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID"];

/// Variables that Open MPI hands on to other hosts. (MPICH and Intel MPI hand all on.)
const OPEN_MPI_LIST: &str = "OMPI_MCA_mca_base_env_list";

/// The list, if this is a launcher that may be Open MPI's: the user's own, and the key. Version 4 takes no list where it has an
/// option -x, be it in a script.
fn open_mpi_list(command: &Command) -> Option<OsString> {
    let name = Path::new(command.get_program()).file_name().and_then(OsStr::to_str).unwrap_or("");
    let is_launcher =
        ["mpirun", "mpiexec", "orterun", "prterun"].contains(&name.trim_end_matches(".openmpi"));
    if !is_launcher || command.get_args().any(|argument| argument == "-x") {
        return None;
    }
    let mut list = std::env::var_os(OPEN_MPI_LIST).unwrap_or_default();
    if !list.is_empty() {
        list.push(";");
    }
    list.push("SRD_KEY_FILE");
    Some(list)
}

/// Runs a job. Without a key in the user's environment it gets one of its own, kept in `directory`, which all hosts of the
/// job see; without one, where this user's processes on this host keep such things. Answers what the job answers.
pub fn run(mut command: Command, directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    if check_own_key()? {
        let error = command.exec();
        return Ok(cannot_run(&command, &error));
    }
    run_with_key(command, directory)
}

/// The same for a program that this process waits for in any case.
pub fn run_attended(command: Command, directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    if check_own_key()? { attend(command) } else { run_with_key(command, directory) }
}

/// Whether the user has a key already: his own choice, or that of an outer `srd run --sealed`.
fn check_own_key() -> anyhow::Result<bool> {
    let Some(file) = std::env::var_os("SRD_KEY_FILE") else { return Ok(false) };
    srd_net::key_file::check(Path::new(&file))?;
    Ok(true)
}

fn run_with_key(mut command: Command, directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    if let Some(name) = RANK_VARIABLES.iter().find(|name| std::env::var_os(name).is_some()) {
        anyhow::bail!(
            "--sealed belongs before the launcher (mpirun): this is one of its ranks ({name} is set), and each would make a \
             key of its own"
        );
    }
    let key = match directory {
        Some(directory) => JobKey::make(&std::path::absolute(directory)?)?,
        None => JobKey::make(&srd_net::stats_directory::private()?)?,
    };
    command.env("SRD_KEY_FILE", &key.path);
    if let Some(list) = open_mpi_list(&command) {
        command.env(OPEN_MPI_LIST, list);
    }
    let status = attend(command);
    drop(key);
    status
}

fn cannot_run(command: &Command, error: &io::Error) -> ExitCode {
    eprintln!("srd: cannot run {}: {error}", command.get_program().display());
    // As env(1) and the shells do, so that launchers understand it.
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Runs the command to its end, and hands it the signals that this process gets in its place.
pub fn attend(mut command: Command) -> anyhow::Result<ExitCode> {
    let ours = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let ignored = ignored_signals();
    // What is ignored, by nohup(1) for one, the command is to ignore, too: a handler would end that.
    let ours = ours.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(ours).context("cannot attend to signals")?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(cannot_run(&command, &error)),
    };
    let pid = Pid::from_raw(child.id() as i32);
    // `None` once it has ended: its number may be another process's then.
    let running = Arc::new(Mutex::new(Some(pid)));
    std::thread::spawn({
        let running = running.clone();
        move || {
            for origin in signals.forever() {
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(pid) = *running {
                    hand_on(&origin, pid);
                }
            }
        }
    });
    // It may end with an error, too: by a signal for which the library has no name.
    while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
    *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let status = child.wait()?;
    // As shells do.
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Hands a signal to the command, if that has not got it as well.
fn hand_on(origin: &Origin, command: Pid) {
    let Ok(signal) = Signal::try_from(origin.signal) else { return };
    // In vain if it has ended a moment ago.
    match origin.cause {
        // It was in the group below.
        Cause::Sent(_) if origin.process.is_some_and(|from| from.pid == getpid().as_raw()) => {}
        Cause::Sent(_) => drop(kill(command, signal)),
        // A terminal that goes tells the leader of its session alone, and the others when that ends.
        Cause::Kernel if signal == Signal::SIGHUP && getsid(None) == Ok(getpid()) => {
            if let Ok(group) = getpgid(Some(command)) {
                let _ = killpg(group, signal);
                let _ = killpg(group, Signal::SIGCONT);
            }
        }
        // What else a terminal sends, it sends to the command as well.
        _ => {}
    }
}

/// A bit for each signal that this process ignores, signal 1 lowest (proc(5)).
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// A key file that goes with this value. It is locked meanwhile, and for as long as a process of the job has the descriptor, which
/// it inherits: what is not has been left by a job that was killed.
struct JobKey {
    path: PathBuf,
    /// To drop it would unlock it for all of them.
    _lock: ManuallyDrop<Flock<File>>,
}

impl JobKey {
    fn make(directory: &Path) -> anyhow::Result<JobKey> {
        sweep(directory);
        for _ in 1..MOST_BEGUN {
            match JobKey::begin(directory)? {
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::NotFound].contains(&error.kind()) => {}
                placed => return JobKey::placed(placed, directory),
            }
        }
        JobKey::placed(JobKey::begin(directory)?, directory)
    }

    fn placed(placed: io::Result<JobKey>, directory: &Path) -> anyhow::Result<JobKey> {
        placed.with_context(|| format!("cannot keep a key in {}", directory.display()))
    }

    /// The inner error: it was made, and could not be placed.
    fn begin(directory: &Path) -> anyhow::Result<io::Result<JobKey>> {
        let number =
            OsRng.try_next_u64().map_err(anyhow::Error::msg).context("the system gives no random numbers")?;
        let path = directory.join(format!("{PREFIX}{number:016x}{SUFFIX}"));
        // It gets its name when it is locked and whole.
        let begun = path.with_extension(&BEGUN[1..]);
        let file = key::make(&begun)?;
        let placed = inherited_lock(file).and_then(|lock| fs::rename(&begun, &path).map(|()| lock));
        if placed.is_err() {
            let _ = fs::remove_file(&begun);
        }
        Ok(placed.map(|lock| JobKey { path, _lock: ManuallyDrop::new(lock) }))
    }
}

fn lock(file: File) -> Result<Flock<File>, (File, Errno)> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

/// Locks a file for this process and those that it starts.
fn inherited_lock(file: File) -> io::Result<Flock<File>> {
    let lock = lock(file).map_err(|(_, error)| error)?;
    fcntl(&*lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(lock)
}

impl Drop for JobKey {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("srd: cannot remove the job's key {}: {error}", self.path.display());
        }
    }
}

/// Removes the keys of jobs whose `srd run` was killed. What is no file is nobody's key, and is not waited for.
fn sweep(directory: &Path) {
    let ends = |name: &str| name.ends_with(SUFFIX) || name.ends_with(BEGUN);
    let is_key = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX) && ends(name));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.filter(|entry| is_key(&entry.file_name())).map(|entry| entry.path()) {
        let opened = fs::OpenOptions::new()
            .write(true) // NFS locks only what may be written
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits())
            .open(&path);
        let file = opened.ok().filter(|file| file.metadata().is_ok_and(|is| is.is_file()));
        let left = file.and_then(|file| lock(file).ok());
        if left.is_some() {
            let _ = fs::remove_file(&path); // somebody else has, if it fails
        }
    }
}
