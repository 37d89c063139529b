//! Broadcom's figures that are code. Where they come from and what was chosen for them stands in `figures/broadcom/family.toml` of
//! this crate, with the networks.

mod gpcnet;
mod latency;
mod live_lock;

pub(super) use gpcnet::GPCNET;
pub(super) use latency::LATENCY;
pub(super) use live_lock::LIVE_LOCK;

use super::file::{Family, family};
use super::lab::Planned;
use srd_chart::plain;
use std::sync::LazyLock;

const SOURCE: &str =
    "Shah and Voloshin (Broadcom), \"Congestion Control for Large Scale RoCEv2 Deployments\"";

static FAMILY: LazyLock<Family> = LazyLock::new(|| family("broadcom"));

/// A run of what `text` has besides the fabric on a network of the family, with overrides.
fn planned(text: &str, network: &str, more: &[String]) -> Planned {
    let network = FAMILY.network(network).unwrap_or_else(|| panic!("family.toml has no network {network}"));
    let sets = [&network.sets.always[..], more].concat();
    Planned::new(format!("{}{text}", FAMILY.scenario), sets)
}

/// Names and values, one behind the other.
fn list(of: impl IntoIterator<Item = (String, f64)>) -> String {
    let words: Vec<String> =
        of.into_iter().map(|(name, value)| format!("{name}: {}", plain(value))).collect();
    words.join(", ")
}
