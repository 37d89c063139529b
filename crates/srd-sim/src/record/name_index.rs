//! Who is who in a run: processes by address, flows by what their packets say, ports by name.

use crate::apps::{Flow, Place, Traffic};
use crate::hosts::Process;
use crate::hosts::{gid, host_of};
use crate::input::Scenario;
use crate::net::{NodeId, PortId, Topology};
use crate::run::Simulation;
use srd_baselines::units::Ps;
use srd_wire::InstanceAddr;
use std::collections::{HashMap, HashSet};

/// See the module. Processes and flows are named by their index.
pub(super) struct NameIndex {
    topology: Topology,
    /// Of each flow: the number that people see.
    ids: Vec<u32>,
    places: Vec<Place>,
    /// Of each process: the index of its transport; and what these are called.
    speaks: Vec<u16>,
    transports: Vec<String>,
    /// Of those that speak SRD.
    addresses: Vec<Option<InstanceAddr>>,
    by_address: HashMap<(u32, u16), u32>,
    /// Of each process: number among those of its host, by which frames name it.
    by_place: HashMap<Place, u32>,
    /// Of each process: the flow of each inbox.
    inboxes: Vec<Vec<u32>>,
    ends: Vec<(u32, u32)>,
    /// Of each cable: its number in its bundle, if that has several.
    bundled: HashMap<u32, u32>,
}

impl NameIndex {
    /// Of a simulation of `scenario` that has been built.
    /// `processes` are named as frames name them, with the port of those that speak SRD.
    pub(super) fn of<T: Process>(
        scenario: &Scenario,
        simulation: &Simulation<'_, T>,
        processes: &[(Place, Option<u16>)],
    ) -> NameIndex {
        let Scenario { topology, traffic, .. } = scenario;
        let places: Vec<Place> = simulation.places().map(|(place, _)| place).collect();
        let transports = &scenario.settings.transports;
        let address =
            |&(at, port): &(Place, Option<u16>)| Some(InstanceAddr { gid: gid(at.host), port: port? });
        let addresses: Vec<Option<InstanceAddr>> = processes.iter().map(address).collect();
        let hosts = places.iter().zip(&addresses).zip(0..);
        let mut inboxes = vec![Vec::new(); places.len()];
        for (index, state) in (0..).zip(&simulation.flows) {
            inboxes[state.to as usize].push(index); // inboxes are given out in the order of flows
        }
        NameIndex {
            topology: topology.clone(),
            ids: numbers(traffic),
            by_address: hosts
                .filter_map(|((place, addr), n)| Some(((place.host, addr.as_ref()?.port), n)))
                .collect(),
            by_place: processes.iter().map(|&(at, _)| at).zip(0..).collect(),
            addresses,
            speaks: simulation.places().map(|(_, transport)| transport).collect(),
            transports: transports.iter().map(|transport| transport.name.clone()).collect(),
            inboxes,
            ends: simulation.flows.iter().map(|state| (state.from, state.to)).collect(),
            bundled: bundled(topology),
            places,
        }
    }

    pub(super) fn place(&self, process: u32) -> Place {
        self.places[process as usize]
    }

    /// `h3.0`, as scenarios write a process; if it does not speak the first of several transports, with that: `h3.0/tcp`.
    pub(super) fn process_name(&self, process: u32) -> String {
        let Place { host, process: number } = self.place(process);
        match self.speaks[process as usize] {
            0 => format!("h{host}.{number}"),
            other => format!("h{host}.{number}/{}", self.transports[other as usize]),
        }
    }

    /// The address of a process that speaks SRD.
    pub(super) fn address(&self, process: u32) -> Option<InstanceAddr> {
        self.addresses[process as usize]
    }

    /// The process of `host` that receives on a UDP port.
    pub(super) fn process_on(&self, host: u32, port: u16) -> Option<u32> {
        self.by_address.get(&(host, port)).copied()
    }

    /// The process of an instance.
    pub(super) fn process_of(&self, instance: &InstanceAddr) -> Option<u32> {
        self.process_on(host_of(instance.gid), instance.port)
    }

    /// The process that frames name so.
    pub(super) fn process_at(&self, place: Place) -> Option<u32> {
        self.by_place.get(&place).copied()
    }

    /// The flow that fills an inbox.
    pub(super) fn flow_into(&self, process: u32, inbox: u32) -> Option<u32> {
        self.inboxes.get(process as usize)?.get(inbox as usize).copied()
    }

    /// Sending and receiving process of a flow.
    pub(super) fn ends(&self, flow: u32) -> (u32, u32) {
        self.ends[flow as usize]
    }

    /// The number of a flow that people see.
    pub(super) fn id(&self, flow: u32) -> u32 {
        self.ids[flow as usize]
    }

    /// `leaf0->spine2`, or `leaf0->spine2#1` in a bundle.
    pub(super) fn port_name(&self, port: PortId) -> String {
        let (from, to) = ends_of(&self.topology, port);
        let name = format!("{}->{}", self.topology.name(from), self.topology.name(to));
        match self.bundled.get(&port.cable()) {
            Some(number) => format!("{name}#{number}"),
            None => name,
        }
    }

    /// The host that sends by a port, if it is not a switch.
    pub(super) fn host_at(&self, port: PortId) -> Option<u32> {
        let (from, _) = ends_of(&self.topology, port);
        (from.0 < self.topology.hosts).then_some(from.0)
    }

    /// When a frame of so many bytes is at its host that begins to leave a port at that time; `None` if the cable leads to a switch.
    pub(super) fn at_host(&self, port: PortId, at: Ps, bytes: u32) -> Option<Ps> {
        let (_, to) = ends_of(&self.topology, port);
        let delay = self.topology.cables[port.cable() as usize].delay;
        (to.0 < self.topology.hosts).then(|| at + self.time_on(port, bytes) + delay)
    }

    /// How long so many bytes take on a port's cable, as it was built.
    pub(super) fn time_on(&self, port: PortId, bytes: u32) -> Ps {
        Ps::to_send(bytes as u64, self.topology.cables[port.cable() as usize].rate)
    }
}

/// A number for each flow that no other has: its own, or if that has been given already, as to all messages of one
/// htsim connection, the next free one.
pub(super) fn numbers(traffic: &Traffic) -> Vec<u32> {
    let mut taken: HashSet<u32> = HashSet::with_capacity(traffic.flows.len());
    let mut next = traffic.next_id();
    let mut number = |flow: &Flow| match taken.insert(flow.id) {
        true => flow.id,
        false => {
            next = next.saturating_add(1);
            next - 1
        }
    };
    traffic.flows.iter().map(&mut number).collect()
}

/// Where a port's frames come from, and where its cable leads.
pub(super) fn ends_of(topology: &Topology, port: PortId) -> (NodeId, NodeId) {
    let cable = &topology.cables[port.cable() as usize];
    if port == PortId::at_a(port.cable()) { (cable.a, cable.b) } else { (cable.b, cable.a) }
}

/// Numbers of cables in bundles, counted as `Topology::cables_named` does.
pub(super) fn bundled(topology: &Topology) -> HashMap<u32, u32> {
    let mut bundles: HashMap<(NodeId, NodeId), Vec<u32>> = HashMap::new();
    for (index, cable) in (0..).zip(&topology.cables) {
        bundles.entry((cable.a, cable.b)).or_default().push(index);
    }
    let several = bundles.into_values().filter(|cables| cables.len() > 1);
    several.flat_map(|cables| cables.into_iter().zip(0..)).collect()
}
