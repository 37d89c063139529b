//! What an experiment's file says.

use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::flow::order;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

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
    /// Other flows at the same time, always of the same transport.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// What all flows together could have at most, in Mbit/s of payload, if that is not what their hosts' links carry.
    #[serde(default)]
    pub possible_mbps: Option<f64>,
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
    },
    /// These pairs, as in `host0->host8`.
    Pairs {
        /// Pairs.
        pairs: Vec<String>,
        /// Bytes of each.
        #[serde(default)]
        bytes: Option<u64>,
        /// Or so long, in seconds.
        #[serde(default)]
        seconds: Option<f64>,
    },
}

impl Traffic {
    /// How much each flow moves.
    pub fn amount(&self) -> Result<order::Amount> {
        let (Traffic::Incast { bytes, seconds, .. } | Traffic::Pairs { bytes, seconds, .. }) = self;
        match (bytes, seconds) {
            (Some(bytes @ 1..), None) => Ok(order::Amount::Bytes(*bytes)),
            (None, Some(seconds)) if (0.01..=600.0).contains(seconds) => {
                Ok(order::Amount::ForNs((seconds * 1e9) as u64))
            }
            (None, Some(seconds)) => Err(bad(format!("{seconds} seconds of traffic: 0.01 to 600"))),
            _ => Err(bad("traffic has either `bytes` of each flow, at least 1, or `seconds`".into())),
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
    /// What moves them, by name.
    pub transport: String,
    /// What they are.
    pub traffic: Traffic,
}

/// What a transport's name stands for: `srd`, `tcp-cubic` and others of the kernel's, with `+ecn` if it asks for marks.
pub fn transport(name: &str) -> Result<order::Transport> {
    let (base, ecn) = match name.strip_suffix("+ecn") {
        Some(base) => (base, true),
        None => (name, false),
    };
    match base.strip_prefix("tcp-") {
        Some(congestion) if !congestion.is_empty() => {
            Ok(order::Transport::Tcp { congestion: congestion.into(), ecn })
        }
        _ if name == "srd" => Ok(order::Transport::Srd),
        _ => {
            let known = "`srd`, or `tcp-` and the kernel's name of a congestion control, as in `tcp-cubic`; `tcp-cubic+ecn` \
                         asks for marks";
            Err(bad(format!("no transport is called {name:?}: {known}")))
        }
    }
}

pub(crate) fn bad(what: String) -> Error {
    Error::BadExperiment(what)
}

impl Experiment {
    /// Reads an experiment. An error names the line.
    pub fn from_toml(text: &str) -> Result<Experiment> {
        let experiment: Experiment = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<()> {
        if self.cases.is_empty() || self.transports.is_empty() || self.repeats == 0 {
            return Err(bad("an experiment has at least one case, one transport and one repeat".into()));
        }
        if !(1.0..=100.0).contains(&self.most_cpu_percent) {
            return Err(bad(format!("most_cpu_percent = {}: 1 to 100", self.most_cpu_percent)));
        }
        for name in self
            .transports
            .iter()
            .chain(self.cases.iter().filter_map(|case| case.beside.as_ref().map(|beside| &beside.transport)))
        {
            transport(name)?;
        }
        self.shape(&self.cases[0], false).check()?;
        let plan = crate::plan::Plan::new(&self.fabric)?;
        for case in &self.cases {
            super::traffic::flows(&case.traffic, &plan)?;
            if let Some(beside) = &case.beside {
                super::traffic::flows(&beside.traffic, &plan)?;
            }
            for timed in &case.faults {
                if timed.heal_ms <= timed.at_ms {
                    return Err(bad(format!("case {:?}: a fault ends before it begins", case.name)));
                }
                timed.fault.check(&plan)?;
            }
        }
        Ok(())
    }

    /// The fabric of a case; with `marks`, routers mark.
    pub fn shape(&self, case: &Case, marks: bool) -> Shape {
        let buffer_bytes = case.buffer_bytes.unwrap_or(self.fabric.buffer_bytes);
        // A fifth of the queue: 30 KB of 150, as measured with the kernel's DCTCP-like marking in LAB.md.
        let ecn_bytes = self.fabric.ecn_bytes.or(marks.then_some(buffer_bytes / 5));
        Shape { buffer_bytes, ecn_bytes, ..self.fabric.clone() }
    }
}
