//! SRD as the transport of a simulated process: a device whose memory is mere lengths. A flow is an RDMA write.

use crate::frame::{Content, FrameHead};
use crate::ideal::WireCost;
use crate::settings::TransportSettings;
use crate::simulation::ETHERNET_HEADER;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport};
use srd_device::{
    Access, AhNumber, CompletionOp, CqId, Device, DeviceConfig, Length, Memory, PdId, Piece, QpInit, QpKind,
    QpModify, QpState, SendData, SendOp, SendWr, Sge,
};
use srd_proto::{Config, Payload, Stats};
use srd_wire::{Body, Gid, Incarnation, MrKey, Nanos, Op, Packet, Qkey, Qpn, Route, Status, Time, codec};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of IPv4 and UDP headers.
const IP_UDP: u32 = 28;
/// First source port of the pool that paths are made of.
pub const FIRST_SOURCE_PORT: u16 = 0xC000;
/// Source ports in the pool.
const SOURCE_PORTS: u16 = 4096;
/// Address space of an inbox: 2^33 bytes.
const INBOX_SHIFT: u32 = 33;
/// Longest write of a flow that has an end.
const LONGEST_WRITE: u64 = 1 << 30;
/// Writes of a flow without end, and how many of them wait at a time for each bandwidth-delay product they fill.
const ENDLESS_WRITE: u64 = 64 << 10;
/// ACKs that tell a sender of a bandwidth-delay product.
const ACKS_PER_BDP: u64 = 24;
const QKEY: Qkey = Qkey(0x5eed);

/// The address of a simulated host.
pub fn gid(host: u32) -> Gid {
    let [_, b, c, d] = host.to_be_bytes();
    Gid::from(IpAddr::V4(Ipv4Addr::new(10, b, c, d)))
}

/// The host with this address.
pub(crate) fn host_of(gid: Gid) -> u32 {
    let [.., b, c, d] = gid.0;
    u32::from_be_bytes([0, b, c, d])
}

/// What a write costs on the wire in packets of at most `mtu` bytes of IP.
pub fn wire_cost(mtu: u16, frame_overhead: u32) -> WireCost {
    let route = Route { dst_qpn: Qpn(0), src_qpn: Qpn(0), qkey: QKEY };
    let op = Op::Write { route, rkey: MrKey(0), addr: 0, imm: None };
    let datagram = mtu as usize - IP_UDP as usize;
    let room = codec::max_payload(&op, datagram, false);
    // The transport cuts long messages at multiples of 128 bytes.
    let payload = room - room % 128;
    let headers = (datagram - room) as u64 + IP_UDP as u64 + ETHERNET_HEADER as u64 + frame_overhead as u64;
    WireCost { payload: payload as u64, headers }
}

/// What an SRD frame carries.
#[derive(Clone, Debug)]
pub struct SrdContent {
    /// Sending host.
    pub from: u32,
    /// UDP source and destination port.
    pub ports: (u16, u16),
    /// Bytes of the UDP payload.
    pub datagram: u16,
    /// The packet.
    pub packet: Packet<Length>,
}

