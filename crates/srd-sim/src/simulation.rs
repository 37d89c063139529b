//! One run: hosts, fabric and traffic, driven by events.

use crate::draws;
use crate::event_queue::{EventQueue, Scheduled, Spans};
use crate::fabric::{Arrival, Fabric, PortId, mix};
use crate::flow::{Place, Size, Start, Traffic, TriggerKind};
use crate::frame::{FrameHead, FrameId, FramePool};
use crate::messages::Messages;
use crate::process::{Birth, Process as Kind};
use crate::settings::{ClassSchedule, Settings, TransportSettings};
use crate::strangers::Strangers;
use crate::topology::Topology;
use crate::transport::{Counts, Order, Outgoing, Report, Role};
use crate::units::Ps;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{BitRate, Nanos, Time};
use std::collections::{BTreeMap, VecDeque};

/// Bytes before an IP datagram on Ethernet: two addresses and the type.
pub const ETHERNET_HEADER: u32 = 14;
/// Shortest Ethernet frame without its check sequence.
const SHORTEST_FRAME: u32 = 60;

/// Events between the present one and the one that is prepared.
const LOOK_AHEAD: usize = 6;

/// Time between two looks for ports that wait for each other.
const LOOK_FOR_DEADLOCKS: Ps = Ps::from_micros(100);

/// What happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A frame comes to the other end of a port's cable.
    Arrive {
        /// The port that sent it.
        port: PortId,
        /// The frame.
        frame: FrameId,
    },
    /// A port with several queues has sent a frame.
    PortFree {
        /// The port.
        port: PortId,
    },
    /// A port has been told not to send.
    Pause {
        /// The port.
        port: PortId,
        /// What it may not send from now on, a bit for each class.
        classes: u8,
    },
    /// A port may have been paused for too long.
    Watchdog(PortId),
    /// The last switch of a flow has held frames for as long as it does.
    GiveUp {
        /// The switch.
        switch: u32,
        /// Its number for the flow.
        flow: u32,
    },
    /// A host has worked through a received frame.
    Deliver {
        /// The host.
        host: u32,
        /// The frame.
        frame: FrameId,
    },
    /// A host may send its next frame.
    Transmit(u32),
    /// A process has something to do by the clock.
    Wake(u32),
    /// A flow starts.
    Start(u32),
    /// A flow without end ends.
    Stop(u32),
    /// A rank of a program looks what it can do.
    Advance(u32),
    /// Something goes wrong, or right again.
    Fault(u32),
    /// Switches learn of it.
    Reroute,
}

impl Scheduled for Event {
    fn rank(self, at: Ps) -> u64 {
        let (kind, whose) = match self {
            Event::Fault(fault) => (0, fault),
            Event::Reroute => (1, 0),
            Event::Start(flow) => (2, flow),
            Event::Stop(flow) => (3, flow),
            Event::PortFree { port } => (4, port.0),
            Event::Pause { port, .. } => (10, port.0),
            Event::Watchdog(port) => (11, port.0),
            Event::GiveUp { flow, .. } => (12, flow),
            Event::Arrive { port, .. } => (5, port.0),
            Event::Deliver { host, .. } => (6, host),
            Event::Wake(process) => (7, process),
            Event::Advance(rank) => (8, rank),
            Event::Transmit(host) => (9, host),
        };
        // Ports that are in step meet again and again: another one is first each time.
        kind << 32 | mix(whose ^ at.0 as u32) as u64
    }
}

/// A process.
struct Process<T> {
    transport: T,
    host: u32,
    /// When it wakes, as far as an event says so.
    wakes_at: Ps,
    /// It waits for its turn to send.
    ready: bool,
    /// How many send to it.
    senders: u16,
    /// What its transport's software adds to a frame's way.
    stack: Ps,
    /// It counts who sends to it, or they have a class of their own, which takes nothing from SRD's; otherwise its connections
    /// are counted for it.
    counted: bool,
    /// Rank of its program.
    rank: u32,
    /// Flow of each inbox.
    inboxes: Vec<u32>,
}

