//! NSCC, the sender-based congestion control of Ultra Ethernet's transport: a window for each connection, driven by marks and delay
//! together; packets sprayed over many paths; losses told by switches that cut packets instead of dropping them, or found by
//! the sender.
//!
//! Its behaviour is that of the consortium's own simulator, ultraethernet/uet-htsim (commit 40ccb0526bb6, `-sender_cc_only`),
//! so that both can run the same inputs. Where it differs: a path that times out is the one that gets the bad marks, a NACK says
//! which copy was cut, no RTS is sent after a timeout (every packet has a timeout of its own here), and receivers cannot tell
//! where a packet was cut, so that a cut in front of the receiver counts against its path, too; short packets do not shorten the
//! base round trip, which is a full packet's (docs/BASELINES.md); and a receiver that stays silent is given up.
//!
//! A data frame of `payload` bytes has `payload + 64` bytes where a frame costs nothing beside Ethernet's header, an ACK, a NACK,
//! a probe and what is left of a cut packet 64.

mod config;
mod credit;
mod law;
mod packet;
mod paths;
mod profile;
mod receiving;
mod relative;
mod sending;
mod sleek;
mod wire;
#[cfg(test)]
mod tests;

pub(crate) use config::{PATHS, read_common};
pub use relative::{Relation, Relative};
pub use config::{Control, NsccConfig, Recovery};
pub use packet::{Ack, DATAGRAM_HEADERS, Data, HEADERS, Label, Nack, Packet};
pub use paths::Selector;

use crate::frame::FrameHead;
use crate::input::InputError;
use crate::section::Section;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport, WireCost};
use crate::{Baseline, Surroundings};
use credit::Granting;
use law::Constants;
use paths::Paths;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use receiving::Receiving;
use sending::{Rules, Sending};
use srd_wire::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// UET's UDP port, and where the source ports of its paths begin.
const UET_PORT: u16 = 4793;
const FIRST_SOURCE_PORT: u16 = 0x8000;
/// Source ports among which a flow's paths begin.
const SOURCE_PORTS: u16 = 0x7000;
/// Timeout: this much, and six queues of a bandwidth-delay product (main_uec.cpp, `_min_rto`).
const LEAST_RTO: Nanos = Nanos::from_micros(15);
const RTO_QUEUES: u64 = 6;

/// How others reach a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NsccAddress {
    host: u32,
    process: u16,
}

/// Where a message comes in.
#[derive(Clone, Copy, Default, Debug)]
struct Inbox {
    total: u64,
    delivered: u64,
}

/// A packet without data that waits to be sent.
#[derive(Clone, Debug)]
struct Bare {
    to: (u32, u16),
    port: u16,
    packet: Packet,
}

/// A process that speaks NSCC. See the module.
pub struct Nscc {
    address: NsccAddress,
    class: u8,
    control_class: u8,
    /// Bytes that a packet takes beside UET's headers.
    route_bytes: u32,
    paths: u16,
    selector: Selector,
    ack_every: u32,
    rules: Rules,
    /// Connections that send, by slot, and the slots that are free.
    flows: Vec<Option<Box<Sending>>>,
    free: Vec<u32>,
    /// Connections that the process has begun.
    serials: u32,
    /// Slots by receiving host, process, and channel.
    channels: BTreeMap<(u32, u16, u32), u32>,
    /// Slots of connections that may send, in turn.
    ready: VecDeque<u32>,
    control: VecDeque<Bare>,
    inboxes: Vec<Inbox>,
    /// Connections that receive, and their places by sending host, process, and slot there.
    receiving: Vec<Receiving>,
    places: BTreeMap<(u32, u16, u32), u32>,
    /// Credit for those that send to this process, where it grants any.
    granting: Option<Granting>,
    /// When connections want to be looked at, each at least once before anything of it is due: slot and serial number.
    alarms: BinaryHeap<Reverse<(Time, u32, u32)>>,
    /// Classes that may not be sent.
    paused: u8,
    draws: SmallRng,
    reports: VecDeque<Report>,
    counts: Counts,
}

impl Baseline for Nscc {
    type Config = NsccConfig;

