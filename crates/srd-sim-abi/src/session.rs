//! What a program has opened: a fabric, the jobs on it, and its run, as far as it has gone.

use crate::abi::Callback;
use crate::held::Held;
use libc::c_int;
use srd_baselines::units::Ps;
use srd_sim::apps::Jobs;
use srd_sim::hosts::{Envelope, Failure};
use srd_sim::input::Scenario;
use srd_sim::run::{CoSimulation, JobTotals, MemoryEstimate, Turn, available_memory, with_jobs};
use std::ffi::CString;
use std::path::Path;

/// As in `srd_sim.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Status {
    Ok = 0,
    Invalid = -1,
    File = -2,
    Busy = -3,
    NoSimulation = -4,
    Late = -5,
    Unmatched = -6,
    Failed = -7,
    Truncated = -8,
    OutOfTime = -9,
    Deadlock = -10,
    Internal = -11,
    NoMemory = -12,
}

/// What went wrong, in words.
pub type Refused = (Status, String);

fn invalid(what: impl Into<String>) -> Refused {
    (Status::Invalid, what.into())
}

/// What the program does next, as it has the turn.
pub enum Next {
    /// It is called back, with a status and perhaps a reason.
    Call(Callback, Status, Option<String>),
    /// It goes on with what it did.
    Return,
}

enum Stage {
    /// Jobs may come: the hosts of each one's ranks, and its transport.
    Jobs(Box<Scenario>, Vec<(Vec<u32>, u16)>),
    Begun(Box<Held>),
    /// Something of it panicked, or it could not begin.
    Broken(String),
}

/// See the module.
pub struct Session {
    stage: Stage,
    /// Whom to call back, by number, and numbers that are free.
    callbacks: Vec<Option<Callback>>,
    free: Vec<usize>,
    running: bool,
    /// What does not fit into the memory that is free is refused.
    checks_memory: bool,
    statistics: CString,
}

/// The set that is the library's own, and none of the file's keys.
const MEMORY_CHECK: &str = "memory_check";

impl Session {
    /// Reads a fabric file. Also what a person should know of it.
    pub fn open(file: &Path, sets: &[String]) -> Result<(Session, String), Refused> {
        let mut checks_memory = true;
        let mut of_file = Vec::new();
        for set in sets {
            match set.strip_prefix(MEMORY_CHECK).and_then(|rest| rest.strip_prefix('=')) {
                Some("true") => checks_memory = true,
                Some("false") => checks_memory = false,
                Some(other) => {
                    return Err(invalid(format!("{MEMORY_CHECK}={other}: it is true or false")));
                }
                None => of_file.push(set.clone()),
            }
        }
        let scenario = Scenario::load_for_processes(file, &of_file, Vec::new())
            .map_err(|error| (Status::File, error.to_string()))?;
        check_memory(checks_memory, &scenario, 0)?;
        let notes = scenario.notes.join("\n");
        let stage = Stage::Jobs(Box::new(scenario), Vec::new());
        let (callbacks, free, statistics) = (Vec::new(), Vec::new(), CString::default());
        Ok((Session { stage, callbacks, free, running: false, checks_memory, statistics }, notes))
    }

    /// Hosts of the fabric.
    pub fn hosts(&mut self) -> Result<u32, Refused> {
        match &mut self.stage {
            Stage::Jobs(scenario, _) => Ok(scenario.topology.hosts),
            Stage::Begun(held) => Ok(held.simulation().hosts()),
            Stage::Broken(why) => Err((Status::Internal, why.clone())),
        }
    }

