//! What a rank does, step by step.

use srd_wire::Nanos;

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
    /// Goes on when at most so many of the requests begun are open.
    Wait {
        /// Requests; 0: all have come to their end.
        open: u32,
    },
    /// Computes for so long. Messages go on, as far as the layer below does without the program.
    Compute(Nanos),
    /// Notes the time.
    Mark,
}

/// All steps of a rank.
pub type Script = Vec<Step>;
