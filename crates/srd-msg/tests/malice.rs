//! Peers that say what no endpoint of ours would say: nothing panics, what is kept for them stays within its bounds and is
//! given back, and honest traffic beside them completes.
//!
//! The forged messages come as by shared memory, so that nothing but the messaging layer looks at them. `SEEDS=N` runs N
//! random seeds, `SEED=n` that one: `SEED=n cargo test --release -p srd-msg --test malice`.

use srd_device::{Device, DeviceConfig, HostMemory, Received};
use srd_msg::*;
use srd_wire::{Body, Gid, Incarnation, Nanos, Packet, Qpn, Time};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::num::NonZeroU32;

struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(live.get())));
    });
}

// SAFETY: everything is the system allocator's work; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> i64 {
    LIVE.with(Cell::get)
}

/// What may be allocated under a flood.
const MOST_GROWTH: i64 = 16 << 20;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct Side {
    device: Device<HostMemory>,
    domain: Domain<HostMemory>,
    endpoint: EndpointId,
    addr: PeerAddr,
}

fn gid(host: u32) -> Gid {
    Gid::from(IpAddr::from((0x0A00_0000 + host).to_be_bytes()))
}

fn identity(host: u32) -> Identity {
    Identity { number: NonZeroU32::new(0x1D00_0000 + host).unwrap(), well_known: false }
}

fn side(host: u32, config: Config) -> Side {
    let mut device_config = DeviceConfig::default();
    device_config.transport.peer_timeout = Nanos::from_secs(1);
    let port = device_config.port_base;
    // SAFETY: what is registered and posted here lives to the end of its test.
    let memory = unsafe { HostMemory::new() };
    let incarnation = Incarnation(0x1234_0000 + host as u64);
    let mut device = Device::new(device_config, gid(host), port, incarnation, host as u64, memory);
    let mut domain = Domain::open(&mut device, config).unwrap();
    let qpn = device.create_qp(domain.qp_init()).unwrap();
    let endpoint = domain.open_endpoint(&mut device, Time(1_000), qpn, identity(host), 0).unwrap();
    Side { device, domain, endpoint, addr: PeerAddr { gid: gid(host), qpn, key: identity(host).key() } }
}

/// An attacked host and an honest one, with a wire between them. What goes anywhere else is lost.
struct Field {
    now: Time,
    victim: Side,
    honest: Side,
    to_honest: PeerId,
    to_victim: PeerId,
    sent: u64,
}

const TAG: u64 = 7;

impl Field {
    fn new(config: Config) -> Field {
        let (mut victim, mut honest) = (side(1, config), side(2, config));
        let to_honest = victim.domain.peer(&mut victim.device, victim.endpoint, honest.addr).unwrap();
        let to_victim = honest.domain.peer(&mut honest.device, honest.endpoint, victim.addr).unwrap();
        Field { now: Time(1_000_000), victim, honest, to_honest, to_victim, sent: 0 }
    }

    /// A forged message comes.
    fn forge(&mut self, from: PeerAddr, bytes: &[u8]) {
        let Side { device, domain, endpoint, .. } = &mut self.victim;
        let place = (from.gid, from.qpn);
        domain.arrived_by_shm(device, self.now, *endpoint, place, bytes.as_ptr() as u64, bytes.len() as u32);
    }

    fn attacker(&self, n: u32) -> PeerAddr {
        PeerAddr { gid: gid(1000 + n), qpn: Qpn(2), key: FORGER }
    }

    fn peer(&mut self, addr: PeerAddr) -> PeerId {
        let Side { device, domain, endpoint, .. } = &mut self.victim;
        domain.peer(device, *endpoint, addr).unwrap()
    }

    fn counters(&self) -> Counters {
        *self.victim.domain.counters()
    }

    /// Lets happen what happens within `span`.
    fn run(&mut self, span: Nanos) {
        let end = self.now + span;
        loop {
            self.victim.domain.progress(&mut self.victim.device, self.now);
            self.honest.domain.progress(&mut self.honest.device, self.now);
            let (a, b) = (&mut self.victim, &mut self.honest);
            let crossed = cross(self.now, a, b) + cross(self.now, b, a);
            if crossed > 0 {
                continue;
            }
            let sides = [&self.victim, &self.honest];
            let next = sides.map(|side| side.device.next_timeout().min(side.domain.next_timeout()));
            let next = next[0].min(next[1]).max(self.now + Nanos(1_000));
            if next > end {
                break;
            }
            self.now = next;
            self.victim.device.handle_timeout(self.now);
            self.honest.device.handle_timeout(self.now);
        }
        self.now = end;
    }

