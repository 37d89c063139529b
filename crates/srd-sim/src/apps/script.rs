//! What a rank does: step by step, or as a graph of operations that depend on each other.

use crate::apps::graph::Graph;
use srd_wire::Nanos;
use std::sync::Arc;

/// A step of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begins to send.
    Send {
        /// Rank.
        to: u32,
        /// Tag.
        tag: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Begins to receive.
    Recv {
        /// Rank.
        from: u32,
        /// Tag.
        tag: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Begins to write into another rank's memory; that rank's script takes no part.
    Put {
        /// Rank.
        to: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Begins to read from another rank's memory; that rank's script takes no part.
    Get {
        /// Rank.
        from: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Goes on when at most so many of the requests begun are open.
    Wait {
        /// Requests; 0: all have come to their end.
        open: u32,
    },
    /// Computes for so long. Messages go on, as far as the layer below does without the program.
    Compute(Nanos),
    /// Notes the time.
    Mark,
    /// Takes the steps before this one so many times more. They may have repetitions in them.
    Repeat {
        /// How many steps.
        steps: u32,
        /// How often, beside the time that has been.
        times: u32,
    },
}

impl Step {
    /// The same among ranks whose numbers are greater by so many.
    fn moved(self, by: u32) -> Step {
        match self {
            Step::Send { to, tag, bytes } => Step::Send { to: to + by, tag, bytes },
            Step::Recv { from, tag, bytes } => Step::Recv { from: from + by, tag, bytes },
            Step::Put { to, bytes } => Step::Put { to: to + by, bytes },
            Step::Get { from, bytes } => Step::Get { from: from + by, bytes },
            Step::Wait { .. } | Step::Compute(_) | Step::Mark | Step::Repeat { .. } => self,
        }
    }
}

/// All that a rank does. A clone shares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Script {
    /// One step behind the other.
    Steps(Arc<[Step]>),
    /// Operations as soon as those are done that they depend on.
    Graph(Arc<Graph>),
}

impl Script {
    /// The same among ranks whose numbers are greater by so many.
    pub fn moved(&self, by: u32) -> Script {
        match self {
            _ if by == 0 => self.clone(),
            Script::Steps(steps) => steps.iter().map(|step| step.moved(by)).collect(),
            Script::Graph(graph) => Script::Graph(Arc::new(graph.moved(by))),
        }
    }
}

impl Default for Script {
    /// Nothing.
    fn default() -> Script {
        Script::Steps(Arc::default())
    }
}

impl From<Vec<Step>> for Script {
    fn from(steps: Vec<Step>) -> Script {
        Script::Steps(steps.into())
    }
}

impl FromIterator<Step> for Script {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Script {
        Script::Steps(steps.into_iter().collect())
    }
}
