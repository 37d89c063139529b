//! What is asked of a trace of flows, and the whole answer.

use crate::calls::CallReport;
use crate::flow_report::{self, Compared, FlowReport};
use crate::reading::{TraceFile, not_there};
use crate::text;
use crate::words::harmless;
use serde::Serialize;
use std::io;

/// What a trace says about some of its flows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Flows of the run.
    pub flows: u32,
    /// Those whose packets are in the trace.
    pub traced: u32,
    /// Longest unloaded round trip.
    pub base_rtt_us: f64,
    /// Lines that the trace lacks because it became too long.
    pub missing_lines: u64,
    /// The fastest flow of the trace, to compare with.
    pub fastest: Option<Compared>,
    /// Of a run of real programs, calls of MPI that took longer than is usual.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallReport>,
    /// A story for each flow asked about.
    pub stories: Vec<FlowReport>,
}

/// Which flows are asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// So many of the slowest; where a program's calls are in the trace, of those.
    Slowest(usize),
    /// Those with these numbers.
    Flows(Vec<u32>),
}

impl TraceFile {
    /// Answers for the flows asked about, the slowest first; fails if one of them is not in the trace.
    pub fn report(&self, question: &Question) -> io::Result<Report> {
        let calls = match question {
            Question::Slowest(count) => self.slowest_calls(*count),
            Question::Flows(_) => Vec::new(),
        };
        let numbers = match question {
            Question::Slowest(_) if !calls.is_empty() => Vec::new(),
            Question::Slowest(count) => self.slowest_first().into_iter().take(*count).collect(),
            Question::Flows(numbers) => numbers.clone(),
        };
        let story = |&number: &u32| {
            let flow = self.flow(number).ok_or_else(|| not_there(number, self.numbers()))?;
            Ok(flow_report::tell(self, flow))
        };
        Ok(Report {
            scenario: self.scenario.clone(),
            seed: self.seed,
            // Messages of programs are counted when they have come.
            flows: self.flows_of_run.max(self.numbers().count() as u32),
            traced: self.traced.max(self.numbers().count() as u32),
            base_rtt_us: self.base_rtt_us,
            missing_lines: self.missing_lines,
            fastest: self.fastest(),
            calls,
            stories: numbers.iter().map(story).collect::<io::Result<_>>()?,
        })
    }

    fn fastest(&self) -> Option<Compared> {
        let done = self.slowest_first().into_iter().rev().filter_map(|number| self.flow(number));
        done.filter_map(|flow| Some(Compared { flow: flow.number, total_us: flow.total_us()? })).next()
    }
}

impl Report {
    /// For a person who reads a terminal.
    pub fn text(&self) -> String {
        harmless(&text::of(self))
    }
}