    /// A message of the honest peer's, and an answer to it, arrive.
    fn honest_traffic(&mut self) {
        self.sent += 1;
        let (len, bytes) = (20_000u64, vec![self.sent as u8; 20_000]);
        let mut room = vec![0u8; 20_000];
        let to = Iov { addr: room.as_mut_ptr() as u64, len };
        let matching = Match::Tagged { tag: TAG, ignore: 0 };
        let context = self.sent | 1 << 63;
        let from = Some(self.to_honest);
        let recv = Recv { from, matching, iov: &[to], context, report: true, multi: false, claim: false };
        let Side { device, domain, endpoint, .. } = &mut self.victim;
        domain.recv(device, self.now, *endpoint, &recv).unwrap();
        let iov = [Iov { addr: bytes.as_ptr() as u64, len }];
        let flags = TxFlags { level: Level::Match, report: true, ..TxFlags::default() };
        let send = Send { to: self.to_victim, tag: Some(TAG), iov: &iov, data: None, context, flags };
        let Side { device, domain, endpoint, .. } = &mut self.honest;
        domain.send(device, self.now, *endpoint, &send).unwrap();
        let limit = self.now + Nanos::from_secs(20);
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            assert!(self.now < limit, "the honest peer's message {} does not arrive", self.sent);
            self.run(Nanos::from_micros(50));
            while let Some(done) = self.honest.domain.poll_done() {
                assert_eq!((done.context, done.error), (context, None));
                sent = true;
            }
            while let Some(done) = self.victim.domain.poll_done() {
                if done.context == context {
                    assert_eq!(done.error, None);
                    received = true;
                }
            }
        }
        assert!(room == bytes);
    }
}

/// Brings what one side sends to the other. Returns how many packets there were.
fn cross(now: Time, from: &mut Side, to: &mut Side) -> u32 {
    let mut packets = 0;
    while let Some(transmit) = from.device.poll_transmit(now) {
        packets += 1;
        if transmit.to.gid == to.addr.gid {
            let bytes = match &transmit.packet.body {
                Body::Data(data) => srd_proto::Payload::len(&data.payload),
                _ => 0,
            } + 100;
            let packet: Packet<_> = transmit.packet;
            let received = Received::new(now, from.addr.gid, &packet, bytes);
            to.device.handle_packet(now, transmit.to.port, received);
            if let Some(begun) = to.device.poll_begun() {
                to.domain.take_up(&mut to.device, now, &begun);
            }
        }
    }
    packets
}

// ---- forged messages ----

/// Who the attackers say that they are: they know the victim's address, and so what lets them in.
const FORGER: u32 = 0xF0F0_0001;
const VICTIM: u32 = 0x1D00_0001;

/// The first 24 bytes: see docs/MESSAGES.md.
fn common(kind: u8, flags: u8, session: u32, toward: u32) -> Vec<u8> {
    let mut bytes = vec![kind | 2 << 4, flags, 0xFF, 0xFF];
    [FORGER, toward, session, 0, 0].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes
}

trait Put {
    fn n32(self, n: u32) -> Self;
    fn n64(self, n: u64) -> Self;
    fn and(self, bytes: &[u8]) -> Self;
}

impl Put for Vec<u8> {
    fn n32(self, n: u32) -> Vec<u8> {
        self.and(&n.to_le_bytes())
    }
    fn n64(self, n: u64) -> Vec<u8> {
        self.and(&n.to_le_bytes())
    }
    fn and(mut self, bytes: &[u8]) -> Vec<u8> {
        self.extend(bytes);
        self
    }
}

const SESSION: u32 = 77;
const TAGGED: u8 = 1;
const PART: u8 = 8;
const RENDEZVOUS: u8 = 16;

/// A whole message with tag 1 << 40, for which nobody waits.
fn message(session: u32, number: u32, payload: &[u8]) -> Vec<u8> {
    common(1, TAGGED, session, VICTIM).n32(number).n32(0).n64(1 << 40).and(payload)
}

