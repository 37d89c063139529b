//! Rail-optimised fabrics: card `g` of every server on rail switch `g`, spines above the rails.

use super::Topology;
use super::clos::{Tier, Wiring};

/// Servers with a card for each accelerator, in units that have a rail switch for each card. Card `g` of server `s` is host
/// `s * cards + g`, on `rail<u>.<g>` of the server's unit `u`; every rail switch is cabled to every spine. What a server's
/// cards say to each other inside it does not come to the fabric: the simulator knows cards, not servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rails {
    /// Units.
    pub units: u32,
    /// Servers of each unit.
    pub servers: u32,
    /// Cards of each server, and rail switches of each unit.
    pub cards: u32,
    /// Spine switches.
    pub spines: u32,
    /// Rail switches and spines.
    pub tiers: [Tier; 2],
}

impl Rails {
    /// The topology, or what makes it impossible.
    pub fn build(&self) -> Result<Topology, String> {
        let [rail, spine] = &self.tiers;
        let hosts = [self.units, self.servers, self.cards];
        let mut wiring =
            Wiring::start(&hosts, &[self.units, self.cards, self.spines, spine.bundle], &self.tiers)?;
        let rails = self.units * self.cards;
        wiring.switches(rails, rail, |n| format!("rail{}.{}", n / self.cards, n % self.cards));
        wiring.switches(self.spines, spine, |n| format!("spine{n}"));
        for host in 0..wiring.topology.hosts {
            let unit = host / (self.servers * self.cards);
            wiring.host(host, unit * self.cards + host % self.cards, rail);
        }
        for lower in 0..rails {
            for upper in 0..self.spines {
                wiring.cable(lower, rails + upper, rail, spine);
            }
        }
        Ok(wiring.topology)
    }
}
