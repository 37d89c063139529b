//! What a transport could do at best: every byte, headers included, through the busiest cable at line rate, with traffic
//! spread evenly over all shortest paths. Where switches make detours, only the hosts' own cables count.

use crate::apps::{Flow, Size, Start, Traffic};
use crate::net::{PortId, Topology, distances};
pub use srd_baselines::transport::WireCost;
use srd_baselines::units::Ps;
use std::collections::{BTreeMap, HashMap};

/// Shortest ways between switches.
struct Ways {
    /// Of each switch: its neighbours, the ports to them, and how far they are.
    neighbours: Vec<Vec<(u32, PortId, u32)>>,
    /// By destination: distances of all switches.
    distances: HashMap<u32, Vec<Option<u32>>>,
}

impl Ways {
    fn new(topology: &Topology) -> Ways {
        let mut neighbours = vec![Vec::new(); topology.switches.len()];
        for (cable, ends) in topology.cables.iter().enumerate() {
            let cable = cable as u32;
            if let (Some(a), Some(b)) =
                (ends.a.0.checked_sub(topology.hosts), ends.b.0.checked_sub(topology.hosts))
            {
                let length = topology.length(ends);
                neighbours[a as usize].push((b, PortId::at_a(cable), length));
                neighbours[b as usize].push((a, PortId::at_b(cable), length));
            }
        }
        Ways { neighbours, distances: HashMap::new() }
    }

    fn distances(&mut self, to: u32) -> &[Option<u32>] {
        let neighbours = &self.neighbours;
        self.distances.entry(to).or_insert_with(|| {
            let next_to =
                |switch: u32| neighbours[switch as usize].iter().map(|&(next, _, length)| (next, length));
            distances(neighbours.len(), to, next_to).0
        })
    }

    /// Adds so many bytes on their way from switch to switch to the load of ports.
    fn load(&mut self, from: u32, to: u32, bytes: f64, loads: &mut [f64]) {
        let distance = self.distances(to).to_vec();
        let mut wave = BTreeMap::from([(from, bytes)]);
        while wave.keys().any(|&switch| switch != to) {
            let mut next_wave = BTreeMap::new();
            for (switch, bytes) in wave {
                let here = distance[switch as usize];
                let closer = |&&(next, _, length): &&(u32, PortId, u32)| {
                    here.is_some() && distance[next as usize].map(|there| there + length) == here
                };
                let ways = self.neighbours[switch as usize].iter().filter(closer);
                let share = bytes / ways.clone().count().max(1) as f64;
                for &(next, port, _) in ways {
                    loads[port.0 as usize] += share;
                    *next_wave.entry(next).or_insert(0.0) += share;
                }
            }
            if next_wave.is_empty() {
                return; // no way: the topology's check has refused it
            }
            wave = next_wave;
        }
    }
}

/// The ideal completion time of flows that start together, the longest where several such groups exist; `None` if no
/// flow has an end, or if some start alone while others run, so that there is no such time. `round_trip`: unloaded, of a full packet and its acknowledgement.
pub fn completion_time(
    topology: &Topology,
    traffic: &Traffic,
    costs: &[WireCost],
    makes_detours: bool,
    round_trip: Ps,
) -> Option<Ps> {
    let mut groups: BTreeMap<(bool, u64), Vec<&Flow>> = BTreeMap::new();
    for flow in &traffic.flows {
        let key = match flow.start {
            Start::At(at) => (false, at.0),
            Start::Trigger(trigger) => (true, trigger as u64),
        };
        groups.entry(key).or_default().push(flow);
    }
    if groups.len() > 1 && groups.values().any(|flows| flows.len() == 1) {
        return None;
    }
    let mut ways = (!makes_detours).then(|| Ways::new(topology));
    let mut access = vec![(0, PortId(0), PortId(0)); topology.hosts as usize];
    for (cable, ends) in topology.cables.iter().enumerate() {
        let (a, b) = (PortId::at_a(cable as u32), PortId::at_b(cable as u32));
        for (host, switch, up, down) in [(ends.a, ends.b, a, b), (ends.b, ends.a, b, a)] {
            if host.0 < topology.hosts {
                access[host.0 as usize] = (switch.0 - topology.hosts, up, down);
            }
        }
    }
    groups
        .into_values()
        .filter_map(|flows| group_time(topology, &flows, costs, ways.as_mut(), &access))
        .max()
        .map(|busiest| {
            // The first packet's own time on the busiest cable is part of the round trip too.
            busiest + round_trip
        })
}

/// How long the busiest cable takes for the flows of one group, less one packet.
fn group_time(
    topology: &Topology,
    flows: &[&Flow],
    costs: &[WireCost],
    mut ways: Option<&mut Ways>,
    access: &[(u32, PortId, PortId)],
) -> Option<Ps> {
    let mut loads = vec![0.0; 2 * topology.cables.len()];
    let mut between: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    let mut finite = false;
    let mut packet = 0.0f64;
    for flow in flows {
        let Size::Bytes(payload) = flow.size else { continue };
        finite = true;
        let cost = costs[flow.transport as usize];
        packet = packet.max((cost.payload + cost.headers) as f64);
        let bytes = cost.bytes(payload) as f64;
        let (from, up, _) = access[flow.src.host as usize];
        let (to, _, down) = access[flow.dst.host as usize];
        loads[up.0 as usize] += bytes;
        loads[down.0 as usize] += bytes;
        if from != to {
            *between.entry((from, to)).or_insert(0.0) += bytes;
        }
    }
    for ((from, to), bytes) in between {
        if let Some(ways) = &mut ways {
            ways.load(from, to, bytes, &mut loads);
        }
    }
    let time = |(port, bytes): (usize, &f64)| {
        let rate = topology.cables[port / 2].rate;
        Ps(((bytes - packet).max(0.0) * 8e12 / rate.0 as f64).round() as u64)
    };
    finite.then(|| loads.iter().enumerate().map(time).max().unwrap_or_default())
}