fn part(number: u32, rendezvous: bool, total: u64, offset: u32, ahead: u32, payload: &[u8]) -> Vec<u8> {
    let flags = TAGGED | PART | if rendezvous { RENDEZVOUS } else { 0 };
    let head =
        common(1, flags, SESSION, VICTIM).n32(number).n32(0).n64(1 << 40).n64(total).n32(offset).n32(ahead);
    if rendezvous { head.n32(0).n32(0).and(payload) } else { head.and(payload) }
}

// ---- one rule after the other ----

#[test]
fn a_number_too_far_ahead_costs_nothing_and_ends_the_session() {
    let mut field = Field::new(Config::default());
    let from = field.attacker(0);
    field.forge(from, &message(SESSION, 0, &[]));
    let before = live();
    field.forge(from, &message(SESSION, 8192, &[]));
    assert_eq!(field.counters().numbers_refused, 0, "so far an honest sender may be");
    field.forge(from, &message(SESSION, 65_535, &[]));
    assert_eq!(field.counters().numbers_refused, 1);
    // What the two replies and the one early message took.
    assert!(live() - before < 64 << 10, "{} bytes for three messages", live() - before);
    field.forge(from, &message(SESSION, 1, &[]));
    assert_eq!(field.counters().stale, 1, "the session is over");
    field.honest_traffic();
}

#[test]
fn a_number_that_was_there_is_dropped() {
    let mut field = Field::new(Config::default());
    let from = field.attacker(0);
    for number in [0, 0, 2, 2, 1, 1, 2, u32::MAX] {
        field.forge(from, &message(SESSION, number, &[1; 300]));
    }
    let counters = field.counters();
    assert_eq!((counters.numbers_refused, counters.unexpected, counters.stale), (5, 3, 0));
    // Three messages, and the Hello that answers them.
    assert!(counters.kept_bytes < 3 * 900 + 1024, "{counters:?}");
}

#[test]
fn bytes_that_are_only_announced_cost_nothing() {
    for ahead in [u32::MAX, 1 << 30, 400 << 10] {
        let mut field = Field::new(Config::default());
        let from = field.attacker(0);
        field.forge(from, &message(SESSION, 0, &[]));
        let before = live();
        field.forge(from, &part(1, false, ahead as u64, 0, ahead, &[1; 100]));
        assert_eq!(field.counters().beyond_window, 1, "{ahead} bytes");
        assert!(live() - before < 64 << 10);
        field.honest_traffic();
    }
}

#[test]
fn no_more_is_kept_than_the_window() {
    let mut field = Field::new(Config { max_outstanding: 64, ..Config::default() });
    let from = field.attacker(0);
    let mut sent = 0;
    while field.counters().beyond_window == 0 {
        assert!(sent < 100, "65 KB and more are kept where 64 KiB may come");
        field.forge(from, &message(SESSION, sent, &[1; 1000]));
        sent += 1;
    }
    // 64 KiB, and 64 bytes for each of 64 operations.
    assert_eq!(sent, (65_536 + 4096) / 1064 + 1);
    assert_eq!(field.counters().kept_bytes % 512, (65 * 1000) % 512, "what has arrived whole stays");
    field.honest_traffic();
}

#[test]
fn sessions_that_end_one_after_the_other_leave_no_more_than_a_bound() {
    let mut field = Field::new(Config::default());
    let from = field.attacker(0);
    let named = field.peer(from);
    field.victim.domain.set_label(field.victim.endpoint, named, 3);
    let before = live();
    for session in 0..500 {
        (0..60).for_each(|number| field.forge(from, &message(SESSION + session, number, &[1; 1000])));
    }
    // 1.5 MiB, another window, and 512 bytes beside each 1,064.
    assert!(field.counters().kept_bytes < 5 << 19, "{} bytes", field.counters().kept_bytes);
    assert!(live() - before < 4 << 20, "{} bytes", live() - before);
    field.honest_traffic();
}

