//! Switches and cables: where each frame goes, how long it waits, and whether it gets there.

mod faults;
mod port;
mod queued;
mod route;

pub use port::PortCounters;
pub use route::PortId;
pub(crate) use route::mix;

use crate::event_queue::EventQueue;
use crate::frame::{Content, FrameHead, FrameId, FramePool};
use crate::settings::{QueueSettings, Settings};
use crate::simulation::Event;
use crate::topology::{NodeId, Topology};
use crate::units::Ps;
use faults::Faults;
use port::Port;
use queued::QueuedPort;
use route::Routes;

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
struct Buffer {
    used: u64,
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
    faults: Faults,
    topology: Topology,
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
    pub fn new(topology: &Topology, settings: &Settings) -> Fabric<C> {
        let queues = settings.queues;
        let mut fabric = Fabric {
            hosts: topology.hosts,
            ports: Vec::with_capacity(2 * topology.cables.len()),
            queued: Vec::new(),
            queued_owner: Vec::new(),
            buffers: topology.switches.iter().map(|_| Buffer { used: 0 }).collect(),
            settings: queues,
            routes: Routes::new(topology, settings.seed, |_| true),
            faults: Faults::new(topology.cables.len()),
            topology: topology.clone(),
            seed: settings.seed,
            unroutable: 0,
            hops: 0,
            watcher: None,
        };
        let plain =
            queues.shared.is_none() && !queues.trim && queues.classes == crate::settings::ClassSchedule::None;
        for cable in &topology.cables {
            for (from, to, capacity) in
                [(cable.a, cable.b, cable.queue_bytes[0]), (cable.b, cable.a, cable.queue_bytes[1])]
            {
                let latency = fabric.latency(to);
                let mut port = Port::new(to, cable.rate, cable.delay + latency);
                if let Some(owner) = from.0.checked_sub(topology.hosts) {
                    fabric.limit(&mut port, capacity.unwrap_or(queues.capacity));
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

    /// Sets capacity and thresholds of marking.
    fn limit(&self, port: &mut Port, capacity: u64) {
        port.capacity = port.time_of(capacity);
        if let Some(ecn) = self.settings.ecn {
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
        self.ports.iter().map(|port| port.delay).min().unwrap_or(Ps::ZERO)
    }

    /// Of each port: the node at its other end.
    pub fn ends(&self) -> Vec<NodeId> {
        self.ports.iter().map(|port| port.to).collect()
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

    /// When a host may put its next frame on its cable.
    #[inline]
    pub fn free_at(&self, port: PortId) -> Ps {
        self.ports[port.0 as usize].free_at
    }

    /// Shows a port's frames to the watcher.
    pub fn watch(&mut self, port: PortId) {
        self.ports[port.0 as usize].watched = true;
    }

    /// Puts a frame into the queue of a port.
    #[inline]
    pub fn send(
        &mut self,
        now: Ps,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let port = &mut self.ports[id.0 as usize];
        if port.queued != u32::MAX {
            return self.enqueue(now, id, frame, frames, events);
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
        head.epoch = port.epoch;
        if port.watched || port.faulty {
            return self.send_with_care(now, id, frame, starts, leaves, frames, events);
        }
        events.push(leaves + port.delay, Event::Arrive { port: id, frame });
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
        events.push(leaves + self.ports[id.0 as usize].delay, Event::Arrive { port: id, frame });
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

    /// Joins the queues of a port that has several, or shared memory.
    fn enqueue(
        &mut self,
        now: Ps,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let port = &mut self.ports[id.0 as usize];
        let (capacity, number) = (port.bytes_of(port.capacity), port.queued as usize);
        let owner = self.queued_owner[number] as usize;
        let mut limit = capacity;
        if let Some(shared) = self.settings.shared {
            let free = shared.bytes.saturating_sub(self.buffers[owner].used);
            limit = limit.min((shared.alpha * free as f64) as u64).min(self.queued[number].bytes + free);
        }
        let mut bytes = frames.head(frame).bytes;
        let mut cut = frames.head(frame).trimmed;
        if self.queued[number].bytes + bytes as u64 > limit && !cut {
            match frames.content(frame).trim().filter(|_| self.settings.trim) {
                // Headers have twice the room: what they say is worth more than what they cost.
                Some(left) if self.queued[number].bytes + left as u64 <= 2 * limit => {
                    (bytes, cut) = (left, true);
                    let head = frames.head(frame);
                    (head.bytes, head.trimmed) = (left, true);
                    self.ports[id.0 as usize].counters.trimmed += 1;
                }
                _ => {
                    self.ports[id.0 as usize].counters.dropped += 1;
                    return self.lose(now, id, frame, Gone::NoRoom, frames);
                }
            }
        }
        let port = &mut self.ports[id.0 as usize];
        let head = frames.head(frame);
        let queued = &mut self.queued[number];
        if let Some(ecn) = self.settings.ecn.filter(|_| head.ecn_capable) {
            let waiting = queued.class_bytes(head.class);
            let share =
                waiting.saturating_sub(ecn.min_bytes) as f64 / (ecn.max_bytes - ecn.min_bytes).max(1) as f64;
            let mut chance = || port.draw(self.seed, id) < share * ecn.max_probability;
            if waiting >= ecn.max_bytes || (waiting >= ecn.min_bytes && chance()) {
                head.marked = true;
                port.counters.marked += 1;
            }
        }
        queued.push(frame, bytes, head.class, cut);
        port.counters.most_waiting = port.counters.most_waiting.max(queued.bytes);
        self.buffers[owner].used += bytes as u64;
        let idle = !queued.busy;
        self.show(now, id, frame, Sight::Joins, frames);
        if idle {
            self.dequeue(now, id, frames, events);
        }
    }

    /// A port with several queues has sent a frame, or was idle: the next one leaves.
    fn dequeue(&mut self, now: Ps, id: PortId, frames: &mut FramePool<C>, events: &mut EventQueue<Event>) {
        let port = &mut self.ports[id.0 as usize];
        let queued = &mut self.queued[port.queued as usize];
        let Some((frame, bytes)) = queued.pop(self.settings.classes) else {
            queued.busy = false;
            return;
        };
        queued.busy = true;
        let leaves = now + port.frame_time(bytes);
        port.counters.frames += 1;
        port.counters.bytes += bytes as u64;
        frames.head(frame).epoch = port.epoch;
        events.push(leaves, Event::PortFree { port: id, bytes });
        self.send_with_care(now, id, frame, now, leaves, frames, events);
    }

    /// A frame of `bytes` has left a port with several queues.
    pub fn port_free(
        &mut self,
        now: Ps,
        id: PortId,
        bytes: u32,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let number = self.ports[id.0 as usize].queued as usize;
        self.queued[number].bytes -= bytes as u64;
        self.buffers[self.queued_owner[number] as usize].used -= bytes as u64;
        self.dequeue(now, id, frames, events);
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
        match self.routes.next(switch, head.dst, head.tuple_hash) {
            Some(next) => self.send(now, next, frame, frames, events),
            None => {
                self.unroutable += 1;
                self.lose(now, id, frame, Gone::NoRoute, frames);
            }
        }
        Arrival::Dealt
    }
}
