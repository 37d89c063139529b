//! What a fabric is made of: hosts, switches, cables. Which packet goes where is the fabric's business (`fabric`).
//!
//! [`clos`] builds the usual shapes, [`rails`], [`dragonfly`] and [`planes`] those of machines for training; `check` says whether a topology holds together, `cables` finds cables by name,
//! `distance` finds the shortest ways, [`base_rtt`] measures them, `port_id` names the ends of cables.

pub mod base_rtt;
mod cables;
mod check;
pub mod clos;
pub(crate) mod distance;
pub mod dragonfly;
mod longest_rtt;
pub mod planes;
mod port_id;
pub mod rails;

pub use base_rtt::PacketSizes;
pub use cables::NamedCable;
pub use clos::{Clos, LeafSpine, OneSwitch, Tier};
pub use dragonfly::Dragonfly;
pub use planes::in_planes;
pub use port_id::PortId;
pub use rails::Rails;

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
    /// What it is for.
    pub role: Role,
}

/// What a switch is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It sends on whatever comes.
    Switch,
    /// A router of this group of a dragonfly.
    Router {
        /// Its group.
        group: u32,
    },
    /// The ports of a host's card, one on each plane. Nothing passes from one to another.
    Card,
}

/// Length of a cable between groups of a dragonfly, where all others count as 1: so that no shortest way has two of them.
const BETWEEN_GROUPS: u32 = 3;

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

    /// What a cable adds to the length of a way.
    pub fn length(&self, cable: &Cable) -> u32 {
        match (self.role(cable.a), self.role(cable.b)) {
            (Role::Router { group: a }, Role::Router { group: b }) if a != b => BETWEEN_GROUPS,
            _ => 1,
        }
    }

    /// What a node is for; of a host, nothing but itself.
    pub fn role(&self, node: NodeId) -> Role {
        node.0.checked_sub(self.hosts).map_or(Role::Switch, |switch| self.switches[switch as usize].role)
    }

    /// Whether hosts have cards of several ports.
    pub fn has_cards(&self) -> bool {
        self.switches.first().is_some_and(|switch| switch.role == Role::Card)
    }

    /// `h12` or the switch's name.
    pub fn name(&self, node: NodeId) -> String {
        match node.0.checked_sub(self.hosts) {
            None => format!("h{}", node.0),
            Some(switch) => self.switches[switch as usize].name.clone(),
        }
    }
}
