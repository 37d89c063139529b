//! Runs in which every packet goes through the wire format.

use super::Observed;
use crate::input::Scenario;
use crate::run::Simulation;
use crate::run::{Meter, Offer, Outcome, Ran, drive, prepare_hosts, run_watched};

/// Whether there are packets that can be put through their wire format. The error says why not.
pub fn check_verified(scenario: &Scenario) -> Result<(), &'static str> {
    match scenario.settings.transports.iter().any(|transport| transport.srd().is_some()) {
        true => Ok(()),
        false => Err("--verify puts SRD's packets through their wire format, and nobody speaks SRD here"),
    }
}

/// As [`run_watched`], and runs it a second time in which every packet is encoded, decoded and compared. The error says
/// what was not the same: a packet, or the outcome.
pub fn run_verified(scenario: &Scenario, watch: &mut dyn FnMut(f64) -> bool) -> Option<Result<Ran, String>> {
    let ran = run_watched(scenario, 1, &mut |share| watch(share / 2.0))?;
    let offer = Offer::of(scenario);
    let mut simulation: Simulation<'_, Observed> = prepare_hosts(scenario, &offer);
    simulation.transports_mut().for_each(Observed::verify);
    if !drive(&mut simulation, scenario, &offer, &mut |share| watch(0.5 + share / 2.0)) {
        return None;
    }
    let second = Outcome::of(&mut simulation, offer.ideal, &Meter::start());
    Some(match simulation.transports().find_map(Observed::defect) {
        Some(defect) => Err(defect.to_string()),
        None if (Outcome { cost: ran.outcome.cost, ..second }) == ran.outcome => Ok(ran),
        None => Err("the run came to another outcome when packets went through the wire format".to_string()),
    })
}
