//! A peer that says anything the wire format can say, at any time and in any order, never brings an endpoint down, and
//! never makes it place a byte outside a message or end one twice. Fields are drawn at the edges of what they may be, and
//! of what is expected of them, rather than evenly: mistakes live there.
//!
//! `SEED=n` runs that seed alone, `SEEDS=n` so many from `FIRST=n` on. A failure prints the command that runs it again.

#[path = "harness/length.rs"]
mod length;

use length::Length;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_proto::*;
use srd_wire::*;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Checks that the calls of the transport make sense.
struct Strict {
    rng: SmallRng,
    next: u64,
    open: HashMap<u64, (u32, u64)>,
    owed: HashSet<u64>,
}

impl UpperLayer<Length> for Strict {
    fn vouches(&self, op: &Op, _: InstanceAddr) -> bool {
        matches!(op, Op::Send { .. } | Op::Write { .. } | Op::ReadRequest { .. })
    }

    fn begin(&mut self, message: &Incoming, _: Option<Stranger>) -> Result<Cookie, Status> {
        if self.rng.random_bool(0.1) {
            return Err(Status::RemoteRnr);
        }
        self.next += 1;
        self.open.insert(self.next, (message.len, 0));
        Ok(Cookie(self.next))
    }

    fn place(&mut self, cookie: Cookie, _: &Incoming, offset: u32, payload: &Length) {
        let (len, placed) = self.open.get_mut(&cookie.0).expect("place between begin and finish");
        *placed += payload.0 as u64;
        assert!(
            offset as u64 + payload.0 as u64 <= *len as u64 && *placed <= *len as u64,
            "within the message"
        );
    }

    fn finish(&mut self, cookie: Cookie, _: &Incoming) -> Result<(), Status> {
        let (len, placed) = self.open.remove(&cookie.0).expect("finish once");
        assert_eq!(len as u64, placed);
        if self.rng.random_bool(0.05) { Err(Status::RemoteBadDestQpn) } else { Ok(()) }
    }

    fn abandon(&mut self, cookie: Cookie, _: &Incoming) {
        self.open.remove(&cookie.0).expect("abandon once");
    }

    fn outcome(&mut self, _: PeerId, token: Token, _: Result<(), Status>) {
        assert!(self.owed.remove(&token.0), "one outcome per message");
    }

    fn peer_lost(&mut self, _: PeerId, _: u8, _: InstanceAddr, _: PeerLoss) {}
}

const PORT: u16 = 17408;
const OURS: Incarnation = Incarnation(0x1111_2222_3333_4444);

/// Where mistakes live: next to nothing, to powers of two and to the ends of types; windows of packet numbers, the ring they
/// lie in, the sizes of headers and datagrams.
const EDGES: [u64; 44] = [
    0,
    1,
    2,
    3,
    27,
    28,
    29,
    63,
    64,
    65,
    76,
    127,
    128,
    204,
    205,
    255,
    256,
    576,
    1023,
    1024,
    1025,
    1231,
    1232,
    1452,
    1472,
    2047,
    2048,
    8972,
    9000,
    32_767,
    32_768,
    32_769,
    65_507,
    65_534,
    65_535,
    65_536,
    (1 << 20) - 1,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    u64::MAX,
];

/// Writes packets out of what it has seen and what it makes up.
struct Attacker {
    rng: SmallRng,
    heard: Vec<Packet<Length>>,
}

impl Attacker {
    /// Something at an edge, or seldom anything; a narrower type takes what of it fits in, so that its ends are as likely.
    fn edge(&mut self) -> u64 {
        match self.rng.random_range(0..6) {
            0 => self.rng.random(),
            1 => u64::MAX - EDGES[self.rng.random_range(0..EDGES.len())],
            _ => EDGES[self.rng.random_range(0..EDGES.len())],
        }
    }

    fn edge32(&mut self) -> u32 {
        self.edge() as u32
    }

    fn edge16(&mut self) -> u16 {
        self.edge() as u16
    }

    fn edge8(&mut self) -> u8 {
        self.edge() as u8
    }

