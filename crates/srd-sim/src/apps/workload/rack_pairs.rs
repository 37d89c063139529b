//! Hosts of one rack to hosts of another (SRD paper, Figure 5).

use super::{Load, Plan};
use crate::apps::draw::Draw;
use crate::apps::flow::Place;
use crate::net::Topology;

/// Each of the first hosts of one leaf sends to the host at the same place of another, process by process.
#[derive(Clone, PartialEq, Debug)]
pub struct RackPairs {
    /// Sending leaf: number among the switches that have hosts.
    pub from_leaf: u32,
    /// Receiving leaf.
    pub to_leaf: u32,
    /// Hosts of each that take part; `None`: all.
    pub hosts: Option<u32>,
    /// Processes of each host, with one flow each.
    pub processes: u16,
    /// What each flow does.
    pub load: Load,
}

impl RackPairs {
    pub(super) fn plan(&self, plan: &mut Plan, draw: &mut Draw, topology: &Topology) -> Result<(), String> {
        if self.from_leaf == self.to_leaf {
            return Err(format!("from and to are the same leaf, {}", self.from_leaf));
        }
        if self.processes == 0 {
            return Err("each host needs at least one process".to_string());
        }
        let mut racks: std::collections::BTreeMap<u32, Vec<u32>> = Default::default();
        (0..topology.hosts).for_each(|host| racks.entry(topology.rack_of(host)).or_default().push(host));
        let racks: Vec<Vec<u32>> = racks.into_values().collect();
        let (from, to) = (self.rack(&racks, self.from_leaf)?, self.rack(&racks, self.to_leaf)?);
        plan.expect(from.len() as u64 * self.processes as u64, [])?;
        let hosts = from.iter().zip(to);
        let pairs: Vec<(Place, Place)> = hosts
            .flat_map(|(&src, &dst)| {
                (0..self.processes)
                    .map(move |process| (Place { host: src, process }, Place { host: dst, process }))
            })
            .collect();
        self.load.plan(plan, draw, &pairs)
    }

    fn rack<'a>(&self, racks: &'a [Vec<u32>], leaf: u32) -> Result<&'a [u32], String> {
        let rack = racks.get(leaf as usize).ok_or_else(|| match racks.len() {
            1 => "this fabric has one switch only: rack pairs need two leaves".to_string(),
            n => format!("there is no leaf {leaf}: this fabric has leaves 0 to {}", n - 1),
        })?;
        let wanted = self.hosts.unwrap_or(rack.len() as u32) as usize;
        match rack.get(..wanted) {
            Some(hosts) if wanted > 0 => Ok(hosts),
            _ => Err(format!("{wanted} hosts of leaf {leaf}: it has 1 to {}", rack.len())),
        }
    }
}
