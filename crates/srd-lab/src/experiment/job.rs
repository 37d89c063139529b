//! What an experiment's file says of MPI jobs.

use super::plan::transport;
use crate::error::{Result, bad};
use crate::mpi::{Mpi, Transport};
use crate::plan::Plan;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A collective operation of MPI, again and again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collective {
    /// Which one.
    pub operation: Operation,
    /// Of a rank's vector (all-reduce), or from each rank to each (all-to-all).
    pub bytes: u32,
    /// How long it is measured, each time.
    pub seconds: f64,
    /// Hosts of the job.
    pub hosts: Vec<String>,
    /// Ranks in all; without it one in each host.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// Which MPI.
    #[serde(default)]
    pub mpi: Mpi,
    /// Where it is, with bin/ and lib/, if that is not where `make setup` puts it.
    #[serde(default)]
    pub prefix: Option<PathBuf>,
}

/// A collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Everyone gets the sum.
    AllReduce,
    /// Everyone gets something from everyone.
    AllToAll,
}

impl Operation {
    /// As the measuring program knows it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::AllToAll => "all-to-all",
        }
    }
}

/// An MPI program from its beginning to its end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Files that it finds in its directory, by their paths from the experiment's file.
    #[serde(default)]
    pub inputs: Vec<PathBuf>,
    /// A file of its directory that is read as if printed at the end.
    #[serde(default)]
    pub results: Option<PathBuf>,
    /// A regular expression: the time runs from the first line that matches, instead of from the launcher's start.
    #[serde(default)]
    pub begins: Option<String>,
    /// Regular expressions, each of which some line of the output must match.
    #[serde(default)]
    pub expect: Vec<String>,
    /// A regular expression: the lines that match must be the same in every run, over every transport.
    #[serde(default)]
    pub same: Option<String>,
    /// The longest it may take, in seconds.
    #[serde(default = "five_minutes")]
    pub limit_s: f64,
    /// Hosts of the job.
    pub hosts: Vec<String>,
    /// Ranks in all; without it one in each host.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// Which MPI.
    #[serde(default)]
    pub mpi: Mpi,
    /// Where it is, with bin/ and lib/, if that is not where `make setup` puts it.
    #[serde(default)]
    pub prefix: Option<PathBuf>,
}

fn five_minutes() -> f64 {
    300.0
}

/// An MPI job.
#[derive(Clone, Copy, Debug)]
pub enum Job<'a> {
    /// An operation, again and again.
    Collective(&'a Collective),
    /// A program from its beginning to its end.
    Program(&'a Program),
}

impl<'a> Job<'a> {
    /// Which MPI.
    pub fn mpi(self) -> Mpi {
        match self {
            Job::Collective(job) => job.mpi,
            Job::Program(job) => job.mpi,
        }
    }

    /// Where that is, if the file says so.
    pub fn prefix(self) -> Option<&'a PathBuf> {
        match self {
            Job::Collective(job) => job.prefix.as_ref(),
            Job::Program(job) => job.prefix.as_ref(),
        }
    }

    /// Its hosts, by their numbers.
    pub fn hosts(self, plan: &Plan) -> Result<Vec<usize>> {
        let names = match self {
            Job::Collective(job) => &job.hosts,
            Job::Program(job) => &job.hosts,
        };
        names.iter().map(|name| plan.host(name)).collect()
    }

    /// Its ranks.
    pub fn ranks(self) -> usize {
        let (ranks, hosts) = match self {
            Job::Collective(job) => (job.ranks, job.hosts.len()),
            Job::Program(job) => (job.ranks, job.hosts.len()),
        };
        ranks.map_or(hosts, |ranks| ranks as usize)
    }

    /// Refuses what cannot be run. `beside` are the hosts of other traffic.
    pub fn check(self, plan: &Plan, beside: &[usize]) -> Result<()> {
        let hosts = self.hosts(plan)?;
        let mut sorted = hosts.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < hosts.len() || hosts.len() < 2 {
            return Err(bad(
                "an MPI job has two hosts or more, each named once; `ranks` says how many ranks".into(),
            ));
        }
        if !(hosts.len()..=1000).contains(&self.ranks()) {
            let (ranks, hosts) = (self.ranks(), hosts.len());
            return Err(bad(format!("ranks = {ranks} in {hosts} hosts: at least one in each, at most 1000")));
        }
        if let Some(host) = hosts.iter().find(|host| beside.contains(host)) {
            let name = &plan.nodes[*host].name;
            return Err(bad(format!(
                "{name} belongs to the MPI job and to the flows beside it: a host has one job"
            )));
        }
        match self {
            Job::Collective(job) => job.check(),
            Job::Program(job) => job.check(),
        }
    }
}

/// The greatest vector: what takes seconds at the lab's rates.
const MOST_BYTES: u32 = 16 << 20;

impl Collective {
    fn check(&self) -> Result<()> {
        if !(8..=MOST_BYTES).contains(&self.bytes) || !self.bytes.is_multiple_of(8) {
            return Err(bad(format!("bytes = {}: a multiple of 8, at most {MOST_BYTES}", self.bytes)));
        }
        if !(0.1..=600.0).contains(&self.seconds) {
            return Err(bad(format!("{} seconds of a collective operation: 0.1 to 600", self.seconds)));
        }
        Ok(())
    }
}

impl Program {
    fn check(&self) -> Result<()> {
        if self.program.is_empty() {
            return Err(bad(
                "`program` names a program, and perhaps arguments: [\"lmp\", \"-in\", \"melt.lmp\"]".into(),
            ));
        }
        if !(1.0..=86_400.0).contains(&self.limit_s) {
            return Err(bad(format!("limit_s = {}: 1 to 86400", self.limit_s)));
        }
        for pattern in self.begins.iter().chain(&self.expect).chain(&self.same) {
            expression(pattern)?;
        }
        Ok(())
    }
}

/// A regular expression of the file.
pub fn expression(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| bad(format!("{pattern:?} is no regular expression: {error}")))
}

/// What a transport's name stands for with MPI, and the congestion control of the kernel's TCP.
pub fn carrier(name: &str) -> Result<(Transport, Option<String>)> {
    use crate::flow::protocol::Transport as Flows;
    Ok(match name {
        "efa" => (Transport::Efa, None),
        _ => match transport(name)? {
            Flows::Srd => (Transport::Srd, None),
            Flows::Tcp { congestion, .. } => (Transport::Tcp, Some(congestion)),
        },
    })
}
