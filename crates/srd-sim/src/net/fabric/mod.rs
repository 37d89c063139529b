//! Switches and cables: where each frame goes, how long it waits, and whether it gets there.

mod class_queues;
mod deadlock;
mod faults;
mod load_balancing;
mod pause;
mod port;
mod resequencing;
mod route;
mod shared_buffer;

pub use deadlock::Deadlock;
pub use port::PortCounters;

use crate::net::event::Event;
use crate::net::event_queue::{EventQueue, SHARED};
use crate::net::frame::{Content, FrameHead, FrameId, FramePool};
use crate::net::settings::{ClassSchedule, QueueSettings, RoutingSettings};
use crate::net::topology::PortId;
use crate::net::topology::{NodeId, Role, Topology};
use class_queues::QueuedPort;
use faults::Faults;
use load_balancing::LoadBalancing;
use pause::Pauses;
use port::Port;
use resequencing::Resequencing;
use route::Routes;
use srd_baselines::units::Ps;
use std::sync::Arc;

/// What became of a frame at the end of a cable.
pub enum Arrival {
    /// A switch has sent it on, or it is gone.
    Dealt,
    /// It has come to a host.
    Host(u32),
}

/// Why a frame is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// The queue was full.
    NoRoom,
    /// The cable lost it.
    Fault,
    /// No way leads to its destination.
    NoRoute,
}

/// What happens to a frame on a watched port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// It joins the queues of a port that has several; when it leaves is seen then.
    Joins,
    /// It begins to leave at this moment.
    Leaves(Ps),
    /// It is gone.
    Gone(Gone),
}

/// Whoever looks at frames on ports that are watched.
pub trait Watcher<C> {
    /// At `now` a frame comes to a port.
    fn see(&mut self, now: Ps, port: PortId, head: &FrameHead, content: &C, sight: Sight);
}

/// Memory of a switch that its ports share.
#[derive(Clone, Copy, Default)]
struct Buffer {
    used: u64,
    /// Of the memory of lossless classes, where that is a memory of its own.
    lossless: u64,
}

/// What ports of some nodes have come to.
pub(crate) struct FabricPart {
    ports: Vec<(usize, Port, Option<QueuedPort>)>,
    unroutable: u64,
    hops: u64,
}

/// See the module.
pub struct Fabric<C> {
    hosts: u32,
    ports: Vec<Port>,
    queued: Vec<QueuedPort>,
    /// Switch that each queued port belongs to.
    queued_owner: Vec<u32>,
    buffers: Vec<Buffer>,
    settings: QueueSettings,
    routes: Routes,
    /// Where something else than ECMP chooses among routes.
    ways: Option<LoadBalancing>,
    /// Where frames leave the fabric in order.
    orders: Option<Resequencing>,
    /// Where ports pause each other.
    pauses: Option<Pauses>,
    deadlocks: Vec<Deadlock>,
    faults: Faults,
    topology: Topology,
    /// Where several keep its nodes: who each one's keeper is, and who we are.
    keepers: Option<(Arc<[u16]>, u16)>,
    seed: u64,
    /// Frames that found no way.
    pub unroutable: u64,
    /// Hops of frames over cables.
    pub hops: u64,
    /// Sees what happens on watched ports.
    pub watcher: Option<Box<dyn Watcher<C>>>,
}

impl<C: Content> Fabric<C> {
    /// Builds what `topology` says; a topology that its check accepts.
    pub fn new(
        topology: &Topology,
        queues: QueueSettings,
        routing: &RoutingSettings,
        frame_overhead: u32,
        seed: u64,
    ) -> Fabric<C> {
        let mut fabric = Fabric {
            hosts: topology.hosts,
            ports: Vec::with_capacity(2 * topology.cables.len()),
            queued: Vec::new(),
            queued_owner: Vec::new(),
            buffers: vec![Buffer::default(); topology.switches.len()],
            settings: queues,
            routes: Routes::new(topology, seed, |_| true),
            ways: LoadBalancing::new(routing.mode, topology),
            orders: routing.strict_order.map(|patience| Resequencing::new(patience, topology.switches.len())),
            pauses: queues.pause.map(|pause| Pauses::new(pause, topology, frame_overhead)),
            deadlocks: Vec::new(),
            faults: Faults::new(topology.cables.len()),
            topology: topology.clone(),
            keepers: None,
            seed,
            unroutable: 0,
            hops: 0,
            watcher: None,
        };
        let plain = queues.shared.is_none()
            && !queues.trim
            && queues.classes == ClassSchedule::None
            && queues.pause.is_none()
            && queues.ecn.is_none_or(|ecn| queues.marked_classes == u8::MAX && !ecn.on_leaving);
        for cable in &topology.cables {
            for (from, to, capacity) in
                [(cable.a, cable.b, cable.queue_bytes[0]), (cable.b, cable.a, cable.queue_bytes[1])]
            {
                let latency = fabric.latency(to);
                let mut port = Port::new(to, cable.rate, cable.delay + latency);
                if let Some(owner) = from.0.checked_sub(topology.hosts) {
                    fabric.limit(&mut port, from, capacity.unwrap_or(queues.capacity));
                    if !plain {
                        port.queued = fabric.queued.len() as u32;
                        fabric.queued.push(QueuedPort::default());
                        fabric.queued_owner.push(owner);
                    }
                }
                fabric.ports.push(port);
            }
        }
        fabric
    }