    /// One of `likely`, something near it, something an edge away from it, or anything.
    fn number(&mut self, likely: &[u32]) -> u32 {
        match self.rng.random_range(0..12) {
            0 => self.edge32(),
            11 if !likely.is_empty() => {
                let near = likely[self.rng.random_range(0..likely.len())];
                if self.rng.random() {
                    near.wrapping_add(self.edge32())
                } else {
                    near.wrapping_sub(self.edge32())
                }
            }
            1..4 if !likely.is_empty() => {
                let near = likely[self.rng.random_range(0..likely.len())];
                near.wrapping_add(self.rng.random_range(0..2200)).wrapping_sub(1100)
            }
            _ if !likely.is_empty() => {
                likely[self.rng.random_range(0..likely.len())].wrapping_add(self.rng.random_range(0..8))
            }
            _ => self.rng.random_range(0..4),
        }
    }

    fn psns(&self) -> Vec<u32> {
        let psn = |packet: &Packet<Length>| match &packet.body {
            Body::Data(data) => Some(data.psn.0),
            _ => None,
        };
        self.heard.iter().filter_map(psn).collect()
    }

    fn op(&mut self) -> Op {
        let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(3), qkey: Qkey(5) };
        match self.rng.random_range(0..8) {
            0 | 1 => Op::Send { route, imm: None, datagram: self.rng.random() },
            2 => Op::Write { route, rkey: MrKey(self.edge32()), addr: self.edge(), imm: None },
            3 => Op::ReadRequest {
                route,
                rkey: MrKey(1),
                addr: self.edge(),
                read_len: self.edge32(),
                read: self.edge32(),
            },
            4 => Op::ReadResponse { read: self.edge32() },
            5 => Op::ReadFailed { read: self.edge32(), status: Status::Flushed },
            6 => {
                let psns = self.psns();
                Op::Refuse { refused: Psn(self.number(&psns)), status: Status::RemoteRnr }
            }
            _ => Op::Skip,
        }
    }

    fn data(&mut self, who: Incarnation) -> Data<Length> {
        let op = self.op();
        let bytes = matches!(op, Op::Send { .. } | Op::Write { .. } | Op::ReadResponse { .. });
        let len = match self.rng.random_range(0..3) {
            _ if !bytes => 0,
            0 => self.edge32(),
            _ => [0, 1, 100, 5000, 100_000, u32::MAX][self.rng.random_range(0..6)],
        };
        let offset = match self.rng.random_range(0..4) {
            _ if len <= 1 => 0,
            0 => len - 1 - self.edge32() % len,
            1 => self.edge32() % len,
            _ => self.rng.random_range(0..len.min(6000)),
        };
        let here = (len - offset).min([1, 100, 1400, 5000, 65_535][self.rng.random_range(0..5)]);
        let context = self.rng.random_range(0..3);
        let likely = [first_psn(who, context).0];
        Data {
            psn: Psn(self.number(&likely)),
            stamp: Stamp(self.edge32()),
            path: PathId(self.edge8()),
            tx_count: self.edge8().min(254),
            ack_request: self.rng.random(),
            more: self.rng.random(),
            msg: MsgId(self.number(&[1 << 20])),
            len,
            offset,
            op,
            payload: Length(here as usize),
        }
    }

    fn ack(&mut self) -> Ack {
        let psns = self.psns();
        let numbers: Vec<u32> = self
            .heard
            .iter()
            .filter_map(|p| match &p.body {
                Body::Probe(probe) => Some(probe.number),
                _ => None,
            })
            .collect();
        let mut ack = Ack {
            cum: Psn(self.number(&psns)),
            rcvd_bytes: self.edge32(),
            rx_time: Stamp(self.edge32()),
            senders: self.edge16(),
            ce_count: self.edge16(),
            buffer_level: self.edge8(),
            ..Ack::default()
        };
        for _ in 0..self.rng.random_range(0..=MAX_ECHOES) {
            let probe = self.rng.random_bool(0.4);
            let psn = if probe { self.number(&numbers) } else { self.number(&psns) };
            let tx_count = if probe { Echo::PROBE } else { self.rng.random_range(0..3) };
            let hold = Hold(self.edge16());
            let path = PathId(if self.rng.random() { self.rng.random_range(0..8) } else { self.edge8() });
            ack.echoes.push(Echo { path, tx_count, hold, psn: Psn(psn), stamp: Stamp(self.edge32()) });
        }
        if self.rng.random() {
            ack.cuts = self.rng.random_range(0..=ack.echoes.len() as u8);
        }
        for _ in 0..self.rng.random_range(0..=MAX_SACK_WORDS) {
            ack.sack.push(self.edge());
        }
        ack
    }

    fn packet(&mut self) -> Packet<Length> {
        let who = Incarnation(0xAAAA_0000_0000_0001 + self.rng.random_range(0..3));
        let dst_tag = match self.rng.random_range(0..10) {
            0 => Tag::UNKNOWN,
            1 => Tag(self.rng.random()),
            _ => OURS.tag(),
        };
        let hello = self.rng.random_bool(0.4).then(|| Hello {
            incarnation: who,
            echo: if dst_tag == OURS.tag() && self.rng.random() { OURS.0 } else { 0 },
            version_min: self.rng.random_bool(0.01) as u8 * 200 + VERSION,
            version_max: 255,
            features: self.rng.random(),
            max_datagram: if self.rng.random_bool(0.3) { self.edge16() } else { 1472 },
            context: if self.rng.random_bool(0.1) { self.edge16() } else { self.rng.random_range(0..3) },
            rcvbuf_kib: self.edge32(),
        });
        let ack = self.rng.random_bool(0.5).then(|| self.ack().into());
        let body = match self.rng.random_range(0..20) {
            0 => Body::None,
            1 => Body::Reset { stale: if self.rng.random() { who.tag() } else { Tag(self.rng.random()) } },
            2 | 3 => Body::Probe(Probe {
                path: PathId(self.edge8()),
                number: self.number(&[1]),
                stamp: Stamp(self.edge32()),
            }),
            _ => Body::Data(self.data(who)),
        };
        Packet { src_port: PORT, dst_tag, src_tag: who.tag(), hello, ack, body }
    }
}

