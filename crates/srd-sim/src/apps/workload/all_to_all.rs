//! Every host sends to every other.

use super::{Plan, all_differ, place};
use crate::apps::flow::{Size, Start, TriggerKind};

/// Host number `i` sends to `i + 1`, `i + 2`, ... in turn, so that no receiver is everybody's first.
#[derive(Clone, PartialEq, Debug)]
pub struct AllToAll {
    /// Hosts that take part.
    pub hosts: Vec<u32>,
    /// Of each flow.
    pub bytes: u64,
    /// Flows that a host sends at the same time; the next begins when one is done. `None`: all at once.
    pub at_once: Option<u32>,
    /// Again when all is done.
    pub rounds: u32,
}

impl AllToAll {
    pub(super) fn plan(&self, plan: &mut Plan) -> Result<(), String> {
        let n = self.hosts.len();
        if n < 2 || self.rounds == 0 || self.bytes == 0 || self.at_once == Some(0) {
            return Err("all to all needs at least 2 hosts, 1 byte, 1 round and 1 flow at once".to_string());
        }
        all_differ(&self.hosts)?;
        plan.expect(n as u64 * (n as u64 - 1) * self.rounds as u64, self.hosts.iter().copied())?;
        let mut begin = Start::At(plan.start);
        for round in 0..self.rounds {
            let over = (round + 1 < self.rounds).then(|| plan.barrier(n * (n - 1)));
            (0..n).for_each(|sender| self.send_all(plan, sender, begin, over));
            if let Some(over) = over {
                begin = Start::Trigger(over);
            }
        }
        Ok(())
    }

    fn send_all(&self, plan: &mut Plan, sender: usize, begin: Start, over: Option<u32>) {
        let n = self.hosts.len();
        let at_once = self.at_once.map_or(n - 1, |at_once| at_once as usize);
        // Each flow that is done starts the next one that waits.
        let next = (at_once < n - 1).then(|| plan.trigger(TriggerKind::Multishot));
        for step in 1..n {
            let pair = (place(self.hosts[sender]), place(self.hosts[(sender + step) % n]));
            let start = match next {
                Some(next) if step > at_once => Start::Trigger(next),
                _ => begin,
            };
            let flow = plan.flow(pair, Size::Bytes(self.bytes), start);
            for trigger in next.into_iter().chain(over) {
                plan.when_sent(flow, trigger);
            }
        }
    }
}