#[test]
fn an_atomic_operation_is_no_longer_than_a_sender_sends() {
    let mut field = Field::new(Config::default());
    let from = field.attacker(0);
    let before = live();
    // Read, 1-byte integers, fetching: four targets of nearly 4 GiB, and no bytes to send along.
    let mut forged = common(3, 0, SESSION, VICTIM).n32(0).n32(0).and(&[10, 1, 1, 4]).n32(0);
    for _ in 0..4 {
        forged = forged.n64(0).n64(5).n32(u32::MAX).n32(0);
    }
    field.forge(from, &forged);
    assert_eq!((field.counters().lengths_refused, field.counters().atomics), (1, 0));
    assert!(live() - before < 64 << 10);
    field.honest_traffic();
}

/// What is sent to an attacker by rendezvous comes only as it is granted: in order, within bounds, once.
#[test]
fn a_grant_is_for_what_awaits_it() {
    const LEN: u64 = 1 << 20;
    let bytes = vec![3u8; LEN as usize];
    // Offset and length of grants; whether the last of them is refused.
    let cases: [(&[(u64, u64)], bool); 8] = [
        (&[(0, 1000), (1000, 1000)], false),
        (&[(0, 1000), (0, 1000)], true),
        (&[(1000, 1000)], true),
        (&[(0, 0)], true),
        (&[(0, LEN + 1)], true),
        (&[(0, LEN)], true),
        (&[(u64::MAX, 2)], true),
        (&[(0, u64::MAX)], true),
    ];
    for (grants, refused) in cases {
        let mut field = Field::new(Config { rendezvous_by_read: false, eager_ahead: 0, ..Config::default() });
        let from = field.attacker(0);
        let to = field.peer(from);
        let iov = [Iov { addr: bytes.as_ptr() as u64, len: LEN }];
        let flags = TxFlags { report: true, ..TxFlags::default() };
        let send = Send { to, tag: Some(1), iov: &iov, data: None, context: 5, flags };
        let Side { device, domain, endpoint, .. } = &mut field.victim;
        domain.send(device, field.now, *endpoint, &send).unwrap();
        for &(offset, len) in grants {
            // The first operation of an endpoint is called 0.
            field.forge(from, &common(7, 0, SESSION, VICTIM).n32(0).n32(9).n64(offset).n64(len));
        }
        let counters = field.counters();
        assert_eq!(counters.unasked + counters.lengths_refused, refused as u64, "{grants:?}");
        if refused {
            field.run(Nanos::from_secs(3));
            let done = field.victim.domain.poll_done().expect("nobody waits for ever");
            assert!(matches!(done, Done { context: 5, error: Some(Failure::PeerLost(_)), .. }), "{done:?}");
        }
    }
}

#[test]
fn an_answer_about_a_key_that_nobody_asked_for_is_not_remembered() {
    let mut field = Field::new(Config::default());
    let from = field.attacker(0);
    field.forge(from, &message(SESSION, 0, &[]));
    let before = live();
    for key in 0..100_000u64 {
        field.forge(from, &common(10, 0, SESSION, VICTIM).n32(0).and(&[1, 0, 0, 0]).n32(3).n32(0).n64(key));
    }
    assert!(live() - before < 4096);
}

/// Who asks and asks but takes no answers ends; nobody else has less for it.
#[test]
fn answers_that_nobody_takes_are_limited() {
    let mut field = Field::new(Config::default());
    let from = field.attacker(0);
    let to = field.peer(from);
    field.victim.domain.set_label(field.victim.endpoint, to, 1);
    let before = live();
    for _ in 0..50_000 {
        field.forge(from, &common(9, 0, SESSION, VICTIM).n32(0).n32(0).n64(1));
    }
    assert!(field.counters().replies_refused > 0);
    assert!(live() - before < MOST_GROWTH, "{} bytes", live() - before);
}

#[test]
fn strangers_neither_fill_the_table_nor_keep_anybody_out() {
    let mut field = Field::new(Config::default());
    // Warm: the tables of the transport are not what is looked at here.
    for n in 0..40_000 {
        let from = field.attacker(n);
        field.forge(from, &common(11, 0, SESSION, VICTIM));
        if n % 1000 == 999 {
            // Their Hellos are given up, or have been taken.
            field.run(Nanos::from_secs(3));
            while field.victim.domain.poll_done().is_some() {}
        }
    }
    assert_eq!(field.counters().strangers_dropped, 0, "those that hold nothing make way");
    assert!(field.victim.domain.peers(field.victim.endpoint).count() <= 16_384 + 1);
    field.honest_traffic();
    let named = field.attacker(1 << 20);
    field.peer(named);
}

