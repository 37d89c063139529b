//! Who is next on the way to a host: all neighbours on shortest paths, of which ECMP takes one by hash.
//!
//! Routes lead to the switch of the destination host, not to the host, and equal lists are stored once: tables stay
//! small for thousands of hosts.

use crate::net::rng::mix;
use crate::net::topology::PortId;
use crate::net::topology::Topology;
use std::collections::{HashMap, VecDeque};

/// See the module.
pub(super) struct Routes {
    switches: u32,
    /// Of each host: its switch, and that switch's port to it.
    hosts: Vec<(u32, PortId)>,
    /// Of each pair of switches: number of a list.
    table: Vec<u32>,
    /// Where each list begins and how long it is.
    lists: Vec<(u32, u32)>,
    ports: Vec<PortId>,
    /// ECMP's secret of each switch, so that switches choose independently.
    salts: Vec<u32>,
}

impl Routes {
    /// Routes over the cables of which `usable` says so.
    pub(super) fn new(topology: &Topology, seed: u64, usable: impl Fn(PortId) -> bool) -> Routes {
        let switches = topology.switches.len() as u32;
        let mut hosts = vec![(0, PortId(0)); topology.hosts as usize];
        let mut neighbours: Vec<Vec<(u32, PortId)>> = vec![Vec::new(); switches as usize];
        for (cable, ends) in topology.cables.iter().enumerate() {
            let cable = cable as u32;
            match (ends.a.0.checked_sub(topology.hosts), ends.b.0.checked_sub(topology.hosts)) {
                (None, Some(switch)) => hosts[ends.a.0 as usize] = (switch, PortId::at_b(cable)),
                (Some(switch), None) => hosts[ends.b.0 as usize] = (switch, PortId::at_a(cable)),
                (Some(a), Some(b)) => {
                    neighbours[a as usize].push((b, PortId::at_a(cable)));
                    neighbours[b as usize].push((a, PortId::at_b(cable)));
                }
                (None, None) => {} // the topology's check has refused it
            }
        }
        let mut routes = Routes {
            switches,
            hosts,
            table: vec![0; switches as usize * switches as usize],
            lists: vec![(0, 0)],
            ports: Vec::new(),
            salts: (0..switches).map(|switch| mix(switch ^ seed as u32) ^ (seed >> 32) as u32).collect(),
        };
        routes.fill(&neighbours, usable);
        routes
    }

    fn fill(&mut self, neighbours: &[Vec<(u32, PortId)>], usable: impl Fn(PortId) -> bool) {
        let mut known: HashMap<Vec<PortId>, u32> = HashMap::new();
        let mut distance = vec![u32::MAX; neighbours.len()];
        for destination in 0..self.switches {
            distance.fill(u32::MAX);
            distance[destination as usize] = 0;
            let mut queue = VecDeque::from([destination]);
            while let Some(switch) = queue.pop_front() {
                for &(next, port) in &neighbours[switch as usize] {
                    // The way leads from `next` to `switch`: over the other end's port.
                    if distance[next as usize] == u32::MAX && usable(PortId(port.0 ^ 1)) {
                        distance[next as usize] = distance[switch as usize] + 1;
                        queue.push_back(next);
                    }
                }
            }
            for switch in 0..self.switches {
                if switch == destination || distance[switch as usize] == u32::MAX {
                    continue;
                }
                let closer = |&&(next, port): &&(u32, PortId)| {
                    distance[next as usize].saturating_add(1) == distance[switch as usize] && usable(port)
                };
                let list: Vec<PortId> =
                    neighbours[switch as usize].iter().filter(closer).map(|&(_, port)| port).collect();
                let number = *known.entry(list).or_insert_with_key(|list| {
                    self.lists.push((self.ports.len() as u32, list.len() as u32));
                    self.ports.extend_from_slice(list);
                    (self.lists.len() - 1) as u32
                });
                self.table[(switch * self.switches + destination) as usize] = number;
            }
        }
    }

    /// Whether a host is cabled to `switch`.
    #[inline]
    pub(super) fn is_last(&self, switch: u32, host: u32) -> bool {
        self.hosts[host as usize].0 == switch
    }

    /// All ports by which `switch` may send a packet to a host of another switch.
    pub(super) fn ways(&self, switch: u32, host: u32) -> &[PortId] {
        let (last, _) = self.hosts[host as usize];
        let (first, count) = self.lists[self.table[(switch * self.switches + last) as usize] as usize];
        &self.ports[first as usize..(first + count) as usize]
    }

    /// The port by which `switch` sends a packet with this hash to `host`; `None` if there is no way.
    #[inline]
    pub(super) fn next(&self, switch: u32, host: u32, tuple_hash: u32) -> Option<PortId> {
        let (last, port) = self.hosts[host as usize];
        if last == switch {
            return Some(port);
        }
        let list = self.table[(switch * self.switches + last) as usize];
        let (first, count) = self.lists[list as usize];
        if count == 0 {
            return None;
        }
        let hash = mix(tuple_hash ^ self.salts[switch as usize]);
        let choice = ((hash as u64 * count as u64) >> 32) as u32;
        Some(self.ports[(first + choice) as usize])
    }
}
