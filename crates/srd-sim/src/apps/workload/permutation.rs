//! Every host sends to one other and receives from one other, drawn at random.

use super::{Load, Plan, all_differ};
use crate::apps::draw::Draw;
use crate::apps::flow::Place;

/// A random permutation without fixed points.
#[derive(Clone, PartialEq, Debug)]
pub struct Permutation {
    /// Hosts that take part.
    pub hosts: Vec<u32>,
    /// Permutations drawn, one for each of the hosts' processes.
    pub processes: u16,
    /// What each flow does.
    pub load: Load,
}

impl Permutation {
    pub(super) fn plan(&self, plan: &mut Plan, draw: &mut Draw) -> Result<(), String> {
        if self.hosts.len() < 2 || self.processes == 0 {
            return Err("a permutation needs at least 2 hosts and one process".to_string());
        }
        all_differ(&self.hosts)?;
        plan.expect(self.hosts.len() as u64 * self.processes as u64, self.hosts.iter().copied())?;
        let mut pairs = Vec::new();
        for process in 0..self.processes {
            let to = draw.derangement(self.hosts.len() as u32);
            let at = |host: u32| Place { host, process };
            pairs.extend(self.hosts.iter().zip(to).map(|(&src, to)| (at(src), at(self.hosts[to as usize]))));
        }
        self.load.plan(plan, draw, &pairs)
    }
}
