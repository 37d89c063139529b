//! What an experiment's file says.

use super::job::{Collective, Job, Program};
use crate::error::{Result, bad};
use crate::fault::Fault;
use crate::flow::protocol;
use crate::plan::Plan;
use crate::shape::Shape;
use rand::Rng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Longest that the flows of a case may take, in seconds.
pub(super) const LONGEST_S: f64 = 600.0;

/// An experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What it asks, in a sentence or two.
    pub about: String,
    /// How often each case is run with each transport.
    #[serde(default = "five")]
    pub repeats: u32,
    /// Where random choices begin.
    #[serde(default = "one")]
    pub seed: u64,
    /// Runs in which the processors were busy for a larger share of the time, in percent, count for nothing.
    #[serde(default = "seventy")]
    pub most_cpu_percent: f64,
    /// Transports, by name, each run in turn.
    pub transports: Vec<String>,
    /// The fabric.
    #[serde(default)]
    pub fabric: Shape,
    /// What is tried.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
    /// Where the experiment's file lies: paths in it begin there.
    #[serde(skip)]
    pub directory: PathBuf,
}

fn one() -> u64 {
    1
}

fn five() -> u32 {
    5
}

fn seventy() -> f64 {
    70.0
}

/// A case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Another depth of queues than the experiment's fabric has, in bytes.
    #[serde(default)]
    pub buffer_bytes: Option<u32>,
    /// Who sends what to whom.
    pub traffic: Traffic,
    /// What goes wrong meanwhile.
    #[serde(default, rename = "fault")]
    pub faults: Vec<TimedFault>,
    /// Whether hosts' names stand for other hosts, drawn by the seed: the job is somewhere else in each repeat.
    #[serde(default)]
    pub random_hosts: bool,
    /// Other flows at the same time.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// What all flows together could have at most, in Mbit/s of payload, if that is not what their hosts' links carry.
    #[serde(default)]
    pub possible_mbps: Option<f64>,
    /// What SRD is to reach, by the name of a figure.
    #[serde(default)]
    pub wanted: BTreeMap<String, Bound>,
}

/// What a figure is to be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Not below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Not above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

impl Bound {
    /// Whether it is.
    pub fn holds(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least) && self.at_most.is_none_or(|most| value <= most)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => write!(out, "{least} to {most}"),
            (Some(least), None) => write!(out, "at least {least}"),
            (None, Some(most)) => write!(out, "at most {most}"),
            (None, None) => write!(out, "anything"),
        }
    }
}

impl Case {
    /// Which host stands for which: by its number, the number of the one that takes its place.
    pub fn places(&self, plan: &Plan, random: &mut impl Rng) -> Vec<usize> {
        let mut places: Vec<usize> = (0..plan.hosts()).collect();
        if self.random_hosts {
            places.shuffle(random);
        }
        places
    }
}

/// Who sends what to whom.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// Many flows to one host, from others in turn.
    Incast {
        /// Flows.
        flows: u32,
        /// Hosts that send, as in `host4`.
        from: Vec<String>,
        /// The host that receives.
        to: String,
        /// Bytes of each.
        #[serde(default)]
        bytes: Option<u64>,
        /// Or so long, in seconds.
        #[serde(default)]
        seconds: Option<f64>,
        /// One flow begins so long after the other, in milliseconds.
        #[serde(default)]
        every_ms: u32,
    },
    /// These pairs, as in `host0->host8`.
    Pairs {
        /// Pairs.
        pairs: Vec<String>,
        /// What each flow has to send, in Mbit/s of payload, if that is not as much as goes.
        #[serde(default)]
        mbps: Option<f64>,
        /// Bytes of each.
        #[serde(default)]
        bytes: Option<u64>,
        /// Or so long, in seconds.
        #[serde(default)]
        seconds: Option<f64>,
        /// One flow begins so long after the other, in milliseconds.
        #[serde(default)]
        every_ms: u32,
    },
    /// From each of these hosts to each.
    AllToAll {
        /// Hosts.
        hosts: Vec<String>,
        /// Bytes of each flow.
        #[serde(default)]
        bytes: Option<u64>,
        /// Or so long, in seconds.
        #[serde(default)]
        seconds: Option<f64>,
        /// One flow begins so long after the other, in milliseconds.
        #[serde(default)]
        every_ms: u32,
    },
    /// A collective operation of MPI, again and again.
    Collective(Collective),
    /// An MPI program from its beginning to its end.
    Program(Program),
}