    /// A job with a rank on each of these hosts. Its number.
    pub fn add_job(&mut self, transport: Option<&str>, hosts: &[u32]) -> Result<u32, Refused> {
        let (scenario, jobs) = match &mut self.stage {
            Stage::Jobs(scenario, jobs) => (scenario, jobs),
            Stage::Begun(_) => {
                let message = "the simulation has begun: add all jobs before anything is sent, received, scheduled or run";
                return Err((Status::Late, message.into()));
            }
            Stage::Broken(why) => return Err((Status::Internal, why.clone())),
        };
        if hosts.is_empty() {
            return Err(invalid("a job has at least one rank"));
        }
        let there = scenario.topology.hosts;
        if let Some((rank, host)) = hosts.iter().enumerate().find(|(_, host)| **host >= there) {
            return Err(invalid(format!(
                "rank {rank}: there is no host {host}, the fabric has {there} from 0 on"
            )));
        }
        let transports = &scenario.settings.transports;
        let named = |name: &str| transports.iter().position(|transport| transport.name == name);
        let transport = match transport {
            None => 0,
            Some(name) => named(name).ok_or_else(|| {
                let names: Vec<&str> = transports.iter().map(|transport| transport.name.as_str()).collect();
                invalid(format!("no transport of the file is called `{name}`: there is {}", names.join(", ")))
            })?,
        };
        let ranks = jobs.iter().map(|(hosts, _)| hosts.len()).sum::<usize>() + hosts.len();
        check_memory(self.checks_memory, scenario, ranks)?;
        jobs.push((hosts.to_vec(), transport as u16));
        Ok(jobs.len() as u32 - 1)
    }

