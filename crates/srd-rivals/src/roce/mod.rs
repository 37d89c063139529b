//! RoCEv2: RDMA writes over reliable connections, as a good NIC does them.
//!
//! A flow is an RDMA write, or writes without end, on its channel's queue pair between two processes. Losses are mended by going back to
//! the first packet that is missing, as InfiniBand has it, or selectively, as IRN proposes; DCQCN sets rates where switches
//! mark. All sits in the NIC: packets are taken and sent at once, and queue pairs take turns, a packet each.
//!
//! `requester` and `responder` are the two ends of a queue pair, `dcqcn` the sender's rate, `config` what may be chosen; this
//! file shares the NIC among them. What it leaves out: receiver-not-ready, memory keys, reads, the set-up of connections.

mod config;
mod dcqcn;
mod packet;
mod psn_set;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

pub use config::{Config, Dcqcn, Recovery};
pub use dcqcn::{AlphaUpdate, Constants};
pub use packet::{Address, Packet, Segment};

use crate::frame::FrameHead;
use crate::input::InputError;
use crate::section::Section;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport, WireCost};
use crate::{Rival, Surroundings};
use packet::PORT;
use requester::{Requester, Write};
use responder::{Answer, Fate, Responder};
use srd_wire::{BitRate, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Bytes of Ethernet's header.
const ETHERNET: u64 = 14;

/// A process with RoCEv2.
pub struct Roce {
    config: Config,
    here: Address,
    seed: u64,
    line_rate: BitRate,
    class: u8,
    /// Classes that may send nothing, a bit each.
    paused: u8,
    requesters: Vec<Requester>,
    /// Which queue pair serves a channel to a process, or is one of so many to it.
    queue_pairs: BTreeMap<(Address, u32), u32>,
    /// Orders to each process so far, where queue pairs are so many.
    orders: BTreeMap<Address, u32>,
    /// Queue pairs of flows without end.
    endless: BTreeMap<u32, u32>,
    /// Queue pairs that have something to send now, by turn.
    turns: VecDeque<u32>,
    /// When queue pairs are to be looked at; an entry that is not its queue pair's `alarm_at` means nothing.
    alarms: BinaryHeap<Reverse<(Time, u32)>>,
    /// Notifications that have come and will be heeded then.
    reactions: VecDeque<(Time, u32)>,
    responders: Vec<Responder>,
    /// Which they are, by the requester.
    responder_of: BTreeMap<(Address, u32), u32>,
    /// What they have to say.
    answers: VecDeque<(u32, Answer)>,
    /// Which of them have a notification to send.
    notifications: VecDeque<u32>,
    /// The same, from then on.
    late_notifications: VecDeque<(Time, u32)>,
    inboxes: Vec<Inbox>,
    reports: VecDeque<Report>,
    counts: Counts,
}

#[derive(Clone, Copy, Default, Debug)]
struct Inbox {
    bytes: u64,
    placed: u64,
}

impl Rival for Roce {
    type Config = Config;

    const NAME: &'static str = "roce";
    const KEYS: &'static [&'static str] = config::KEYS;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<Config, InputError> {
        config::read(section, around)
    }

    fn open(role: &Role, config: &Config) -> Roce {
        Roce {
            config: *config,
            here: Address { host: role.host, process: role.process },
            seed: role.seed,
            line_rate: role.line_rate,
            class: role.class,
            paused: 0,
            requesters: Vec::new(),
            queue_pairs: BTreeMap::new(),
            orders: BTreeMap::new(),
            endless: BTreeMap::new(),
            turns: VecDeque::new(),
            alarms: BinaryHeap::new(),
            reactions: VecDeque::new(),
            responders: Vec::new(),
            responder_of: BTreeMap::new(),
            answers: VecDeque::new(),
            notifications: VecDeque::new(),
            late_notifications: VecDeque::new(),
            inboxes: vec![Inbox::default(); role.inboxes as usize],
            reports: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Without the 16 bytes of RETH that a message's first packet has more.
    fn cost(config: &Config, _mtu: u16, overhead: u32) -> WireCost {
        let address = if config.recovery == Recovery::Irn { packet::ADDRESS_HEADER } else { 0 };
        let headers = ETHERNET + (packet::DATA_HEADERS + address + overhead) as u64;
        WireCost { payload: config.payload as u64, headers }
    }
}

impl Roce {
    /// A source port for a queue pair: 0xC000 to 0xFFFF (RoCEv2 annex, section A17.9.1), by a hash.
    fn port(&self, of: u64) -> u16 {
        let mixed = (self.seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        0xc000 | (mixed >> 50) as u16
    }

    /// The queue pair of an order: its channel's, or one of so many in turn. One that has given up is replaced.
    fn queue_pair(&mut self, to: Address, channel: u32) -> u32 {
        let place = match self.config.qps {
            None => channel,
            Some(qps) => {
                let orders = self.orders.entry(to).or_default();
                *orders = orders.wrapping_add(1);
                orders.wrapping_sub(1) % qps
            }
        };
        let fresh = self.requesters.len() as u32;
        let port = self.port(fresh as u64);
        let number = self.queue_pairs.entry((to, place)).or_insert(fresh);
        if *number != fresh && self.requesters[*number as usize].dead {
            *number = fresh;
        }
        if *number == fresh {
            self.requesters.push(Requester::new(to, port, self.line_rate, &self.config));
        }
        *number
    }

    /// Gives a queue pair a turn, or sees to it that it gets one when its rate allows, and that it times out.
    fn attend(&mut self, now: Time, number: u32) {
        let requester = &mut self.requesters[number as usize];
        let mut at = requester.deadline();
        if !requester.in_turn && requester.has_work(&self.config) {
            let (due, changes) = requester.due(now, &self.config);
            if due <= now {
                requester.in_turn = true;
                self.turns.push_back(number);
            } else {
                at = at.min(due).min(changes);
            }
        }
        if at < requester.alarm_at {
            requester.alarm_at = at;
            self.alarms.push(Reverse((at, number)));
        }
    }

    fn time_out(&mut self, number: u32) {
        self.counts.timeouts += 1;
        let requester = &mut self.requesters[number as usize];
        if requester.time_out(&self.config) {
            return;
        }
        let (reports, endless) = (&mut self.reports, &mut self.endless);
        requester.die(|write| {
            if write.ends || endless.remove(&write.flow).is_some() {
                let why = "transport retry counter exceeded";
                reports.push_back(Report::Failed { flow: write.flow, why });
            }
        });
    }

    fn acknowledge(&mut self, now: Time, number: u32, psn: u64, nak: bool, sack: Option<u64>) {
        let Some(requester) = self.requesters.get_mut(number as usize).filter(|requester| !requester.dead) else {
            return;
        };
        let reports = &mut self.reports;
        requester.acknowledged(now, psn, nak, sack, &self.config, |write: Write| {
            if write.ends {
                reports.push_back(Report::Sent { flow: write.flow });
            }
        });
        self.attend(now, number);
    }

    fn responder(&mut self, from: Address, qp: u32) -> u32 {
        if let Some(&number) = self.responder_of.get(&(from, qp)) {
            return number;
        }
        let number = self.responders.len() as u32;
        let port = self.port(!(number as u64));
        let selective = self.config.recovery == Recovery::Irn;
        self.responders.push(Responder::new(from, qp, port, selective));
        self.responder_of.insert((from, qp), number);
        number
    }

    /// A data packet has come.
    fn take(&mut self, now: Time, segment: &Segment, marked: bool) {
        let number = self.responder(segment.from, segment.qp);
        let responder = &mut self.responders[number as usize];
        if let Some(dcqcn) = self.config.dcqcn.filter(|_| marked)
            && responder.notifies(now, dcqcn.cnp_interval)
        {
            self.late_notifications.push_back((now + dcqcn.cnp_delay, number));
            self.notify(now);
        }
        let responder = &mut self.responders[number as usize];
        let (fate, answer) = responder.receive(segment.psn, segment.ack);
        match answer {
            Answer::None => {}
            Answer::Ack if responder.ack_waits => {}
            Answer::Ack => {
                responder.ack_waits = true;
                self.answers.push_back((number, answer));
            }
            Answer::Nak | Answer::SelectiveNak(_) => self.answers.push_back((number, answer)),
        }
        match fate {
            Fate::Dropped => {}
            Fate::Again => self.counts.spurious += 1,
            Fate::Placed => {
                let place = &mut self.inboxes[segment.inbox as usize];
                place.placed += segment.bytes as u64;
                if place.placed == place.bytes {
                    self.reports.push_back(Report::Received { inbox: segment.inbox });
                }
            }
        }
    }

    /// A packet without data.
    fn bare(&mut self, number: u32, bytes: u32, class: u8, content: Packet) -> Outgoing<Packet> {
        self.counts.bare += 1;
        let Responder { from, port, .. } = self.responders[number as usize];
        Outgoing {
            to: from.host,
            process: from.process,
            ports: (port, PORT),
            bytes,
            class,
            ecn_capable: false,
            content,
        }
    }

    /// Lets notifications go whose time has come.
    fn notify(&mut self, now: Time) {
        while let Some(&(_, number)) = self.late_notifications.front().filter(|(at, _)| *at <= now) {
            self.late_notifications.pop_front();
            self.notifications.push_back(number);
        }
    }

    /// Heeds notifications whose time has come.
    fn react(&mut self, now: Time) {
        while let Some(&(_, number)) = self.reactions.front().filter(|(at, _)| *at <= now) {
            self.reactions.pop_front();
            if let (Some(dcqcn), Some(requester)) = (&self.config.dcqcn, self.requesters.get_mut(number as usize)) {
                requester.notify(now, dcqcn);
            }
        }
    }

    fn next_notification(&mut self) -> Option<Outgoing<Packet>> {
        let class = self.config.dcqcn?.cnp_class;
        if self.is_paused(class) {
            return None;
        }
        let number = self.notifications.pop_front()?;
        let qp = self.responders[number as usize].qp;
        Some(self.bare(number, packet::NOTIFICATION, class, Packet::Notification { qp }))
    }

    fn next_answer(&mut self) -> Option<Outgoing<Packet>> {
        let (number, answer) = self.answers.pop_front()?;
        let responder = &mut self.responders[number as usize];
        let (qp, psn) = (responder.qp, responder.expected());
        let (nak, sack, bytes) = match answer {
            Answer::None | Answer::Ack => {
                responder.ack_waits = false;
                (false, None, packet::ACK)
            }
            Answer::Nak => (responder.naks(), None, packet::ACK),
            Answer::SelectiveNak(sack) => (true, Some(sack), packet::SELECTIVE_NAK),
        };
        Some(self.bare(number, bytes, self.class, Packet::Ack { qp, psn, nak, sack }))
    }

    fn next_data(&mut self, now: Time) -> Option<Outgoing<Packet>> {
        while let Some(number) = self.turns.pop_front() {
            let requester = &mut self.requesters[number as usize];
            requester.in_turn = false;
            let due = requester.has_work(&self.config) && requester.due(now, &self.config).0 <= now;
            let sent = if due { requester.transmit(now, &self.config) } else { None };
            if let Some(Write { flow, inbox, .. }) = sent.and_then(|sent| sent.posts) {
                let bytes = self.config.message_packets * self.config.payload as u64;
                requester.post(flow, inbox, bytes, true, self.config.payload);
            }
            let (to, port) = (requester.to, requester.port);
            self.attend(now, number);
            let Some(sent) = sent else { continue };
            match sent.again {
                true => self.counts.data_again += 1,
                false => self.counts.data_new += 1,
            }
            return Some(Outgoing {
                to: to.host,
                process: to.process,
                ports: (port, PORT),
                bytes: sent.bytes,
                class: self.class,
                ecn_capable: self.config.dcqcn.is_some(),
                content: Packet::Write(Segment {
                    from: self.here,
                    qp: number,
                    psn: sent.psn,
                    inbox: sent.inbox,
                    bytes: sent.payload,
                    ack: sent.ack,
                }),
            });
        }
        None
    }

    fn is_paused(&self, class: u8) -> bool {
        self.paused >> class & 1 == 1
    }
}

impl Transport for Roce {
    type Content = Packet;
    type Address = Address;

    fn address(&self) -> Address {
        self.here
    }

    fn expect(&mut self, _: &Address, inbox: u32, bytes: u64) {
        self.inboxes[inbox as usize] = Inbox { bytes, placed: 0 };
    }

    fn start(&mut self, now: Time, order: Order, to: &Address) {
        let Order { flow, inbox, bytes, channel } = order;
        let number = self.queue_pair(*to, channel);
        let endless = bytes == u64::MAX;
        if endless {
            self.endless.insert(flow, number);
        }
        let bytes = if endless { self.config.message_packets * self.config.payload as u64 } else { bytes };
        self.requesters[number as usize].post(flow, inbox, bytes, endless, self.config.payload);
        self.attend(now, number);
    }

    fn stop(&mut self, now: Time, flow: u32) {
        if let Some(number) = self.endless.remove(&flow) {
            self.requesters[number as usize].stop(flow, self.config.payload);
            self.attend(now, number);
        }
    }

    fn receive(&mut self, now: Time, _arrived: Time, head: &FrameHead, content: &Packet) {
        match *content {
            Packet::Write(segment) => self.take(now, &segment, head.marked),
            Packet::Ack { qp, psn, nak, sack } => self.acknowledge(now, qp, psn, nak, sack),
            Packet::Notification { qp } => {
                if let Some(dcqcn) = self.config.dcqcn {
                    self.reactions.push_back((now + dcqcn.reaction, qp));
                    self.react(now);
                }
            }
        }
    }

    fn poll_transmit<R>(&mut self, now: Time, mut sink: impl FnMut(Outgoing<Packet>) -> R) -> Option<R> {
        if let Some(notification) = self.next_notification() {
            return Some(sink(notification));
        }
        if self.is_paused(self.class) {
            return None;
        }
        self.next_answer().or_else(|| self.next_data(now)).map(sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.paused = classes;
    }

    fn handle_timeout(&mut self, now: Time) {
        self.react(now);
        self.notify(now);
        while let Some(&Reverse((at, number))) = self.alarms.peek().filter(|alarm| alarm.0.0 <= now) {
            self.alarms.pop();
            let requester = &mut self.requesters[number as usize];
            if at != requester.alarm_at {
                continue;
            }
            requester.alarm_at = Time::NEVER;
            if requester.deadline() <= now {
                self.time_out(number);
            }
            self.attend(now, number);
        }
    }

    fn next_timeout(&self) -> Time {
        let alarm = self.alarms.peek().map_or(Time::NEVER, |alarm| alarm.0.0);
        let reaction = self.reactions.front().map_or(Time::NEVER, |(at, _)| *at);
        let notification = self.late_notifications.front().map_or(Time::NEVER, |(at, _)| *at);
        alarm.min(reaction).min(notification)
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.inboxes[inbox as usize].placed
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
