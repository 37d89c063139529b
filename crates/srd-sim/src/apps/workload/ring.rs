//! All-reduce around a ring: n - 1 steps that reduce and n - 1 that gather (Patarasuk and Yuan, 2009).

use super::{Plan, all_differ, place};
use crate::apps::flow::{Size, Start, TriggerKind};

/// In each step every host sends a chunk, a share of 1/n, to the next; it does so when it has the former step's chunk
/// from the host before it.
#[derive(Clone, PartialEq, Debug)]
pub struct RingAllReduce {
    /// Hosts, in the order of the ring.
    pub hosts: Vec<u32>,
    /// Of what each host has.
    pub bytes: u64,
    /// Again when all hosts are done.
    pub rounds: u32,
}

impl RingAllReduce {
    pub(super) fn plan(&self, plan: &mut Plan) -> Result<(), String> {
        let n = self.hosts.len();
        if n < 2 || self.rounds == 0 || self.bytes == 0 {
            return Err("an all-reduce needs at least 2 hosts, 1 byte and 1 round".to_string());
        }
        all_differ(&self.hosts)?;
        let steps = 2 * (n - 1);
        plan.expect(n as u64 * steps as u64 * self.rounds as u64, self.hosts.iter().copied())?;
        let mut begin = vec![Start::At(plan.start); n];
        for round in 0..self.rounds {
            for step in 0..steps {
                let last = step + 1 == steps;
                let over = (last && round + 1 < self.rounds).then(|| plan.barrier(n));
                begin = self.step(plan, &begin, last, over);
            }
        }
        Ok(())
    }

    /// One step's flows. Returns when each host may begin the next.
    fn step(&self, plan: &mut Plan, begin: &[Start], last: bool, over: Option<u32>) -> Vec<Start> {
        let n = self.hosts.len();
        let mut next = begin.to_vec();
        for (host, &begin) in begin.iter().enumerate() {
            let receiver = (host + 1) % n;
            let pair = (place(self.hosts[host]), place(self.hosts[receiver]));
            let flow = plan.flow(pair, Size::Bytes(self.bytes.div_ceil(n as u64)), begin);
            let received = match (last, over) {
                (false, _) => plan.trigger(TriggerKind::Oneshot),
                (true, Some(over)) => over,
                (true, None) => continue,
            };
            plan.when_received(flow, received);
            next[receiver] = Start::Trigger(received);
        }
        next
    }
}
