//! Two or more endpoints in virtual time, joined by a network that the test shapes packet by packet.

use srd_proto::*;
use srd_wire::*;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug, PartialEq)]
pub struct Bytes(Rc<[u8]>, usize, usize);

impl Bytes {
    pub fn new(bytes: Vec<u8>) -> Bytes {
        let len = bytes.len();
        Bytes(bytes.into(), 0, len)
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0[self.1..self.1 + self.2]
    }
}

impl Payload for Bytes {
    fn empty() -> Bytes {
        Bytes::new(Vec::new())
    }

    fn len(&self) -> usize {
        self.2
    }

    fn slice(&self, offset: usize, len: usize) -> Bytes {
        assert!(offset + len <= self.2);
        Bytes(self.0.clone(), self.1 + offset, len)
    }
}

/// What an endpoint's upper layer saw.
#[derive(Default)]
pub struct Log {
    pub next_cookie: u64,
    pub open: HashMap<u64, Vec<u8>>,
    pub received: Vec<(Op, Vec<u8>)>,
    pub received_at: Vec<Time>,
    pub abandoned: usize,
    pub outcomes: Vec<(u64, Result<(), Status>)>,
    pub lost_peers: Vec<PeerLoss>,
    pub silent_peers: usize,
    /// Refuse the next messages with these.
    pub refuse: Vec<Status>,
    /// The queue key that those know who were given this host's address; none: all know it.
    pub qkey: Option<Qkey>,
    /// Everybody may know that key, so that who is expected is asked first.
    pub well_known: bool,
    pub now: Time,
}

impl UpperLayer<Bytes> for Log {
    fn vouches(&self, op: &Op, _: InstanceAddr) -> bool {
        match op {
            Op::Send { route, .. } | Op::Write { route, .. } | Op::ReadRequest { route, .. } => {
                self.qkey.is_none_or(|qkey| qkey == route.qkey)
            }
            _ => false,
        }
    }

    fn trusts(&self, _: &Op, expected: bool) -> bool {
        !(expected && self.well_known)
    }

    fn begin(&mut self, message: &Incoming, _: Option<Stranger>) -> Result<Cookie, Status> {
        if let Some(status) = self.refuse.pop() {
            return Err(status);
        }
        self.next_cookie += 1;
        self.open.insert(self.next_cookie, vec![0xEE; message.len as usize]);
        Ok(Cookie(self.next_cookie))
    }

    fn place(&mut self, cookie: Cookie, _: &Incoming, offset: u32, payload: &Bytes) {
        let buffer = self.open.get_mut(&cookie.0).expect("place after begin");
        buffer[offset as usize..offset as usize + payload.len()].copy_from_slice(payload.as_slice());
    }

    fn finish(&mut self, cookie: Cookie, message: &Incoming) -> Result<(), Status> {
        let buffer = self.open.remove(&cookie.0).expect("finish once");
        self.received.push((message.op, buffer));
        self.received_at.push(self.now);
        Ok(())
    }

    fn abandon(&mut self, cookie: Cookie, _: &Incoming) {
        self.open.remove(&cookie.0).expect("abandon once");
        self.abandoned += 1;
    }

    fn outcome(&mut self, _: PeerId, token: Token, outcome: Result<(), Status>) {
        assert!(self.outcomes.iter().all(|&(old, _)| old != token.0), "one outcome per message");
        self.outcomes.push((token.0, outcome));
    }

    fn peer_silent(&mut self, _: InstanceAddr, _: bool) {
        self.silent_peers += 1;
    }

    fn peer_lost(&mut self, _: PeerId, _: u8, _: InstanceAddr, why: PeerLoss) {
        self.lost_peers.push(why);
    }
}

pub struct Host {
    pub endpoint: Endpoint<Bytes>,
    pub log: Log,
    pub gid: Gid,
    pub sent: u64,
}

/// What the network does with a packet: `None` drops it, otherwise one delay per copy.
pub type Network = Box<dyn FnMut(Time, usize, &Transmit<Bytes>) -> Vec<Nanos>>;

pub struct World {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub network: Network,
    #[allow(clippy::type_complexity)]
    /// Which packets from a host arrive with a congestion mark.
    pub marks: Box<dyn FnMut(usize, &Packet<Bytes>) -> bool>,
    #[allow(clippy::type_complexity)]
    /// Of which data packets from a host only the headers arrive.
    pub cuts: Box<dyn FnMut(usize, &Packet<Bytes>) -> bool>,
    flying: BTreeMap<(Time, u64), (usize, Gid, Packet<Bytes>)>,
    serial: u64,
    pub next_token: u64,
    /// Packets that arrive together are handed over as on a host: the first of a run whole, those that follow it as such.
    pub joins: bool,
    /// Packets that were given out, and taken, as followers.
    pub followed: [u64; 2],
}

pub const PORT: u16 = 17408;

pub fn gid(host: usize) -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, host as u8 + 1]))
}

pub fn addr(host: usize) -> InstanceAddr {
    InstanceAddr { gid: gid(host), port: PORT }
}

