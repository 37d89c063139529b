//! Whether a topology holds together.

use super::distance::distances;
use super::{Cable, NodeId, Role, Topology};
use srd_baselines::input::shown;
use std::collections::HashSet;

impl Topology {
    /// Says what is wrong, if anything is: every host must have exactly one cable, to a switch, and reach every other
    /// host; rates must be above zero and names unique.
    pub fn check(&self) -> Result<(), String> {
        if self.hosts < 2 {
            return Err(format!("a fabric needs at least 2 hosts, this one has {}", self.hosts));
        }
        let nodes = self.hosts as u64 + self.switches.len() as u64;
        if nodes > u32::MAX as u64 {
            return Err(format!("{nodes} hosts and switches are too many"));
        }
        self.check_names()?;
        self.cables
            .iter()
            .enumerate()
            .try_for_each(|(number, cable)| self.check_cable(number, cable, nodes as u32))?;
        self.check_hosts()?;
        self.check_reach()
    }

    fn check_names(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for switch in &self.switches {
            let name = switch.name.as_str();
            let of_a_host = name.strip_prefix('h').is_some_and(|rest| rest.parse::<u32>().is_ok());
            if name.is_empty() || of_a_host || name.contains(['-', '*', '#']) {
                return Err(format!(
                    "a switch cannot be called {}: hosts are h0, h1, ...; `-`, `*` and `#` stand for something else",
                    shown(name)
                ));
            }
            if !names.insert(name) {
                return Err(format!("two switches are called {}", shown(name)));
            }
        }
        Ok(())
    }

    fn check_cable(&self, number: usize, cable: &Cable, nodes: u32) -> Result<(), String> {
        if cable.a.0 >= nodes || cable.b.0 >= nodes {
            return Err(format!("cable {number} ends at node {}, of {nodes}", cable.a.0.max(cable.b.0)));
        }
        let name = || format!("cable {}-{}", self.name(cable.a), self.name(cable.b));
        if cable.rate.0 == 0 {
            return Err(format!("{} has a rate of 0", name()));
        }
        if cable.a == cable.b {
            return Err(format!("{} ends where it begins", name()));
        }
        if cable.b.0 < self.hosts {
            return Err(format!("{} must be given the other way round, or leads to no switch", name()));
        }
        if cable.queue_bytes.contains(&Some(0)) {
            return Err(format!("{} has a queue of 0 bytes", name()));
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), String> {
        let mut cables_of = vec![0u32; self.hosts as usize];
        for cable in self.cables.iter().filter(|cable| cable.a.0 < self.hosts) {
            cables_of[cable.a.0 as usize] += 1;
        }
        match cables_of.iter().position(|&n| n != 1) {
            Some(host) => Err(format!("host h{host} has {} cables; a host has exactly one", cables_of[host])),
            None => Ok(()),
        }
    }

    fn check_reach(&self) -> Result<(), String> {
        let links = SwitchLinks::of(self);
        let (hops, _) = links.lengths_from(self.leaf_of(0));
        match (1..self.hosts).find(|&host| hops[self.leaf_of(host) as usize].is_none()) {
            Some(host) => {
                Err(format!("hosts h0 and h{host} cannot reach each other: no cables join their switches"))
            }
            None => Ok(()),
        }
    }

    /// Number of the switch that `host` is cabled to. Cables of hosts may lie anywhere in the list, but the builders
    /// put host `h`'s at place `h`. The host must have a cable.
    pub fn leaf_of(&self, host: u32) -> u32 {
        self.host_cable(host).b.0 - self.hosts
    }

    /// Number of the switch at whose cables a rack ends: that of the host, of hosts with several ports that of the first.
    pub fn rack_of(&self, host: u32) -> u32 {
        let leaf = self.leaf_of(host);
        match self.switches[leaf as usize].role {
            Role::Card => self
                .cables
                .iter()
                .find(|cable| cable.a == self.switch(leaf))
                .map_or(leaf, |cable| cable.b.0 - self.hosts),
            _ => leaf,
        }
    }

    /// The cable of `host`, which must have one.
    pub fn host_cable(&self, host: u32) -> &Cable {
        match self.cables.get(host as usize) {
            Some(cable) if cable.a == NodeId(host) => cable,
            _ => self
                .cables
                .iter()
                .find(|cable| cable.a == NodeId(host))
                .expect("the topology has been checked"),
        }
    }
}

/// Which switches are cabled to which.
pub(super) struct SwitchLinks {
    first: Vec<u32>,
    /// Neighbour, cable and its length.
    ends: Vec<(u32, u32, u32)>,
}

impl SwitchLinks {
    pub(super) fn of(topology: &Topology) -> SwitchLinks {
        let hosts = topology.hosts;
        let between = |cable: &Cable| {
            Some((cable.a.0.checked_sub(hosts)? as usize, cable.b.0.checked_sub(hosts)? as usize))
        };
        let mut first = vec![0u32; topology.switches.len() + 1];
        for (a, b) in topology.cables.iter().filter_map(between) {
            first[a + 1] += 1;
            first[b + 1] += 1;
        }
        for i in 1..first.len() {
            first[i] += first[i - 1];
        }
        let mut next = first.clone();
        let mut ends = vec![(0, 0, 0); first[first.len() - 1] as usize];
        for (number, cable) in topology.cables.iter().enumerate() {
            let Some((a, b)) = between(cable) else { continue };
            let length = topology.length(cable);
            for (from, to) in [(a, b), (b, a)] {
                ends[next[from] as usize] = (to as u32, number as u32, length);
                next[from] += 1;
            }
        }
        SwitchLinks { first, ends }
    }

    /// The switches next to `switch`, each with the number of the cable and its length.
    pub(super) fn of_switch(&self, switch: u32) -> &[(u32, u32, u32)] {
        &self.ends[self.first[switch as usize] as usize..self.first[switch as usize + 1] as usize]
    }

    /// Length of the shortest way from switch `from` to each, and all that can be reached, nearest first.
    pub(super) fn lengths_from(&self, from: u32) -> (Vec<Option<u32>>, Vec<u32>) {
        distances(self.first.len() - 1, from, |switch| {
            self.of_switch(switch).iter().map(|&(next, _, length)| (next, length))
        })
    }
}