    /// The simulation, which begins when it is first needed.
    fn begun(&mut self) -> Result<&mut CoSimulation<'_>, Refused> {
        if let Stage::Jobs(scenario, jobs) = &mut self.stage {
            if jobs.is_empty() {
                let hosts = scenario.topology.hosts;
                check_memory(self.checks_memory, scenario, hosts as usize)?;
                jobs.push(((0..hosts).collect(), 0));
            }
            let broken = Stage::Broken("the simulation could not begin: close it".into());
            let Stage::Jobs(scenario, jobs) = std::mem::replace(&mut self.stage, broken) else {
                unreachable!("it was seen to be that");
            };
            let ranks = Jobs::of(jobs.iter().map(|(hosts, _)| hosts.len() as u32).collect());
            let scenario = with_jobs(*scenario, &jobs).map_err(invalid)?;
            self.stage = Stage::Begun(Box::new(Held::new(scenario, ranks)));
        }
        match &mut self.stage {
            Stage::Begun(held) => Ok(held.simulation()),
            Stage::Broken(why) => Err((Status::Internal, why.clone())),
            Stage::Jobs(..) => unreachable!("it has begun"),
        }
    }

    fn keep(&mut self, callback: Callback) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.callbacks.push(None);
            self.callbacks.len() - 1
        });
        self.callbacks[number] = Some(callback);
        number as u64
    }

    fn take(&mut self, number: u64) -> Callback {
        self.free.push(number as usize);
        self.callbacks[number as usize].take().expect("each request ends once")
    }

    fn envelope(&mut self, job: u32, from: u32, to: u32, tag: u64) -> Result<Envelope, Refused> {
        self.begun()?.envelope(job as usize, from, to, tag).map_err(invalid)
    }

    /// Sends a message.
    pub fn send(
        &mut self,
        (job, from, to, tag): (u32, u32, u32, u64),
        bytes: i64,
        callback: Callback,
    ) -> Result<(), Refused> {
        let bytes = size(bytes)?;
        let envelope = self.envelope(job, from, to, tag)?;
        let request = self.keep(callback);
        let sent = self.begun()?.send(envelope, bytes, request);
        sent.map_err(|why| {
            self.take(request);
            invalid(why)
        })
    }

    /// Receives one.
    pub fn recv(
        &mut self,
        (job, from, to, tag): (u32, u32, u32, u64),
        bytes: i64,
        callback: Callback,
    ) -> Result<(), Refused> {
        let room = size(bytes)?;
        let envelope = self.envelope(job, from, to, tag)?;
        let request = self.keep(callback);
        self.begun()?.recv(envelope, room, request);
        Ok(())
    }

    /// Calls back after that time.
    pub fn schedule(&mut self, delay_ns: u64, callback: Callback) -> Result<(), Refused> {
        self.begun()?;
        let alarm = self.keep(callback);
        self.begun()?.schedule(Ps(delay_ns.saturating_mul(1000)), alarm);
        Ok(())
    }

    /// The present, in nanoseconds.
    pub fn now(&mut self) -> Result<u64, Refused> {
        Ok(self.begun()?.now().0 / 1000)
    }

    /// It runs from now on, or does not any more.
    pub fn set_running(&mut self, running: bool) -> Result<(), Refused> {
        if running && self.running {
            return Err((
                Status::Busy,
                "it runs: a callback sends, receives or schedules, and returns".into(),
            ));
        }
        self.running = running;
        Ok(())
    }

    /// Whether it may be closed.
    pub fn check_idle(&self) -> Result<(), Refused> {
        match self.running {
            true => Err((Status::Busy, "it runs: close it when srd_sim_run has returned".into())),
            false => Ok(()),
        }
    }

    /// Goes on to what the program has to do.
    pub fn next(&mut self, until: Ps) -> Result<Next, Refused> {
        let turn = self.begun()?.next(until);
        Ok(match turn {
            Turn::Alarm(alarm) => Next::Call(self.take(alarm), Status::Ok, None),
            Turn::Ended(ending) => {
                let callback = self.take(ending.request);
                let Envelope { from, to, tag } = ending.envelope;
                let name = |failure: String| {
                    format!("a message with tag {tag} from rank {from} of all to rank {to}: {failure}")
                };
                match ending.bytes {
                    Ok(_) => Next::Call(callback, Status::Ok, None),
                    Err(Failure::Truncated) => {
                        let why = name("it has more bytes than its receive".into());
                        Next::Call(callback, Status::Truncated, Some(why))
                    }
                    Err(Failure::GivenUp(why)) => Next::Call(
                        callback,
                        Status::Failed,
                        Some(name(format!("the transport gives up, {why}"))),
                    ),
                }
            }
            Turn::Until => Next::Return,
            Turn::Nothing => match self.begun()?.unmatched() {
                Some(unmatched) => return Err((Status::Unmatched, unmatched)),
                None => Next::Return,
            },
            Turn::OutOfTime => {
                let message = "the file's `end_us` has come: write a larger one, or none";
                return Err((Status::OutOfTime, message.into()));
            }
            Turn::Deadlock => {
                let message = "ports wait for each other for ever (a deadlock of pauses): `pfc_watchdog_us` or more memory help";
                return Err((Status::Deadlock, message.into()));
            }
        })
    }

    /// What a job's messages have come to.
    pub fn totals(&mut self, job: u32) -> Result<JobTotals, Refused> {
        let totals = self.begun()?.totals(job as usize);
        totals.ok_or_else(|| invalid(format!("there is no job {job}")))
    }

    /// What the run has come to, as JSON.
    pub fn statistics(&mut self) -> Result<&CString, Refused> {
        let outcome = self.begun()?.outcome();
        let text = serde_json::to_string(&outcome).map_err(|error| (Status::Internal, error.to_string()))?;
        self.statistics = CString::new(text).map_err(|error| (Status::Internal, error.to_string()))?;
        Ok(&self.statistics)
    }

    /// Something of it has panicked.
    pub fn breaks(&mut self) {
        self.running = false;
        self.stage = Stage::Broken("an earlier call failed inside the simulator: close it".into());
    }
}

/// Refuses what does not fit into the memory that is free: the fabric, its own traffic, and so many ranks.
fn check_memory(checks: bool, scenario: &Scenario, ranks: usize) -> Result<(), Refused> {
    let Some(available) = available_memory().filter(|_| checks) else { return Ok(()) };
    let estimate = MemoryEstimate::of(scenario).and_ranks(ranks as u64);
    if estimate.bytes() <= available {
        return Ok(());
    }
    let message = estimate.refusal(available);
    Err((Status::NoMemory, format!("{message}. The set {MEMORY_CHECK}=false goes on all the same")))
}

fn size(bytes: i64) -> Result<u64, Refused> {
    u64::try_from(bytes).map_err(|_| invalid(format!("{bytes} bytes: a message has 0 or more")))
}

impl From<Status> for c_int {
    fn from(status: Status) -> c_int {
        status as c_int
    }
}