impl World {
    pub fn new(hosts: usize, config: &Config) -> World {
        let host = |i| Host {
            endpoint: Endpoint::new(
                config.clone(),
                Incarnation(0x1234_0000 + i as u64),
                &[PORT],
                7 + i as u64,
            ),
            log: Log::default(),
            gid: gid(i),
            sent: 0,
        };
        World {
            now: Time(1_000_000),
            hosts: (0..hosts).map(host).collect(),
            network: Box::new(|_, _, _| vec![Nanos::from_micros(7)]),
            marks: Box::new(|_, _| false),
            cuts: Box::new(|_, _| false),
            flying: BTreeMap::new(),
            serial: 0,
            next_token: 0,
            joins: false,
            followed: [0; 2],
        }
    }

    pub fn route(dst: usize) -> Route {
        Route { dst_qpn: Qpn(2 + dst as u16), src_qpn: Qpn(3), qkey: Qkey(5) }
    }

    pub fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) -> u64 {
        self.send_op(from, to, Op::Send { route: World::route(to), imm: None, datagram: false }, bytes)
    }

    pub fn send_op(&mut self, from: usize, to: usize, op: Op, bytes: Vec<u8>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        let host = &mut self.hosts[from];
        let peer = host.endpoint.connect(self.now, 0, addr(to)).unwrap();
        host.endpoint.send(self.now, peer, Token(token), op, Bytes::new(bytes)).unwrap();
        token
    }

    pub fn restart(&mut self, host: usize, config: &Config, incarnation: u64) {
        self.hosts[host].endpoint =
            Endpoint::new(config.clone(), Incarnation(incarnation), &[PORT], incarnation);
        self.hosts[host].log = Log::default();
    }

    fn flush(&mut self) {
        for i in 0..self.hosts.len() {
            let mut burst = 0;
            while let Some(transmit) = self.hosts[i].endpoint.poll_transmit(self.now) {
                burst += 1;
                assert!(burst < 100_000, "transmit storm");
                let size = match &transmit.packet.body {
                    Body::Data(data) => data.payload.len(),
                    _ => 0,
                };
                let header = srd_wire::codec::header_len(&transmit.packet);
                srd_wire::codec::check(&transmit.packet, size).expect("consistent packet");
                assert!(
                    header + size.max(transmit.pad_to as usize)
                        <= self.hosts[i].endpoint.config().max_datagram as usize
                );
                let mut train = vec![transmit];
                if self.joins {
                    self.hosts[i].endpoint.poll_followers(self.now, burst % 50, |followers, payload| {
                        for n in 0..followers.count {
                            let mut transmit = train[0].clone();
                            let Body::Data(data) = &mut transmit.packet.body else {
                                panic!("only data follows")
                            };
                            let at = n * u32::from(followers.len);
                            (data.psn, data.offset) = (followers.psn.plus(n), followers.offset + at);
                            data.payload = payload.slice(at as usize, usize::from(followers.len));
                            assert_eq!(bytes(&transmit.packet), followers.bytes);
                            train.push(transmit);
                        }
                    });
                    self.followed[0] += train.len() as u64 - 1;
                }
                train.iter().for_each(|transmit| self.fly(i, transmit));
            }
        }
    }

    fn fly(&mut self, from: usize, transmit: &Transmit<Bytes>) {
        self.hosts[from].sent += 1;
        for delay in (self.network)(self.now, from, transmit) {
            self.serial += 1;
            let Some(to) = self.hosts.iter().position(|host| host.gid == transmit.to.gid) else {
                continue; // nobody is there
            };
            self.flying
                .insert((self.now + delay, self.serial), (to, self.hosts[from].gid, transmit.packet.clone()));
        }
    }

    /// One step of virtual time; false when nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.flush();
        let next_packet = self.flying.keys().next().map_or(Time::NEVER, |key| key.0);
        let next_timer = self.hosts.iter().map(|host| host.endpoint.next_timeout()).min().unwrap();
        let next = next_packet.min(next_timer);
        if next == Time::NEVER {
            return false;
        }
        assert!(next >= self.now);
        self.now = next;
        let mut run: Vec<(usize, Gid, Packet<Bytes>)> = Vec::new();
        while let Some((&key, _)) = self.flying.iter().next() {
            if key.0 > self.now {
                break;
            }
            let packet = self.flying.remove(&key).unwrap();
            if run.first().is_some_and(|first| (first.0, first.1) != (packet.0, packet.1)) {
                self.deliver(std::mem::take(&mut run));
            }
            run.push(packet);
        }
        self.deliver(run);
        for host in &mut self.hosts {
            host.log.now = self.now;
            host.endpoint.handle_timeout(self.now, &mut host.log);
        }
        true
    }

    /// Packets come that one host has sent to another, at one moment.
    fn deliver(&mut self, run: Vec<(usize, Gid, Packet<Bytes>)>) {
        let mut packets = run.into_iter().peekable();
        while let Some((to, from, packet)) = packets.next() {
            let mut next = self.handle(to, from, &packet);
            let mut train = Vec::new();
            while let Some(next) = &mut next
                && let Some((.., packet)) = packets.next_if(|(.., packet)| next.take(&encoded(packet)))
            {
                train.push(packet);
            }
            let Some(Packet { body: Body::Data(first), .. }) = train.first() else { continue };
            let (len, count) = (first.payload.len() as u16, train.len() as u32);
            let followers =
                Followers { psn: first.psn, offset: first.offset, len, count, bytes: bytes(&train[0]) };
            let payload = |at: u32| match &train[at as usize].body {
                Body::Data(data) => data.payload.clone(),
                _ => panic!("only data follows"),
            };
            let host = &mut self.hosts[to];
            let taken = host.endpoint.handle_followers(self.now, &followers, payload, &mut host.log);
            self.followed[1] += u64::from(taken);
            train.iter().skip(taken as usize).for_each(|packet| _ = self.handle(to, from, packet));
        }
    }

    /// One packet comes. What may follow it.
    fn handle(&mut self, to: usize, from: Gid, packet: &Packet<Bytes>) -> Option<NextHeader> {
        let sender = self.hosts.iter().position(|host| host.gid == from).unwrap();
        let ce = (self.marks)(sender, packet);
        let has_payload = matches!(&packet.body, Body::Data(data) if !data.payload.is_empty());
        let cut = has_payload && (self.cuts)(sender, packet);
        let left = cut.then(|| packet.clone().map_payload(|_| Bytes::empty()));
        let packet = left.as_ref().unwrap_or(packet);
        let host = &mut self.hosts[to];
        host.log.now = self.now;
        let received = Received { ce, cut, ..Received::new(self.now, from, packet, bytes(packet)) };
        let followed = host.endpoint.handle_packet(self.now, 0, received, &mut host.log);
        if followed && self.joins { NextHeader::after(&encoded(packet), packet) } else { None }
    }

    pub fn run_for(&mut self, span: Nanos) {
        let end = self.now + span;
        let mut stuck = (self.now, 0);
        while self.now < end && self.step() {
            stuck = if stuck.0 == self.now { (self.now, stuck.1 + 1) } else { (self.now, 0) };
            assert!(stuck.1 < 10_000, "time stands still at {:?}", self.now);
        }
    }

    /// Runs until every message has its outcome; panics after `limit`.
    pub fn settle(&mut self, limit: Nanos) {
        let end = self.now + limit;
        let mut stuck = (self.now, 0);
        while self.hosts.iter().map(|host| host.log.outcomes.len() as u64).sum::<u64>() < self.next_token {
            assert!(self.now < end, "messages unsettled after {limit:?}");
            assert!(self.step(), "messages unsettled and nothing left to do");
            stuck = if stuck.0 == self.now { (self.now, stuck.1 + 1) } else { (self.now, 0) };
            assert!(stuck.1 < 10_000, "time stands still at {:?}", self.now);
        }
    }
}

