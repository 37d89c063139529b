//! RoCEv2: RDMA writes over reliable connections, as a good NIC does them.
//!
//! A flow is an RDMA write, or writes without end, on its channel's queue pair between two processes. Losses are mended by going back to
//! the first packet that is missing, as InfiniBand has it, or selectively, as IRN proposes; DCQCN sets rates where switches
//! mark. All sits in the NIC: packets are taken and sent at once, and queue pairs take turns, a packet each.
//!
//! `requester` and `responder` are the two ends of a queue pair, `dcqcn` the sender's rate, `inbound` the receiving half of a
//! NIC, `config` what may be chosen; this file lets queue pairs share the NIC. What it leaves out: receiver-not-ready, memory keys, reads, the set-up of connections.

mod config;
mod dcqcn;
mod inbound;
mod packet;
mod psn_set;
mod requester;
mod responder;
mod wire;
#[cfg(test)]
mod tests;

pub use config::{Config, Dcqcn, Recovery};
pub use dcqcn::{AlphaUpdate, Constants};
pub use packet::{Address, Packet, Segment};

use crate::frame::{ETHERNET_HEADER, FrameHead};
use crate::input::InputError;
use crate::section::Section;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport, WireCost};
use crate::{Baseline, Surroundings};
use inbound::{Inbound, Taken};
use packet::PORT;
use requester::{Requester, Write};
use srd_wire::{BitRate, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

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
    /// When queue pairs are to be looked at. An entry that is not its queue pair's latest of the kind means nothing.
    alarms: BinaryHeap<Reverse<(Time, u32, Alarm)>>,
    /// Notifications that have come and will be heeded then.
    reactions: VecDeque<(Time, u32)>,
    inbound: Inbound,
    reports: VecDeque<Report>,
    counts: Counts,
}

/// Why a queue pair is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Alarm {
    /// Its rate allows a packet.
    Due,
    /// It may have timed out.
    Deadline,
}

impl Baseline for Roce {
    type Config = Config;

    const NAME: &'static str = "roce";
    const KEYS: &'static [&'static str] = config::KEYS;
    const HAS_HEADERS: bool = true;

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
            inbound: Inbound::new(role.inboxes),
            reports: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Without the 16 bytes of RETH that a message's first packet has more.
    fn cost(config: &Config, _mtu: u16, overhead: u32) -> WireCost {
        let address = if config.recovery == Recovery::Irn { packet::ADDRESS_HEADER } else { 0 };
        let headers = (ETHERNET_HEADER + packet::DATA_HEADERS + address + overhead) as u64;
        WireCost { payload: config.payload as u64, headers }
    }
}

/// A source port for a queue pair: 0xC000 to 0xFFFF (RoCEv2 annex, section A17.9.1), by a hash.
fn port(seed: u64, of: u64) -> u16 {
    let mixed = (seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    0xc000 | (mixed >> 50) as u16
}

impl Roce {
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
        let port = port(self.seed, fresh as u64);
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
        let deadline = requester.deadline();
        if deadline < requester.deadline_alarm {
            requester.deadline_alarm = deadline;
            self.alarms.push(Reverse((deadline, number, Alarm::Deadline)));
        }
        if requester.in_turn || !requester.has_work(&self.config) {
            return;
        }
        let (due, changes) = requester.due(now, &self.config);
        let at = due.min(changes);
        if due <= now {
            requester.in_turn = true;
            self.turns.push_back(number);
        } else if at < requester.due_alarm {
            requester.due_alarm = at;
            self.alarms.push(Reverse((at, number, Alarm::Due)));
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

    /// Heeds notifications whose time has come.
    fn react(&mut self, now: Time) {
        while let Some(&(_, number)) = self.reactions.front().filter(|(at, _)| *at <= now) {
            self.reactions.pop_front();
            if let (Some(dcqcn), Some(requester)) = (&self.config.dcqcn, self.requesters.get_mut(number as usize)) {
                requester.notify(now, dcqcn);
            }
        }
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
                    left: sent.left,
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
        self.inbound.expect(inbox, bytes);
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
            Packet::Write(segment) => {
                let port = |of| port(self.seed, of);
                let Taken { again, report } =
                    self.inbound.take(now, &segment, head.marked, &self.config, port);
                self.counts.spurious += u64::from(again);
                self.reports.extend(report);
            }
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
        let notification = match self.config.dcqcn {
            Some(dcqcn) if !self.is_paused(dcqcn.cnp_class) => self.inbound.next_notification(dcqcn.cnp_class),
            _ => None,
        };
        let bare = match notification {
            None if self.is_paused(self.class) => return None,
            None => self.inbound.next_answer(self.class),
            notification => notification,
        };
        if let Some(bare) = bare {
            self.counts.bare += 1;
            return Some(sink(bare));
        }
        self.next_data(now).map(sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.paused = classes;
    }

    fn handle_timeout(&mut self, now: Time) {
        self.react(now);
        self.inbound.notify(now);
        while let Some(&Reverse((at, number, alarm))) = self.alarms.peek().filter(|entry| entry.0.0 <= now) {
            self.alarms.pop();
            let requester = &mut self.requesters[number as usize];
            let latest = match alarm {
                Alarm::Due => &mut requester.due_alarm,
                Alarm::Deadline => &mut requester.deadline_alarm,
            };
            if at != *latest {
                continue;
            }
            *latest = Time::NEVER;
            if requester.deadline() <= now {
                self.time_out(number);
            }
            self.attend(now, number);
        }
    }

    fn next_timeout(&self) -> Time {
        let alarm = self.alarms.peek().map_or(Time::NEVER, |alarm| alarm.0.0);
        let reaction = self.reactions.front().map_or(Time::NEVER, |(at, _)| *at);
        alarm.min(reaction).min(self.inbound.notifies_at())
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.inbound.placed(inbox)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
