//! A process: its connections, which of them sends next, and what becomes of a segment that comes.

use super::config::{Config, Marks, Placement};
use super::link::{Link, segments};
use super::receiver::{Arrival, Coming, Receiver, Urgency};
use super::segment::{Ack, Address, Connection, Data, Segment};
use super::sender::{Beginning, Expired, Sender};
use super::timers::Timers;
use crate::frame::FrameHead;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{Nanos, Time};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::marker::PhantomData;

/// Linux's ephemeral ports (ip_local_port_range).
const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Port of the first process of a host.
const FIRST_PORT: u16 = 5001;
/// How long segments that come together are collected at most: common interrupt moderation (mlx5, rx-usecs).
const COLLECT: Nanos = Nanos::from_micros(8);

/// The receiving end of a connection.
struct Source {
    from: Address,
    connection: Connection,
    /// Ports of its ACKs.
    ports: (u16, u16),
    receiver: Receiver,
}

/// An inbox.
#[derive(Clone, Copy, Default)]
struct Inbox {
    /// Bytes that it will have; `u64::MAX`: without end.
    bytes: u64,
    /// Bytes that have come.
    placed: u64,
    /// The connection that fills it, and its message's first segment; `None`: nothing has come.
    source: Option<(u32, u64)>,
}

/// Segments of one connection that came together and are looked at together: generic receive offload.
struct Collected {
    source: u32,
    bytes: u64,
    until: Time,
}

/// A process. `K`: what it is called and configured by.
pub struct Engine<K> {
    config: Config,
    me: Address,
    class: u8,
    paused: bool,
    round_trip: Nanos,
    collect: Nanos,
    /// Bytes of a flow in a full segment.
    full: u32,
    draws: SmallRng,
    links: Vec<Option<Box<Link>>>,
    /// Connections by host, process and channel.
    channels: BTreeMap<(u32, u16, u32), u32>,
    free: Vec<u32>,
    serials: u32,
    /// Connections of flows without end.
    endless: BTreeMap<u32, u32>,
    /// Connections that may send, the one that does first.
    ready: VecDeque<u32>,
    sources: Vec<Source>,
    /// Connections that come in by host, process and serial.
    known: HashMap<(u32, u16, u32), u32, BuildHasherDefault<DefaultHasher>>,
    inboxes: Vec<Inbox>,
    acks: VecDeque<Outgoing<Segment>>,
    collected: Option<Collected>,
    timers: Timers,
    reports: VecDeque<Report>,
    counts: Counts,
    kind: PhantomData<K>,
}

/// Owners of timers: connections that send, and those that come in.
const fn link_timer(slot: u32) -> u32 {
    slot * 2
}

const fn source_timer(source: u32) -> u32 {
    source * 2 + 1
}

impl<K> Engine<K> {
    /// A process as `role` says.
    pub fn new(role: &Role, config: &Config) -> Engine<K> {
        let collect = role.line_rate.time_for(config.gro_bytes).min(COLLECT);
        Engine {
            config: config.clone(),
            me: Address { host: role.host, process: role.process },
            class: role.class,
            paused: false,
            round_trip: role.base_rtt.max(Nanos(1)),
            collect,
            full: config.payload(role.mtu),
            draws: SmallRng::seed_from_u64(role.seed),
            links: Vec::new(),
            channels: BTreeMap::new(),
            free: Vec::new(),
            serials: 0,
            endless: BTreeMap::new(),
            ready: VecDeque::new(),
            sources: Vec::new(),
            known: HashMap::default(),
            inboxes: Vec::new(),
            acks: VecDeque::new(),
            collected: None,
            timers: Timers::default(),
            reports: VecDeque::new(),
            counts: Counts::default(),
            kind: PhantomData,
        }
    }

    // ---- sending ----

    /// A connection, established.
    fn connect(&mut self, to: Address, channel: u32) -> u32 {
        let begin = Beginning {
            burst: (self.config.tso_bytes / self.full as u64).clamp(1, 1 << 16) as u32,
            room: self.config.room(self.full),
            round_trip: self.round_trip,
            seed: self.draws.random(),
        };
        let link = Link {
            serial: self.serials,
            sender: Sender::new(&self.config, &begin),
            channel,
            to,
            ports: (self.draws.random_range(SOURCE_PORTS), FIRST_PORT.saturating_add(to.process)),
            messages: VecDeque::new(),
            behind: VecDeque::new(),
        };
        self.serials += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        self.links[slot as usize] = Some(Box::new(link));
        self.channels.insert((to.host, to.process, channel), slot);
        slot
    }

    /// Something has happened to a connection: messages may be complete, and it may want to send, or be
    /// woken.
    fn attend(&mut self, now: Time, slot: u32) {
        let Some(link) = &mut self.links[slot as usize] else { return };
        while link.messages.front().is_some_and(|message| message.end <= link.sender.first()) {
            let Some(message) = link.messages.pop_front() else { break };
            if message.bytes != u64::MAX {
                self.reports.push_back(Report::Sent { flow: message.flow });
            }
        }
        if link.messages.is_empty() && link.channel != Order::PROGRAM {
            link.sender.rest(); // it may well have been its only message
        }
        if !link.sender.queued && link.sender.may_begin(now) {
            link.sender.queued = true;
            self.ready.push_back(slot);
        }
        self.timers.set(link_timer(slot), link.sender.wakes_at(now));
    }

