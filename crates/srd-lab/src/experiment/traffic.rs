//! From what a case says to flows between hosts.

use super::plan::Traffic;
use crate::error::{Result, bad};
use crate::flow::protocol::Amount;
use crate::plan::Plan;
use std::fmt;

/// Longest run.
const LONGEST_NS: u64 = 600_000_000_000;

/// A flow between two hosts, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who sends.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// How much.
    pub amount: Amount,
    /// When it begins, in nanoseconds from the start.
    pub begin_ns: u64,
    /// Bits per second that its program has to send; [`ALL`](crate::flow::protocol::ALL): as much as goes.
    pub offered_bps: u64,
}

/// Flows between the hosts that `places` has for those they name.
pub fn placed(flows: Vec<Flow>, places: &[usize]) -> Vec<Flow> {
    flows.into_iter().map(|flow| Flow { from: places[flow.from], to: places[flow.to], ..flow }).collect()
}

/// The flows.
pub fn flows(traffic: &Traffic, plan: &Plan) -> Result<Vec<Flow>> {
    let (amount, every_ns) = (traffic.amount()?, traffic.every_ns()?);
    let offered_bps = traffic.offered_bps()?;
    let flow = |from: &str, to: &str| {
        let flow = Flow { from: plan.host(from)?, to: plan.host(to)?, amount, begin_ns: 0, offered_bps };
        match flow.from == flow.to {
            true => Err(bad(format!("a flow from {from} to itself would not cross the fabric"))),
            false => Ok(flow),
        }
    };
    let mut flows: Vec<Flow> = match traffic {
        Traffic::Incast { flows, from, to, .. } => {
            if from.is_empty() || !(1..=1000).contains(flows) {
                return Err(bad("an incast has 1 to 1000 flows, and hosts they come from".into()));
            }
            (0..*flows as usize).map(|n| flow(&from[n % from.len()], to)).collect::<Result<_>>()?
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
            pairs.iter().map(pair).collect::<Result<_>>()?
        }
        Traffic::AllToAll { hosts, .. } => {
            if hosts.len() < 2 {
                return Err(bad("an all-to-all has two hosts or more".into()));
            }
            let others = |from: usize| (1..hosts.len()).map(move |step| (from + step) % hosts.len());
            let pairs = (0..hosts.len()).flat_map(|from| others(from).map(move |to| (from, to)));
            pairs.map(|(from, to)| flow(&hosts[from], &hosts[to])).collect::<Result<_>>()?
        }
        Traffic::Collective(_) | Traffic::Program(_) => unreachable!("these have no amount"),
    };
    for (n, flow) in (0..).zip(&mut flows) {
        flow.begin_ns = every_ns.saturating_mul(n);
    }
    match flows.last() {
        Some(Flow { begin_ns, amount: Amount::ForNs(span), .. })
            if begin_ns.saturating_add(*span) > LONGEST_NS =>
        {
            Err(bad(
                "the last flow ends after more than 600 seconds: make `every_ms` or `seconds` less".into()
            ))
        }
        _ => Ok(flows),
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, seconds, every_ms) = match self {
            Traffic::Incast { bytes, seconds, every_ms, .. }
            | Traffic::Pairs { bytes, seconds, every_ms, .. }
            | Traffic::AllToAll { bytes, seconds, every_ms, .. } => (bytes, seconds, *every_ms),
            Traffic::Collective(_) | Traffic::Program(_) => (&None, &None, 0),
        };
        match self {
            Traffic::Incast { flows, from, to, .. } => {
                write!(out, "{flows} flows from {} to {to}", from.join(", "))?;
            }
            Traffic::Pairs { pairs, .. } => write!(out, "{}", pairs.join(", ").replace("->", " to "))?,
            Traffic::AllToAll { hosts, .. } => write!(out, "all to all between {}", hosts.join(", "))?,
            Traffic::Collective(job) => {
                let (name, bytes, hosts) = (job.operation.name(), job.bytes, job.hosts.join(", "));
                write!(out, "MPI {name} of {bytes} bytes on {hosts}, for {} s each time", job.seconds)?;
            }
            Traffic::Program(job) => write!(out, "{} on {}", job.program.join(" "), job.hosts.join(", "))?,
        }
        match (bytes, seconds) {
            (Some(bytes), _) => write!(out, "; {bytes} bytes each")?,
            (None, Some(seconds)) => write!(out, "; for {seconds} s each")?,
            (None, None) => {}
        }
        if let Traffic::Pairs { mbps: Some(mbps), .. } = self {
            write!(out, ", {mbps} Mbit/s each")?;
        }
        match every_ms {
            0 => Ok(()),
            ms => write!(out, ", one flow {ms} ms after the other"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    #[test]
    fn flows_that_begin_after_the_end_of_time_are_refused() {
        let plan = Plan::new(&Shape::default()).unwrap();
        let traffic = |every_ms| Traffic::Pairs {
            pairs: vec!["host0->host1".into(); 5001],
            mbps: None,
            bytes: None,
            seconds: Some(1.0),
            every_ms,
        };
        assert!(flows(&traffic(0), &plan).is_ok());
        // The last would begin 1.3 s behind 2^64 ns.
        assert!(flows(&traffic(3_689_348_815), &plan).is_err());
    }
}
