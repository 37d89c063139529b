//! Figures of Sandia's cluster that are code. Where they come from and what was chosen for them stands in
//! `figures/sandia/family.toml` of this crate, with the networks.

pub(super) mod bisection;
pub(super) mod contention;
pub(super) mod order;

use super::file::{Family, Network, family};
use super::lab::{Lab, Run};
use crate::input::Scenario;
use std::sync::LazyLock;

const SOURCE: &str = "Naegle et al., OpenFabrics workshop, 2008";

static FAMILY: LazyLock<Family> = LazyLock::new(|| family("sandia"));

/// The network of the family that is called so.
fn network(label: &str) -> Network {
    FAMILY.network(label).unwrap_or_else(|| panic!("family.toml has no network {label}")).clone()
}

/// A network that only one figure has.
fn own(label: &str, sets: &[&str]) -> Network {
    Network { label: label.into(), sets: sets.iter().map(|set| set.to_string()).collect(), may_fail: false }
}

/// The network and what happens in it; `seed` shuffles.
fn scenario(network: &Network, traffic: &str, seed: u64, more: &[String]) -> Scenario {
    let mut sets = network.sets.clone();
    sets.push(format!("seed={seed}"));
    sets.extend_from_slice(more);
    Lab::scenario(&format!("{}{traffic}", FAMILY.scenario), &sets)
}

/// Complaints, unless they are a result.
fn complaints(network: &Network, run: &Run) -> Vec<String> {
    match network.may_fail {
        true => Vec::new(),
        false => run.complaints.iter().map(|complaint| format!("{}: {complaint}", network.label)).collect(),
    }
}

/// Mean of values, and the least and the most.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spread {
    least: f64,
    mean: f64,
    most: f64,
}

impl Spread {
    /// `None` of none.
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let all: Vec<f64> = values.into_iter().collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let end = |fold: fn(f64, f64) -> f64| all.iter().copied().reduce(fold);
        Some(Spread { least: end(f64::min)?, mean, most: end(f64::max)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_what_they_are_called() {
        let program = "[[program]]\nkind = \"barrier\"\nhosts = 16\nplacement = \"random\"\n";
        for network in FAMILY.networks() {
            let scenario = scenario(network, program, 1, &[]);
            let pauses = scenario.settings.queues.pause.is_some();
            let lossless = network.label.contains("pause") || network.label.contains("InfiniBand");
            assert_eq!(pauses, lossless, "{}", network.label);
            let kind = scenario.settings.transports[0].name.as_str();
            let words = [
                ("iwarp", "iWARP"),
                ("roce", "InfiniBand"),
                ("tcp", "TCP"),
                ("nscc", "NSCC"),
                ("srd", "SRD"),
            ];
            let (_, word) = words.into_iter().find(|(name, _)| *name == kind).expect("one of these");
            assert!(network.label.contains(word), "{} is {kind}", network.label);
        }
    }

    #[test]
    fn a_spread_has_its_ends() {
        assert_eq!(Spread::of([2.0, 1.0, 6.0]), Some(Spread { least: 1.0, mean: 3.0, most: 6.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