    /// A connection has failed, and all its messages with it.
    fn give_up(&mut self, slot: u32) {
        let Some(link) = self.links[slot as usize].take() else { return };
        if link.sender.queued {
            self.ready.retain(|&other| other != slot);
        }
        self.free.push(slot);
        self.channels.remove(&(link.to.host, link.to.process, link.channel));
        let flows = link.messages.iter().map(|message| message.flow);
        for flow in flows.chain(link.behind.iter().map(|order| order.flow)) {
            self.endless.remove(&flow);
            self.reports.push_back(Report::Failed { flow, why: "no answer to 15 retransmissions" });
        }
    }

    /// The next segment of the connection whose turn it is.
    fn next_data(&mut self, now: Time) -> Option<Outgoing<Segment>> {
        while let Some(&slot) = self.ready.front() {
            let link = self.links[slot as usize].as_mut().expect("a closed connection is not in the queue");
            let leaving = match link.sender.begin_burst(now) {
                true => link.sender.send(now),
                false => None,
            };
            // After a burst it is another connection's turn.
            if leaving.is_none_or(|leaving| leaving.push) {
                self.ready.pop_front();
                link.sender.queued = leaving.is_some() && link.sender.may_begin(now);
                if link.sender.queued {
                    self.ready.push_back(slot);
                }
                self.timers.set(link_timer(slot), link.sender.wakes_at(now));
            }
            let Some(leaving) = leaving else { continue };
            match leaving.again {
                true => self.counts.data_again += 1,
                false => self.counts.data_new += 1,
            }
            let data = link.segment(now, self.me, slot, &leaving, self.full);
            return Some(Outgoing {
                to: link.to.host,
                process: link.to.process,
                ports: link.ports,
                bytes: self.config.datagram(data.number - data.first, data.payload, self.full),
                class: self.class,
                // Classic ECN: not on what is retransmitted (RFC 3168, section 6.1.5).
                ecn_capable: match self.config.marks {
                    Marks::Ignored => false,
                    Marks::Classic => !leaving.again,
                    Marks::Counted => true,
                },
                content: Segment::Data(data),
            });
        }
        None
    }

    fn hear_ack(&mut self, now: Time, ack: &Ack) {
        let slot = ack.connection.slot;
        let Some(Some(link)) = self.links.get_mut(slot as usize) else { return };
        if link.serial == ack.connection.serial {
            link.sender.acknowledge(now, ack);
            self.attend(now, slot);
        }
    }

    fn wake_link(&mut self, now: Time, slot: u32) {
        let Some(Some(link)) = self.links.get_mut(slot as usize) else { return };
        match link.sender.expire(now) {
            Expired::Other => {}
            Expired::TimedOut => self.counts.timeouts += 1,
            Expired::GivenUp => return self.give_up(slot),
        }
        self.attend(now, slot);
    }

    // ---- receiving ----

    fn hear_data(&mut self, now: Time, data: &Data, marked: bool) {
        let number = self.source(data);
        if self.collected.as_ref().is_some_and(|collected| collected.source != number) {
            self.let_go(now);
        }
        if self.sources[number as usize].receiver.turns(marked) {
            self.collected = None;
            self.send_ack(number);
        }
        let receiver = &mut self.sources[number as usize].receiver;
        let (arrival, urgency) = receiver.accept(data, marked);
        match arrival {
            Arrival::Fresh => self.place(number, data),
            Arrival::Again => self.counts.spurious += 1,
            Arrival::Dropped => {}
        }
        let collects = self.config.gro_bytes > 0 && urgency != Urgency::Now && !data.push;
        if collects && self.collect(now, number, data) {
            return;
        }
        self.collected = None;
        self.settle(now, number, urgency);
    }

    /// The connection that a segment belongs to.
    fn source(&mut self, data: &Data) -> u32 {
        let key = (data.from.host, data.from.process, data.connection.serial);
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let number = self.sources.len() as u32;
        self.known.insert(key, number);
        let ports = (data.ports.1, data.ports.0);
        let receiver = Receiver::new(&self.config, self.full);
        self.sources.push(Source { from: data.from, connection: data.connection, ports, receiver });
        number
    }

    /// A segment is kept: it fills its inbox.
    fn place(&mut self, number: u32, data: &Data) {
        let receiver = &mut self.sources[number as usize].receiver;
        if let Some(inbox) = self.inboxes.get_mut(data.inbox as usize) {
            if inbox.source.is_none() {
                inbox.source = Some((number, data.first));
                let end = data.first.saturating_add(segments(inbox.bytes, self.full));
                receiver.begin(Coming { first: data.first, end, inbox: data.inbox });
            }
            inbox.placed += data.payload as u64;
        }
        while let Some(Coming { inbox, .. }) = receiver.finish() {
            if self.inboxes[inbox as usize].bytes != u64::MAX {
                self.reports.push_back(Report::Received { inbox });
            }
        }
    }

