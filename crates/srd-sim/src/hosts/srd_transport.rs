//! SRD as the transport of a simulated process: a device whose memory is mere lengths. A flow is an RDMA write.

use crate::hosts::process::{Birth, Process};
use crate::hosts::srd_nic::{Nic, SrdContent, gid, transport_config};
use crate::net::FrameHead;
use foldhash::fast::FixedState;
use srd_baselines::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_device::{
    Access, AhNumber, CompletionOp, CqId, DeviceConfig, Length, Memory, PdId, Piece, QpInit, QpKind,
    QpModify, SendData, SendOp, SendWr, Sge,
};
use srd_proto::Stats;
use srd_wire::{Body, MrKey, Op, Qkey, Qpn, Status, Time};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

/// Address space of an inbox: 2^33 bytes.
const INBOX_SHIFT: u32 = 33;
/// Longest write of a flow that has an end.
const LONGEST_WRITE: u64 = 1 << 30;
/// Writes of a flow without end, how many bandwidth-delay products of them are posted at a time (beside others a queue may hold
/// far more than one), and how many at most.
const ENDLESS_WRITE: u64 = 64 << 10;
const ENDLESS_BDP: u64 = 16;
const MOST_ENDLESS: u64 = 64;
const QKEY: Qkey = Qkey(0x5eed);

impl<P> SrdContent<P> {
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

    fn write(&mut self, pieces: &[Piece], _: usize, payload: &Length) -> bool {
        let inbox = ((pieces[0].addr >> INBOX_SHIFT) - 1) as usize;
        self.delivered[inbox] += payload.0 as u64;
        if self.delivered[inbox] == self.expected[inbox] {
            self.full.push_back(inbox as u32);
        }
        true
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
    nic: Nic<Inboxes>,
    pd: PdId,
    cq: CqId,
    qpn: Qpn,
    key: MrKey,
    handles: HashMap<u32, AhNumber, FixedState>,
    sending: HashMap<u32, Sending, FixedState>,
    /// Flows that have more to post than the queue took.
    waiting: VecDeque<u32>,
    endless_depth: u32,
    reports: VecDeque<Report>,
}

impl Srd {
    /// A process at its beginning.
    pub fn new(birth: Birth<'_>) -> Srd {
        let transport = transport_config(&birth);
        let role = &birth.role;
        let bdp = transport.line_rate.bytes_in(transport.base_rtt);
        let endless_depth = (ENDLESS_BDP * bdp).div_ceil(ENDLESS_WRITE).clamp(2, MOST_ENDLESS) as u32;
        let config = DeviceConfig { transport, ..DeviceConfig::default() };
        let sq_depth = (role.flows_out * endless_depth).clamp(2, config.max_sq);
        let boxes = role.inboxes as u64;
        let memory = Inboxes { delivered: Vec::new(), expected: Vec::new(), full: VecDeque::new() };
        let mut nic = Nic::new(role, config, memory);
        let device = &mut nic.device;
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
        for change in QpModify::to_ready(QKEY, None) {
            device.modify_qp(Time(0), qpn, change).expect("these are the steps to the ready state");
        }
        Srd {
            nic,
            pd,
            cq,
            qpn,
            key,
            handles: HashMap::default(),
            sending: HashMap::default(),
            waiting: VecDeque::new(),
            endless_depth,
            reports: VecDeque::new(),
        }
    }

    /// The transport's counters.
    pub fn stats(&self) -> &Stats {
        self.nic.device.endpoint().stats()
    }

    /// The device, to look at.
    pub fn endpoint(&self) -> &srd_proto::Endpoint<Length> {
        self.nic.device.endpoint()
    }

    /// As [`srd_proto::Endpoint::set_tracer`].
    pub fn set_tracer(&mut self, tracer: Option<srd_proto::Tracer>) {
        self.nic.device.set_tracer(tracer);
    }

    /// The address handle of a host.
    fn handle(&mut self, host: u32) -> AhNumber {
        let (device, pd) = (&mut self.nic.device, self.pd);
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
            if self.nic.device.post_send(now, self.qpn, &request).is_err() {
                self.waiting.push_back(flow); // the queue is full; goes on when something completes
                return;
            }
            sending.posted += len;
            sending.outstanding += 1;
        }
    }

    /// Takes completions.
    fn reap(&mut self, now: Time) {
        while let Some(completion) = self.nic.device.poll_cq(self.cq) {
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

impl Process for Srd {
    type Near = Infallible;

    fn new(birth: Birth<'_>) -> Srd {
        Srd::new(birth)
    }
}

impl Transport for Srd {
    type Content = SrdContent;
    type Address = SrdAddress;

    fn address(&self) -> SrdAddress {
        SrdAddress { host: self.nic.host(), qpn: self.qpn, rkey: self.key }
    }

    fn expect(&mut self, from: &SrdAddress, inbox: u32, bytes: u64) {
        self.handle(from.host); // without one RDMA is refused: docs/design/efa-verbs.md, "Semantics"
        let Inboxes { expected, delivered, .. } = self.nic.device.memory();
        let least = inbox as usize + 1;
        if expected.len() < least {
            expected.resize(least, 0);
            delivered.resize(least, 0);
        }
        (expected[least - 1], delivered[least - 1]) = (bytes, 0);
    }

    fn start(&mut self, now: Time, order: Order, to: &SrdAddress) {
        let ah = self.handle(to.host);
        let Order { flow, inbox, bytes, .. } = order;
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
        self.nic.receive(now, arrived, head, content);
        self.reap(now);
    }

    #[inline]
    fn poll_transmit<R>(&mut self, now: Time, sink: impl FnMut(Outgoing<SrdContent>) -> R) -> Option<R> {
        self.nic.poll_transmit(now, sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.nic.set_paused(classes);
    }

    fn senders(&self, now: Time) -> u16 {
        self.nic.device.endpoint().senders(now)
    }

    fn set_neighbours(&mut self, senders: u16) {
        self.nic.device.set_neighbours(senders);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.nic.device.handle_timeout(now);
        self.reap(now);
    }

    fn next_timeout(&self) -> Time {
        self.nic.next_timeout()
    }

    #[inline]
    fn poll_report(&mut self) -> Option<Report> {
        if let Some(inbox) = self.nic.device.memory().full.pop_front() {
            return Some(Report::Received { inbox });
        }
        self.reports.pop_front()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.nic.device.memory().delivered.get(inbox as usize).copied().unwrap_or_default()
    }

    fn counts(&self) -> Counts {
        self.nic.counts()
    }
}