    fn latency(&self, node: NodeId) -> Ps {
        node.0
            .checked_sub(self.hosts)
            .map_or(Ps::ZERO, |switch| self.topology.switches[switch as usize].latency)
    }

    /// Sets capacity and thresholds of marking of a port of switch `owner`. Those of a card have none.
    fn limit(&self, port: &mut Port, owner: NodeId, capacity: u64) {
        if self.topology.role(owner) == Role::Card {
            return;
        }
        port.capacity = port.time_of(capacity);
        port.marks = self.settings.ecn.is_some_and(|ecn| ecn.at_last_hop || !self.is_last_hop(port.to));
        if let Some(ecn) = self.settings.ecn.filter(|_| port.marks && self.settings.marked_classes == u8::MAX)
        {
            port.mark_from = port.time_of(ecn.min_bytes);
            port.mark_all = port.time_of(ecn.max_bytes);
            port.mark_probability = ecn.max_probability as f32;
        }
    }

    /// Each host's port to its switch.
    pub fn uplinks(&self) -> Vec<PortId> {
        let mut uplinks = vec![PortId(0); self.hosts as usize];
        for (cable, ends) in self.topology.cables.iter().enumerate() {
            let cable = cable as u32;
            for (end, port) in [(ends.a, PortId::at_a(cable)), (ends.b, PortId::at_b(cable))] {
                if end.0 < self.hosts {
                    uplinks[end.0 as usize] = port;
                }
            }
        }
        uplinks
    }

    /// What a port has seen.
    pub fn counters(&self, port: PortId) -> PortCounters {
        let port = &self.ports[port.0 as usize];
        let mut counters = port.counters;
        if port.queued == u32::MAX {
            counters.most_waiting = port.bytes_of(Ps(counters.most_waiting)); // counted as a time
        }
        counters
    }

    /// The least time that a frame is on any cable: so long does nothing that happens at one node touch another.
    pub fn shortest_delay(&self) -> Ps {
        let frames = self.ports.iter().map(|port| port.delay);
        match &self.pauses {
            None => frames.min().unwrap_or(Ps::ZERO),
            // Pause frames do not wait for the switch.
            Some(pauses) => {
                let pause_frames =
                    self.topology.cables.iter().map(|cable| cable.delay + pauses.settings.response);
                frames.chain(pause_frames).min().unwrap_or(Ps::ZERO)
            }
        }
    }

    /// Whether switches look at what happens at others, so that events must come in the order of time.
    pub fn needs_order(&self) -> bool {
        self.ways.as_ref().is_some_and(LoadBalancing::looks_far)
    }

    /// Whether what happens at one node touches no other but by frames, so that nodes may be kept apart ([`Fabric::part`]).
    pub fn comes_apart(&self) -> bool {
        !self.needs_order() && self.pauses.is_none() && self.orders.is_none() && self.watcher.is_none()
    }

    /// Whether ports of a switch have nothing in common, so that each may have a keeper of its own.
    pub fn ports_are_apart(&self) -> bool {
        self.queued.is_empty() && self.ways.is_none()
    }

    /// From now on frames are given to the keepers of the nodes, of which we are `own`. Each port of a node that is [`SHARED`] is kept by
    /// whoever keeps what it leads to.
    pub(crate) fn keep(&mut self, keepers: &Arc<[u16]>, own: u16) {
        self.keepers = Some((Arc::clone(keepers), own));
    }

    /// Who keeps a port.
    fn keeper_of(&self, keepers: &[u16], port: PortId) -> u16 {
        let node = |port: PortId| self.ports[port.0 as usize].to.0 as usize;
        match keepers[node(port.other_end())] {
            SHARED => keepers[node(port)],
            keeper => keeper,
        }
    }

