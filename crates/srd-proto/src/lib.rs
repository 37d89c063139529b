//! The transport of Scalable Reliable Datagram as a deterministic state machine.
//!
//! No sockets, no clock, no threads and no randomness of its own: time, packets and a seed come in as arguments;
//! packets, outcomes and the next deadline come out. The same code runs over UDP (`srd-net`), in the simulator and
//! in deterministic tests, and a failing run replays from its seed.
//!
//! An [`Endpoint`] is one device instance. It holds a context for each peer instance it talks to; messages go in
//! through [`Endpoint::send`], come out through [`UpperLayer`], and complete in any order.
#![forbid(unsafe_code)]

mod acks_received;
mod active_senders;
mod arrivals;
mod burst;
mod config;
pub mod congestion_control;
mod delivery;
mod endpoint;
#[cfg(feature = "serde")]
mod event_line;
mod events;
mod hello;
mod identity;
mod kinds;
mod liveness;
mod loss;
mod messages;
mod pacing;
mod path_mtu;
pub mod path_selector;
mod paths;
mod peer;
mod psn_bits;
mod reassembly;
mod receiving;
mod reordering;
mod replies;
mod rtt;
mod sending;
mod sent;
mod shared;
mod standing;
mod stats;
mod timer_wheel;
mod train;
mod upper_layer;

pub use config::*;
pub use congestion_control::ControllerKind;
pub use endpoint::*;
#[cfg(feature = "serde")]
pub use event_line::EventLine;
pub use events::{EVENTS, Event, EventSchema, FieldSchema, LossCause, Tracer, Value, events_markdown};
pub use path_selector::SelectorKind;
pub use paths::{PathReport, PathState};
pub use stats::*;
pub use upper_layer::*;
