//! Reads an experiment's file and refuses what cannot be run.

use super::columns::{COLUMNS, Column};
use super::job::carrier;
use super::plan::{Experiment, LONGEST_S, transport};
use super::traffic::flows;
use crate::error::{Result, bad};
use crate::flow::protocol::Amount;
use crate::plan::Plan;

impl Experiment {
    /// Reads an experiment. An error names the line.
    pub fn from_toml(text: &str) -> Result<Experiment> {
        let experiment: Experiment = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<()> {
        if self.cases.is_empty() || self.transports.is_empty() || self.repeats == 0 {
            return Err(bad("an experiment has at least one case, one transport and one repeat".into()));
        }
        if !(1.0..=100.0).contains(&self.most_cpu_percent) {
            return Err(bad(format!("most_cpu_percent = {}: 1 to 100", self.most_cpu_percent)));
        }
        let jobs_only = self.cases.iter().all(|case| case.traffic.job().is_some());
        for name in &self.transports {
            match jobs_only {
                true => drop(carrier(name)?),
                false => drop(transport(name)?),
            }
            for beside in self.cases.iter().filter_map(|case| case.beside.as_ref()) {
                beside.transport(name)?;
            }
        }
        self.shape(&self.cases[0], false).check()?;
        let plan = Plan::new(&self.fabric)?;
        for case in &self.cases {
            let beside = match &case.beside {
                Some(beside) => flows(&beside.traffic, &plan)?,
                None => Vec::new(),
            };
            let measured = match case.traffic.job() {
                None => flows(&case.traffic, &plan)?,
                Some(job) => {
                    let hosts: Vec<usize> = beside.iter().flat_map(|flow| [flow.from, flow.to]).collect();
                    job.check(&plan, &hosts)?;
                    if beside.iter().any(|flow| matches!(flow.amount, Amount::Bytes(_))) {
                        return Err(bad(
                            "flows beside an MPI job have `seconds`: they go on as long as it".into()
                        ));
                    }
                    Vec::new()
                }
            };
            if case.possible_mbps.is_some_and(|mbps| !(0.01..=1e6).contains(&mbps)) {
                return Err(bad(format!(
                    "case {:?}: possible_mbps lies between 0.01 and 1000000",
                    case.name
                )));
            }
            let most = (self.fabric.host_mbps / 8.0 * 1e6 * LONGEST_S) as u64;
            if measured.iter().chain(&beside).any(|flow| matches!(flow.amount, Amount::Bytes(n) if n > most))
            {
                return Err(bad(format!(
                    "case {:?}: a host's link of {} Mbit/s carries at most {most} `bytes` in {LONGEST_S} seconds",
                    case.name, self.fabric.host_mbps
                )));
            }
            for (name, bound) in &case.wanted {
                if Column::named(name).is_none() {
                    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
                    let known = names.join(", ");
                    return Err(bad(format!(
                        "case {:?} wants something of {name:?}; there are {known}",
                        case.name
                    )));
                }
                if bound.at_least.is_none() && bound.at_most.is_none() {
                    return Err(bad(format!("`wanted.{name}` has `at_least`, `at_most` or both")));
                }
            }
            let ends_ns = measured.iter().filter_map(|flow| match flow.amount {
                Amount::ForNs(span) => Some(flow.begin_ns + span),
                Amount::Bytes(_) => None,
            });
            let ends_ns = ends_ns.max().unwrap_or(u64::MAX);
            for timed in &case.faults {
                if timed.at_ms.saturating_mul(1_000_000) >= ends_ns {
                    return Err(bad(format!(
                        "case {:?}: a fault begins when all flows have ended",
                        case.name
                    )));
                }
                if timed.heal_ms <= timed.at_ms {
                    return Err(bad(format!("case {:?}: a fault ends before it begins", case.name)));
                }
                timed.fault.check(&plan)?;
            }
        }
        Ok(())
    }
}
