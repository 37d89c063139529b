//! Who is next on the way to a host: all neighbours on shortest paths, of which ECMP takes one by hash.
//!
//! A card sends a packet by the port that its source port says, in turn: a connection with many source ports, one after the
//! other, fills all planes alike. If no way leads over that port, the packet goes by one of the others.
//!
//! Routes lead to the switch of the destination host, not to the host, and equal lists are stored once: tables stay
//! small for thousands of hosts.

use crate::net::frame::{FrameHead, lane_of};
use crate::net::rng::mix;
use crate::net::topology::distance::distances;
use crate::net::topology::{PortId, Role, Switch, Topology};
use std::collections::HashMap;
use std::ops::Range;

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
    /// Cards, which are the first switches, and the ports of each to planes. Their cables come behind those of the hosts.
    cards: u32,
    planes: u32,
    /// Of each switch: what it is for.
    roles: Vec<Role>,
    /// Groups of routers.
    spans: Vec<Span>,
}

/// Of a switch: its neighbours, the ports to them, and how far they are.
type Neighbours = Vec<Vec<(u32, PortId, u32)>>;

impl Routes {
    /// Routes over the cables of which `usable` says so.
    pub(super) fn new(topology: &Topology, seed: u64, usable: impl Fn(PortId) -> bool) -> Routes {
        let switches = topology.switches.len() as u32;
        let mut hosts = vec![(0, PortId(0)); topology.hosts as usize];
        let mut neighbours: Neighbours = vec![Vec::new(); switches as usize];
        for (cable, ends) in topology.cables.iter().enumerate() {
            let cable = cable as u32;
            match (ends.a.0.checked_sub(topology.hosts), ends.b.0.checked_sub(topology.hosts)) {
                (None, Some(switch)) => hosts[ends.a.0 as usize] = (switch, PortId::at_b(cable)),
                (Some(switch), None) => hosts[ends.b.0 as usize] = (switch, PortId::at_a(cable)),
                (Some(a), Some(b)) => {
                    let length = topology.length(ends);
                    neighbours[a as usize].push((b, PortId::at_a(cable), length));
                    neighbours[b as usize].push((a, PortId::at_b(cable), length));
                }
                (None, None) => {} // the topology's check has refused it
            }
        }
        let (cards, planes) = match topology.has_cards() {
            true => (topology.hosts, neighbours[0].len() as u32),
            false => (0, 0),
        };
        let mut routes = Routes {
            switches,
            hosts,
            table: vec![0; switches as usize * switches as usize],
            lists: vec![(0, 0)],
            ports: Vec::new(),
            salts: (0..switches).map(|switch| mix(switch ^ seed as u32) ^ (seed >> 32) as u32).collect(),
            cards,
            planes,
            roles: topology.switches.iter().map(|switch| switch.role).collect(),
            spans: spans(topology),
        };
        routes.fill(&neighbours, usable);
        routes
    }

