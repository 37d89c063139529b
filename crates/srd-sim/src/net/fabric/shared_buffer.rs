//! Ports with several queues: what joins them, what leaves them, and who is paused when memory runs out.

use super::class_queues::{CLASSES, Waiting};
use super::pause::{Group, Pauses};
use super::{Fabric, Gone, Sight};
use crate::net::event::Event;
use crate::net::event_queue::EventQueue;
use crate::net::frame::{Content, FrameId, FramePool};
use crate::net::settings::{ClassSchedule, Ecn};
use crate::net::topology::{PortId, Role};
use srd_baselines::units::Ps;

impl<C: Content> Fabric<C> {
    /// Joins the queues of a port that has several, or shared memory.
    pub(super) fn enqueue(
        &mut self,
        now: Ps,
        from: PortId,
        id: PortId,
        frame: FrameId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let number = self.ports[id.0 as usize].queued as usize;
        let class = frames.head(frame).class % CLASSES as u8;
        let group = self.group(from, class);
        let room = match group {
            Some(group) => self.take(from, id, group, frame, frames),
            None => self.find_room(id, frame, frames),
        };
        if !room {
            self.ports[id.0 as usize].counters.dropped += 1;
            return self.lose(now, id, frame, Gone::NoRoom, frames);
        }
        let head = frames.head(frame);
        let (bytes, cut) = (head.bytes, head.trimmed);
        let queue = if self.settings.classes == ClassSchedule::None { 0 } else { class };
        self.mark(id, frame, class, false, frames);
        let port = &mut self.ports[id.0 as usize];
        let queued = &mut self.queued[number];
        queued.note_area(now);
        queued.push(Waiting { frame, bytes, from, class }, queue, cut);
        match group {
            Some(_) => queued.lossless_bytes += bytes as u64,
            None => self.buffers[self.queued_owner[number] as usize].used += bytes as u64,
        }
        port.counters.most_waiting = port.counters.most_waiting.max(queued.bytes);
        let idle = queued.leaving.is_none();
        self.show(now, id, frame, Sight::Joins, frames);
        if let Some(group) = group {
            self.tell_of_change(now, from, group, events);
        }
        if idle {
            self.dequeue(now, id, frames, events);
        }
    }

    /// Marks a frame that joins the queue of its class, or leaves it, if there is too much in it.
    fn mark(&mut self, id: PortId, frame: FrameId, class: u8, leaves: bool, frames: &mut FramePool<C>) {
        let head = frames.head(frame);
        let marks = |ecn: &Ecn| ecn.on_leaving == leaves && head.ecn_capable && self.settings.marks(class);
        let Some(ecn) = self.settings.ecn.filter(marks) else { return };
        let queue = if self.settings.classes == ClassSchedule::None { 0 } else { class };
        let port = &mut self.ports[id.0 as usize];
        if !port.marks {
            return;
        }
        let waiting = self.queued[port.queued as usize].class_bytes(queue);
        let share =
            waiting.saturating_sub(ecn.min_bytes) as f64 / (ecn.max_bytes - ecn.min_bytes).max(1) as f64;
        let mut chance = || port.draw(self.seed, id) < share * ecn.max_probability;
        if waiting >= ecn.max_bytes || (waiting >= ecn.min_bytes && chance()) {
            head.marked = true;
            port.counters.marked += 1;
        }
    }

    /// The group of lossless classes to which a frame belongs that came by `from`. What a host gives its card is none of them: it
    /// waits there as in the host.
    fn group(&self, from: PortId, class: u8) -> Option<Group> {
        let group = self.pauses.as_ref().filter(|_| from != PortId::NONE)?.group(class)?;
        let sender = self.ports[from.other_end().0 as usize].to;
        let to_its_card =
            || sender.0 < self.hosts && self.topology.role(self.ports[from.0 as usize].to) == Role::Card;
        (!to_its_card()).then_some(group)
    }

    /// Room at a port for a frame of a lossy class, which may be cut for it. Returns whether there is any.
    fn find_room(&mut self, id: PortId, frame: FrameId, frames: &mut FramePool<C>) -> bool {
        let port = &mut self.ports[id.0 as usize];
        if port.is_unlimited() {
            return true;
        }
        let (capacity, queued) = (port.bytes_of(port.capacity), &self.queued[port.queued as usize]);
        let waiting = queued.bytes - queued.lossless_bytes;
        let mut limit = capacity;
        if let Some(shared) = self.settings.shared {
            let used = self.buffers[self.queued_owner[port.queued as usize] as usize].used;
            let free = shared.bytes.saturating_sub(used);
            limit = limit.min((shared.alpha * free as f64) as u64).min(waiting + free);
        }
        let head = frames.head(frame);
        if waiting + head.bytes as u64 <= limit || head.trimmed {
            return true;
        }
        match frames.content(frame).trim().filter(|_| self.settings.trim) {
            // Headers have twice the room: what they say is worth more than what they cost.
            Some(left) if waiting + left as u64 <= 2 * limit => {
                let head = frames.head(frame);
                (head.bytes, head.trimmed) = (left, true);
                port.counters.trimmed += 1;
                true
            }
            _ => false,
        }
    }

