//! What a scenario's fabric offers to those who send on it.

use crate::hosts::{Settings, TransportSettings, wire_cost};
use crate::input::Scenario;
use crate::net::PacketSizes;
use crate::run::lower_bound;
use srd_baselines::transport::WireCost;
use srd_baselines::units::Ps;

/// What the fabric of a scenario offers: rates and times that a transport is configured with.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Longest unloaded round trip, hosts' latency included.
    pub base_rtt: Ps,
    /// The best that the traffic could do on it.
    pub ideal: Option<Ps>,
    /// What the packets of the transport cost there, of all who name none.
    pub cost: WireCost,
}

impl Offer {
    /// Of a scenario.
    pub fn of(scenario: &Scenario) -> Offer {
        let Scenario { settings, topology, traffic, .. } = scenario;
        let sizes = PacketSizes::of(settings.largest_mtu(), settings.frame_overhead);
        let host = settings.hosts.latency + settings.hosts.per_packet;
        let base_rtt = topology.longest_base_rtt(sizes) + Ps(2 * host.0);
        let costs = costs(settings);
        let ideal = lower_bound::completion_time(
            topology,
            traffic,
            &costs,
            settings.routing.makes_detours(),
            base_rtt,
        );
        Offer { base_rtt, ideal, cost: costs[0] }
    }
}

/// What packets cost, by transport.
pub(crate) fn costs(settings: &Settings) -> Vec<WireCost> {
    let overhead = settings.frame_overhead;
    let cost = |transport: &TransportSettings| {
        let baseline = transport.choice.cost(transport.mtu, overhead);
        baseline.unwrap_or_else(|| wire_cost(transport.mtu, overhead))
    };
    settings.transports.iter().map(cost).collect()
}
