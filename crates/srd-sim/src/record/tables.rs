//! What is written once, at the end: flows and ports.

use super::folder::Folder;
use super::name_index::NameIndex;
use super::observed::Observed;
use super::table::{Cell, Columns, Table};
use crate::apps::{Flow, Size};
use crate::input::Scenario;
use crate::net::{PacketSizes, PortId};
use crate::run::{self, Outcome, Simulation};
use srd_baselines::transport::WireCost;
use srd_baselines::units::Ps;
use std::collections::HashMap;
use std::io;

/// All flows.
pub const FLOWS: Columns = Columns {
    file: "flows.csv",
    names: &[
        "id",
        "workload",
        "src_host",
        "src_process",
        "dst_host",
        "dst_process",
        "bytes",
        "delivered_bytes",
        "start_us",
        "fct_us",
        "received_us",
        "alone_us",
        "failed",
        "transport",
    ],
};
/// All ports that have seen a frame.
pub const PORTS: Columns = Columns {
    file: "ports.csv",
    names: &[
        "port",
        "rate_gbps",
        "frames",
        "sent_bytes",
        "most_waiting_bytes",
        "dropped",
        "marked",
        "trimmed",
        "lost",
    ],
};
/// What programs have measured, where there are some.
pub const PROGRAMS: Columns = Columns {
    file: "programs.csv",
    names: &["program", "ranks", "what", "unit", "count", "least", "mean", "p99", "most"],
};
/// Base round trips that are worked out, times cables that each takes a look at.
const MAX_DISTANCES: usize = 200_000_000;

/// Returns the bytes that each flow delivered.
pub(super) fn write_flows(
    folder: &Folder,
    scenario: &Scenario,
    names: &NameIndex,
    simulation: &mut Simulation<'_, Observed>,
) -> io::Result<Vec<u64>> {
    let mut table = Table::create(folder, FLOWS)?;
    let mut alone = Alone::on(scenario);
    let transports = &scenario.settings.transports;
    let mut all_delivered = Vec::with_capacity(scenario.traffic.flows.len());
    for (index, flow) in (0..).zip(&scenario.traffic.flows) {
        let state = simulation.flows[index as usize];
        let after_start = |moment: Option<Ps>| Some(moment? - state.started?);
        let bytes = match flow.size {
            Size::Bytes(bytes) => Some(bytes),
            Size::Until(_) => None,
        };
        let delivered = simulation.delivered(index);
        all_delivered.push(delivered);
        table.row([
            names.id(index).into(),
            scenario.traffic.workloads[flow.workload as usize].as_str().into(),
            flow.src.host.into(),
            flow.src.process.into(),
            flow.dst.host.into(),
            flow.dst.process.into(),
            bytes.into(),
            delivered.into(),
            state.started.into(),
            after_start(state.sent).into(),
            after_start(state.received).into(),
            bytes.and_then(|bytes| alone.time(flow, bytes)).into(),
            state.failed.into(),
            transports[flow.transport as usize].name.as_str().into(),
        ])?;
    }
    table.finish().map(|()| all_delivered)
}

/// What a flow would take if there were no other.
struct Alone<'a> {
    scenario: &'a Scenario,
    /// Of each transport.
    costs: Vec<WireCost>,
    /// Base round trips by transport, the switches of both hosts and the size of the packet.
    distances: HashMap<(u16, u32, u32, u64), Ps>,
    room: usize,
}

impl Alone<'_> {
    fn on(scenario: &Scenario) -> Alone<'_> {
        let room = MAX_DISTANCES / scenario.topology.cables.len().max(1);
        Alone { scenario, costs: run::costs(&scenario.settings), distances: HashMap::new(), room }
    }

    fn time(&mut self, flow: &Flow, bytes: u64) -> Option<Ps> {
        let Scenario { settings, topology, .. } = self.scenario;
        let (src, dst) = (flow.src.host, flow.dst.host);
        // The first packet's own time on the cable is part of the round trip.
        let cost = self.costs[flow.transport as usize];
        let transport = &settings.transports[flow.transport as usize];
        let first = cost.bytes(bytes.min(cost.payload));
        let key = (flow.transport, topology.rack_of(src), topology.rack_of(dst), first);
        if !self.distances.contains_key(&key) && self.distances.len() >= self.room {
            return None;
        }
        // Hosts of a leaf are taken for equally far from it.
        let rtt = *self.distances.entry(key).or_insert_with(|| {
            let sizes = PacketSizes::of(transport.mtu, settings.frame_overhead);
            topology.base_rtt(PacketSizes { data: first, ..sizes }, src, dst)
        });
        let rate = topology.host_cable(src).rate.min(topology.host_cable(dst).rate);
        let host = settings.hosts.latency + settings.hosts.per_packet + transport.stack;
        Some(Ps::to_send(cost.bytes(bytes) - first, rate) + rtt + Ps(2 * host.0))
    }
}

/// What programs have measured.
pub(super) fn write_programs(folder: &Folder, outcome: &Outcome) -> io::Result<()> {
    let mut table = Table::create(folder, PROGRAMS)?;
    for program in &outcome.programs {
        for figure in &program.figures {
            table.row([
                program.name.as_str().into(),
                program.ranks.into(),
                figure.what.as_str().into(),
                figure.unit.as_str().into(),
                (figure.count as u64).into(),
                figure.least.into(),
                figure.mean.into(),
                figure.p99.into(),
                figure.most.into(),
            ])?;
        }
    }
    table.finish()
}

pub(super) fn write_ports(
    folder: &Folder,
    scenario: &Scenario,
    names: &NameIndex,
    simulation: &Simulation<'_, Observed>,
) -> io::Result<()> {
    let mut table = Table::create(folder, PORTS)?;
    for port in (0..simulation.fabric.ports()).map(PortId) {
        let counters = simulation.fabric.counters(port);
        if counters.frames + counters.dropped + counters.lost == 0 {
            continue;
        }
        let rate = scenario.topology.cables[port.cable() as usize].rate;
        table.row([
            names.port_name(port).as_str().into(),
            Cell::Real(rate.0 as f64 / 1e9),
            counters.frames.into(),
            counters.bytes.into(),
            counters.most_waiting.into(),
            counters.dropped.into(),
            counters.marked.into(),
            counters.trimmed.into(),
            counters.lost.into(),
        ])?;
    }
    table.finish()
}