// ---- everything at once ----

/// A peer that says anything, mostly nearly right.
struct Attacker {
    addr: PeerAddr,
    session: u32,
    number: u32,
}

impl Attacker {
    fn new(field: &Field, n: u32) -> Attacker {
        Attacker { addr: field.attacker(n), session: 1 + n % 3, number: 0 }
    }

    /// A number at an edge: of fields, of windows, of lengths.
    fn edge(rng: &mut Rng) -> u64 {
        const EDGES: [u64; 22] = [
            0,
            1,
            2,
            63,
            64,
            100,
            1000,
            4095,
            4096,
            8191,
            8192,
            8193,
            65_471,
            65_472,
            65_535,
            65_536,
            262_144,
            1 << 20,
            (1 << 20) + 1,
            1 << 31,
            u32::MAX as u64,
            u64::MAX,
        ];
        match rng.below(8) {
            0 => rng.next(),
            1 => rng.below(100),
            2 => rng.of(&EDGES).wrapping_neg(),
            _ => rng.of(&EDGES),
        }
    }

    fn forged(&mut self, rng: &mut Rng, payload: &[u8]) -> Vec<u8> {
        let kinds = if rng.below(50) == 0 { 15 } else { 12 };
        let kind = 1 + rng.below(kinds) as u8;
        let flags = match rng.below(10) {
            0 => rng.next() as u8,
            1..4 => rng.next() as u8 & 31,
            4..7 => TAGGED | rng.of(&[0, PART, PART | RENDEZVOUS]),
            _ => TAGGED,
        };
        if rng.below(100) == 0 {
            self.session = match rng.below(4) {
                0 => rng.next() as u32,
                _ => self.session.wrapping_add(rng.of(&[1, 2, 511, 1023])),
            };
            self.number = 0;
        }
        let toward = if rng.below(50) == 0 { Attacker::edge(rng) as u32 } else { VICTIM };
        let mut head = common(kind, flags, self.session, toward);
        if rng.below(50) == 0 {
            head[2..4].copy_from_slice(&(Attacker::edge(rng) as u16).to_le_bytes());
        }
        let number = match rng.below(20) {
            0 => Attacker::edge(rng) as u32,
            1 => self.number.wrapping_add(Attacker::edge(rng) as u32),
            2..4 => self.number.wrapping_add(rng.below(4) as u32),
            _ => {
                self.number = self.number.wrapping_add(1);
                self.number - 1
            }
        };
        // Names of operations are slots and generations, both from 0 up.
        let name = |rng: &mut Rng| (rng.below(8) | rng.below(4) << 20) as u32;
        let head = match kind {
            1 => {
                let mut head = head.n32(number).n32(name(rng));
                if flags & 1 != 0 {
                    head = head.n64(rng.below(4) << 40);
                }
                if flags & 2 != 0 {
                    head = head.n64(7);
                }
                if flags & PART != 0 {
                    let total = Attacker::edge(rng);
                    let ahead = if rng.below(2) == 0 { total } else { Attacker::edge(rng) } as u32;
                    let offset = if rng.below(2) == 0 { 0 } else { Attacker::edge(rng) as u32 };
                    head = head.n64(total).n32(offset).n32(ahead);
                    if flags & RENDEZVOUS != 0 {
                        let count = if rng.below(10) == 0 { Attacker::edge(rng) } else { rng.below(4) };
                        head = head.n32(count as u32).n32(0);
                        for piece in 0..count.min(4) {
                            let len = if piece == 0 { total } else { 0 };
                            let addr = Attacker::edge(rng);
                            head = head.n64(addr).n64(len).n32(rng.next() as u32).n32(0);
                        }
                    }
                }
                head
            }
            2 => head.n32(number).n32(name(rng)).n64(Attacker::edge(rng)).n64(Attacker::edge(rng)).n64(1),
            3 => {
                let count = if rng.below(20) == 0 { 255 } else { rng.below(5) as u8 };
                let what = [rng.below(20) as u8, rng.below(17) as u8, rng.below(4) as u8, count];
                let mut head = head.n32(number).n32(name(rng)).and(&what).n32(0);
                for _ in 0..count.min(4) {
                    let (addr, key) = (Attacker::edge(rng), Attacker::edge(rng));
                    head = head.n64(addr).n64(key).n32(Attacker::edge(rng) as u32).n32(0);
                }
                head
            }
            4 => head.n32(number).n32(0).n64(1).n64(Attacker::edge(rng)),
            5 => head.n32(Attacker::edge(rng) as u32),
            6 => head.n32(name(rng)).n32(rng.below(5) as u32),
            7 => {
                let (offset, len) = (Attacker::edge(rng), Attacker::edge(rng));
                head.n32(name(rng)).n32(name(rng)).n64(offset).n64(len)
            }
            8 => head.n32(name(rng)).n32(0).n64(Attacker::edge(rng)),
            9 => head.n32(0).n32(0).n64(Attacker::edge(rng)),
            10 => head
                .n32(0)
                .and(&[rng.below(2) as u8, 0, 0, 0])
                .n32(rng.next() as u32)
                .n32(0)
                .n64(rng.below(8)),
            12 => head.n32(Attacker::edge(rng) as u32),
            _ => head,
        };
        let len = match rng.below(12) {
            0 => 8000,
            1 => 1000,
            2..5 => 1 + rng.below(100) as usize,
            _ => 0,
        };
        let mut all = head.and(&payload[..len]);
        if rng.below(40) == 0 {
            all.truncate(rng.below(all.len() as u64 + 1) as usize);
        }
        all.truncate(8832);
        all
    }
}