struct Host {
    uplink: PortId,
    /// Its processes, by number.
    processes: Vec<u32>,
    /// Processes that may have something to send.
    ready: VecDeque<u32>,
    transmit_at: Ps,
    /// How many send to its processes.
    senders: u16,
    /// The network card may take the next frame.
    next_frame: Ps,
    receive: Vec<ReceiveQueue>,
    /// Time that each received packet costs.
    per_packet: Ps,
    /// Classes that the switch has been told not to send, a bit each.
    holds_back: u8,
    /// Random numbers drawn for it.
    draws: u32,
    /// Connections of transports other than SRD, where there are some beside SRD.
    strangers: Option<Strangers>,
}

#[derive(Clone, Copy, Default)]
struct ReceiveQueue {
    free_at: Ps,
    waiting: u32,
}

/// What has become of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowState {
    /// When it started.
    pub started: Option<Ps>,
    /// When the sender had every byte acknowledged.
    pub sent: Option<Ps>,
    /// When the receiver had every byte.
    pub received: Option<Ps>,
    /// Why it failed.
    pub failed: Option<&'static str>,
    /// Index of the sending process.
    pub from: u32,
    /// Index of the receiving process.
    pub to: u32,
    /// Inbox there.
    pub inbox: u32,
}

/// Frames that hosts have lost.
#[derive(Clone, Copy, Default, Debug)]
pub struct HostLosses {
    /// The receive ring was full.
    pub ring: u64,
    /// The check sequence was wrong.
    pub corrupt: u64,
}

/// See the module.
pub struct Simulation<'a, T: Kind> {
    /// The present.
    pub now: Ps,
    settings: &'a Settings,
    traffic: &'a Traffic,
    events: EventQueue<Event>,
    frames: FramePool<T::Content>,
    /// The network.
    pub fabric: Fabric<T::Content>,
    hosts: Vec<Host>,
    processes: Vec<Process<T>>,
    addresses: Vec<T::Address>,
    /// Processes of programs, by rank.
    ranks: Vec<u32>,
    /// Programs whose messages are flows.
    messages: Option<Messages>,
    /// By index of the traffic's flows.
    pub flows: Vec<FlowState>,
    /// How often each trigger has fired.
    fired: Vec<u32>,
    /// Flows with an end, and programs, that have not come to it.
    unfinished: u32,
    /// When the last flow without end is told to stop.
    endless_until: Ps,
    /// When the last flow that has an end, or the last program, came to it.
    ended: Ps,
    /// The run goes on to the end of that span in which it is over.
    spans: Spans,
    /// When ports that wait for each other are looked for next.
    looks_at: Ps,
    /// Hosts take no time.
    instant: bool,
    /// What hosts have lost.
    pub host_losses: HostLosses,
    /// First error of the traffic itself.
    pub mistake: Option<String>,
}

/// Puts what a process of `host` sends into a frame.
#[inline]
fn framed<C>(host: u32, outgoing: Outgoing<C>, overhead: u32, frames: &mut FramePool<C>) -> FrameId {
    let Outgoing { to, process, ports, bytes, class, ecn_capable, content } = outgoing;
    let bytes = (bytes + ETHERNET_HEADER).max(SHORTEST_FRAME) + overhead;
    let tuple_hash = mix(mix(mix(host) ^ to) ^ (ports.0 as u32) << 16 ^ ports.1 as u32);
    let head = FrameHead {
        tuple_hash,
        dst: to,
        bytes,
        class,
        ecn_capable,
        marked: false,
        trimmed: false,
        corrupt: false,
        epoch: 0,
        process,
    };
    frames.put(head, content)
}

