//! Devices in virtual time: a wire with delay and faults between them, and a clock that steps to whatever comes next.
#![allow(dead_code)]

use srd_device::*;
use srd_proto::{Payload, Transmit};
use srd_wire::{Body, Gid, Incarnation, InstanceAddr, MrKey, Nanos, Packet, Qkey, Qpn, Status, Time, codec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What the wire does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Delivered after the wire's delay.
    Arrives,
    /// Delivered so much later than that.
    Late(Nanos),
    /// Lost.
    Lost,
    /// Delivered twice, the second time so much later.
    Twice(Nanos),
}

/// See [`Net::judge`].
pub type Judge<P> = Box<dyn FnMut(usize, &Transmit<P>) -> Fate>;

struct Flying<P> {
    to: InstanceAddr,
    from: Gid,
    packet: Packet<P>,
    bytes: usize,
}

/// Devices on a wire. Each is a host of its own, 10.0.0.1 and so on.
pub struct Net<M: Memory> {
    pub devices: Vec<Device<M>>,
    pub now: Time,
    pub delay: Nanos,
    /// Decides on each packet, by the index of its sender.
    pub judge: Option<Judge<M::Payload>>,
    /// What a packet becomes on the wire.
    pub carry: fn(Packet<M::Payload>) -> Packet<M::Payload>,
    pub packets: u64,
    flying: BTreeMap<u64, Flying<M::Payload>>,
    arrivals: BinaryHeap<Reverse<(Time, u64)>>,
    serial: u64,
}

pub fn gid(host: usize) -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, host as u8 + 1]))
}

pub fn incarnation(host: usize) -> Incarnation {
    Incarnation(0x1234_5678_9ABC_0000 + host as u64 * 0x1_0000_0001 + 1)
}

/// Each host's first receive port.
pub fn port(host: usize) -> u16 {
    DeviceConfig::default().port_base + host as u16
}

impl<M: Memory> Net<M> {
    pub fn new(hosts: usize, config: &DeviceConfig, mut memory: impl FnMut() -> M) -> Net<M> {
        let device = |host| {
            Device::new(config.clone(), gid(host), port(host), incarnation(host), host as u64 + 1, memory())
        };
        Net {
            devices: (0..hosts).map(device).collect(),
            now: Time(1_000_000),
            delay: Nanos::from_micros(5),
            judge: None,
            carry: |packet| packet,
            packets: 0,
            flying: BTreeMap::new(),
            arrivals: BinaryHeap::new(),
            serial: 0,
        }
    }

    fn transmit(&mut self, host: usize, transmit: Transmit<M::Payload>) {
        self.packets += 1;
        let fate = self.judge.as_mut().map_or(Fate::Arrives, |judge| judge(host, &transmit));
        let payload_len = match &transmit.packet.body {
            Body::Data(data) => data.payload.len(),
            _ => 0,
        };
        let bytes = codec::header_len(&transmit.packet) + payload_len.max(transmit.pad_to as usize);
        let delay = match fate {
            Fate::Lost => return,
            Fate::Late(more) => self.delay + more,
            Fate::Arrives | Fate::Twice(_) => self.delay,
        };
        let packet = (self.carry)(transmit.packet);
        if let Fate::Twice(more) = fate {
            self.fly(self.delay + more, host, transmit.to, packet.clone(), bytes);
        }
        self.fly(delay, host, transmit.to, packet, bytes);
    }

    fn fly(&mut self, delay: Nanos, host: usize, to: InstanceAddr, packet: Packet<M::Payload>, bytes: usize) {
        self.serial += 1;
        self.arrivals.push(Reverse((self.now + delay, self.serial)));
        self.flying.insert(self.serial, Flying { to, from: gid(host), packet, bytes });
    }

