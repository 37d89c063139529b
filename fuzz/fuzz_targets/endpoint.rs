//! Two endpoints that send to each other, lose, double and delay what they like, start again and give messages up; and
//! an attacker who hears all of it and says anything, from their addresses and from others. Nothing brings an endpoint
//! down, no outcome comes twice, no byte is placed outside its message, tables stay within their bounds. Once the
//! attacker is silent and the network works, every message comes to an end, unless he has said what nobody promises
//! anything against.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use srd_device::VecPayload;
use srd_fuzz::forger::Forger;
use srd_fuzz::{data, packet, to_bytes};
use srd_proto::*;
use srd_wire::*;
use std::collections::{HashMap, HashSet};

const PORT: u16 = 17408;
const MAX_PEERS: u32 = 4;
/// Most packets that one call after the other may send at one moment.
const MOST_AT_ONCE: usize = 20_000;
/// Longest that messages take to come to an end where the network works: several times the peer timeout.
const PATIENCE: Nanos = Nanos::from_secs(60);
const MOST_STEPS: usize = 200_000;

/// What an endpoint's user sees, held to what it may see.
#[derive(Default)]
struct UpperLayer {
    next: u64,
    open: HashMap<u64, (u32, u64)>,
    owed: HashSet<u64>,
    refuse: u8,
}

impl srd_proto::UpperLayer<VecPayload> for UpperLayer {
    fn vouches(&self, op: &Op, _: InstanceAddr) -> bool {
        // An odd key is a wrong one.
        match op {
            Op::Send { route, .. } | Op::Write { route, .. } | Op::ReadRequest { route, .. } => {
                route.qkey.0 % 2 == 0
            }
            _ => false,
        }
    }

    fn begin(&mut self, message: &Incoming, _: Option<Stranger>) -> std::result::Result<Cookie, Status> {
        if self.refuse > 0 {
            self.refuse -= 1;
            return Err(Status::RemoteRnr);
        }
        self.next += 1;
        self.open.insert(self.next, (message.len, 0));
        Ok(Cookie(self.next))
    }

    fn place(&mut self, cookie: Cookie, _: &Incoming, offset: u32, payload: &VecPayload) {
        let (len, placed) = self.open.get_mut(&cookie.0).expect("place between begin and finish");
        *placed += payload.len() as u64;
        assert!(u64::from(offset) + payload.len() as u64 <= u64::from(*len), "within the message");
        assert!(*placed <= u64::from(*len), "each byte once");
    }

    fn finish(&mut self, cookie: Cookie, _: &Incoming) -> std::result::Result<(), Status> {
        let (len, placed) = self.open.remove(&cookie.0).expect("finish once");
        assert_eq!(u64::from(len), placed);
        Ok(())
    }

    fn abandon(&mut self, cookie: Cookie, _: &Incoming) {
        self.open.remove(&cookie.0).expect("abandon once");
    }

    fn outcome(&mut self, _: PeerId, token: Token, _: std::result::Result<(), Status>) {
        assert!(self.owed.remove(&token.0), "one outcome per message");
    }

    fn peer_lost(&mut self, _: PeerId, _: u8, _: InstanceAddr, _: PeerLoss) {}
}

struct World {
    config: Config,
    now: Time,
    endpoints: [Endpoint<VecPayload>; 2],
    uppers: [UpperLayer; 2],
    /// To which endpoint, from where, the datagram.
    flying: Vec<(usize, Gid, Vec<u8>)>,
    /// To whom, whence and with what header the last datagram was delivered that others may follow.
    followed: Option<(usize, Gid, NextHeader)>,
    attacker: Forger,
    may_be_blocked: bool,
    tokens: u64,
    lives: u64,
}

fn gid(host: u8) -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, host]))
}

fn at(host: u8) -> InstanceAddr {
    InstanceAddr { gid: gid(host), port: PORT }
}