    /// Room in the switch for a frame of a lossless class that came by `from` and is to leave by `id`. Returns whether there is.
    fn take(
        &mut self,
        from: PortId,
        id: PortId,
        group: Group,
        frame: FrameId,
        frames: &mut FramePool<C>,
    ) -> bool {
        let head = frames.head(frame);
        let queued = &self.queued[self.ports[id.0 as usize].queued as usize];
        let given_up = queued.given_up >> (head.class % CLASSES as u8) & 1 == 1;
        let bytes = head.bytes as u64;
        let was_held = self.orders.as_ref().is_some_and(|orders| orders.lets_go);
        let (pauses, pool, used) = self.lossless_memory(from);
        if given_up {
            pauses.watchdog_drops += 1;
            return false;
        }
        pauses.take(from, group, (bytes, was_held), pool, used)
    }

    /// What counts memory of lossless classes, and size and use of what they share in the switch to which `from` leads.
    fn lossless_memory(&mut self, from: PortId) -> (&mut Pauses, u64, &mut u64) {
        let buffer = &mut self.buffers[(self.ports[from.0 as usize].to.0 - self.hosts) as usize];
        let pauses = self.pauses.as_mut().expect("there are lossless classes");
        match pauses.settings.pool {
            Some(pool) => (pauses, pool, &mut buffer.lossless),
            None => (pauses, self.settings.shared.map_or(0, |shared| shared.bytes), &mut buffer.used),
        }
    }

    /// Memory of a port's, of a queue's and of the switch's is free again.
    fn release(&mut self, now: Ps, id: PortId, waiting: Waiting, events: &mut EventQueue<Event>) {
        let number = self.ports[id.0 as usize].queued as usize;
        let (queued, bytes) = (&mut self.queued[number], waiting.bytes as u64);
        queued.note_area(now);
        queued.bytes -= bytes;
        let Some(group) = self.group(waiting.from, waiting.class) else {
            self.buffers[self.queued_owner[number] as usize].used -= bytes;
            return;
        };
        self.queued[number].lossless_bytes -= bytes;
        let (pauses, _, used) = self.lossless_memory(waiting.from);
        pauses.release(waiting.from, group, bytes, used);
        self.tell_of_change(now, waiting.from, group, events);
    }

    /// A port with several queues has sent a frame, or was idle: the next one leaves.
    fn dequeue(&mut self, now: Ps, id: PortId, frames: &mut FramePool<C>, events: &mut EventQueue<Event>) {
        let port = &mut self.ports[id.0 as usize];
        let queued = &mut self.queued[port.queued as usize];
        queued.leaving = queued.pop(self.settings.classes);
        let Some(Waiting { frame, bytes, class, .. }) = queued.leaving else { return };
        self.mark(id, frame, class, true, frames);
        let port = &mut self.ports[id.0 as usize];
        let starts = port.free_at.max(now); // a pause frame may be on its way out
        let leaves = starts + port.frame_time(bytes);
        port.free_at = leaves;
        port.counters.frames += 1;
        port.counters.bytes += bytes as u64;
        frames.head(frame).epoch = port.epoch;
        events.push(leaves, Event::PortFree { port: id });
        self.send_with_care(now, id, frame, starts, leaves, frames, events);
    }

    /// A frame has left a port with several queues.
    pub fn port_free(
        &mut self,
        now: Ps,
        id: PortId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let queued = &mut self.queued[self.ports[id.0 as usize].queued as usize];
        if let Some(left) = queued.leaving.take() {
            self.release(now, id, left, events);
        }
        self.dequeue(now, id, frames, events);
    }

    // ---- pauses ----

    /// Tells the sender of what comes by `from` to stop, or to go on, if it is time.
    fn tell_of_change(&mut self, now: Ps, from: PortId, group: Group, events: &mut EventQueue<Event>) {
        let (pauses, pool, used) = self.lossless_memory(from);
        if let Some(classes) = pauses.change(from, group, pool, *used) {
            self.send_pause(now, from, classes, events);
        }
    }

