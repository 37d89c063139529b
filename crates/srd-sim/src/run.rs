//! From a scenario to its outcome.

use crate::ideal::{self, WireCost};
use crate::outcome::{Meter, Outcome};
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::srd_transport::{self, Srd};
use crate::topology::PacketSizes;
use crate::units::Ps;
use srd_wire::Nanos;

/// What the fabric of a scenario offers: rates and times that a transport is configured with.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Longest unloaded round trip, hosts' latency included.
    pub base_rtt: Ps,
    /// The best that the traffic could do on it.
    pub ideal: Option<Ps>,
    /// What SRD's packets cost there.
    pub cost: WireCost,
}

impl Offer {
    /// Of a scenario.
    pub fn of(scenario: &Scenario) -> Offer {
        let Scenario { settings, topology, traffic, .. } = scenario;
        let sizes = PacketSizes::of(settings.transport.mtu, settings.frame_overhead);
        let host = settings.hosts.latency + settings.hosts.per_packet;
        let base_rtt = topology.longest_base_rtt(sizes) + Ps(2 * host.0);
        let cost = srd_transport::wire_cost(settings.transport.mtu, settings.frame_overhead);
        let ideal = ideal::completion_time(topology, traffic, cost, base_rtt);
        Offer { base_rtt, ideal, cost }
    }
}

/// A simulation of SRD hosts in the scenario, at its beginning.
pub fn prepare<'a>(scenario: &'a Scenario, offer: &Offer) -> Simulation<'a, Srd> {
    let line_rate = scenario.topology.fastest_host();
    let base_rtt = Nanos(offer.base_rtt.0.div_ceil(1000));
    Simulation::new(&scenario.settings, &scenario.topology, &scenario.traffic, line_rate, base_rtt)
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    let meter = Meter::start();
    let offer = Offer::of(scenario);
    let mut simulation = prepare(scenario, &offer);
    simulation.run(Ps::NEVER);
    Outcome::of(&simulation, "srd", offer.ideal, &meter)
}