impl World {
    fn new(u: &mut Unstructured<'_>) -> Result<World> {
        let config = Config {
            paths: *u.choose(&[1, 2, 64, 256])?,
            entropy: *u.choose(&[1, 7, 128])?,
            max_datagram: *u.choose(&[576, 1232, 1472, 8972])?,
            confirm_first: u.arbitrary()?,
            probe_path_mtu: u.arbitrary()?,
            selector: u.choose(SelectorKind::ALL)?.1,
            controller: u.choose(ControllerKind::ALL)?.1,
            peer_timeout: Nanos::from_millis(*u.choose(&[1, 50, 3000])?),
            max_partial_per_peer: *u.choose(&[1, 20])?,
            max_messages_per_peer: *u.choose(&[1, 40])?,
            max_peers: MAX_PEERS,
            ..Config::default()
        };
        let endpoint = |n| Endpoint::new(config.clone(), Incarnation(n), &[PORT], n);
        let endpoints = [endpoint(0x1111_2222_3333_4444), endpoint(0x5555_6666_7777_8888)];
        Ok(World {
            config,
            now: Time(1 << 30),
            endpoints,
            uppers: Default::default(),
            flying: Vec::new(),
            followed: None,
            attacker: Forger::default(),
            may_be_blocked: false,
            tokens: 0,
            lives: 0,
        })
    }

    fn send(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (from, to) = (u.int_in_range(0..=1)?, u.int_in_range(1..=4)?);
        let endpoint = &mut self.endpoints[from];
        let Ok(peer) = endpoint.connect(self.now, 0, at(to)) else { return Ok(()) };
        self.tokens += 1;
        let op = data(u)?.op;
        // Requests and answers are empty, and answers about packets are the endpoint's own business.
        let len = match op {
            Op::Send { .. } | Op::Write { .. } | Op::ReadResponse { .. } => {
                *u.choose(&[0, 1, 500, 1500, 9000, 40_000])?
            }
            Op::ReadRequest { .. } | Op::ReadFailed { .. } => 0,
            Op::Refuse { .. } | Op::Skip => return Ok(()),
        };
        // What has failed has a reason.
        if let Op::ReadFailed { status: Status::Ok, .. } = op {
            return Ok(());
        }
        self.uppers[from].owed.insert(self.tokens);
        let payload = VecPayload::from(&vec![7; len][..]);
        if endpoint.send(self.now, peer, Token(self.tokens), op, payload).is_err() {
            self.uppers[from].owed.remove(&self.tokens);
        }
        if u.ratio(1, 8)? {
            let owed = &mut self.uppers[from].owed;
            endpoint.cancel(self.now, peer, &mut |token| token.0 % 2 == 0 && owed.remove(&token.0));
        }
        Ok(())
    }

    fn deliver(&mut self, to: usize, from: Gid, bytes: &[u8], ce: bool) {
        let (endpoint, upper) = (&mut self.endpoints[to], &mut self.uppers[to]);
        // As on a host: of datagrams that come together those that follow the one before it are handed over as such.
        if let Some((_, _, next)) = self.followed.as_mut().filter(|it| (it.0, it.1) == (to, from) && !ce) {
            let (psn, offset, len) = (next.psn(), next.offset(), next.segment());
            let followers = Followers { psn, offset, len, count: 1, bytes: bytes.len() };
            let header = next.header_len();
            let payload = |_| VecPayload::from(&bytes[header..]);
            if next.take(bytes) && endpoint.handle_followers(self.now, &followers, payload, upper) == 1 {
                return;
            }
        }
        self.followed = None;
        let read = codec::decode(bytes);
        let cut = read.is_err();
        let Ok(packet) = read.or_else(|_| codec::decode_cut(bytes)) else { return };
        let packet = packet.map_payload(VecPayload::from);
        let received = Received { ce, cut, ..Received::new(self.now, from, &packet, bytes.len()) };
        if endpoint.handle_packet(self.now, 0, received, upper) {
            let next = NextHeader::after(bytes, &packet).expect("bare data is followed");
            self.followed = Some((to, from, next));
        }
    }

