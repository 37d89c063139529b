//! From what a case says to flows between hosts.

use super::plan::{Traffic, bad};
use crate::error::Result;
use crate::flow::order::Amount;
use crate::plan::Plan;

/// A flow between two hosts, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who sends.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// How much.
    pub amount: Amount,
}

/// The flows.
pub fn flows(traffic: &Traffic, plan: &Plan) -> Result<Vec<Flow>> {
    let amount = traffic.amount()?;
    let flow = |from: &str, to: &str| {
        let flow = Flow { from: plan.host(from)?, to: plan.host(to)?, amount };
        match flow.from == flow.to {
            true => Err(bad(format!("a flow from {from} to itself would not cross the fabric"))),
            false => Ok(flow),
        }
    };
    match traffic {
        Traffic::Incast { flows, from, to, .. } => {
            if from.is_empty() || !(1..=1000).contains(flows) {
                return Err(bad("an incast has 1 to 1000 flows, and hosts they come from".into()));
            }
            (0..*flows as usize).map(|n| flow(&from[n % from.len()], to)).collect()
        }
        Traffic::Pairs { pairs, .. } => {
            if pairs.is_empty() {
                return Err(bad("`pairs` names at least one pair, as in \"host0->host8\"".into()));
            }
            let pair = |pair: &String| {
                let (from, to) = pair
                    .split_once("->")
                    .ok_or_else(|| bad(format!("{pair:?} is no pair: write it as \"host0->host8\"")))?;
                flow(from.trim(), to.trim())
            };
            pairs.iter().map(pair).collect()
        }
    }
}