    const NAME: &'static str = "nscc";
    const KEYS: &'static [&'static str] = config::KEYS;
    const HAS_HEADERS: bool = true;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError> {
        config::read(section, around)
    }

    fn takes_cut_packets(config: &Self::Config) -> bool {
        config.trimming
    }

    fn open(role: &Role, config: &NsccConfig) -> Nscc {
        let rtt = role.base_rtt;
        let target = config.target.unwrap_or(if config.trimming { Nanos(rtt.0 * 3 / 4) } else { rtt });
        let (payload, headers) = (config.payload as f64, HEADERS as f64);
        let constants = Constants::new(role.line_rate, rtt, target, config.max_window, payload, headers);
        Nscc {
            address: NsccAddress { host: role.host, process: role.process },
            class: role.class,
            control_class: config.control_class.unwrap_or(role.class),
            route_bytes: config.route_bytes as u32,
            paths: config.paths,
            selector: config.selector,
            ack_every: config.ack_every,
            rules: Rules {
                constants,
                payload: config.payload,
                trimming: config.trimming,
                rto: config.rto.unwrap_or(LEAST_RTO + Nanos(RTO_QUEUES * rtt.0)),
                sleek: config.recovery == Recovery::Sleek,
                control: config.control,
            },
            flows: Vec::new(),
            free: Vec::new(),
            serials: 0,
            channels: BTreeMap::new(),
            ready: VecDeque::new(),
            control: VecDeque::new(),
            inboxes: vec![Inbox::default(); role.inboxes as usize],
            receiving: Vec::new(),
            places: BTreeMap::new(),
            granting: (config.control != Control::Window)
                .then(|| Granting::new(role.line_rate, config.payload, constants.most())),
            alarms: BinaryHeap::new(),
            paused: 0,
            draws: SmallRng::seed_from_u64(role.seed),
            reports: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    fn cost(config: &NsccConfig, mtu: u16, overhead: u32) -> WireCost {
        let payload = config.payload.min(mtu - DATAGRAM_HEADERS as u16 - config.route_bytes) as u64;
        WireCost { payload, headers: HEADERS as u64 + config.route_bytes as u64 + overhead as u64 }
    }
}

impl Nscc {
    /// The connection of that name, if it still sends.
    fn flow(&mut self, slot: u32, serial: u32) -> Option<&mut Sending> {
        let flow = self.flows.get_mut(slot as usize)?.as_deref_mut()?;
        (flow.label.serial == serial).then_some(flow)
    }

    /// Something has happened to a connection: messages may have come to their end, or it may be able to send.
    fn attend(&mut self, slot: u32) {
        let rules = &self.rules;
        let Some(flow) = self.flows[slot as usize].as_deref_mut() else { return };
        while let Some(complete) = flow.poll_complete() {
            self.reports.extend(complete.map(|flow| Report::Sent { flow }));
        }
        // A program goes on where it was; flows come but once.
        if flow.idle() && flow.channel != Order::PROGRAM {
            self.close(slot);
            return;
        }
        if !flow.ready && flow.may_send(rules) {
            flow.ready = true;
            self.ready.push_back(slot);
        }
        self.set_alarm(slot);
    }

    /// A connection ends.
    fn close(&mut self, slot: u32) -> Option<Box<Sending>> {
        let flow = self.flows[slot as usize].take()?;
        self.channels.remove(&(flow.to.0, flow.to.1, flow.channel));
        self.free.push(slot);
        Some(flow)
    }

    /// A connection has failed, and all its messages with it. What its channel sends from now on has another one.
    fn give_up(&mut self, slot: u32) {
        let Some(flow) = self.close(slot) else { return };
        if flow.ready {
            self.ready.retain(|&other| other != slot);
        }
        let why = "no answer through five doublings of the timeout";
        self.reports.extend(flow.flows().map(|flow| Report::Failed { flow, why }));
    }

    /// Sees to it that the process wakes when a connection wants to.
    fn set_alarm(&mut self, slot: u32) {
        let Some(flow) = self.flows[slot as usize].as_deref_mut() else { return };
        let deadline = flow.deadline(&self.rules);
        if deadline < flow.alarm {
            flow.alarm = deadline;
            self.alarms.push(Reverse((deadline, slot, flow.label.serial)));
        }
    }

    /// The slot of a channel's connection: a new one if it has none.
    fn slot(&mut self, now: Time, to: (u32, u16), channel: u32) -> u32 {
        if let Some(&slot) = self.channels.get(&(to.0, to.1, channel)) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(self.flows.len() as u32);
        if slot as usize == self.flows.len() {
            self.flows.push(None);
        }
        self.serials += 1;
        let NsccAddress { host, process } = self.address;
        let label = Label { host, process, slot, serial: self.serials, place: Label::UNKNOWN };
        let paths = Paths::new(self.selector, self.paths, self.draws.random());
        let mut sending = Sending::new(&self.rules, now, to, label, channel, paths);
        sending.first_port = FIRST_SOURCE_PORT + self.draws.random_range(0..SOURCE_PORTS);
        self.flows[slot as usize] = Some(Box::new(sending));
        self.channels.insert((to.0, to.1, channel), slot);
        slot
    }

    fn answer(&mut self, label: Label, path: u16, packet: Packet) {
        let port = FIRST_SOURCE_PORT + path;
        self.control.push_back(Bare { to: (label.host, label.process), port, packet });
    }

    /// The receiving side of a connection. `None`: it has ended, since the sender has given its slot to another.
    fn receiving(&mut self, label: &Label) -> Option<&mut Receiving> {
        let place = match label.place {
            Label::UNKNOWN => {
                let place = self.receiving.len() as u32;
                let place = *self.places.entry((label.host, label.process, label.slot)).or_insert(place);
                if place as usize == self.receiving.len() {
                    self.receiving.push(Receiving::new(label.serial, place));
                }
                place
            }
            place => place,
        };
        let receiving = self.receiving.get_mut(place as usize)?;
        if receiving.serial < label.serial {
            *receiving = Receiving::new(label.serial, place);
        }
        (receiving.serial == label.serial).then_some(receiving)
    }

    fn receive_data(&mut self, data: &Data, head: &FrameHead) {
        let (label, path, every) = (data.label, data.path, self.ack_every);
        let Some(receiving) = self.receiving(&label) else { return };
        let (place, missing) = (receiving.place, !receiving.has(data.psn));
        if let Some(granting) = &mut self.granting {
            granting.want(place, &label, data.target, false);
            if head.trimmed && missing {
                granting.was_cut(place, &label, (data.payload as u32 + HEADERS) as u64);
            }
        }
        let receiving = &mut self.receiving[place as usize];
        if head.trimmed {
            let Data { psn, again, .. } = *data;
            let packet = match receiving.has(psn) {
                true => Packet::Ack(receiving.ack(data, false, false)),
                false => Packet::Nack(Nack { slot: label.slot, serial: label.serial, psn, again, path }),
            };
            return self.answer(label, path, packet);
        }
        let taken = receiving.take(data, head.marked, every);
        if let Some(ack) = taken.ack {
            self.answer(label, path, Packet::Ack(ack));
        }
        self.counts.spurious += taken.duplicate as u64;
        if let Some(inbox) = self.inboxes.get_mut(data.inbox as usize).filter(|_| !taken.duplicate) {
            inbox.delivered += data.payload as u64;
            if inbox.delivered == inbox.total {
                self.reports.push_back(Report::Received { inbox: data.inbox });
            }
        }
    }

    fn may_send(&self, class: u8) -> bool {
        self.paused >> class & 1 == 0
    }
}

impl Transport for Nscc {
    type Content = Packet;
    type Address = NsccAddress;

    fn address(&self) -> NsccAddress {
        self.address
    }

    fn expect(&mut self, _: &NsccAddress, inbox: u32, bytes: u64) {
        self.inboxes[inbox as usize] = Inbox { total: bytes, delivered: 0 };
    }

    fn start(&mut self, now: Time, order: Order, to: &NsccAddress) {
        let slot = self.slot(now, (to.host, to.process), order.channel);
        if let Some(sending) = self.flows[slot as usize].as_deref_mut() {
            sending.push(now, order.flow, order.inbox, order.bytes);
        }
        self.attend(slot);
    }

    fn stop(&mut self, _: Time, flow: u32) {
        let stops =
            |sending: &mut Option<Box<Sending>>| sending.as_deref_mut().is_some_and(|it| it.stop(flow));
        if let Some(slot) = self.flows.iter_mut().position(stops) {
            self.attend(slot as u32);
        }
    }

    fn receive(&mut self, _: Time, arrived: Time, head: &FrameHead, content: &Packet) {
        match content {
            Packet::Data(data) => self.receive_data(data, head),
            Packet::Ack(ack) => {
                let rules = self.rules;
                if let Some(flow) = self.flow(ack.slot, ack.serial) {
                    flow.label.place = ack.place;
                    flow.on_ack(&rules, arrived, ack);
                    self.attend(ack.slot);
                }
            }
            Packet::Nack(nack) => {
                let rules = self.rules;
                if let Some(flow) = self.flow(nack.slot, nack.serial) {
                    flow.on_nack(&rules, arrived, nack);
                    self.attend(nack.slot);
                }
            }
            &Packet::Probe { label, number, path } => {
                if let Some(receiving) = self.receiving(&label) {
                    let ack = receiving.answer(label, number, path, head.marked);
                    self.answer(label, path, Packet::Ack(ack));
                }
            }
            &Packet::Credit { slot, serial, granted } => {
                if let Some(flow) = self.flow(slot, serial) {
                    flow.on_credit(arrived, granted);
                    self.attend(slot);
                }
            }
            &Packet::Ask { label, target } => {
                let place = self.receiving(&label).map(|receiving| receiving.place);
                if let (Some(place), Some(granting)) = (place, &mut self.granting) {
                    granting.want(place, &label, target, true);
                }
            }
        }
    }

    fn poll_transmit<R>(&mut self, now: Time, mut sink: impl FnMut(Outgoing<Packet>) -> R) -> Option<R> {
        if self.may_send(self.control_class)
            && let Some(Bare { to, port, packet }) = self.control.pop_front()
        {
            self.counts.bare += 1;
            return Some(sink(Outgoing {
                to: to.0,
                process: to.1,
                ports: (port, UET_PORT),
                bytes: DATAGRAM_HEADERS + self.route_bytes,
                class: self.control_class,
                ecn_capable: false,
                content: packet,
            }));
        }
        if !self.may_send(self.class) {
            return None;
        }
        while let Some(slot) = self.ready.pop_front() {
            let Some(flow) = self.flows[slot as usize].as_deref_mut().filter(|flow| flow.ready) else {
                continue;
            };
            let Some(data) = flow.send(&self.rules, now, self.ready.len() + 1) else {
                flow.ready = false;
                continue;
            };
            flow.ready = flow.may_send(&self.rules);
            if flow.ready {
                self.ready.push_back(slot);
            }
            let outgoing = Outgoing {
                to: flow.to.0,
                process: flow.to.1,
                ports: (flow.first_port + data.path, UET_PORT),
                bytes: data.payload as u32 + DATAGRAM_HEADERS + self.route_bytes,
                class: self.class,
                ecn_capable: true,
                content: Packet::Data(data),
            };
            match &outgoing.content {
                Packet::Data(Data { again: true, .. }) => self.counts.data_again += 1,
                _ => self.counts.data_new += 1,
            }
            self.set_alarm(slot);
            return Some(sink(outgoing));
        }
        None
    }

    fn set_paused(&mut self, classes: u8) {
        self.paused = classes;
    }

    fn senders(&self, _: Time) -> u16 {
        let asking = self.granting.as_ref().map_or(0, Granting::asking);
        asking.min(u16::MAX as usize) as u16
    }

    fn set_neighbours(&mut self, senders: u16) {
        if let Some(granting) = &mut self.granting {
            granting.neighbours = senders;
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((label, granted)) = self.granting.as_mut().and_then(|granting| granting.poll(now)) {
            let path = (self.counts.bare % self.paths as u64) as u16;
            self.answer(label, path, Packet::Credit { slot: label.slot, serial: label.serial, granted });
        }
        while let Some(&Reverse((at, slot, serial))) = self.alarms.peek() {
            if at > now {
                return;
            }
            self.alarms.pop();
            let rules = self.rules;
            let Some(flow) = self.flow(slot, serial).filter(|flow| flow.alarm == at) else { continue };
            flow.alarm = Time::NEVER;
            let mut timeouts = 0;
            let goes_on = flow.time_out(&rules, now, &mut timeouts);
            self.counts.timeouts += timeouts;
            if !goes_on {
                self.give_up(slot);
                continue;
            }
            let Some(flow) = self.flow(slot, serial) else { continue };
            if let Some((number, path)) = flow.probe(now) {
                let (to, label) = (flow.to, flow.label);
                let port = flow.first_port + path;
                self.control.push_back(Bare { to, port, packet: Packet::Probe { label, number, path } });
            }
            let sharing = self.ready.len() + 1;
            if let Some(flow) = self.flow(slot, serial)
                && let Some(target) = flow.ask(&rules, now, sharing)
            {
                let (to, port) = (flow.to, flow.first_port + flow.paths.next());
                let packet = Packet::Ask { label: flow.label, target };
                self.control.push_back(Bare { to, port, packet });
            }
            self.attend(slot);
        }
    }

    fn next_timeout(&self) -> Time {
        let alarm = self.alarms.peek().map_or(Time::NEVER, |&Reverse((at, ..))| at);
        self.granting.as_ref().map_or(alarm, |granting| alarm.min(granting.timer()))
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.inboxes[inbox as usize].delivered
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
