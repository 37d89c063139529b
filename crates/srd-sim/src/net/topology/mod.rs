//! What a fabric is made of: hosts, switches, cables. Which packet goes where is the fabric's business (`fabric`).
//!
//! [`clos`] builds the usual shapes, `check` says whether a topology holds together, `cables` finds cables by name,
//! [`base_rtt`] measures distances, `port_id` names the ends of cables.

pub mod base_rtt;
mod cables;
mod check;
pub mod clos;
mod longest_rtt;
mod port_id;

pub use base_rtt::PacketSizes;
pub use cables::NamedCable;
pub use clos::{Clos, LeafSpine, OneSwitch, Tier};
pub use port_id::PortId;

use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// A host (below [`Topology::hosts`]) or a switch (from there on, in the order of [`Topology::switches`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A network of hosts and switches. Each host has exactly one cable, to a switch; every host can reach every other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Topology {
    /// Number of hosts.
    pub hosts: u32,
    /// The switches.
    pub switches: Vec<Switch>,
    /// The cables; several between the same two switches are a bundle, of which ECMP chooses one.
    pub cables: Vec<Cable>,
}

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Switch {
    /// `leaf3`, `spine0`, `agg1.2` (pod 1), `core7`.
    pub name: String,
    /// From a packet's last bit in to its first bit out, on an empty port.
    pub latency: Ps,
}

/// A full-duplex cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cable {
    /// One end; of a host's cable, the host.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// Rate of each direction.
    pub rate: BitRate,
    /// Propagation.
    pub delay: Ps,
    /// Capacity in bytes of the output queues at `a` and at `b`, where they differ from the fabric's usual.
    pub queue_bytes: [Option<u64>; 2],
}

impl Topology {
    /// The node of switch number `switch`.
    pub fn switch(&self, switch: u32) -> NodeId {
        NodeId(self.hosts + switch)
    }

    /// `h12` or the switch's name.
    pub fn name(&self, node: NodeId) -> String {
        match node.0.checked_sub(self.hosts) {
            None => format!("h{}", node.0),
            Some(switch) => self.switches[switch as usize].name.clone(),
        }
    }
}