/// What the attacked program does meanwhile, so that there is something to be attacked.
struct Program {
    room: Vec<u8>,
    posted: u64,
}

impl Program {
    fn acts(&mut self, field: &mut Field, rng: &mut Rng, with: PeerAddr) {
        let iov = [Iov { addr: self.room.as_ptr() as u64, len: rng.of(&[0, 1, 5000, 60_000, 1 << 20]) }];
        self.posted += 1;
        let Side { device, domain, endpoint, .. } = &mut field.victim;
        if rng.below(2) == 0 {
            let matching = Match::Tagged { tag: rng.below(4) << 40, ignore: rng.of(&[0, 3 << 40]) };
            let recv = Recv {
                from: None,
                matching,
                iov: &iov,
                context: 1,
                report: true,
                multi: false,
                claim: false,
            };
            domain.recv(device, field.now, *endpoint, &recv).unwrap();
            return;
        }
        let Ok(to) = domain.peer(device, *endpoint, with) else { return };
        let (flags, context) = (TxFlags::default(), 2);
        let remote = [RemoteIov { addr: 0, len: iov[0].len, key: rng.below(8) }];
        let result = [Iov { len: 8, ..iov[0] }];
        let _ = match rng.below(4) {
            0 => domain.rma(
                device,
                field.now,
                *endpoint,
                &Rma {
                    to,
                    read: rng.below(2) == 0,
                    local: &iov,
                    remote: &remote,
                    data: None,
                    context,
                    flags,
                },
            ),
            1 => domain.atomic(
                device,
                field.now,
                *endpoint,
                &Atomic {
                    to,
                    op: atomic_ops::AtomicOp::Sum,
                    datatype: atomic_ops::Datatype::Uint64,
                    operand: &result,
                    compare: &[],
                    result: &result,
                    remote: &[RemoteIov { len: 8, ..remote[0] }],
                    context,
                    flags,
                },
            ),
            _ => {
                let send = Send { to, tag: Some(3), iov: &iov, data: None, context, flags };
                domain.send(device, field.now, *endpoint, &send)
            }
        };
    }
}

