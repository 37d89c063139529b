//! Flows to one receiver that begin one after another and end one after another: how soon are shares fair again?

use super::{Plan, all_differ, place};
use crate::apps::flow::{Size, Start};
use srd_baselines::units::Ps;

/// With n senders and pauses of `every`, sender `i` goes on from `i every` to `(n + i) every`: n come, then n go.
#[derive(Clone, PartialEq, Debug)]
pub struct JoinLeave {
    /// Sending hosts, in order.
    pub senders: Vec<u32>,
    /// Receiving host.
    pub receiver: u32,
    /// From one change to the next.
    pub every: Ps,
}

impl JoinLeave {
    pub(super) fn plan(&self, plan: &mut Plan) -> Result<(), String> {
        if self.senders.is_empty() || self.every == Ps::ZERO {
            return Err("at least one sender, and some time between changes".to_string());
        }
        if self.senders.contains(&self.receiver) {
            return Err(format!("host {} is the receiver and cannot be a sender", self.receiver));
        }
        all_differ(&self.senders)?;
        let n = self.senders.len() as u64;
        plan.expect(n, self.senders.iter().copied().chain([self.receiver]))?;
        let start = plan.start;
        let after = |changes: u64| start + Ps(self.every.0.saturating_mul(changes));
        for (i, &sender) in self.senders.iter().enumerate() {
            let (join, leave) = (after(i as u64), after(n + i as u64));
            plan.flow((place(sender), place(self.receiver)), Size::Until(leave), Start::At(join));
        }
        Ok(())
    }

    /// When the last flow ends, counted from the workload's beginning.
    pub fn duration(&self) -> Ps {
        Ps(self.every.0.saturating_mul((2 * self.senders.len() as u64).saturating_sub(1)))
    }
}
