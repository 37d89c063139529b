//! When flows, and messages of programs, begin, and what becomes of them.

use super::{FlowState, Kind, Simulation};
use crate::apps::{Size, TriggerKind};
use crate::net::Event;
use srd_baselines::transport::{Order, Report};

impl<T: Kind> Simulation<'_, T> {
    /// Every receiver learns what will come into its inboxes, each of which is one flow's.
    pub(super) fn expect_flows(&mut self) {
        for index in 0..self.flows.len() as u32 {
            let FlowState { from, to, inbox, .. } = self.flows[index as usize];
            let bytes = self.bytes_of(index);
            self.processes[to as usize].transport.expect(&self.addresses[from as usize], inbox, bytes);
        }
    }

    /// Of a flow; the largest number of one without end.
    fn bytes_of(&self, flow: u32) -> u64 {
        match self.traffic.flows[flow as usize].size {
            Size::Bytes(bytes) => bytes,
            Size::Until(_) => u64::MAX,
        }
    }

    pub(super) fn start(&mut self, index: u32) {
        let state = &mut self.flows[index as usize];
        if state.started.is_some() {
            return;
        }
        state.started = Some(self.now);
        let (from, to, inbox) = (state.from, state.to, state.inbox);
        let order = Order { flow: index, inbox, bytes: self.bytes_of(index), channel: index };
        let transport = &mut self.processes[from as usize].transport;
        transport.start(self.now.time(), order, &self.addresses[to as usize]);
        self.attend(from);
    }

    /// A rank goes on as far as it can, and what it sends begins.
    pub fn advance(&mut self, rank: u32) {
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

    pub(super) fn note(&mut self, number: u32, report: Report) {
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
                if let Some(rank) = messages.and_then(|messages| messages.received(self.now, rank, inbox)) {
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
    pub(super) fn end_one(&mut self) {
        self.unfinished -= 1;
        self.ended = self.ended.max(self.now);
    }

    /// Starts what a trigger starts, at this moment.
    pub(super) fn fire(&mut self, number: u32) {
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
}
