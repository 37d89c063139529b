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
pub(crate) mod topology;

pub use event::Event;
pub use event_queue::EventQueue;
pub(crate) use event_queue::{SHARED, Spans};
pub(crate) use fabric::FabricPart;
pub(crate) use fabric::{Arrival, Deadlock};
pub use fabric::{Fabric, Gone, PortCounters, Sight, Watcher};
pub use frame::{Content, ETHERNET_HEADER, FrameHead, FramePool};
pub(crate) use frame::{DataPacket, FrameId, Parcel, with_lane};
pub(crate) use rng::mix;
pub use settings::{ClassSchedule, Direction, Ecn, FaultKind, SharedBuffer};
pub(crate) use settings::{Fault, PauseSettings, QueueSettings, RoutingMode, RoutingSettings};
pub(crate) use topology::NamedCable;
pub(crate) use topology::distance::distances;
pub use topology::{
    Cable, Clos, Dragonfly, LeafSpine, NodeId, OneSwitch, PacketSizes, PortId, Rails, Role, Switch, Tier,
    Topology, in_planes,
};
