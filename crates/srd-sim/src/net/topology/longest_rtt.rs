//! The longest unloaded round trip of all pairs of hosts.
//!
//! Not every pair is looked at. Switches of one latency with the same cables to the same neighbours are interchangeable:
//! every path through one goes as well through the other. They count as one, again and again until no two are left; of
//! a leaf-spine fabric two switches remain, of a fat tree a leaf for each pod.

use super::Topology;
use super::base_rtt::{PacketSizes, there_and_back};
use super::check::SwitchLinks;
use super::distance::distances;
use srd_baselines::units::Ps;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Length, and what data and ACKs cost: on a cable, or from the input of one switch to the output of another.
type Cost = (u32, [Ps; 2]);

fn sum((a_length, a): Cost, (b_length, b): Cost) -> Cost {
    (a_length + b_length, [a[0] + b[0], a[1] + b[1]])
}

/// The shorter one; of equal lengths what is quickest of either.
fn least(a: Cost, b: Cost) -> Cost {
    match a.0.cmp(&b.0) {
        Ordering::Less => a,
        Ordering::Greater => b,
        Ordering::Equal => (a.0, [a.1[0].min(b.1[0]), a.1[1].min(b.1[1])]),
    }
}

/// Of a switch.
fn passing(latency: Ps) -> Cost {
    (0, [latency; 2])
}

/// The two largest of several spans.
#[derive(Clone, Copy, Default)]
struct TopTwo([Ps; 2]);

impl TopTwo {
    fn add(&mut self, span: Ps) {
        let [first, second] = &mut self.0;
        if span > *first {
            *second = std::mem::replace(first, span);
        } else {
            *second = span.max(*second);
        }
    }

    /// Their sum, if there are two.
    fn both(&self) -> Option<Ps> {
        (self.0[1] > Ps::ZERO).then(|| self.0[0] + self.0[1])
    }
}

impl Topology {
    /// The longest [`Topology::base_rtt`] of all pairs.
    pub fn longest_base_rtt(&self, sizes: PacketSizes) -> Ps {
        let mut hosts = vec![TopTwo::default(); self.switches.len()];
        (0..self.hosts).for_each(|host| hosts[self.leaf_of(host) as usize].add(self.access(host, sizes)));
        let kinds = Kinds::of(self, sizes);
        let mut longest = Ps::ZERO;
        // The farthest host of each switch: of each kind of switch the two farthest.
        let mut farthest = vec![TopTwo::default(); kinds.latency.len()];
        for (switch, hosts) in hosts.iter().enumerate() {
            let kind = kinds.of_switch[switch] as usize;
            farthest[kind].add(hosts.0[0]);
            if let Some(both) = hosts.both() {
                let latency = kinds.latency[kind];
                longest = longest.max(both + latency + latency);
            }
        }
        let with_hosts: Vec<usize> =
            (0..farthest.len()).filter(|&kind| farthest[kind].0[0] > Ps::ZERO).collect();
        for &from in &with_hosts {
            if let (Some(both), Some([data, ack])) =
                (farthest[from].both(), kinds.to_its_like(from).map(|(_, cost)| cost))
            {
                longest = longest.max(both + data + ack);
            }
            let costs = kinds.costs_from(from);
            for &to in with_hosts.iter().filter(|&&to| to > from) {
                if let Some((_, [data, ack])) = costs[to] {
                    longest = longest.max(farthest[from].0[0] + farthest[to].0[0] + data + ack);
                }
            }
        }
        longest
    }
}

/// The neighbours of a switch, in order, each with the cost of the quickest cable.
type Neighbours = Vec<(u32, Cost)>;

/// Kinds of interchangeable switches.
struct Kinds {
    of_switch: Vec<u32>,
    latency: Vec<Ps>,
    next_to: Vec<Neighbours>,
}

impl Kinds {
    fn of(topology: &Topology, sizes: PacketSizes) -> Kinds {
        let links = SwitchLinks::of(topology);
        let cost = |number: u32, length: u32| {
            let cable = &topology.cables[number as usize];
            (length, there_and_back(cable.rate, cable.delay, sizes))
        };
        let switches = topology.switches.len() as u32;
        let next_to = (0..switches).map(|switch| {
            let ends = links.of_switch(switch).iter();
            in_order(ends.map(|&(next, cable, length)| (next, cost(cable, length))).collect())
        });
        let mut kinds = Kinds {
            of_switch: (0..switches).collect(),
            latency: topology.switches.iter().map(|switch| switch.latency).collect(),
            next_to: next_to.collect(),
        };
        while kinds.merge() {}
        kinds
    }

    /// Makes one of those that are interchangeable. Returns whether there were any.
    fn merge(&mut self) -> bool {
        let mut known: HashMap<(Ps, &Neighbours), u32> = HashMap::new();
        let mut new_of: Vec<u32> = Vec::with_capacity(self.latency.len());
        let mut first: Vec<usize> = Vec::new();
        for (kind, next_to) in self.next_to.iter().enumerate() {
            let new = *known.entry((self.latency[kind], next_to)).or_insert_with(|| {
                first.push(kind);
                first.len() as u32 - 1
            });
            new_of.push(new);
        }
        if first.len() == new_of.len() {
            return false;
        }
        let renumbered = |next_to: &[(u32, Cost)]| {
            in_order(next_to.iter().map(|&(next, cost)| (new_of[next as usize], cost)).collect())
        };
        let next_to = first.iter().map(|&kind| renumbered(&self.next_to[kind])).collect();
        self.latency = first.iter().map(|&kind| self.latency[kind]).collect();
        self.of_switch.iter_mut().for_each(|kind| *kind = new_of[*kind as usize]);
        self.next_to = next_to;
        true
    }

    /// From a switch of this kind to another of the same kind: over any neighbour, for they have the same.
    fn to_its_like(&self, kind: usize) -> Option<Cost> {
        let ends = passing(self.latency[kind] + self.latency[kind]);
        let over = |&(next, cost): &(u32, Cost)| {
            sum(sum(cost, cost), sum(passing(self.latency[next as usize]), ends))
        };
        self.next_to[kind].iter().map(over).reduce(least)
    }

    /// Cost to each kind.
    fn costs_from(&self, from: usize) -> Vec<Option<Cost>> {
        let next_to = |kind: u32| &self.next_to[kind as usize];
        let (_, nearest_first) = distances(self.latency.len(), from as u32, |kind| {
            next_to(kind).iter().map(|&(next, (length, _))| (next, length))
        });
        let mut costs: Vec<Option<Cost>> = vec![None; self.latency.len()];
        costs[from] = Some(passing(self.latency[from]));
        for kind in nearest_first {
            let Some(so_far) = costs[kind as usize] else { continue };
            for &(next, cable) in next_to(kind) {
                let cost = sum(sum(so_far, cable), passing(self.latency[next as usize]));
                let known = &mut costs[next as usize];
                *known = Some(known.map_or(cost, |known| least(known, cost)));
            }
        }
        costs
    }
}

/// Sorted by neighbour, each once with its least cost.
fn in_order(mut next_to: Neighbours) -> Neighbours {
    next_to.sort_unstable();
    next_to.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            first.1 = least(first.1, later.1);
        }
        same
    });
    next_to
}