    /// Lets every device send what it may send now.
    pub fn flush(&mut self) {
        for host in 0..self.devices.len() {
            while let Some(transmit) = self.devices[host].poll_transmit(self.now) {
                self.transmit(host, transmit);
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Time {
        let arrival = self.arrivals.peek().map_or(Time::NEVER, |&Reverse((at, _))| at);
        self.devices.iter().map(|device| device.next_timeout()).fold(arrival, Time::min)
    }

    /// One step of the clock. False if nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.step_with(|_, _, _, _| {})
    }

    /// The same; `told` hears at once of messages that devices tell of when they begin.
    pub fn step_with(&mut self, mut told: impl FnMut(usize, &mut Device<M>, Time, &Begun)) -> bool {
        self.flush();
        let next = self.next();
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        while self.arrivals.peek().is_some_and(|&Reverse((at, _))| at <= self.now) {
            let Reverse((_, serial)) = self.arrivals.pop().unwrap();
            let flying = self.flying.remove(&serial).unwrap();
            let host = (0..self.devices.len()).find(|&host| gid(host) == flying.to.gid);
            if let Some(host) = host {
                let Flying { to, from, packet, bytes } = flying;
                let received = Received::new(self.now, from, &packet, bytes);
                let device = &mut self.devices[host];
                device.handle_packet(self.now, to.port, received);
                if let Some(begun) = device.poll_begun() {
                    told(host, device, self.now, &begun);
                }
            }
        }
        for device in &mut self.devices {
            if device.next_timeout() <= self.now {
                device.handle_timeout(self.now);
            }
        }
        true
    }

    /// Steps until `done`; panics when that takes longer than `limit`.
    #[track_caller]
    pub fn run_until(&mut self, limit: Nanos, mut done: impl FnMut(&mut Net<M>) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.step(), "nothing will happen any more, at {:?}", self.now);
            assert!(self.now <= end, "not done within {limit:?}");
        }
    }

    /// Steps until nothing happens within the next `span`.
    pub fn settle(&mut self, span: Nanos) {
        let end = self.now + span;
        self.flush();
        while self.next() <= end && self.step() {
            self.flush();
        }
        self.now = self.now.max(end);
    }
}

/// What a side's queue pair is reached by.
pub const QKEY: Qkey = Qkey(0x1111_2222);
pub const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };
pub const SECOND: Nanos = Nanos::from_secs(1);

/// Objects of one host: a domain, a completion queue, and registered memory.
#[derive(Clone, Debug)]
pub struct Side {
    pub host: usize,
    pub pd: PdId,
    pub cq: CqId,
    pub qpn: Qpn,
    pub addr: u64,
    pub key: MrKey,
    /// Handles of all hosts, by index.
    pub ahs: Vec<AhNumber>,
}

pub fn srd(pd: PdId, cq: CqId) -> QpInit {
    QpInit {
        kind: QpKind::Srd,
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: 512,
        rq_depth: 512,
        send_sge: 2,
        recv_sge: 3,
        inline: 32,
        rdma_read: true,
        rdma_write: true,
        unsolicited_write_recv: false,
    }
}

pub fn ud(pd: PdId, cq: CqId) -> QpInit {
    QpInit { kind: QpKind::Ud, rdma_read: false, rdma_write: false, ..srd(pd, cq) }
}

pub fn state(state: QpState) -> QpModify {
    QpModify { state: Some(state), ..QpModify::default() }
}

impl<M: Memory> Net<M> {
    /// Makes a host's objects over `len` bytes of memory at `addr`, and a queue pair that is ready to send.
    pub fn side(&mut self, host: usize, addr: u64, len: u64, init: fn(PdId, CqId) -> QpInit) -> Side {
        let hosts = self.devices.len();
        let device = &mut self.devices[host];
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(4096).unwrap();
        let key = device.reg_mr(pd, addr, len, addr, ALL).unwrap();
        let ahs = (0..hosts).map(|host| device.create_ah(pd, gid(host)).unwrap()).collect();
        let qpn = device.create_qp(init(pd, cq)).unwrap();
        self.ready(host, qpn, None);
        Side { host, pd, cq, qpn, addr, key, ahs }
    }

    /// RESET to RTS.
    pub fn ready(&mut self, host: usize, qpn: Qpn, rnr_retry: Option<u8>) {
        let init = QpModify { qkey: Some(QKEY), pkey_index: Some(0), port: Some(1), ..state(QpState::Init) };
        let rts = QpModify { sq_psn: Some(0), rnr_retry, ..state(QpState::Rts) };
        for change in [init, state(QpState::Rtr), rts] {
            self.devices[host].modify_qp(self.now, qpn, change).unwrap();
        }
    }

    /// Takes a side's queue pair through RESET to another number of retries.
    pub fn set_rnr_retry(&mut self, side: &Side, rnr_retry: u8) {
        self.devices[side.host].modify_qp(self.now, side.qpn, state(QpState::Reset)).unwrap();
        self.ready(side.host, side.qpn, Some(rnr_retry));
    }

