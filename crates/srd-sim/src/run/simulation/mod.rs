//! One run: hosts, fabric and traffic, driven by events. Here is what there is and what happens next; `host_setup` makes hosts and
//! processes, `receiving` and `sending` are their network cards, `flows` begins and ends what is to be moved, `parts` has several threads run it.

mod flows;
mod host_setup;
mod parts;
mod receiving;
mod sending;

pub(crate) use parts::{Crossing, Progress, Remains};

use crate::apps::{Place, Size, Start, Traffic};
use crate::hosts::{ForeignFlows, Messages, Process as Kind, Programs, Settings};
use crate::net::{Arrival, Event, EventQueue, Fabric, Fault, FramePool, PortId, Spans, Topology};
use srd_baselines::transport::Counts;
use srd_baselines::units::Ps;
use srd_wire::{BitRate, Nanos};
use std::collections::VecDeque;

/// Events between the present one and the one that is prepared.
const LOOK_AHEAD: usize = 6;

/// Time between two looks for ports that wait for each other.
const LOOK_FOR_DEADLOCKS: Ps = Ps::from_micros(100);

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
    /// It has such a class: its senders are nothing to processes of SRD.
    apart: bool,
    /// As flows and programs name it, and the index of its transport.
    place: Place,
    speaks: u16,
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
    foreign_flows: Option<ForeignFlows>,
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

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something has happened.
    Happened,
    /// Nothing will, before somebody outside does something.
    Nothing,
    /// The next event lies behind the moment until which one was wanted.
    Later,
    /// What is next lies behind the end.
    Over,
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
    messages: Option<Box<dyn Programs>>,
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
    /// Processes of flows send nothing any more.
    flows_are_silent: bool,
    /// Frames' source ports say where they go.
    by_port: bool,
    /// Hosts take no time.
    instant: bool,
    /// What hosts have lost.
    pub host_losses: HostLosses,
    /// First error of the traffic itself.
    pub mistake: Option<String>,
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
        let fabric =
            Fabric::new(topology, settings.queues, &settings.routing, settings.frame_overhead, settings.seed);
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
            flows_are_silent: false,
            by_port: false,
            instant: settings.hosts.is_instant()
                && settings.transports.iter().all(|transport| transport.stack == Ps::ZERO),
            host_losses: HostLosses::default(),
            mistake: None,
        };
        simulation.by_port = simulation.fabric.heeds_source_ports();
        simulation.populate(topology, line_rate, base_rtt);
        simulation.expect_flows();
        // What is wrong from the beginning on, and makes no switch look for other ways, is no event.
        let (from_the_beginning, later): (Vec<&Fault>, Vec<_>) =
            settings.faults.iter().partition(|fault| fault.at == Ps::ZERO && !fault.kind.is_noticed());
        if later.is_empty() {
            for fault in from_the_beginning {
                simulation.fabric.fault(Ps::ZERO, fault, &mut simulation.events);
            }
        }
        let apart = traffic.triggers.is_empty()
            && later.is_empty()
            && simulation.messages.is_none()
            && !simulation.fabric.needs_order();
        if apart {
            simulation.go_by_node();
        }
        if !settings.awaits_processes {
            simulation.begin_flows();
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
        for (index, fault) in settings.faults.iter().enumerate().filter(|_| !later.is_empty()) {
            simulation.events.push(fault.at, Event::Fault(index as u32));
        }
        simulation
    }

    /// Flows begin and end from now on, as far as it is times that say when.
    pub fn begin_flows(&mut self) {
        for (index, flow) in self.traffic.flows.iter().enumerate() {
            if let Start::At(at) = flow.start {
                self.events.push(self.now + at, Event::Start(index as u32));
            }
            if let Size::Until(until) = flow.size
                && until < Ps::NEVER
            {
                self.events.push(self.now + until, Event::Stop(index as u32));
                self.endless_until = self.endless_until.max(self.now + until);
            }
        }
    }

    /// Nothing of flows leaves their hosts any more.
    pub fn silence_flows(&mut self) {
        self.flows_are_silent = true;
    }

    #[inline]
    fn is_silent(&self, process: u32) -> bool {
        self.flows_are_silent && self.processes[process as usize].rank == u32::MAX
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

    /// When a run is over of which so much is unfinished, and whose last flow or program ended then: with the span of time in which that
    /// is, so that it makes no difference in which order what happens there is looked at.
    fn over(&self, unfinished: u32, ended: Ps) -> Ps {
        match unfinished {
            0 => self.spans.end(ended.max(self.endless_until)),
            _ => Ps::NEVER,
        }
    }

    fn run_on(&mut self, until: Ps) -> bool {
        let end = self.settings.end;
        let until = self.events.next_stop(until).min(end);
        loop {
            // Where others run the rest, it is not over when nothing is left here.
            let over = if self.events.is_part() { Ps::NEVER } else { self.over(self.unfinished, self.ended) };
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

    /// The next event until a moment, unless it lies behind `end`: then time goes on to that, and the simulation is over.
    pub fn step(&mut self, until: Ps, end: Ps) -> Step {
        let Some((at, event)) = self.events.pop(until) else {
            return if until == Ps::NEVER { Step::Nothing } else { Step::Later };
        };
        self.now = at.min(end);
        if at > end {
            return Step::Over;
        }
        self.happen(event);
        Step::Happened
    }

    /// Whether any frame is under way.
    pub fn carries_frames(&self) -> bool {
        self.frames.live() > 0
    }

    /// Lets a process do what it has to do now.
    pub fn call(&mut self, process: u32) {
        self.processes[process as usize].transport.handle_timeout(self.now.time());
        self.attend(process);
    }

    /// A process's transport.
    pub fn transport_mut(&mut self, process: u32) -> &mut T {
        &mut self.processes[process as usize].transport
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

    /// The same of programs, by rank.
    pub fn ranks(&self) -> impl Iterator<Item = &T> {
        self.ranks.iter().map(|&process| &self.processes[process as usize].transport)
    }

    /// Of each process: how flows and programs name it, and the index of its transport.
    pub fn places(&self) -> impl Iterator<Item = (Place, u16)> {
        self.processes.iter().map(|process| (process.place, process.speaks))
    }

    /// Programs of scripts whose messages are flows.
    pub fn messages(&self) -> Option<&Messages> {
        self.messages.as_ref()?.scripts()
    }

    /// Programs whose messages are flows.
    pub fn programs_mut(&mut self) -> Option<&mut (dyn Programs + 'static)> {
        self.messages.as_deref_mut()
    }

    /// The same, to look at.
    pub fn programs(&self) -> Option<&(dyn Programs + 'static)> {
        self.messages.as_deref()
    }

    /// What stands in for scripts, before the run.
    pub fn set_programs(&mut self, programs: Box<dyn Programs>) {
        self.messages = Some(programs);
    }

    /// The process of a rank.
    pub fn process_of(&self, rank: u32) -> u32 {
        self.ranks[rank as usize]
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
