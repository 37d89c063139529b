//! The network: what it is made of (`topology`), and what becomes of frames in it (`fabric`).
//!
//! `settings` is how switches queue and route, and what befalls cables; `frame` what is on the way. What happens next is in
//! `event_queue`: all kinds of `event`, those of hosts too. `rng` has the random numbers of everybody, a sequence for each.

mod event;
mod event_queue;
mod fabric;
mod frame;
pub(crate) mod rng;
mod settings;
pub mod topology;

pub use event::Event;
pub use event_queue::{EventQueue, Scheduled, Spans};
pub use fabric::{Arrival, Deadlock, Fabric, Gone, PauseCounters, PortCounters, Sight, Watcher};
pub use frame::{Content, DataPacket, ETHERNET_HEADER, FrameHead, FrameId, FramePool};
pub(crate) use rng::mix;
pub use settings::{
    ClassSchedule, Direction, Ecn, Fault, FaultKind, PauseSettings, QueueSettings, RoutingMode,
    RoutingSettings, SharedBuffer,
};
pub use topology::{
    Cable, Clos, LeafSpine, NamedCable, NodeId, OneSwitch, PacketSizes, PortId, Switch, Tier, Topology,
};