    /// All that the endpoints have to say, and what holds between calls.
    fn flush(&mut self) {
        for i in 0..2 {
            let endpoint = &mut self.endpoints[i];
            if endpoint.next_timeout() <= self.now {
                endpoint.handle_timeout(self.now, &mut self.uppers[i]);
            }
            for sent in 0.. {
                let Some(transmit) = endpoint.poll_transmit(self.now) else { break };
                assert!(sent < MOST_AT_ONCE, "sends without end");
                let seg_len =
                    if let Body::Data(data) = &transmit.packet.body { data.payload.len() } else { 0 };
                codec::check(&transmit.packet, seg_len).expect("consistent packet");
                let padding = usize::from(transmit.pad_to).saturating_sub(seg_len);
                let packet = transmit.packet.map_payload(|it| it.as_slice().to_vec());
                let bytes = to_bytes(&packet, padding);
                assert!(bytes.len() <= usize::from(self.config.max_datagram), "fits the path");
                self.attacker.hear_packet(&packet, bytes.clone());
                let to = (1..=2).find(|&host| at(host) == transmit.to);
                if let Some(to) = to {
                    self.flying.push((usize::from(to) - 1, gid(i as u8 + 1), bytes));
                }
            }
            assert!(endpoint.peers().count() <= MAX_PEERS as usize, "peers within their bound");
            let next = endpoint.next_timeout();
            assert!(next == Time::NEVER || next.0 < self.now.0 + 3600 * 1_000_000_000, "due some time");
        }
        // What a network holds.
        let excess = self.flying.len().saturating_sub(256);
        self.flying.drain(..excess);
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15)? {
            0 => self.now += Nanos(*u.choose(&[0, 1, 1000, 1_000_000, 1_000_000_000, 40_000_000_000])?),
            1 => {
                let next = self.endpoints.iter().map(|it| it.next_timeout()).min().unwrap_or(Time::NEVER);
                self.now = next.min(self.now + Nanos::from_secs(40)).max(self.now);
            }
            2 => self.now = Time(self.now.0 - u.int_in_range(0..=self.now.0.min(1 << 34))?),
            3..=5 => self.send(u)?,
            6 => {
                let i = u.int_in_range(0..=1)?;
                self.uppers[i].refuse = u.arbitrary()?;
            }
            7 if u.ratio(1, 4)? => {
                let i = u.int_in_range(0..=1)?;
                self.lives += 1;
                // With another tag than the last one, as every process has: it takes part in the keys of what is sealed.
                let life = (self.lives << 32) + 2 * self.lives + i as u64 + 1;
                self.endpoints[i] = Endpoint::new(self.config.clone(), Incarnation(life), &[PORT], life);
                self.uppers[i] = UpperLayer::default();
            }
            7 | 8 => self.flying.clear(),
            9..=11 => {
                for (to, from, bytes) in std::mem::take(&mut self.flying) {
                    match u.int_in_range(0..=7)? {
                        0 => {}
                        1 => self.flying.push((to, from, bytes)),
                        2 => {
                            self.deliver(to, from, &bytes, true);
                            self.deliver(to, from, &bytes, false);
                        }
                        _ => self.deliver(to, from, &bytes, false),
                    }
                }
            }
            _ => {
                let body = if u.arbitrary()? { Body::Data(data(u)?) } else { Body::None };
                let made_up = packet(u, body)?;
                let payload = if let Body::Data(data) = &made_up.body { data.payload.len() } else { 0 };
                let consistent = codec::check(&made_up, payload).is_ok();
                let fresh = if consistent { to_bytes(&made_up, 0) } else { Vec::new() };
                let bytes = self.attacker.forge(u, fresh)?;
                self.may_be_blocked |=
                    codec::decode(&bytes).is_ok_and(|packet| self.attacker.may_block(&packet, &bytes));
                let (to, from) = (u.int_in_range(0..=1)?, u.int_in_range(1..=8)?);
                self.deliver(to, gid(from), &bytes, false);
            }
        }
        self.flush();
        Ok(())
    }

    /// The attacker is silent, and every datagram arrives: whatever is owed comes.
    fn end(&mut self) {
        if self.may_be_blocked {
            return;
        }
        let end = self.now + PATIENCE;
        for _ in 0..MOST_STEPS {
            for (to, from, bytes) in std::mem::take(&mut self.flying) {
                self.deliver(to, from, &bytes, false);
            }
            self.flush();
            if self.uppers.iter().all(|upper| upper.owed.is_empty()) {
                return;
            }
            if self.flying.is_empty() {
                let next = self.endpoints.iter().map(|it| it.next_timeout()).min().unwrap_or(Time::NEVER);
                assert!(next != Time::NEVER, "messages without an outcome, and nothing left to do");
                self.now = self.now.max(next);
            } else {
                self.now += Nanos::from_micros(5);
            }
            assert!(self.now < end, "messages without an outcome");
        }
        panic!("time stands still");
    }
}

fn run(bytes: &[u8]) -> Result<()> {
    let u = &mut Unstructured::new(bytes);
    let mut world = World::new(u)?;
    while !u.is_empty() && world.step(u).is_ok() {}
    world.end();
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(bytes);
});
