//! Why was this message late? Reads a trace and tells, for each of some flows, where its time went: before its first
//! packet, between packets, in queues, being sent again, on the way.
//!
//! `lines` reads a file line by line, `listing` prints those that somebody wants to see. `reading` makes flows, packets and
//! their copies of them, and `contexts` of what transports have decided; `story` works out what happened to a flow, `why`
//! what its transport had to do with it, `text` puts it into words. The parts of a flow's time add up to the whole: they follow the packet that was acknowledged last, which
//! is the one that it was finished with.
//!
//! Traces that a process has recorded have decisions alone. `host` tells of their messages as much as a host can know, with
//! `held` for what the window and the pace had to do with it, and `host_text` puts that into words.

mod cause;
mod contexts;
mod flow_report;
mod host;
mod host_text;
mod lines;
mod listing;
mod reading;
mod send_stalls;
mod text;

pub use cause::HeldBack;
pub use flow_report::{
    Compared, FlowReport, LastPacket, Loss, Moment, Part, PathUse, PortWaits, Resent, Sending, Verdict,
};
pub use host::{ContextReport, HostReport, MessagePart, MessageStory, Spent};
pub use lines::event_names;
pub use listing::{Form, Wanted, list};
pub use reading::TraceFile;

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
    /// A story for each flow asked about.
    pub stories: Vec<FlowReport>,
}

/// Which flows are asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// So many of the slowest.
    Slowest(usize),
    /// Those with these numbers.
    Flows(Vec<u32>),
}

impl TraceFile {
    /// Answers for the flows asked about, the slowest first; fails if one of them is not in the trace.
    pub fn report(&self, question: &Question) -> io::Result<Report> {
        let numbers = match question {
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
            flows: self.flows_of_run,
            traced: self.traced,
            base_rtt_us: self.base_rtt_us,
            missing_lines: self.missing_lines,
            fastest: self.fastest(),
            stories: numbers.iter().map(story).collect::<io::Result<_>>()?,
        })
    }

    fn fastest(&self) -> Option<Compared> {
        let done = self.slowest_first().into_iter().rev().filter_map(|number| self.flow(number));
        done.filter_map(|flow| Some(Compared { flow: flow.number, total_us: flow.total_us()? })).next()
    }
}

/// A flow is asked about that a trace does not have.
fn not_there(number: u32, there: impl Iterator<Item = u32>) -> io::Error {
    let all: Vec<String> = there.map(|number| number.to_string()).collect();
    let have = match &all[..] {
        [] => "none".to_string(),
        few if few.len() <= 12 => few.join(", "),
        many => format!("{}, ...", many[..12].join(", ")),
    };
    io::Error::new(io::ErrorKind::NotFound, format!("flow {number} is not in this trace, which has {have}"))
}

impl Report {
    /// For a person who reads a terminal.
    pub fn text(&self) -> String {
        harmless(&text::of(self))
    }
}

/// Text of a file as it may go to a terminal, which obeys control characters.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{FFFD}' } else { c }).collect()
}
