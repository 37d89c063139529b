//! Makes a failing plan smaller: puts fields back to calm, then halves what is left, for as long as the same rule is
//! still broken.

use crate::plan::{Faults, Plan, Shape, Talk};
use crate::run;
use crate::world::Failure;

/// The smallest failure found, starting from `failure`, and how many runs it took. `budget` bounds the runs.
pub fn shrink(failure: Box<Failure>, budget: u32) -> (Box<Failure>, u32) {
    let mut best = failure;
    let mut runs = 0;
    loop {
        let before = best.plan.clone();
        for name in Shape::NAMES.iter().chain(Faults::NAMES).chain(Talk::NAMES) {
            if ["sabotage", "layer"].contains(name) {
                continue;
            }
            for value in candidates(&mut best.plan.clone(), name) {
                if runs >= budget {
                    return (best, runs);
                }
                let mut plan = best.plan.clone();
                plan.set(name, value).expect("the name is in the list");
                runs += 1;
                if let Err(smaller) = run(&plan, false)
                    && smaller.violation.rule == best.violation.rule
                {
                    best = smaller;
                    break;
                }
            }
        }
        if best.plan == before {
            return (best, runs);
        }
    }
}

/// Fields in which less is calmer; of the others only the calm value is.
const GRADUAL: &[&str] = &[
    "processes",
    "qps",
    "post_burst",
    "invalid_percent",
    "self_percent",
    "loss_ppm",
    "dup_ppm",
    "reorder_ppm",
    "corrupt_ppm",
    "blackholes",
    "flaps",
    "delay_steps",
    "cuts",
    "slow_receivers",
    "qp_destroys",
    "qp_errors",
    "ah_destroys",
    "mr_deregs",
    "restarts",
    "pauses",
    "jumps_forward",
    "jumps_back",
    "endpoints",
    "reopens",
];

/// Values of a field that are calmer than the one it has, the calmest first.
fn candidates(plan: &mut Plan, name: &str) -> Vec<u64> {
    let calm = *Plan::calm(0).field(name).expect("the name is in the list");
    let now = *plan.field(name).expect("as above");
    let mut values = Vec::new();
    if now != calm {
        values.push(calm);
    }
    // Counts can also go below what a calm run has.
    if name == "messages" {
        values.extend([1, 2, 4, 8, now / 2, now.saturating_sub(1)].into_iter().filter(|&n| n < now && n > 0));
    } else if GRADUAL.contains(&name) && now > calm + 1 {
        values.push(calm + (now - calm) / 2);
        if now - calm < 16 {
            values.push(now - 1);
        }
    }
    values
}