    /// What of the run is told at its end, of our own ports.
    pub(crate) fn part(self) -> FabricPart {
        let (keepers, own) = self.keepers.clone().unwrap_or_default();
        let is_own = |port: usize| self.keeper_of(&keepers, PortId(port as u32)) == own;
        let kept: Vec<bool> = (0..self.ports.len()).map(is_own).collect();
        let mut queued: Vec<Option<QueuedPort>> = self.queued.into_iter().map(Some).collect();
        let ports = self.ports.into_iter().enumerate().filter(|&(number, _)| kept[number]);
        let ports = ports.map(|(number, port)| {
            let queued = queued.get_mut(port.queued as usize).and_then(Option::take);
            (number, port, queued)
        });
        FabricPart { ports: ports.collect(), unroutable: self.unroutable, hops: self.hops }
    }

    /// Takes over what a part has come to.
    pub(crate) fn join(&mut self, part: FabricPart) {
        for (number, port, queued) in part.ports {
            if let Some(queued) = queued {
                self.queued[port.queued as usize] = queued;
            }
            self.ports[number] = port;
        }
        self.unroutable += part.unroutable;
        self.hops += part.hops;
    }

    /// Of each port: the node at its other end.
    pub fn ends(&self) -> Vec<NodeId> {
        self.ports.iter().map(|port| port.to).collect()
    }

    /// Whether a port that leads to this node is the last of a switch on the way to a host.
    fn is_last_hop(&self, to: NodeId) -> bool {
        to.0 < self.hosts || self.topology.role(to) == Role::Card
    }

    /// Whether a frame's source port says where it goes.
    pub fn heeds_source_ports(&self) -> bool {
        self.topology.has_cards() || self.ways.as_ref().is_some_and(LoadBalancing::heeds_source_ports)
    }

    /// Whether a port is a switch's.
    pub fn is_of_switch(&self, port: PortId) -> bool {
        self.ports[port.other_end().0 as usize].to.0 >= self.hosts
    }

    /// A port by the ends of its cable: `leaf0->spine2`, in a bundle with the cable's number, `leaf0->spine2#1`.
    pub fn port_name(&self, port: PortId) -> String {
        let end = |port: PortId| self.topology.name(self.ports[port.0 as usize].to);
        let name = format!("{}->{}", end(port.other_end()), end(port));
        let cable = &self.topology.cables[port.cable() as usize];
        let alike =
            (0..).zip(&self.topology.cables).filter(|(_, other)| (other.a, other.b) == (cable.a, cable.b));
        let bundle: Vec<u32> = alike.map(|(number, _)| number).collect();
        match bundle.iter().position(|&number| number == port.cable()) {
            Some(number) if bundle.len() > 1 => format!("{name}#{number}"),
            _ => name,
        }
    }

    /// Number of switches.
    pub fn switches(&self) -> u32 {
        self.topology.switches.len() as u32
    }

    /// Number of ports.
    pub fn ports(&self) -> u32 {
        self.ports.len() as u32
    }

    /// Bytes that wait at a port now, the frame that is leaving included.
    pub fn waiting(&self, now: Ps, port: PortId) -> u64 {
        let port = &self.ports[port.0 as usize];
        match self.queued.get(port.queued as usize) {
            Some(queued) => queued.bytes,
            None => port.bytes_of(port.free_at - now),
        }
    }

    /// Bytes that have waited at a port on average from the beginning until now, likewise.
    pub fn mean_waiting(&self, now: Ps, port: PortId) -> f64 {
        let port = &self.ports[port.0 as usize];
        let span = now.0.max(1) as f64;
        match self.queued.get(port.queued as usize) {
            Some(queued) => queued.area(now) / span,
            // All that is there has been counted until it will have left.
            None => {
                let left = (port.free_at - now).0 as f64;
                port.bytes_of_real((port.counters.area - 0.5 * left * left).max(0.0) / span)
            }
        }
    }

    /// When a host may put its next frame on its cable.
    #[inline]
    pub fn free_at(&self, port: PortId) -> Ps {
        self.ports[port.0 as usize].free_at
    }

    /// Shows a port's frames to the watcher.
    pub fn watch(&mut self, port: PortId) {
        self.ports[port.0 as usize].watched = true;
    }

    /// Puts a frame that begins its way here into the queue of a port.
    #[inline]
    pub fn send(
        &mut self,
        now: Ps,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        self.forward(now, PortId::NONE, id, frame, frames, events);
    }