impl<'a, T: Kind> Simulation<'a, T> {
    /// Builds everything. The topology must be one that its check accepts, and the traffic one for it.
    pub fn new(
        settings: &'a Settings,
        topology: &'a Topology,
        traffic: &'a Traffic,
        line_rate: BitRate,
        base_rtt: Nanos,
    ) -> Simulation<'a, T> {
        let fabric = Fabric::new(topology, settings);
        let spans = Spans::by_node(fabric.shortest_delay());
        let looks_at = if fabric.pauses() { spans.end(LOOK_FOR_DEADLOCKS) } else { Ps::NEVER };
        let mut simulation = Simulation {
            now: Ps::ZERO,
            settings,
            traffic,
            events: EventQueue::in_order(),
            frames: FramePool::default(),
            fabric,
            hosts: Vec::new(),
            processes: Vec::new(),
            addresses: Vec::new(),
            ranks: Vec::new(),
            messages: None,
            flows: Vec::new(),
            fired: vec![0; traffic.triggers.len()],
            unfinished: traffic.flows.iter().filter(|flow| matches!(flow.size, Size::Bytes(_))).count()
                as u32
                + traffic.programs.iter().filter(|program| !program.forever).count() as u32,
            endless_until: Ps::ZERO,
            ended: Ps::ZERO,
            spans,
            looks_at,
            instant: settings.hosts.is_instant()
                && settings.transports.iter().all(|transport| transport.stack == Ps::ZERO),
            host_losses: HostLosses::default(),
            mistake: None,
        };
        simulation.populate(topology, line_rate, base_rtt);
        let apart = traffic.triggers.is_empty()
            && settings.faults.is_empty()
            && simulation.messages.is_none()
            && !simulation.fabric.needs_order();
        if apart {
            simulation.go_by_node();
        }
        for (index, flow) in traffic.flows.iter().enumerate() {
            if let Start::At(at) = flow.start {
                simulation.events.push(at, Event::Start(index as u32));
            }
            if let Size::Until(until) = flow.size {
                simulation.events.push(until, Event::Stop(index as u32));
                simulation.endless_until = simulation.endless_until.max(until);
            }
        }
        for rank in 0..traffic.programs.len() as u32 {
            if simulation.messages.is_some() {
                simulation.events.push(Ps::ZERO, Event::Advance(rank));
                continue;
            }
            let process = simulation.ranks[rank as usize];
            simulation.processes[process as usize].wakes_at = Ps::ZERO;
            simulation.events.push(Ps::ZERO, Event::Wake(process));
        }
        for (index, fault) in settings.faults.iter().enumerate() {
            simulation.events.push(fault.at, Event::Fault(index as u32));
        }
        simulation
    }

    /// Lets events come node by node, if the fabric's cables are long enough.
    fn go_by_node(&mut self) {
        let hosts = self.hosts.len() as u32;
        let nodes = hosts + self.fabric.switches();
        let ends = self.fabric.ends();
        let host_of: Vec<u32> = self.processes.iter().map(|process| process.host).collect();
        let sender_of: Vec<u32> = self.flows.iter().map(|flow| host_of[flow.from as usize]).collect();
        let node_of = move |event| match event {
            Event::Arrive { port, .. } => ends[port.0 as usize].0,
            Event::PortFree { port } | Event::Pause { port, .. } | Event::Watchdog(port) => {
                ends[port.other_end().0 as usize].0
            }
            Event::GiveUp { switch, .. } => hosts + switch,
            Event::Deliver { host, .. } | Event::Transmit(host) => host,
            Event::Wake(process) => host_of[process as usize],
            Event::Start(flow) | Event::Stop(flow) => sender_of[flow as usize],
            Event::Fault(_) | Event::Reroute | Event::Advance(_) => {
                unreachable!("only without faults, and programs among flows, do events come node by node")
            }
        };
        if let Some(events) = EventQueue::by_node(self.fabric.shortest_delay(), nodes, node_of) {
            self.events = events;
        }
    }

    /// From now on all events come in the order of time, for somebody who watches. That makes no difference to what happens.
    pub fn keep_order(&mut self) {
        let mut events = EventQueue::in_order();
        while let Some((at, event)) = self.events.pop(Ps::NEVER) {
            events.push(at, event);
        }
        self.events = events;
    }

    /// Makes the processes that flows and programs name, and their hosts.
    fn populate(&mut self, topology: &Topology, line_rate: BitRate, base_rtt: Nanos) {
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
            self.messages = Some(Messages::new(self.settings, traffic, self.flows.len() as u32));
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
                strangers: mixed.then(|| Strangers::new(Ps::from(base_rtt))),
            })
            .collect();
        self.processes.reserve_exact(places.len());
        self.addresses.reserve_exact(places.len());
        for (number, ((host, transport, process), (flows_out, inboxes))) in places.into_iter().enumerate() {
            for (inbox, &flow) in inboxes.iter().enumerate() {
                self.flows[flow as usize].to = number as u32;
                self.flows[flow as usize].inbox = inbox as u32;
            }
            let of_host = &mut self.hosts[host as usize].processes;
            let local = match self.settings.transports.len() {
                1 => process,
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
                counted: is_srd(speaks) || !shares(speaks),
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

    /// Runs until `until` or the run's end, whichever is first; where events come node by node (see
    /// [`Simulation::keep_order`]), a little longer. Returns whether there is more to do. A run in which ports wait for each
    /// other for ever ends there, unless watchdogs see to them.
    pub fn run(&mut self, until: Ps) -> bool {
        while self.looks_at <= until {
            if !self.run_on(self.looks_at) {
                return false;
            }
            let heals = self.settings.queues.pause.is_none_or(|pause| pause.watchdog.is_some());
            if self.fabric.find_deadlock() && !heals {
                return false;
            }
            self.looks_at = self.spans.end(self.looks_at + LOOK_FOR_DEADLOCKS);
        }
        self.run_on(until)
    }

    fn run_on(&mut self, until: Ps) -> bool {
        let end = self.settings.end;
        let until = self.events.next_stop(until).min(end);
        loop {
            // A run ends with the span of time in which its last flow does, so that it makes no difference in which order
            // what happens there is looked at.
            let over = match self.unfinished {
                0 => self.spans.end(self.ended.max(self.endless_until)),
                _ => Ps::NEVER,
            };
            let Some((at, event)) = self.events.pop(until.min(over)) else {
                let done = over <= until;
                self.now = if done { self.ended.max(self.endless_until) } else { until };
                return !done && until < end;
            };
            self.now = at;
            self.look_ahead();
            self.happen(event);
        }
    }

    /// Brings the frame of an event to come nearer to the processor: there are more than its caches hold.
    #[inline]
    fn look_ahead(&self) {
        if let Some(Event::Arrive { frame, .. }) = self.events.soon(LOOK_AHEAD) {
            self.frames.touch(frame);
        }
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { port, frame } => {
                let arrival = self.fabric.arrive(self.now, port, frame, &mut self.frames, &mut self.events);
                if let Arrival::Host(host) = arrival {
                    self.receive(host, frame);
                }
            }
            Event::PortFree { port } => {
                self.fabric.port_free(self.now, port, &mut self.frames, &mut self.events);
            }
            Event::Pause { port, classes } => {
                let host = self.fabric.pause(self.now, port, classes, &mut self.frames, &mut self.events);
                if let Some(host) = host {
                    self.pause_host(host, classes);
                }
            }
            Event::Watchdog(port) => {
                self.fabric.watch_pauses(self.now, port, &mut self.frames, &mut self.events);
            }
            Event::GiveUp { switch, flow } => {
                self.fabric.give_up(self.now, switch, flow, &mut self.frames, &mut self.events);
            }
            Event::Deliver { host, frame } => {
                let queue = self.receive_queue(host, frame);
                self.hosts[host as usize].receive[queue].waiting -= 1;
                self.let_go_on(host);
                self.deliver(host, frame);
            }
            Event::Transmit(host) => {
                self.hosts[host as usize].transmit_at = Ps::NEVER;
                self.transmit(host);
            }
            Event::Wake(process) => self.wake(process),
            Event::Start(flow) => self.start(flow),
            Event::Stop(flow) => {
                let from = self.flows[flow as usize].from;
                self.processes[from as usize].transport.stop(self.now.time(), flow);
                self.attend(from);
            }
            Event::Advance(rank) => self.advance(rank),
            Event::Fault(fault) => {
                let fault = &self.settings.faults[fault as usize];
                self.fabric.fault(self.now, fault, &mut self.events);
            }
            Event::Reroute => self.fabric.reroute(self.now),
        }
    }

    // ---- receiving ----

    /// A frame has come to a host's network card.
    fn receive(&mut self, host: u32, frame: FrameId) {
        if self.frames.head(frame).corrupt {
            self.host_losses.corrupt += 1;
            self.frames.drop(frame);
            return;
        }
        let card = &self.settings.hosts;
        *self.frames.arrived(frame) = self.now + card.latency;
        if self.instant {
            return self.deliver(host, frame);
        }
        let number = self.receive_queue(host, frame);
        let process = self.hosts[host as usize].processes.get(self.frames.head(frame).process as usize);
        let stack = process.map_or(Ps::ZERO, |&process| self.processes[process as usize].stack);
        let queue = self.hosts[host as usize].receive[number];
        if queue.waiting >= card.receive_ring && !self.hold_back(host, frame) {
            self.host_losses.ring += 1;
            self.frames.drop(frame);
            return;
        }
        let per_packet = self.hosts[host as usize].per_packet;
        let mut begins = queue.free_at.max(self.now + card.latency + stack);
        if queue.waiting == 0 && card.jitter > Ps::ZERO {
            begins += self.jitter(host); // it must be woken first
        }
        let queue = &mut self.hosts[host as usize].receive[number];
        queue.waiting += 1;
        queue.free_at = begins + per_packet;
        self.events.push(queue.free_at, Event::Deliver { host, frame });
    }

    /// A host has no room for a frame: if its class is lossless, it pauses the switch, and takes what is on its way all the same.
    fn hold_back(&mut self, host: u32, frame: FrameId) -> bool {
        let class = 1 << (self.frames.head(frame).class % 8);
        let lossless = self.settings.queues.pause.filter(|pause| pause.classes & class != 0);
        let Some(pause) = lossless else { return false };
        let card = &mut self.hosts[host as usize];
        let classes = if pause.whole_link { pause.classes } else { class };
        if card.holds_back & classes == 0 {
            card.holds_back |= classes;
            let downlink = card.uplink.other_end();
            self.fabric.send_pause(self.now, downlink, card.holds_back, &mut self.events);
        }
        true
    }

    /// A host has room again when no ring is more than half full.
    fn let_go_on(&mut self, host: u32) {
        let card = &mut self.hosts[host as usize];
        let half = self.settings.hosts.receive_ring / 2;
        if card.holds_back != 0 && card.receive.iter().all(|queue| queue.waiting <= half) {
            card.holds_back = 0;
            self.fabric.send_pause(self.now, card.uplink.other_end(), 0, &mut self.events);
        }
    }

    /// A host may send nothing of these classes from now on, and everything else.
    fn pause_host(&mut self, host: u32, classes: u8) {
        for place in 0..self.hosts[host as usize].processes.len() {
            let number = self.hosts[host as usize].processes[place];
            let Some(process) = self.processes.get_mut(number as usize) else { continue };
            process.transport.set_paused(classes);
            if !std::mem::replace(&mut process.ready, true) {
                self.hosts[host as usize].ready.push_back(number);
            }
        }
        self.transmit(host);
    }

    /// How late a host is this time.
    fn jitter(&mut self, host: u32) -> Ps {
        let draws = &mut self.hosts[host as usize].draws;
        *draws += 1;
        let mut source = draws::source(self.settings.seed ^ 0x405, host, *draws);
        Ps(source.random_range(0..=self.settings.hosts.jitter.0))
    }

    fn receive_queue(&mut self, host: u32, frame: FrameId) -> usize {
        let queues = self.hosts[host as usize].receive.len();
        (mix(self.frames.head(frame).tuple_hash) as usize) % queues
    }

    fn deliver(&mut self, host: u32, frame: FrameId) {
        let arrived = self.frames.arrived(frame).time();
        let head = *self.frames.head(frame);
        let process = self.hosts[host as usize].processes.get(head.process as usize).copied();
        if let Some(process) = process {
            let Process { transport, counted, .. } = &mut self.processes[process as usize];
            if let Some(strangers) = self.hosts[host as usize].strangers.as_mut().filter(|_| !*counted) {
                strangers.see(self.now, head.tuple_hash, head.bytes);
            }
            transport.receive(self.now.time(), arrived, &head, self.frames.content(frame));
        }
        self.frames.drop(frame);
        if let Some(process) = process {
            self.attend(process);
        }
    }

    // ---- sending ----

    /// Something has happened to a process: takes its reports, and lets it send.
    fn attend(&mut self, number: u32) {
        while let Some(report) = self.processes[number as usize].transport.poll_report() {
            self.note(number, report);
        }
        if T::RUNS_PROGRAMS {
            self.carry_near(number);
        }
        let process = &mut self.processes[number as usize];
        let host = process.host;
        if self.hosts[host as usize].processes.len() > 1 {
            self.compare_loads(number);
        }
        let process = &mut self.processes[number as usize];
        if !process.ready {
            process.ready = true;
            self.hosts[host as usize].ready.push_back(number);
        }
        self.transmit(host);
    }

    /// Carries what a program has for others of its host. It need not wait for the network card to go on.
    fn carry_near(&mut self, number: u32) {
        while let Some(near) = self.processes[number as usize].transport.poll_near() {
            let to = self.ranks[near.to as usize];
            self.processes[to as usize].transport.receive_near(near);
            self.set_program_alarm(to);
        }
        self.set_program_alarm(number);
    }

    /// For what a process does by the clock that has nothing to do with the network card.
    fn set_program_alarm(&mut self, number: u32) {
        let at = self.processes[number as usize].transport.program_timeout();
        self.set_alarm_at(number, at);
    }

    /// Processes of a host tell each other how many send to them: they share a link.
    fn compare_loads(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        let host = &mut self.hosts[process.host as usize];
        let senders = process.transport.senders(self.now.time());
        host.senders = host.senders - process.senders + senders;
        process.senders = senders;
        let strangers = host.strangers.as_mut().map_or(0, |strangers| strangers.count(self.now));
        process.transport.set_neighbours((host.senders - senders).saturating_add(strangers));
    }

    /// The host's network card sends what processes have, in turn, as long as it may.
    fn transmit(&mut self, host: u32) {
        loop {
            let card = &mut self.hosts[host as usize];
            let Some(&number) = card.ready.front() else { return };
            let free_at = self.fabric.free_at(card.uplink).max(card.next_frame);
            if free_at > self.now {
                if free_at < card.transmit_at {
                    card.transmit_at = free_at;
                    self.events.push(free_at, Event::Transmit(host));
                }
                return;
            }
            card.ready.pop_front();
            let process = &mut self.processes[number as usize];
            let (frames, overhead) = (&mut self.frames, self.settings.frame_overhead);
            match process.transport.poll_transmit(self.now.time(), |it| framed(host, it, overhead, frames)) {
                Some(frame) => {
                    card.ready.push_back(number);
                    card.next_frame = self.now + self.settings.hosts.per_packet;
                    self.fabric.send(self.now, card.uplink, frame, &mut self.frames, &mut self.events);
                }
                None => process.ready = false,
            }
            self.set_alarm(number);
        }
    }

    // ---- time ----

    fn set_alarm(&mut self, number: u32) {
        let at = self.processes[number as usize].transport.next_timeout();
        self.set_alarm_at(number, at);
    }

    #[inline]
    fn set_alarm_at(&mut self, number: u32, at: Time) {
        let mut at = Ps::of(at);
        if at == Ps::NEVER {
            return;
        }
        at = at.max(self.now + Ps::from_nanos(1));
        if at >= self.processes[number as usize].wakes_at {
            return;
        }
        if self.settings.hosts.jitter > Ps::ZERO {
            at += self.jitter(self.processes[number as usize].host);
        }
        let process = &mut self.processes[number as usize];
        if at < process.wakes_at {
            process.wakes_at = at;
            self.events.push(at, Event::Wake(number));
        }
    }

    fn wake(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        if process.wakes_at != self.now {
            return; // an earlier alarm has taken its place
        }
        process.wakes_at = Ps::NEVER;
        process.transport.handle_timeout(self.now.time());
        self.attend(number);
    }

    // ---- flows ----

    fn start(&mut self, index: u32) {
        let state = &mut self.flows[index as usize];
        if state.started.is_some() {
            return;
        }
        state.started = Some(self.now);
        let (from, to, inbox) = (state.from, state.to, state.inbox);
        let bytes = match self.traffic.flows[index as usize].size {
            Size::Bytes(bytes) => bytes,
            Size::Until(_) => u64::MAX,
        };
        let order = Order { flow: index, inbox, bytes, channel: index };
        self.processes[to as usize].transport.expect(&self.addresses[from as usize], inbox, bytes);
        let transport = &mut self.processes[from as usize].transport;
        transport.start(self.now.time(), order, &self.addresses[to as usize]);
        self.attend(from);
    }

    // ---- programs whose messages are flows ----

    /// A rank goes on as far as it can, and what it sends begins.
    fn advance(&mut self, rank: u32) {
        let Some(messages) = &mut self.messages else { return };
        let ended = messages.advance(self.now, rank);
        while let Some(message) = messages.poll_outgoing() {
            let (from, to) = (self.ranks[message.from as usize], self.ranks[message.to as usize]);
            let number = message.number;
            let inbox = self.processes[to as usize].inboxes.len() as u32 + message.inbox;
            let order = Order { flow: number, inbox, bytes: message.bytes, channel: Order::PROGRAM };
            let receiver = &mut self.processes[to as usize].transport;
            receiver.expect(&self.addresses[from as usize], inbox, message.bytes);
            let sender = &mut self.processes[from as usize].transport;
            sender.start(self.now.time(), order, &self.addresses[to as usize]);
        }
        while let Some((at, rank)) = messages.poll_alarm() {
            self.events.push(at, Event::Advance(rank));
        }
        if ended {
            self.end_one();
        }
        self.attend(self.ranks[rank as usize]);
    }

    fn note(&mut self, number: u32, report: Report) {
        let traffic = self.traffic;
        match report {
            Report::Sent { flow } if flow as usize >= self.flows.len() => {
                if let Some(rank) = self.messages.as_mut().and_then(|messages| messages.sent(flow)) {
                    self.events.push(self.now, Event::Advance(rank));
                }
            }
            Report::Sent { flow } => {
                self.flows[flow as usize].sent = Some(self.now);
                self.end_one();
                traffic.flows[flow as usize].on_sent.iter().for_each(|&trigger| self.fire(trigger));
            }
            Report::Received { inbox } if inbox as usize >= self.processes[number as usize].inboxes.len() => {
                let inbox = inbox - self.processes[number as usize].inboxes.len() as u32;
                let rank = self.processes[number as usize].rank;
                let messages = self.messages.as_mut();
                if let Some(rank) = messages.and_then(|messages| messages.received(rank, inbox)) {
                    self.events.push(self.now, Event::Advance(rank));
                }
            }
            Report::Received { inbox } => {
                let flow = self.processes[number as usize].inboxes[inbox as usize];
                self.flows[flow as usize].received = Some(self.now);
                traffic.flows[flow as usize].on_received.iter().for_each(|&trigger| self.fire(trigger));
            }
            Report::Failed { flow, why } if flow as usize >= self.flows.len() => {
                if let Some(rank) = self.messages.as_mut().and_then(|messages| messages.failed(flow, why)) {
                    self.events.push(self.now, Event::Advance(rank));
                }
            }
            Report::Failed { flow, why } => {
                self.flows[flow as usize].failed = Some(why);
                if matches!(traffic.flows[flow as usize].size, Size::Bytes(_)) {
                    self.end_one();
                }
            }
            Report::Ended => self.end_one(),
        }
    }

    /// A flow that has an end, or a program, has come to it.
    fn end_one(&mut self) {
        self.unfinished -= 1;
        self.ended = self.ended.max(self.now);
    }

    /// Starts what a trigger starts, at this moment.
    fn fire(&mut self, number: u32) {
        let trigger = &self.traffic.triggers[number as usize];
        let fired = &mut self.fired[number as usize];
        *fired += 1;
        let last = match trigger.kind {
            TriggerKind::Oneshot => 1,
            TriggerKind::Barrier(count) => count,
            TriggerKind::Multishot => {
                if let Some(&flow) = trigger.flows.get(*fired as usize - 1) {
                    self.events.push(self.now, Event::Start(flow));
                }
                return;
            }
        };
        if *fired == last {
            trigger.flows.iter().for_each(|&flow| self.events.push(self.now, Event::Start(flow)));
        } else if *fired > last && self.mistake.is_none() {
            self.mistake = Some(format!("trigger number {number} fires more than {last} times"));
        }
    }

    // ---- what has become of it ----

    /// Bytes that have come to the receiver of a flow.
    pub fn delivered(&mut self, flow: u32) -> u64 {
        let state = &self.flows[flow as usize];
        self.processes[state.to as usize].transport.delivered(state.inbox)
    }

    /// Sums of the processes' counters.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for process in &self.processes {
            let counts = process.transport.counts();
            sum.data_new += counts.data_new;
            sum.data_again += counts.data_again;
            sum.spurious += counts.spurious;
            sum.bare += counts.bare;
            sum.timeouts += counts.timeouts;
        }
        sum
    }

    /// The processes' transports, to look at.
    pub fn transports(&self) -> impl Iterator<Item = &T> {
        self.processes.iter().map(|process| &process.transport)
    }

    /// Programs whose messages are flows.
    pub fn messages(&self) -> Option<&Messages> {
        self.messages.as_ref()
    }

    /// The same, before the run, to be set up.
    pub fn transports_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.processes.iter_mut().map(|process| &mut process.transport)
    }

    /// What it is to move.
    pub fn traffic(&self) -> &'a Traffic {
        self.traffic
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        self.settings
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events.taken
    }

    /// Whether every flow that has an end, and every program, has come to it.
    pub fn complete(&self) -> bool {
        self.unfinished == 0
    }
}
