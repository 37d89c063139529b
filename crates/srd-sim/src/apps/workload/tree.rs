//! All-reduce up and down a binary tree.

use super::{Plan, all_differ, place};
use crate::apps::flow::{Size, Start, TriggerKind};

/// Host `i` of the list is the child of host `(i - 1) / 2`. A host sends to its parent when it has its children's data,
/// and to its children when it has its parent's result. The data may go in chunks, one after another.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeAllReduce {
    /// Hosts, the root first.
    pub hosts: Vec<u32>,
    /// Of what each host has.
    pub bytes: u64,
    /// Equal parts, each reduced on its own; a leaf sends the next one when the one before has left.
    pub chunks: u32,
    /// Again when all hosts are done.
    pub rounds: u32,
}

impl TreeAllReduce {
    pub(super) fn plan(&self, plan: &mut Plan) -> Result<(), String> {
        let n = self.hosts.len();
        if n < 2 || self.rounds == 0 || self.chunks == 0 || self.bytes < self.chunks as u64 {
            return Err(
                "an all-reduce needs at least 2 hosts, 1 round, 1 chunk and 1 byte per chunk".to_string()
            );
        }
        all_differ(&self.hosts)?;
        let edges = 2 * (n as u64 - 1);
        let flows = edges.saturating_mul(self.chunks as u64).saturating_mul(self.rounds as u64);
        plan.expect(flows, self.hosts.iter().copied())?;
        let mut begin = Start::At(plan.start);
        for round in 0..self.rounds {
            let flows_down = (n - 1) * self.chunks as usize;
            let over = (round + 1 < self.rounds).then(|| plan.barrier(flows_down));
            let mut leaves = vec![begin; n];
            for chunk in 0..self.chunks {
                leaves = self.reduce(plan, &leaves, chunk + 1 < self.chunks, over);
            }
            if let Some(over) = over {
                begin = Start::Trigger(over);
            }
        }
        Ok(())
    }

    fn children(&self, host: usize) -> impl Iterator<Item = usize> + use<> {
        let n = self.hosts.len();
        (2 * host + 1..2 * host + 3).filter(move |&child| child < n)
    }

    fn chunk(&self) -> Size {
        Size::Bytes(self.bytes.div_ceil(self.chunks as u64))
    }

    /// One chunk up and down, begun by the leaves. Returns when each leaf may begin the next chunk.
    fn reduce(&self, plan: &mut Plan, leaves: &[Start], more: bool, over: Option<u32>) -> Vec<Start> {
        let n = self.hosts.len();
        // What starts each host's send to its parent; of the root, its sends to its children.
        let ready: Vec<Option<u32>> = (0..n)
            .map(|host| match self.children(host).count() {
                0 => None,
                children => Some(plan.barrier(children)),
            })
            .collect();
        let mut next = leaves.to_vec();
        for host in 1..n {
            let pair = (place(self.hosts[host]), place(self.hosts[(host - 1) / 2]));
            let start = ready[host].map_or(leaves[host], Start::Trigger);
            let flow = plan.flow(pair, self.chunk(), start);
            if let Some(parent) = ready[(host - 1) / 2] {
                plan.when_received(flow, parent);
            }
            if more && ready[host].is_none() {
                let sent = plan.trigger(TriggerKind::Oneshot);
                plan.when_sent(flow, sent);
                next[host] = Start::Trigger(sent);
            }
        }
        self.broadcast(plan, ready[0], over);
        next
    }

    fn broadcast(&self, plan: &mut Plan, root: Option<u32>, over: Option<u32>) {
        let n = self.hosts.len();
        let mut start = vec![root; n];
        for host in 0..n {
            let Some(ready) = start[host] else { continue };
            for child in self.children(host) {
                let pair = (place(self.hosts[host]), place(self.hosts[child]));
                let flow = plan.flow(pair, self.chunk(), Start::Trigger(ready));
                if self.children(child).next().is_some() {
                    let received = plan.trigger(TriggerKind::Oneshot);
                    plan.when_received(flow, received);
                    start[child] = Some(received);
                }
                if let Some(over) = over {
                    plan.when_received(flow, over);
                }
            }
        }
    }
}
