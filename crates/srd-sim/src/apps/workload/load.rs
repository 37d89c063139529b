//! How much each pair of processes moves, and how often.

use super::Plan;
use crate::apps::draw::Draw;
use crate::apps::flow::{Place, Size, Start, TriggerKind};
use srd_baselines::units::Ps;

/// What every pair of a pattern does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Of each flow.
    pub size: Size,
    /// All pairs again when all are done, as behind a barrier. 1: once.
    pub rounds: u32,
    /// Each pair again when it is done itself, whatever the others do. 1: once.
    pub repeats: u32,
    /// Each pair begins up to so long after the workload does, at random.
    pub spread: Ps,
}

impl Load {
    /// One flow of `bytes` per pair.
    pub fn once(bytes: u64) -> Load {
        Load { size: Size::Bytes(bytes), rounds: 1, repeats: 1, spread: Ps::ZERO }
    }

    /// One flow per pair that goes on until `end`.
    pub fn until(end: Ps) -> Load {
        Load { size: Size::Until(end), ..Load::once(1) }
    }

    /// Adds the flows of `pairs`.
    pub(super) fn plan(
        &self,
        plan: &mut Plan,
        draw: &mut Draw,
        pairs: &[(Place, Place)],
    ) -> Result<(), String> {
        self.check()?;
        let flows = pairs.len() as u64 * self.rounds as u64 * self.repeats as u64;
        plan.expect(flows, pairs.iter().flat_map(|(src, dst)| [src.host, dst.host]))?;
        if let Some((src, _)) = pairs.iter().find(|(src, dst)| src.host == dst.host) {
            return Err(format!("host {} would send to itself", src.host));
        }
        let mut begin: Vec<Start> = pairs.iter().map(|_| Start::At(plan.start + self.delay(draw))).collect();
        for round in 0..self.rounds {
            let over = (round + 1 < self.rounds).then(|| plan.barrier(pairs.len()));
            for (&pair, begin) in pairs.iter().zip(&mut begin) {
                let last = self.repeat(plan, pair, *begin);
                if let Some(over) = over {
                    plan.when_sent(last, over);
                    *begin = Start::Trigger(over);
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.rounds == 0 || self.repeats == 0 {
            return Err("rounds and repeats are at least 1".to_string());
        }
        if self.rounds > 1 && self.repeats > 1 {
            return Err(
                "either rounds or repeats: with both, nobody could tell what waits for what".to_string()
            );
        }
        if matches!(self.size, Size::Until(_)) && (self.rounds > 1 || self.repeats > 1) {
            return Err("a flow that goes on until a time has one round and no repeats".to_string());
        }
        Ok(())
    }

    fn delay(&self, draw: &mut Draw) -> Ps {
        match self.spread {
            Ps::ZERO => Ps::ZERO,
            spread => Ps(draw.below(spread.0.saturating_add(1))),
        }
    }

    /// The flows of one pair in one round. Returns the last one's index.
    fn repeat(&self, plan: &mut Plan, pair: (Place, Place), begin: Start) -> u32 {
        let mut flow = plan.flow(pair, self.size, begin);
        for _ in 1..self.repeats {
            let done = plan.trigger(TriggerKind::Oneshot);
            plan.when_sent(flow, done);
            flow = plan.flow(pair, self.size, Start::Trigger(done));
        }
        flow
    }
}