    fn fill(&mut self, neighbours: &Neighbours, usable: impl Fn(PortId) -> bool) {
        let mut known: HashMap<Vec<PortId>, u32> = HashMap::new();
        for destination in 0..self.switches {
            let (distance, _) = distances(neighbours.len(), destination, |switch| {
                // A card sends nothing on.
                let ends = self.roles[switch as usize] != Role::Card || switch == destination;
                // The way leads from the neighbour to `switch`: over the other end's port.
                let next_to = if ends { neighbours[switch as usize].as_slice() } else { &[] };
                next_to
                    .iter()
                    .filter(|(_, port, _)| usable(port.other_end()))
                    .map(|&(next, _, length)| (next, length))
            });
            for switch in 0..self.switches {
                let Some(here) = distance[switch as usize].filter(|_| switch != destination) else {
                    continue;
                };
                let closer = |&&(next, port, length): &&(u32, PortId, u32)| {
                    distance[next as usize].is_some_and(|there| there + length == here)
                        && (next == destination || self.roles[next as usize] != Role::Card)
                        && usable(port)
                };
                let list: Vec<PortId> =
                    neighbours[switch as usize].iter().filter(closer).map(|&(_, port, _)| port).collect();
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

    /// What a switch is for.
    #[inline]
    pub(super) fn role(&self, switch: u32) -> Role {
        self.roles[switch as usize]
    }

    /// All ports by which `switch` may send a packet to a host of another switch.
    pub(super) fn ways(&self, switch: u32, host: u32) -> &[PortId] {
        let (last, _) = self.hosts[host as usize];
        self.ways_to(switch, last)
    }

    fn ways_to(&self, switch: u32, last: u32) -> &[PortId] {
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
        self.toward(switch, last, tuple_hash)
    }

    /// The same to another switch.
    #[inline]
    pub(super) fn toward(&self, switch: u32, last: u32, tuple_hash: u32) -> Option<PortId> {
        let list = self.table[(switch * self.switches + last) as usize];
        let (first, count) = self.lists[list as usize];
        if count == 0 {
            return None;
        }
        if switch < self.cards {
            return self.by_lane(switch, last, tuple_hash);
        }
        let hash = mix(tuple_hash ^ self.salts[switch as usize]);
        let choice = ((hash as u64 * count as u64) >> 32) as u32;
        Some(self.ports[(first + choice) as usize])
    }

    /// The port of a card.
    fn by_lane(&self, card: u32, last: u32, tuple_hash: u32) -> Option<PortId> {
        let lane = lane_of(tuple_hash);
        let port = PortId::at_a(self.cards + card * self.planes + lane % self.planes);
        let list = self.ways_to(card, last);
        match list.contains(&port) {
            true => Some(port),
            false => list.get((lane / self.planes) as usize % list.len().max(1)).copied(),
        }
    }

    /// The port that the sender has named: what its source port says beside the plane.
    pub(super) fn by_source(&self, switch: u32, head: &FrameHead) -> Option<PortId> {
        let list = match self.role(switch) {
            Role::Card => return self.next(switch, head.dst, head.tuple_hash),
            _ => self.ways(switch, head.dst),
        };
        list.get((lane_of(head.tuple_hash) / self.planes.max(1)) as usize % list.len().max(1)).copied()
    }

    /// A router of another group than that of `switch`, by hash: where a detour leads. `None`: no router of a dragonfly.
    pub(super) fn detour(&self, switch: u32, hash: u32) -> Option<u32> {
        let span = self.spans.get(switch as usize).filter(|span| !span.group.is_empty())?;
        let others = (span.plane.len() - span.group.len()) as u64;
        let chosen = span.plane.start + ((hash as u64 * others) >> 32) as u32;
        Some(if chosen >= span.group.start { chosen + span.group.len() as u32 } else { chosen })
    }

    /// Whether a switch is a router of the same group as another.
    pub(super) fn same_group(&self, switch: u32, other: u32) -> bool {
        self.spans.get(switch as usize).is_some_and(|span| span.group.contains(&other))
    }
}

/// The routers of a router's group, and those of its dragonfly; of other switches empty.
#[derive(Clone, Default)]
struct Span {
    group: Range<u32>,
    plane: Range<u32>,
}

/// Spans of all switches, if there are routers. Routers of a group stand side by side, and groups in their order.
fn spans(topology: &Topology) -> Vec<Span> {
    let group_of = |switch: &Switch| match switch.role {
        Role::Router { group } => Some(group),
        _ => None,
    };
    let mut spans = vec![Span::default(); topology.switches.len()];
    let (mut at, mut plane) = (0u32, 0u32);
    for run in topology.switches.chunk_by(|a, b| group_of(a) == group_of(b)) {
        let group = at..at + run.len() as u32;
        at = group.end;
        match group_of(&run[0]) {
            None => continue,
            Some(0) => plane = group.start,
            Some(_) => {}
        }
        for router in plane..at {
            let own =
                if group.contains(&router) { group.clone() } else { spans[router as usize].group.clone() };
            spans[router as usize] = Span { group: own, plane: plane..at };
        }
    }
    if spans.iter().all(|span| span.group.is_empty()) { Vec::new() } else { spans }
}
