//! From a host's cable to the process that a frame is for: the card's queues, and what it does when they are full.

use super::{Kind, Process, Simulation};
use crate::net::{Content, Event, FrameId, mix, rng};
use rand::Rng;
use srd_baselines::units::Ps;

impl<T: Kind> Simulation<'_, T> {
    /// A frame has come to a host's network card.
    pub(super) fn receive(&mut self, host: u32, frame: FrameId) {
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
    pub(super) fn hold_back(&mut self, host: u32, frame: FrameId) -> bool {
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
    pub(super) fn let_go_on(&mut self, host: u32) {
        let card = &mut self.hosts[host as usize];
        let half = self.settings.hosts.receive_ring / 2;
        if card.holds_back != 0 && card.receive.iter().all(|queue| queue.waiting <= half) {
            card.holds_back = 0;
            self.fabric.send_pause(self.now, card.uplink.other_end(), 0, &mut self.events);
        }
    }

    /// A host may send nothing of these classes from now on, and everything else.
    pub(super) fn pause_host(&mut self, host: u32, classes: u8) {
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
    pub(super) fn jitter(&mut self, host: u32) -> Ps {
        let draws = &mut self.hosts[host as usize].draws;
        *draws += 1;
        let mut source = rng::source(self.settings.seed ^ 0x405, host, *draws);
        Ps(source.random_range(0..=self.settings.hosts.jitter.0))
    }

    pub(super) fn receive_queue(&mut self, host: u32, frame: FrameId) -> usize {
        let queues = self.hosts[host as usize].receive.len();
        (mix(self.frames.head(frame).tuple_hash) as usize) % queues
    }

    pub(super) fn deliver(&mut self, host: u32, frame: FrameId) {
        let arrived = self.frames.arrived(frame).time();
        let head = *self.frames.head(frame);
        let process = self.hosts[host as usize].processes.get(head.process as usize).copied();
        if let Some(process) = process {
            let Process { transport, counted, .. } = &mut self.processes[process as usize];
            if let Some(foreign_flows) =
                self.hosts[host as usize].foreign_flows.as_mut().filter(|_| !*counted)
            {
                let connection = self.frames.content(frame).connection().unwrap_or(head.tuple_hash);
                foreign_flows.see(self.now, connection, head.bytes);
            }
            transport.receive(self.now.time(), arrived, &head, self.frames.content(frame));
        }
        self.frames.drop(frame);
        if let Some(process) = process {
            self.attend(process);
        }
    }
}