    /// Puts a frame that came by port `from` into the queue of a port.
    #[inline]
    fn forward(
        &mut self,
        now: Ps,
        from: PortId,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let port = &mut self.ports[id.0 as usize];
        if port.queued != u32::MAX {
            return self.enqueue(now, from, id, frame, frames, events);
        }
        let head = frames.head(frame);
        let takes = port.frame_time(head.bytes);
        let starts = port.free_at.max(now);
        let waits = starts - now;
        if waits + takes > port.capacity {
            port.counters.dropped += 1;
            return self.lose(now, id, frame, Gone::NoRoom, frames);
        }
        if waits >= port.mark_from && head.ecn_capable {
            let share = (waits - port.mark_from).0 as f32 / (port.mark_all - port.mark_from).0.max(1) as f32;
            if waits >= port.mark_all || port.draw(self.seed, id) < (share * port.mark_probability) as f64 {
                head.marked = true;
                port.counters.marked += 1;
            }
        }
        let leaves = starts + takes;
        port.free_at = leaves;
        port.counters.frames += 1;
        port.counters.bytes += head.bytes as u64;
        port.counters.most_waiting = port.counters.most_waiting.max((waits + takes).0);
        port.counters.area += takes.0 as f64 * (waits.0 as f64 + 0.5 * takes.0 as f64);
        head.epoch = port.epoch;
        if port.watched || port.faulty {
            return self.send_with_care(now, id, frame, starts, leaves, frames, events);
        }
        self.depart(leaves, id, frame, frames, events);
    }

    /// A frame has left a port.
    #[inline]
    fn depart(
        &self,
        at: Ps,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let port = &self.ports[id.0 as usize];
        let (at, event) = (at + port.delay, Event::Arrive { port: id, frame });
        if let Some((keepers, own)) = &self.keepers
            && keepers[port.to.0 as usize] == SHARED
        {
            let head = frames.head(frame);
            let next = self.routes.next(port.to.0 - self.hosts, head.dst, head.tuple_hash);
            let keeper = next.map_or(*own, |next| self.keeper_of(keepers, next));
            if keeper != *own {
                return events.push_abroad(keeper, at, event);
            }
        }
        events.push(at, event);
    }

    /// The rest of [`Fabric::send`] where somebody watches or something is wrong.
    #[allow(clippy::too_many_arguments)]
    fn send_with_care(
        &mut self,
        now: Ps,
        id: PortId,
        frame: FrameId,
        starts: Ps,
        leaves: Ps,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let port = &mut self.ports[id.0 as usize];
        if port.faulty && !self.faults.passes(id, frames.head(frame), || port.draw(self.seed, id)) {
            return self.lose(now, id, frame, Gone::Fault, frames);
        }
        self.show(now, id, frame, Sight::Leaves(starts), frames);
        self.depart(leaves, id, frame, frames, events);
    }

    fn show(&mut self, now: Ps, id: PortId, frame: FrameId, sight: Sight, frames: &mut FramePool<C>) {
        if self.ports[id.0 as usize].watched
            && let Some(watcher) = &mut self.watcher
        {
            let head = *frames.head(frame);
            watcher.see(now, id, &head, frames.content(frame), sight);
        }
    }

    fn lose(&mut self, now: Ps, id: PortId, frame: FrameId, why: Gone, frames: &mut FramePool<C>) {
        if why == Gone::Fault {
            self.ports[id.0 as usize].counters.lost += 1;
        }
        self.show(now, id, frame, Sight::Gone(why), frames);
        frames.drop(frame);
    }

    /// A frame has come to the other end of a port's cable.
    #[inline]
    pub fn arrive(
        &mut self,
        now: Ps,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) -> Arrival {
        self.hops += 1;
        let port = &self.ports[id.0 as usize];
        let to = port.to.0;
        let head = frames.head(frame);
        if head.epoch != port.epoch {
            self.lose(now, id, frame, Gone::Fault, frames);
            return Arrival::Dealt;
        }
        let Some(switch) = to.checked_sub(self.hosts) else { return Arrival::Host(to) };
        let next = match self.ways.is_none() && self.orders.is_none() {
            true => self.routes.next(switch, head.dst, head.tuple_hash),
            false => match self.choose(now, switch, id, frame, frames, events) {
                load_balancing::Choice::Way(next) => next,
                load_balancing::Choice::Held => return Arrival::Dealt,
            },
        };
        match next {
            Some(next) => self.forward(now, id, next, frame, frames, events),
            None => {
                self.unroutable += 1;
                self.lose(now, id, frame, Gone::NoRoute, frames);
            }
        }
        Arrival::Dealt
    }
}