/// Attackers say what they like, in turn. Returns the most that was allocated meanwhile, and what is still in the end.
fn flood(seed: u64, attackers: u32, messages: u32, busy: bool) -> (i64, i64) {
    let mut rng = Rng(seed);
    let config = Config { rendezvous_by_read: rng.below(2) == 0, ..Config::default() };
    let mut field = Field::new(config);
    field.honest_traffic();
    let payload = vec![0xEE; 9000];
    let mut program = Program { room: vec![0; 1 << 20], posted: 0 };
    // Some of what they name is there.
    let region = vec![0u8; 4096];
    let rights = RemoteRights { read: true, write: true };
    let Side { device, domain, .. } = &mut field.victim;
    for key in 0..3 {
        let (addr, len) = (region.as_ptr() as u64, 4096);
        let new = Registration { addr, len, key: Some(key), virtual_addresses: false, rights };
        domain.register(device, &new).unwrap();
    }
    let mut all: Vec<Attacker> = (0..attackers).map(|n| Attacker::new(&field, n)).collect();
    // They are known to the transport, whose tables have bounds of their own; and nothing is under way to them.
    for some in all.chunks(500) {
        some.iter().for_each(|attacker| field.forge(attacker.addr, &common(11, 0, attacker.session, VICTIM)));
        field.run(Nanos::from_secs(5));
    }
    let before = live();
    MOST.with(|most| most.set(before));
    for n in 0..messages {
        let attacker = &mut all[rng.below(attackers as u64) as usize];
        let forged = attacker.forged(&mut rng, &payload);
        let from = attacker.addr;
        field.forge(from, &forged);
        if busy && rng.below(20) == 0 {
            program.acts(&mut field, &mut rng, from);
        }
        if attackers < 100 && rng.below(200) == 0 {
            field.run(Nanos(rng.below(2_000_000)));
        }
        while field.victim.domain.poll_done().is_some() {}
        if n % (messages / 4).max(1) == 0 {
            field.honest_traffic();
        }
    }
    let most = MOST.with(Cell::get) - before;
    field.honest_traffic();
    let counters = field.counters();
    assert!(counters.refused() > 0, "{counters:?}");
    assert!(most > 0 && counters.kept_bytes > 0);
    // They go away, and the program takes what has come.
    for n in 0..attackers {
        let Side { device, domain, endpoint, .. } = &mut field.victim;
        let from = all[n as usize].addr;
        domain.lost_by_shm(device, field.now, *endpoint, (from.gid, from.qpn), FORGER);
    }
    field.run(Nanos::from_secs(5));
    let iov = [Iov { addr: program.room.as_ptr() as u64, len: 1 << 20 }];
    for matching in [Match::Untagged, Match::Tagged { tag: 0, ignore: u64::MAX }] {
        loop {
            let Side { device, domain, endpoint, .. } = &mut field.victim;
            let recv = Recv {
                from: None,
                matching,
                iov: &iov,
                context: 3,
                report: true,
                multi: false,
                claim: false,
            };
            domain.recv(device, field.now, *endpoint, &recv).unwrap();
            let mut taken = false;
            while let Some(done) = field.victim.domain.poll_done() {
                taken |= done.context == 3;
            }
            if !taken {
                field.victim.domain.cancel(field.victim.endpoint, 3);
                while field.victim.domain.poll_done().is_some() {}
                break;
            }
        }
    }
    // What still waits to be said to them is given up, 512 at a time.
    field.run(Nanos::from_secs(60));
    while field.victim.domain.poll_done().is_some() {}
    (most, live() - before)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(default),
    }
}

/// Runs `test` for each seed, and says how to run it again if it fails.
fn for_each_seed(default: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(default) {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(seed)));
        if let Err(panic) = run {
            eprintln!("again with: SEED={seed} cargo test --release -p srd-msg --test malice");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn whatever_peers_say_nothing_panics_and_honest_traffic_goes_on() {
    for_each_seed(60, |seed| {
        let (most, _) = flood(seed, 3, 4_000, true);
        assert!(most < MOST_GROWTH, "{most} bytes");
    });
}

#[test]
fn a_flood_from_one_peer_takes_bounded_memory_and_leaves_none() {
    for_each_seed(2, |seed| {
        let (most, left) = flood(seed, 1, 100_000, false);
        println!("one peer: {most} bytes at most, {left} in the end");
        assert!(most < MOST_GROWTH, "{most} bytes");
        assert!(left < MOST_GROWTH / 4, "{left} bytes are not given back");
    });
}

#[test]
fn a_flood_from_ten_thousand_peers_takes_bounded_memory_and_leaves_none() {
    for_each_seed(1, |seed| {
        let (most, left) = flood(seed, 10_000, 300_000, false);
        println!("10,000 peers: {most} bytes at most, {left} in the end");
        assert!(most < MOST_GROWTH, "{most} bytes");
        // Tables keep the room that they had: what had come of sessions that ended waits for receives, as it must.
        assert!(left < MOST_GROWTH * 3 / 4, "{left} bytes are not given back");
    });
}
