//! Who is there: processes that flows and programs name, and their hosts.

use super::{FlowState, Host, Kind, Process, ReceiveQueue, Simulation};
use crate::apps::Place;
use crate::hosts::{Birth, ForeignFlows, Messages, TransportSettings};
use crate::net::{ClassSchedule, Topology};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_baselines::transport::Role;
use srd_baselines::units::Ps;
use srd_wire::{BitRate, Nanos};
use std::collections::{BTreeMap, VecDeque};

impl<T: Kind> Simulation<'_, T> {
    /// Makes the processes that flows and programs name, and their hosts.
    pub(super) fn populate(&mut self, topology: &Topology, line_rate: BitRate, base_rtt: Nanos) {
        let traffic = self.traffic;
        // Flows that each sends, and flows that fill its inboxes, by host, transport and number.
        let mut places: BTreeMap<(u32, u16, u16), (u32, Vec<u32>)> = BTreeMap::new();
        let key = |place: Place, transport: u16| (place.host, transport, place.process);
        for (index, flow) in traffic.flows.iter().enumerate() {
            places.entry(key(flow.src, flow.transport)).or_default().0 += 1;
            places.entry(key(flow.dst, flow.transport)).or_default().1.push(index as u32);
        }
        for program in &traffic.programs {
            places.entry(key(program.at, program.transport)).or_default();
        }
        let blank =
            FlowState { started: None, sent: None, received: None, failed: None, from: 0, to: 0, inbox: 0 };
        self.flows = vec![blank; traffic.flows.len()];
        let numbers: BTreeMap<(u32, u16, u16), u32> = places.keys().copied().zip(0u32..).collect();
        for (index, flow) in traffic.flows.iter().enumerate() {
            self.flows[index].from = numbers[&key(flow.src, flow.transport)];
        }
        self.ranks =
            traffic.programs.iter().map(|program| numbers[&key(program.at, program.transport)]).collect();
        let rank_of: BTreeMap<u32, u32> = self.ranks.iter().copied().zip(0u32..).collect();
        assert_eq!(rank_of.len(), self.ranks.len(), "a process runs one program");
        if !T::RUNS_PROGRAMS && !traffic.programs.is_empty() {
            self.messages = Some(Box::new(Messages::new(self.settings, traffic, self.flows.len() as u32)));
        }
        let mut seeds = SmallRng::seed_from_u64(self.settings.seed ^ 0x405);
        let queues = self.settings.hosts.queues.max(1) as usize;
        let uplinks = self.fabric.uplinks();
        let is_srd = |transport: &TransportSettings| transport.srd().is_some();
        let mixed =
            self.settings.transports.iter().any(is_srd) && !self.settings.transports.iter().all(is_srd);
        let one_queue = self.settings.queues.classes == ClassSchedule::None;
        let shares = |with: &TransportSettings| {
            let mut of_srd = self.settings.transports.iter().filter(|transport| is_srd(transport));
            one_queue || of_srd.any(|transport| transport.class == with.class)
        };
        self.hosts = (0..topology.hosts)
            .map(|host| Host {
                uplink: uplinks[host as usize],
                processes: Vec::new(),
                ready: VecDeque::new(),
                transmit_at: Ps::NEVER,
                senders: 0,
                next_frame: Ps::ZERO,
                receive: vec![ReceiveQueue::default(); queues],
                per_packet: match self.settings.hosts.slow_hosts.contains(&host) {
                    true => self.settings.hosts.slow_per_packet,
                    false => self.settings.hosts.per_packet,
                },
                holds_back: 0,
                draws: 0,
                foreign_flows: mixed.then(|| ForeignFlows::new(Ps::from(base_rtt))),
            })
            .collect();
        self.processes.reserve_exact(places.len());
        self.addresses.reserve_exact(places.len());
        for (number, ((host, transport, number_there), (flows_out, inboxes))) in
            places.into_iter().enumerate()
        {
            for (inbox, &flow) in inboxes.iter().enumerate() {
                self.flows[flow as usize].to = number as u32;
                self.flows[flow as usize].inbox = inbox as u32;
            }
            let of_host = &mut self.hosts[host as usize].processes;
            let local = match self.settings.transports.len() {
                1 => number_there,
                _ => of_host.len() as u16, // processes of several transports may have the same number
            };
            of_host.resize((local as usize + 1).max(of_host.len()), u32::MAX);
            of_host[local as usize] = number as u32;
            let speaks = &self.settings.transports[transport as usize];
            let program = rank_of.get(&(number as u32));
            let messages = program.map_or(0, |_| Messages::MOST_AT_A_TIME);
            let role = Role {
                host,
                process: local,
                flows_out: flows_out + messages,
                inboxes: inboxes.len() as u32 + messages,
                seed: seeds.random(),
                line_rate: speaks.line_rate.unwrap_or(line_rate),
                base_rtt: speaks.base_rtt.map_or(base_rtt, |rtt| Nanos(rtt.0 / 1000)),
                mtu: speaks.mtu,
                class: speaks.class,
            };
            let process = T::new(Birth {
                role,
                settings: self.settings,
                transport: speaks,
                program: program.map(|&rank| (rank, &traffic.programs[rank as usize])),
            });
            self.addresses.push(process.address());
            self.processes.push(Process {
                transport: process,
                host,
                wakes_at: Ps::NEVER,
                ready: false,
                senders: 0,
                stack: speaks.stack,
                counted: speaks.choice.counts_senders() || !shares(speaks),
                apart: mixed && !shares(speaks),
                place: Place { host, process: number_there },
                speaks: transport,
                rank: program.copied().unwrap_or(u32::MAX),
                inboxes,
            });
        }
        if T::RUNS_PROGRAMS {
            let addresses: Vec<T::Address> =
                self.ranks.iter().map(|&process| self.addresses[process as usize].clone()).collect();
            for &process in &self.ranks {
                self.processes[process as usize].transport.meet(&addresses);
            }
        }
    }
}
