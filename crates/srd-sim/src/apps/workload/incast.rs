//! Many to one (SRD paper, "Incast FCT and Fairness").

use super::{Load, Plan, all_differ};
use crate::apps::draw::Draw;
use crate::apps::flow::Place;

/// Every process of some hosts sends to one host.
#[derive(Clone, PartialEq, Debug)]
pub struct Incast {
    /// Sending hosts.
    pub senders: Vec<u32>,
    /// Processes of each, with one flow each.
    pub processes: u16,
    /// Receiving host.
    pub receiver: u32,
    /// Its processes, which share the flows equally.
    pub receiver_processes: u16,
    /// What each flow does.
    pub load: Load,
}

impl Incast {
    pub(super) fn plan(&self, plan: &mut Plan, draw: &mut Draw) -> Result<(), String> {
        let flows = self.senders.len() as u64 * self.processes as u64;
        if flows == 0 || self.receiver_processes == 0 {
            return Err("an incast has at least one sender, and one process at each end".to_string());
        }
        if self.senders.contains(&self.receiver) {
            return Err(format!("host {} is the receiver and cannot be a sender", self.receiver));
        }
        all_differ(&self.senders)?;
        plan.expect(flows, self.senders.iter().copied())?;
        // Processes of one host go to different processes of the receiver.
        let senders = self
            .senders
            .iter()
            .flat_map(|&host| (0..self.processes).map(move |process| Place { host, process }));
        let pairs: Vec<(Place, Place)> = senders
            .enumerate()
            .map(|(n, sender)| {
                (
                    sender,
                    Place { host: self.receiver, process: (n % self.receiver_processes as usize) as u16 },
                )
            })
            .collect();
        self.load.plan(plan, draw, &pairs)
    }
}
