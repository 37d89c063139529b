//! What a run is to move: flows, and what starts them. Workloads and htsim's connection matrices become this.

use crate::units::Ps;

/// A process on a host: it has a device instance of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Host number.
    pub host: u32,
    /// Number among the host's processes.
    pub process: u16,
}

/// One transfer from one process to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// Number shown to people (in a `.cm` file, its id).
    pub id: u32,
    /// Index into [`Traffic::workloads`].
    pub workload: u16,
    /// Sender.
    pub src: Place,
    /// Receiver.
    pub dst: Place,
    /// How much.
    pub size: Size,
    /// When it starts.
    pub start: Start,
    /// Indices of triggers that fire when the sender has every byte acknowledged.
    pub on_sent: Vec<u32>,
    /// Indices of triggers that fire when the receiver has every byte.
    pub on_received: Vec<u32>,
}

/// How much a flow moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So many bytes of payload, at least one.
    Bytes(u64),
    /// As much as goes until this moment.
    Until(Ps),
}

/// When a flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this moment.
    At(Ps),
    /// When the trigger with this index says so.
    Trigger(u32),
}

/// Starts flows when others have done something.
#[derive(Clone, PartialEq, Debug)]
pub struct Trigger {
    /// How firing starts flows.
    pub kind: TriggerKind,
    /// Indices of the flows that name it in [`Flow::start`], in order.
    pub flows: Vec<u32>,
}

/// See HTSIM's "Trigger line".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// The first firing starts all its flows; a second is an error.
    Oneshot,
    /// Each firing starts the next flow; further ones do nothing.
    Multishot,
    /// After so many firings all its flows start; one more is an error.
    Barrier(u32),
}

/// Everything that a run is to move.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Traffic {
    /// Names, for reports.
    pub workloads: Vec<String>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Triggers.
    pub triggers: Vec<Trigger>,
}