fn attack(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let config = Config {
        paths: [1, 2, 64, 256][rng.random_range(0..4)],
        entropy: [1, 7, 128][rng.random_range(0..3)],
        max_datagram: [576, 1472, 8972][rng.random_range(0..3)],
        confirm_first: rng.random(),
        probe_path_mtu: rng.random(),
        peer_timeout: Nanos::from_millis(rng.random_range(1..3000)),
        max_partial_per_peer: rng.random_range(1..20),
        max_messages_per_peer: rng.random_range(1..40),
        max_peers: 2,
        selector: SelectorKind::ALL[rng.random_range(0..SelectorKind::ALL.len())].1,
        controller: ControllerKind::ALL[rng.random_range(0..ControllerKind::ALL.len())].1,
        learn_base_rtt: rng.random(),
        line_rate_known: rng.random(),
        receiver_hint: rng.random(),
        base_rtt: Nanos([1000, 14_000, 1_000_000][rng.random_range(0..3)]),
        ..Config::default()
    };
    let mut endpoint = Endpoint::new(config, OURS, &[PORT], seed);
    let mut upper = Strict { rng: rng.clone(), next: 0, open: HashMap::new(), owed: HashSet::new() };
    let mut attacker = Attacker { rng: rng.clone(), heard: Vec::new() };
    let host = |i: u8| Gid::from(std::net::IpAddr::from([10, 0, 0, i]));
    let (mut now, mut token) = (Time(rng.random_range(0..1 << 40)), 0);
    for _ in 0..1500 {
        match rng.random_range(0..10) {
            0 => now += Nanos(rng.random_range(0..1_000_000)),
            1 => now = endpoint.next_timeout().min(now + Nanos::from_secs(40)).max(now),
            2 if rng.random_bool(0.1) => now = Time(now.0.saturating_sub(rng.random_range(0..1 << 34))),
            2 | 3 => {
                let to = InstanceAddr { gid: host(rng.random_range(1..3)), port: PORT };
                if let Ok(peer) = endpoint.connect(now, 0, to) {
                    let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(3), qkey: Qkey(5) };
                    let op = Op::Send { route, imm: None, datagram: rng.random() };
                    token += 1;
                    upper.owed.insert(token);
                    let len = rng.random_range(0..20_000);
                    if endpoint.send(now, peer, Token(token), op, Length(len)).is_err() {
                        upper.owed.remove(&token);
                    }
                    if rng.random_bool(0.05) {
                        let owed = &mut upper.owed;
                        endpoint.cancel(now, peer, &mut |token| token.0 % 2 == 0 && owed.remove(&token.0));
                    }
                }
            }
            _ => {
                let packet = attacker.packet();
                let seg_len = if let Body::Data(data) = &packet.body { data.payload.0 } else { 0 };
                if codec::check(&packet, seg_len).is_ok() {
                    let received = Received::new(now, host(rng.random_range(1..4)), &packet, 100 + seg_len);
                    let received = Received { ce: rng.random(), cut: rng.random_ratio(1, 8), ..received };
                    let followed = endpoint.handle_packet(now, 0, received, &mut upper);
                    if followed && let Body::Data(data) = &packet.body {
                        // Each has its place in a message of the length that its header says.
                        let len = seg_len.clamp(1, 65_535) as u32;
                        let most = (data.len - data.offset) / len;
                        let followers = Followers {
                            psn: data.psn.plus(1),
                            offset: data.offset + len,
                            len: seg_len as u16,
                            count: most.saturating_sub(1).min(rng.random_range(1..64)),
                            bytes: 100 + seg_len,
                        };
                        endpoint.handle_followers(now, &followers, |_| Length(seg_len), &mut upper);
                    }
                }
            }
        }
        if endpoint.next_timeout() <= now {
            endpoint.handle_timeout(now, &mut upper);
        }
        let mut burst = 0;
        while let Some(transmit) = endpoint.poll_transmit(now) {
            burst += 1;
            assert!(burst < 20_000, "sends without end");
            let seg_len = if let Body::Data(data) = &transmit.packet.body { data.payload.0 } else { 0 };
            codec::check(&transmit.packet, seg_len).expect("consistent packet");
            if attacker.heard.len() == 32 {
                attacker.heard.remove(0);
            }
            attacker.heard.push(transmit.packet);
        }
    }
}