impl Traffic {
    /// The MPI job, if it is one.
    pub fn job(&self) -> Option<Job<'_>> {
        match self {
            Traffic::Collective(job) => Some(Job::Collective(job)),
            Traffic::Program(job) => Some(Job::Program(job)),
            _ => None,
        }
    }

    /// How much each flow moves.
    pub fn amount(&self) -> Result<protocol::Amount> {
        let (Traffic::Incast { bytes, seconds, .. }
        | Traffic::Pairs { bytes, seconds, .. }
        | Traffic::AllToAll { bytes, seconds, .. }) = self
        else {
            return Err(bad("an MPI job is what is measured; what goes on beside it are flows".into()));
        };
        match (bytes, seconds) {
            (Some(bytes @ 1..), None) => Ok(protocol::Amount::Bytes(*bytes)),
            (None, Some(seconds)) if (0.01..=LONGEST_S).contains(seconds) => {
                Ok(protocol::Amount::ForNs((seconds * 1e9) as u64))
            }
            (None, Some(seconds)) => Err(bad(format!("{seconds} seconds of traffic: 0.01 to {LONGEST_S}"))),
            _ => Err(bad("traffic has either `bytes` of each flow, at least 1, or `seconds`".into())),
        }
    }

    /// What each flow has to send, in bits per second.
    pub fn offered_bps(&self) -> Result<u64> {
        match self {
            Traffic::Pairs { mbps: Some(mbps), .. } if !(0.01..=1e6).contains(mbps) => {
                Err(bad(format!("flows of {mbps} Mbit/s: 0.01 to 1000000")))
            }
            Traffic::Pairs { mbps: Some(_), seconds: None, .. } => {
                Err(bad("`mbps` is for flows that have `seconds`".into()))
            }
            Traffic::Pairs { mbps: Some(mbps), .. } => Ok((mbps * 1e6) as u64),
            _ => Ok(protocol::ALL),
        }
    }

    /// How long after one flow the next begins.
    pub fn every_ns(&self) -> Result<u64> {
        let (Traffic::Incast { bytes, every_ms, .. }
        | Traffic::Pairs { bytes, every_ms, .. }
        | Traffic::AllToAll { bytes, every_ms, .. }) = self
        else {
            return Ok(0);
        };
        match (bytes, every_ms) {
            (Some(_), 1..) => Err(bad("`every_ms` is for flows that have `seconds`".into())),
            _ => Ok(u64::from(*every_ms) * 1_000_000),
        }
    }
}

/// A fault and its time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimedFault {
    /// From the start, in milliseconds.
    pub at_ms: u64,
    /// When it ends.
    pub heal_ms: u64,
    /// What.
    #[serde(flatten)]
    pub fault: Fault,
}

/// Other flows at the same time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// What moves them, by name; `same`: what moves the traffic that is measured.
    pub transport: String,
    /// What they are.
    pub traffic: Traffic,
}

impl Beside {
    /// What moves them, beside traffic over `other`.
    pub fn transport(&self, other: &str) -> Result<protocol::Transport> {
        match self.transport.as_str() {
            // The same protocol, under another interface.
            "same" if other == "efa" => transport("srd"),
            "same" => transport(other),
            name => transport(name),
        }
    }
}

/// What a transport's name stands for: `srd`, `tcp-cubic` and others of the kernel's, with `+ecn` if it asks for marks.
pub fn transport(name: &str) -> Result<protocol::Transport> {
    let (base, ecn) = match name.strip_suffix("+ecn") {
        Some(base) => (base, true),
        None => (name, false),
    };
    match base.strip_prefix("tcp-") {
        Some(congestion) if !congestion.is_empty() => {
            Ok(protocol::Transport::Tcp { congestion: congestion.into(), ecn })
        }
        _ if name == "srd" => Ok(protocol::Transport::Srd),
        _ => {
            let known = "`srd`, or `tcp-` and the kernel's name of a congestion control, as in `tcp-cubic`; `tcp-cubic+ecn` \
                         asks for marks; for MPI jobs also `efa`";
            Err(bad(format!("no transport is called {name:?}: {known}")))
        }
    }
}

impl Experiment {
    /// The fabric of a case; with `marks`, routers mark.
    pub fn shape(&self, case: &Case, marks: bool) -> Shape {
        let buffer_bytes = case.buffer_bytes.unwrap_or(self.fabric.buffer_bytes);
        // A fifth of the queue: 30 KB of 150, as measured with the kernel's DCTCP-like marking in docs/LAB.md.
        let ecn_bytes = self.fabric.ecn_bytes.or(marks.then_some(buffer_bytes / 5));
        Shape { buffer_bytes, ecn_bytes, ..self.fabric.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    const HEAD: &str = "name = \"x\"\nabout = \"x\"\ntransports = [\"efa\", \"tcp-reno\"]\n[[case]]\nname = \"a\"\nrandom_hosts = true\n\
                        traffic = { kind = \"collective\", operation = \"all-to-all\", bytes = 64, seconds = 1, \
                        hosts = [\"h0\", \"h1\"] }\n";

    #[test]
    fn an_mpi_job_and_what_is_beside_it_have_the_same_carrier() {
        let beside = "beside = { transport = \"same\", traffic = { kind = \"all-to-all\", hosts = [\"h2\", \"h3\"], seconds = 2 } }\n";
        let experiment = Experiment::from_toml(&format!("{HEAD}{beside}")).unwrap();
        let beside = experiment.cases[0].beside.as_ref().unwrap();
        assert_eq!(beside.transport("efa").unwrap(), protocol::Transport::Srd);
        let reno = protocol::Transport::Tcp { congestion: "reno".into(), ecn: false };
        assert_eq!(beside.transport("tcp-reno").unwrap(), reno);
        // Flows know nothing of libfabric.
        let flows =
            "[[case]]\nname = \"b\"\ntraffic = { kind = \"pairs\", pairs = [\"h0->h1\"], seconds = 1 }\n";
        let error = Experiment::from_toml(&format!("{HEAD}{flows}")).unwrap_err().to_string();
        assert!(error.contains("for MPI jobs also `efa`"), "{error}");
    }

    #[test]
    fn each_host_takes_the_place_of_one_other() {
        let experiment = Experiment::from_toml(HEAD).unwrap();
        let plan = Plan::new(&experiment.fabric).unwrap();
        let places = |seed| experiment.cases[0].places(&plan, &mut SmallRng::seed_from_u64(seed));
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
        let mut all = places(1);
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
    }
}
