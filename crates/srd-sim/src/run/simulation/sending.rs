//! From a process to its host's cable: who may send next, what processes of a host know of each other, and when they wake.

use super::{Kind, Simulation};
use crate::net::{Event, FrameId, FramePool, mix, with_lane};
use srd_baselines::transport::Outgoing;
use srd_baselines::units::Ps;
use srd_wire::Time;

/// Puts what a process of `host` sends into a frame.
#[inline]
fn framed<C>(
    host: u32,
    outgoing: Outgoing<C>,
    overhead: u32,
    by_port: bool,
    frames: &mut FramePool<C>,
) -> FrameId {
    let (to, ports) = (outgoing.to, outgoing.ports);
    let mut tuple_hash = mix(mix(mix(host) ^ to) ^ (ports.0 as u32) << 16 ^ ports.1 as u32);
    if by_port {
        tuple_hash = with_lane(tuple_hash, ports.0);
    }
    let (head, content) = outgoing.into_frame(tuple_hash, overhead);
    frames.put(head, content)
}

impl<T: Kind> Simulation<'_, T> {
    /// Something has happened to a process: takes its reports, and lets it send.
    pub(super) fn attend(&mut self, number: u32) {
        if self.is_silent(number) {
            return;
        }
        self.take_reports(number);
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

    fn take_reports(&mut self, number: u32) {
        while let Some(report) = self.processes[number as usize].transport.poll_report() {
            self.note(number, report);
        }
    }

    /// Carries what a program has for others of its host. It need not wait for the network card to go on.
    pub(super) fn carry_near(&mut self, number: u32) {
        while let Some((rank, near)) = self.processes[number as usize].transport.poll_near() {
            let to = self.ranks[rank as usize];
            self.processes[to as usize].transport.receive_near(near);
            self.set_program_alarm(to);
        }
        self.set_program_alarm(number);
    }

    /// For what a process does by the clock that has nothing to do with the network card.
    pub(super) fn set_program_alarm(&mut self, number: u32) {
        let at = self.processes[number as usize].transport.program_timeout();
        self.set_alarm_at(number, at);
    }

    /// Processes of a host tell each other how many send to them: they share a link.
    pub(super) fn compare_loads(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        let host = &mut self.hosts[process.host as usize];
        let senders = if process.apart { 0 } else { process.transport.senders(self.now.time()) };
        host.senders = host.senders - process.senders + senders;
        process.senders = senders;
        let foreign_flows =
            host.foreign_flows.as_mut().map_or(0, |foreign_flows| foreign_flows.count(self.now));
        process.transport.set_neighbours((host.senders - senders).saturating_add(foreign_flows));
    }

    /// The host's network card sends what processes have, in turn, as long as it may.
    pub(super) fn transmit(&mut self, host: u32) {
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
            if self.is_silent(number) {
                continue;
            }
            let card = &mut self.hosts[host as usize];
            let process = &mut self.processes[number as usize];
            let (frames, overhead) = (&mut self.frames, self.settings.frame_overhead);
            let by_port = self.by_port;
            let sink = |it| framed(host, it, overhead, by_port, frames);
            match process.transport.poll_transmit(self.now.time(), sink) {
                Some(frame) => {
                    card.ready.push_back(number);
                    card.next_frame = self.now + self.settings.hosts.per_packet;
                    self.fabric.send(self.now, card.uplink, frame, &mut self.frames, &mut self.events);
                }
                None => process.ready = false,
            }
            if T::RUNS_PROGRAMS {
                self.take_reports(number);
                self.carry_near(number);
            }
            self.set_alarm(number);
        }
    }

    pub(super) fn set_alarm(&mut self, number: u32) {
        let at = self.processes[number as usize].transport.next_timeout();
        self.set_alarm_at(number, at);
    }

    #[inline]
    pub(super) fn set_alarm_at(&mut self, number: u32, at: Time) {
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

    pub(super) fn wake(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        if process.wakes_at != self.now {
            return; // an earlier alarm has taken its place
        }
        process.wakes_at = Ps::NEVER;
        process.transport.handle_timeout(self.now.time());
        self.attend(number);
    }
}