impl SrdContent {
    /// The receiver's inbox that the packet's payload fills.
    pub fn inbox(&self) -> Option<u32> {
        match &self.packet.body {
            Body::Data(data) => match data.op {
                Op::Write { addr, .. } => u32::try_from((addr >> INBOX_SHIFT).checked_sub(1)?).ok(),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Content for SrdContent {
    fn trim(&mut self) -> Option<u32> {
        None // a receiver could make nothing of it: the wire format knows no such packet
    }
}

/// Memory that counts what is written to each inbox.
struct Inboxes {
    expected: Vec<u64>,
    delivered: Vec<u64>,
    full: VecDeque<u32>,
}

impl Memory for Inboxes {
    type Payload = Length;

    fn reference(&self, pieces: &[Piece]) -> Length {
        Length(pieces.iter().map(|piece| piece.len).sum())
    }

    fn inline(&self, bytes: &[u8]) -> Length {
        Length(bytes.len() as u32)
    }

    fn write(&mut self, pieces: &[Piece], _: usize, payload: &Length) {
        let inbox = ((pieces[0].addr >> INBOX_SHIFT) - 1) as usize;
        self.delivered[inbox] += payload.0 as u64;
        if self.delivered[inbox] == self.expected[inbox] {
            self.full.push_back(inbox as u32);
        }
    }
}

/// How others reach a process.
#[derive(Clone, Copy, Debug)]
pub struct SrdAddress {
    host: u32,
    qpn: Qpn,
    rkey: MrKey,
}

/// A flow that is being sent.
struct Sending {
    to: SrdAddress,
    ah: AhNumber,
    inbox: u32,
    posted: u64,
    total: u64,
    outstanding: u32,
    stopped: bool,
    failed: bool,
}

/// See the module.
pub struct Srd {
    device: Device<Inboxes>,
    host: u32,
    port_base: u16,
    pd: PdId,
    cq: CqId,
    qpn: Qpn,
    key: MrKey,
    handles: HashMap<u32, AhNumber>,
    sending: HashMap<u32, Sending>,
    /// Flows that have more to post than the queue took.
    waiting: VecDeque<u32>,
    endless_depth: u32,
    reports: VecDeque<Report>,
    bare: u64,
    data: u64,
}

/// Data packets per ACK: the more are in flight, the fewer of them need one of their own. Between 2 and 6, since an ACK has
/// room for eight paths.
fn ack_every(bdp: u64, datagram: u16) -> u32 {
    (bdp / (ACKS_PER_BDP * datagram as u64)).clamp(2, 6) as u32
}

/// The transport's configuration in a run: the host's defaults, less what is about kernels and software timers.
fn config(settings: &TransportSettings, role: &Role<'_>) -> Config {
    let datagram = settings.mtu - IP_UDP as u16;
    let line_rate = settings.line_rate.unwrap_or(role.line_rate);
    let base_rtt = settings.base_rtt.map_or(role.base_rtt, |rtt| Nanos(rtt.0 / 1000));
    Config {
        paths: settings.paths,
        entropy: SOURCE_PORTS,
        max_datagram: datagram,
        burst_bytes: datagram as u32, // no GSO: a network card takes packets one by one
        selector: settings.selector,
        controller: settings.controller,
        law: settings.law,
        line_rate,
        base_rtt,
        learn_base_rtt: false,
        receiver_hint: settings.receiver_hint.unwrap_or(true),
        min_window: 1.0 / 50.0, // CC_FINDINGS, law
        rcvbuf_bytes: 0,        // the receive ring is the card's
        min_rto: Nanos::ZERO,
        min_pto: Nanos::ZERO,
        ack_delay: Nanos(base_rtt.0 / 4),
        ack_every: settings.ack_every.unwrap_or_else(|| ack_every(line_rate.bytes_in(base_rtt), datagram)),
        ..Config::default()
    }
}

impl Srd {
    /// The transport's counters.
    pub fn stats(&self) -> &Stats {
        self.device.endpoint().stats()
    }

    /// The device, to look at.
    pub fn endpoint(&self) -> &srd_proto::Endpoint<Length> {
        self.device.endpoint()
    }

    /// As [`srd_proto::Endpoint::set_tracer`].
    pub fn set_tracer(&mut self, tracer: Option<srd_proto::Tracer>) {
        self.device.set_tracer(tracer);
    }

    /// The address handle of a host.
    fn handle(&mut self, host: u32) -> AhNumber {
        let (device, pd) = (&mut self.device, self.pd);
        let make = || device.create_ah(pd, gid(host)).expect("there are fewer hosts than handles");
        *self.handles.entry(host).or_insert_with(make)
    }

    fn post(&mut self, now: Time, flow: u32) {
        let Some(sending) = self.sending.get_mut(&flow) else { return };
        let endless = sending.total == u64::MAX;
        while !sending.stopped && !sending.failed && sending.posted < sending.total {
            if endless && sending.outstanding >= self.endless_depth {
                return;
            }
            let longest = if endless { ENDLESS_WRITE } else { LONGEST_WRITE };
            let len = (sending.total - sending.posted).min(longest);
            let base = (sending.inbox as u64 + 1) << INBOX_SHIFT;
            let offset = sending.posted % (1 << INBOX_SHIFT).min(4 * LONGEST_WRITE);
            let sges = [Sge { addr: 1 << INBOX_SHIFT, len: len as u32, lkey: self.key }];
            let request = SendWr {
                wr_id: flow as u64,
                op: SendOp::Write { rkey: sending.to.rkey, addr: base + offset, imm: None },
                ah: sending.ah,
                dst_qpn: sending.to.qpn,
                qkey: QKEY,
                data: SendData::Sges(&sges),
            };
            if self.device.post_send(now, self.qpn, &request).is_err() {
                self.waiting.push_back(flow); // the queue is full; goes on when something completes
                return;
            }
            sending.posted += len;
            sending.outstanding += 1;
        }
    }

    /// Takes completions.
    fn reap(&mut self, now: Time) {
        while let Some(completion) = self.device.poll_cq(self.cq) {
            debug_assert_eq!(completion.op, CompletionOp::Write);
            let flow = completion.wr_id as u32;
            let Some(sending) = self.sending.get_mut(&flow) else { continue };
            sending.outstanding -= 1;
            if completion.status != Status::Ok && !sending.failed {
                sending.failed = true;
                self.reports.push_back(Report::Failed { flow, why: srd_device::describe(completion.status) });
            }
            let over = sending.stopped || sending.failed || sending.posted == sending.total;
            if over && sending.outstanding == 0 {
                if !sending.failed && sending.total != u64::MAX {
                    self.reports.push_back(Report::Sent { flow });
                }
                self.sending.remove(&flow);
            } else if !over {
                self.post(now, flow);
            }
            if let Some(flow) = self.waiting.pop_front() {
                self.post(now, flow);
            }
        }
    }
}

impl Transport for Srd {
    type Content = SrdContent;
    type Address = SrdAddress;

    fn new(role: Role<'_>) -> Srd {
        let transport = config(&role.settings.transport, &role);
        let bdp = transport.line_rate.bytes_in(transport.base_rtt);
        let endless_depth = (2 * bdp).div_ceil(ENDLESS_WRITE).max(2) as u32;
        let config = DeviceConfig { transport, ..DeviceConfig::default() };
        let sq_depth = (role.flows_out * endless_depth.min(8)).clamp(2, config.max_sq);
        let port_base = config.port_base;
        let boxes = role.inboxes.len() as u64;
        let memory =
            Inboxes { delivered: vec![0; role.inboxes.len()], expected: role.inboxes, full: VecDeque::new() };
        let port = port_base + role.process;
        let incarnation = Incarnation(role.seed | 1);
        let mut device = Device::new(config, gid(role.host), port, incarnation, role.seed ^ 0x5eed, memory);
        let never = "a new device has room for one of each";
        let pd = device.alloc_pd().expect(never);
        let cq = device.create_cq(sq_depth + 1).expect(never);
        let access = Access { local_write: true, remote_write: true, ..Access::default() };
        let base = 1 << INBOX_SHIFT;
        let key = device.reg_mr(pd, base, (boxes + 1) << INBOX_SHIFT, base, access).expect(never);
        let init = QpInit {
            kind: QpKind::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth,
            rq_depth: 1,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
            rdma_read: true,
            rdma_write: true,
            unsolicited_write_recv: false,
        };
        let qpn = device.create_qp(init).expect(never);
        let to = |state| QpModify { state: Some(state), ..QpModify::default() };
        for change in [
            QpModify { qkey: Some(QKEY), pkey_index: Some(0), port: Some(1), ..to(QpState::Init) },
            to(QpState::Rtr),
            QpModify { sq_psn: Some(0), ..to(QpState::Rts) },
        ] {
            device.modify_qp(Time(0), qpn, change).expect("these are the steps to the ready state");
        }
        Srd {
            device,
            host: role.host,
            port_base,
            pd,
            cq,
            qpn,
            key,
            handles: HashMap::new(),
            sending: HashMap::new(),
            waiting: VecDeque::new(),
            endless_depth,
            reports: VecDeque::new(),
            bare: 0,
            data: 0,
        }
    }

    fn address(&self) -> SrdAddress {
        SrdAddress { host: self.host, qpn: self.qpn, rkey: self.key }
    }

    fn expect(&mut self, from: &SrdAddress) {
        self.handle(from.host); // RDMA is refused from hosts without one (EFA_VERBS, section 5)
    }

    fn start(&mut self, now: Time, order: Order, to: &SrdAddress) {
        let ah = self.handle(to.host);
        let Order { flow, inbox, bytes } = order;
        let sending = Sending {
            to: *to,
            ah,
            inbox,
            posted: 0,
            total: bytes,
            outstanding: 0,
            stopped: false,
            failed: false,
        };
        self.sending.insert(flow, sending);
        self.post(now, flow);
    }

    fn stop(&mut self, _: Time, flow: u32) {
        if let Some(sending) = self.sending.get_mut(&flow) {
            sending.stopped = true;
        }
    }

    #[inline]
    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &SrdContent) {
        let &SrdContent { from, ports, datagram, ref packet } = content;
        let (gid, bytes) = (gid(from), datagram as usize);
        self.device.handle_packet_from(now, arrived, ports.1, gid, packet, bytes, head.marked);
        self.reap(now);
    }

    #[inline]
    fn poll_transmit<R>(&mut self, now: Time, mut sink: impl FnMut(Outgoing<SrdContent>) -> R) -> Option<R> {
        let (from, port_base) = (self.host, self.port_base);
        let (data, bare) = (&mut self.data, &mut self.bare);
        self.device.poll_transmit_with(now, |transmit| {
            let ports = (FIRST_SOURCE_PORT + transmit.entropy, transmit.to.port);
            let payload = match &transmit.packet.body {
                Body::Data(segment) => {
                    *data += 1;
                    segment.payload.len().max(transmit.pad_to as usize)
                }
                _ => {
                    *bare += 1;
                    transmit.pad_to as usize
                }
            };
            let datagram = (codec::header_len(&transmit.packet) + payload) as u16;
            sink(Outgoing {
                to: host_of(transmit.to.gid),
                process: transmit.to.port - port_base,
                ports,
                bytes: datagram as u32 + IP_UDP,
                class: 0,
                ecn_capable: true,
                content: SrdContent { from, ports, datagram, packet: transmit.packet },
            })
        })
    }

    fn senders(&self, now: Time) -> u16 {
        self.device.endpoint().senders(now)
    }

    fn set_neighbours(&mut self, senders: u16) {
        self.device.set_neighbours(senders);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.device.handle_timeout(now);
        self.reap(now);
    }

    fn next_timeout(&self) -> Time {
        self.device.next_timeout()
    }

    #[inline]
    fn poll_report(&mut self) -> Option<Report> {
        if let Some(inbox) = self.device.memory().full.pop_front() {
            return Some(Report::Received { inbox });
        }
        self.reports.pop_front()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.device.memory().delivered[inbox as usize]
    }

    fn counts(&self) -> Counts {
        let stats = self.stats();
        Counts {
            data_new: self.data - stats.retrans_pkts,
            data_again: stats.retrans_pkts,
            spurious: stats.spurious_retrans,
            bare: self.bare,
            timeouts: stats.retrans_timeout_events,
        }
    }
}