    /// Tells a port, from the other end of its cable, to send nothing of these classes from now on.
    pub fn send_pause(&mut self, now: Ps, port: PortId, classes: u8, events: &mut EventQueue<Event>) {
        let Some(pauses) = &mut self.pauses else { return };
        pauses.sent += 1;
        let (bytes, response) = (pauses.frame, pauses.settings.response);
        let back = port.other_end();
        let latency = self.latency(self.ports[back.0 as usize].to);
        let back = &mut self.ports[back.0 as usize];
        // It goes before all that waits, but not before what is leaving.
        back.free_at = back.free_at.max(now) + back.frame_time(bytes);
        let obeyed = back.free_at + (back.delay - latency) + response;
        events.push(obeyed, Event::Pause { port, classes });
    }

    /// A port may send nothing of these classes from now on, and everything else. Returns the host whose port it is, if it is
    /// a host's.
    pub fn pause(
        &mut self,
        now: Ps,
        id: PortId,
        classes: u8,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) -> Option<u32> {
        let pauses = self.pauses.as_mut()?;
        pauses.set_paused(now, id, classes);
        let owner = self.ports[id.other_end().0 as usize].to.0;
        if owner < self.hosts {
            return Some(owner);
        }
        let watch_at = pauses.next_watch(now, id);
        let queued = &mut self.queued[self.ports[id.0 as usize].queued as usize];
        let one_for_all = self.settings.classes == ClassSchedule::None && classes != 0;
        queued.paused = if one_for_all { u8::MAX } else { classes };
        queued.given_up &= classes;
        let idle = queued.leaving.is_none();
        if let Some(at) = watch_at {
            events.push(at, Event::Watchdog(id));
        }
        if idle {
            self.dequeue(now, id, frames, events);
        }
        None
    }

    /// The watchdog of a port looks whether it has been paused for too long, and drops what waits then.
    pub fn watch_pauses(
        &mut self,
        now: Ps,
        id: PortId,
        frames: &mut FramePool<C>,
        events: &mut EventQueue<Event>,
    ) {
        let Some(pauses) = &mut self.pauses else { return };
        let late = pauses.watch(now, id);
        if let Some(at) = pauses.next_watch(now, id) {
            events.push(at, Event::Watchdog(id));
        }
        let number = self.ports[id.0 as usize].queued as usize;
        self.queued[number].given_up |= late;
        for queue in (0..CLASSES).filter(|queue| late >> queue & 1 == 1) {
            while let Some(waiting) = self.queued[number].take(queue) {
                if let Some(pauses) = &mut self.pauses {
                    pauses.watchdog_drops += 1;
                }
                self.ports[id.0 as usize].counters.dropped += 1;
                self.release(now, id, waiting, events);
                self.lose(now, id, waiting.frame, Gone::NoRoom, frames);
            }
        }
    }

    /// Counts of pauses.
    pub fn pause_counters(&self, now: Ps) -> PauseCounters {
        self.pauses.as_ref().map_or_else(PauseCounters::default, |pauses| PauseCounters {
            frames: pauses.sent,
            paused: (0..self.ports())
                .map(|port| pauses.paused(now, PortId(port)))
                .fold(Ps::ZERO, |a, b| a + b),
            lossless_drops: pauses.lossless_drops,
            watchdog_drops: pauses.watchdog_drops,
        })
    }

    /// For how long a port could not send some class, those of all classes added up.
    pub fn paused(&self, now: Ps, port: PortId) -> Ps {
        self.pauses.as_ref().map_or(Ps::ZERO, |pauses| pauses.paused(now, port))
    }

    /// The most bytes of a lossless class that a switch has held of what came to it from a port.
    pub fn most_held(&self, port: PortId) -> u64 {
        self.pauses.as_ref().map_or(0, |pauses| pauses.most_held(port))
    }

    /// Bytes that a switch keeps free for what comes to it from a port after that was told to stop.
    pub fn headroom(&self, port: PortId) -> u64 {
        self.pauses.as_ref().map_or(0, |pauses| pauses.headroom(port))
    }
}

/// What pauses have come to.
#[derive(Clone, Copy, Default, Debug)]
pub struct PauseCounters {
    /// Pause frames sent, those that let go on included.
    pub frames: u64,
    /// For how long ports could not send, over all ports and classes.
    pub paused: Ps,
    /// Frames of lossless classes that found no room: more than headroom was made for.
    pub lossless_drops: u64,
    /// Frames that were dropped because their class had been paused for too long.
    pub watchdog_drops: u64,
}