#[test]
fn no_packet_brings_an_endpoint_down() {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let first = number("FIRST").unwrap_or(0);
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("SEEDS").unwrap_or(400),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| attack(seed))) {
            eprintln!("again with: SEED={seed} cargo test --profile checked -p srd-proto --test hostile");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Packets of one message that say that it is of another length than it was begun with: what follows them has a place in that, and none here.
#[test]
fn what_follows_a_lie_about_a_message_is_placed_within_it() {
    let who = Incarnation(0xAAAA_0000_0000_0001);
    let from = Gid::from(std::net::IpAddr::from([10, 0, 0, 2]));
    let now = Time(1_000_000);
    let mut endpoint: Endpoint<Length> = Endpoint::new(Config::default(), OURS, &[PORT], 1);
    let peer = InstanceAddr { gid: from, port: PORT };
    endpoint.connect(now, 0, peer).expect("room for a peer");
    let own = endpoint.incarnation_toward(0, peer);
    let mut upper = Strict {
        rng: SmallRng::seed_from_u64(1), // refuses none of the first messages
        next: 0,
        open: HashMap::new(),
        owed: HashSet::new(),
    };
    let hello = Hello {
        incarnation: who,
        echo: own.0,
        version_min: VERSION,
        version_max: VERSION,
        features: 0,
        max_datagram: 1472,
        context: 0,
        rcvbuf_kib: 1024,
    };
    let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(3), qkey: Qkey(5) };
    let first = Data {
        psn: first_psn(who, 0),
        stamp: Stamp(0),
        path: PathId(0),
        tx_count: 0,
        ack_request: false,
        more: false,
        msg: MsgId(1 << 20),
        len: 3000,
        offset: 0,
        op: Op::Send { route, imm: None, datagram: false },
        payload: Length(1000),
    };
    let longer = Data { psn: first.psn.plus(1), len: 100_000, offset: 50_000, ..first.clone() };
    let mut handle = |hello, data: &Data<Length>| {
        let body = Body::Data(data.clone());
        let packet =
            Packet { src_port: PORT, dst_tag: own.tag(), src_tag: who.tag(), hello, ack: None, body };
        endpoint.handle_packet(now, 0, Received::new(now, from, &packet, 1100), &mut upper)
    };
    handle(Some(hello), &first);
    assert!(handle(None, &longer), "packets may follow it");
    assert_eq!(upper.open.values().collect::<Vec<_>>(), [&(3000, 1000)]);
    let followers =
        Followers { psn: longer.psn.plus(1), offset: longer.offset + 1000, len: 1000, count: 1, bytes: 1100 };
    let taken = endpoint.handle_followers(now, &followers, |_| Length(1000), &mut upper);
    assert_eq!(taken, 0);
}