/// A packet's datagram, without padding.
pub fn encoded(packet: &Packet<Bytes>) -> Vec<u8> {
    let payload = match &packet.body {
        Body::Data(data) => data.payload.as_slice(),
        _ => &[],
    };
    let mut bytes = vec![0; srd_wire::codec::header_len(packet)];
    srd_wire::codec::encode_header(packet, payload.len(), &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Size of a packet's datagram.
pub fn bytes(packet: &Packet<Bytes>) -> usize {
    let payload = match &packet.body {
        Body::Data(data) => data.payload.len(),
        _ => 0,
    };
    srd_wire::codec::header_len(packet) + payload
}

pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(salt).wrapping_add((i >> 8) as u8)).collect()
}

/// MTU of what `host_config` is for.
pub const HOST_MTU: u64 = 1500;

/// As on a host with kernel UDP whose link has that rate, and which knows that or takes it for one of 100 Gb/s: srd-net's
/// `host.rs`.
pub fn host_config(rate: BitRate, known: bool) -> Config {
    let line_rate = if known { rate } else { BitRate(100_000_000_000) };
    let packet_time = line_rate.time_for(HOST_MTU);
    let ack_delay = Nanos::from_micros(15);
    Config {
        line_rate,
        line_rate_known: known,
        base_rtt: Nanos(200_000 + 4 * packet_time.0),
        burst_bytes: 63_000,
        ack_delay,
        stream_ack_delay: Nanos(ack_delay.0 + 2 * packet_time.0),
        ack_every: 64,
        min_rto: Nanos::from_millis(1),
        min_pto: Nanos::from_micros(300),
        max_rto: Nanos::from_millis(100),
        ..Config::default()
    }
}

/// What an endpoint has decided, and when.
pub type Events = Arc<Mutex<Vec<(Time, Event)>>>;

/// From now on host `i`'s decisions are kept.
pub fn trace(world: &mut World, i: usize) -> Events {
    let events = Events::default();
    let sink = events.clone();
    world.hosts[i].endpoint.set_tracer(Some(Box::new(move |now, _, event| {
        sink.lock().unwrap().push((now, *event));
    })));
    events
}