    /// Adds the segment to those that came just before it; `false`: they are enough.
    fn collect(&mut self, now: Time, source: u32, data: &Data) -> bool {
        let until = now + self.collect;
        let collected = self.collected.get_or_insert(Collected { source, bytes: 0, until });
        collected.bytes += data.payload as u64;
        collected.bytes + self.full as u64 <= self.config.gro_bytes
    }

    /// What came together is looked at.
    fn let_go(&mut self, now: Time) {
        if let Some(collected) = self.collected.take() {
            let urgency = self.sources[collected.source as usize].receiver.urgency();
            self.settle(now, collected.source, urgency);
        }
    }

    fn settle(&mut self, now: Time, source: u32, urgency: Urgency) {
        if urgency != Urgency::Later {
            return self.send_ack(source);
        }
        let receiver = &mut self.sources[source as usize].receiver;
        if receiver.ack_at == Time::NEVER {
            receiver.ack_at = now + self.config.delayed_ack;
            self.timers.set(source_timer(source), receiver.ack_at);
        }
    }

    fn send_ack(&mut self, source: u32) {
        let Source { from, connection, ports, receiver } = &mut self.sources[source as usize];
        let ack = receiver.acknowledge(*connection);
        let (to, ports) = (*from, *ports);
        self.queue_ack(to, ports, ack);
    }

    fn queue_ack(&mut self, to: Address, ports: (u16, u16), ack: Ack) {
        self.counts.bare += 1;
        self.acks.push_back(Outgoing {
            to: to.host,
            process: to.process,
            ports,
            bytes: ack.bytes(self.config.headers()),
            class: self.class,
            // DCTCP's pure ACKs may be marked instead of dropped, as on Linux.
            ecn_capable: self.config.marks == Marks::Counted,
            content: Segment::Ack(ack),
        });
    }
}

impl<K> Transport for Engine<K> {
    type Content = Segment;
    type Address = Address;

    fn address(&self) -> Address {
        self.me
    }

    fn expect(&mut self, _: &Address, inbox: u32, bytes: u64) {
        let place = inbox as usize;
        if self.inboxes.len() <= place {
            self.inboxes.resize(place + 1, Inbox::default());
        }
        self.inboxes[place] = Inbox { bytes, ..Inbox::default() };
    }

    fn start(&mut self, now: Time, order: Order, to: &Address) {
        let slot = match self.channels.get(&(to.host, to.process, order.channel)) {
            Some(&slot) => slot,
            None => self.connect(*to, order.channel),
        };
        if let Some(link) = &mut self.links[slot as usize] {
            link.append(order, self.full);
        }
        if order.bytes == u64::MAX {
            self.endless.insert(order.flow, slot);
        }
        self.attend(now, slot);
    }

    fn stop(&mut self, now: Time, flow: u32) {
        let Some(slot) = self.endless.remove(&flow) else { return };
        if let Some(link) = &mut self.links[slot as usize] {
            link.stop(flow, self.full);
            self.attend(now, slot);
        }
    }

    fn receive(&mut self, now: Time, _: Time, head: &FrameHead, content: &Segment) {
        if head.corrupt || head.trimmed {
            return; // its checksum is wrong
        }
        match content {
            Segment::Data(data) => self.hear_data(now, data, head.marked),
            Segment::Ack(ack) => self.hear_ack(now, ack),
        }
    }

    fn poll_transmit<R>(&mut self, now: Time, mut sink: impl FnMut(Outgoing<Segment>) -> R) -> Option<R> {
        if self.paused {
            return None;
        }
        if let Some(ack) = self.acks.pop_front() {
            return Some(sink(ack));
        }
        self.next_data(now).map(sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.paused = classes >> self.class & 1 == 1;
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.collected.as_ref().is_some_and(|collected| collected.until <= now) {
            self.let_go(now);
        }
        while let Some(owner) = self.timers.expire(now) {
            let place = owner / 2;
            if owner % 2 == 0 {
                self.wake_link(now, place);
                continue;
            }
            let at = self.sources[place as usize].receiver.ack_at;
            if at <= now {
                self.send_ack(place);
            } else {
                self.timers.set(owner, at);
            }
        }
    }

    fn next_timeout(&self) -> Time {
        self.collected.as_ref().map_or(Time::NEVER, |collected| collected.until).min(self.timers.next())
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        let Some(inbox) = self.inboxes.get(inbox as usize) else { return 0 };
        let Some((source, first)) = inbox.source else { return 0 };
        if self.config.placement == Placement::Direct {
            return inbox.placed;
        }
        let next = self.sources[source as usize].receiver.next();
        (next.saturating_sub(first) * self.full as u64).min(inbox.bytes)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