    /// Posts from side to side. `at` and `len` name a range of the sender's memory.
    #[track_caller]
    pub fn post(&mut self, from: &Side, to: &Side, wr_id: u64, op: SendOp, at: u64, len: u32) {
        let sges = [Sge { addr: from.addr + at, len, lkey: from.key }];
        let data = SendData::Sges(if len == 0 { &[] } else { &sges });
        let wr = SendWr { wr_id, op, ah: from.ahs[to.host], dst_qpn: to.qpn, qkey: QKEY, data };
        self.devices[from.host].post_send(self.now, from.qpn, &wr).unwrap();
    }

    #[track_caller]
    pub fn post_recv(&mut self, side: &Side, wr_id: u64, at: u64, len: u32) {
        let sges = [Sge { addr: side.addr + at, len, lkey: side.key }];
        self.devices[side.host].post_recv(side.qpn, &RecvWr { wr_id, sges: &sges }).unwrap();
    }

    /// The next completion of a side, within ten seconds.
    #[track_caller]
    pub fn next_completion(&mut self, side: &Side) -> Completion {
        let mut got = None;
        self.run_until(Nanos::from_secs(10), |net| {
            got = net.devices[side.host].poll_cq(side.cq);
            got.is_some()
        });
        got.unwrap()
    }

    /// The next completion of a side must be this.
    #[track_caller]
    pub fn expect(&mut self, side: &Side, wr_id: u64, status: Status) -> Completion {
        let completion = self.next_completion(side);
        assert_eq!((completion.wr_id, completion.status), (wr_id, status), "{completion:?}");
        completion
    }

    /// No completion of a side is there.
    #[track_caller]
    pub fn expect_none(&mut self, side: &Side) {
        assert_eq!(self.devices[side.host].poll_cq(side.cq), None);
    }
}

/// Bytes of memory of each side of [`two`].
pub const MEMORY: usize = 4 << 20;

pub type Hosts = Net<VecMemory>;

/// Two hosts with real bytes whose packets cross as datagrams.
pub fn two(config: &DeviceConfig) -> (Hosts, Side, Side) {
    two_with(config, srd)
}

pub fn two_with(config: &DeviceConfig, init: fn(PdId, CqId) -> QpInit) -> (Hosts, Side, Side) {
    let mut net = Net::new(2, config, VecMemory::default);
    net.carry = over_the_wire;
    let [a, b] = [0, 1].map(|host| {
        let addr = net.devices[host].memory().allocate(MEMORY);
        net.side(host, addr, MEMORY as u64, init)
    });
    (net, a, b)
}

/// Encodes and decodes.
pub fn over_the_wire(packet: Packet<VecPayload>) -> Packet<VecPayload> {
    let payload =
        if let Body::Data(data) = &packet.body { data.payload.clone() } else { VecPayload::empty() };
    let mut datagram = vec![0; codec::header_len(&packet)];
    codec::encode_header(&packet, payload.len(), &mut datagram);
    datagram.extend_from_slice(payload.as_slice());
    let decoded = codec::decode(&datagram).unwrap_or_else(|error| panic!("{error:?}: {packet:?}"));
    decoded.map_payload(VecPayload::from)
}

impl Hosts {
    /// Fills a range of a side's memory with a pattern that `seed` picks.
    pub fn fill(&mut self, side: &Side, at: u64, len: usize, seed: u64) {
        let bytes = self.devices[side.host].memory().at_mut(side.addr + at, len);
        bytes.copy_from_slice(&pattern(len, seed));
    }

    pub fn bytes(&mut self, side: &Side, at: u64, len: usize) -> Vec<u8> {
        self.devices[side.host].memory().at(side.addr + at, len).to_vec()
    }

    /// Replaces a host's process by a new one: another incarnation, nothing known.
    pub fn restart(&mut self, host: usize, config: &DeviceConfig) {
        self.serial += 1;
        let incarnation = Incarnation(incarnation(host).0 ^ 0xFFFF_FFFF ^ self.serial << 8);
        let memory = std::mem::take(self.devices[host].memory());
        self.devices[host] = Device::new(config.clone(), gid(host), port(host), incarnation, 99, memory);
    }
}

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed.wrapping_mul(2) + 1);
    (0..len).map(|_| rng.next() as u8).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
