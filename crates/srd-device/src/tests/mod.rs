//! The objects without a transport: what they hand over is looked at, and peers say whatever a test wants. What shows
//! between two whole devices is tested in `tests/`.

mod completion_counters;
mod model;
mod objects;
mod requester;
mod responder;

use crate::api::*;
use crate::objects::Objects;
use crate::token::TokenOf;
use crate::transport::Transport;
use crate::vec_memory::{VecMemory, VecPayload};
use srd_proto::{Incoming, PeerId, SendError, Stranger, Token, UpperLayer};
use srd_wire::*;

/// Keeps what it is given. Peers are numbered in the order of connecting.
#[derive(Default)]
struct FakeTransport {
    peers: Vec<(u8, InstanceAddr)>,
    /// Messages without an outcome.
    open: Vec<Message>,
    cancelled: Vec<Token>,
    /// Answer to every `send`, if set.
    refuse: Option<SendError>,
    /// Whether open messages have left whole.
    sent: bool,
    /// Contexts that have ended.
    ended: Vec<PeerId>,
    generation: u32,
}

#[derive(Clone, Debug)]
struct Message {
    peer: PeerId,
    token: Token,
    op: Op,
    payload: VecPayload,
}

impl Transport<VecPayload> for FakeTransport {
    fn connect(&mut self, _now: Time, port: u8, to: InstanceAddr) -> Result<PeerId, SendError> {
        let slot = self.peers.iter().position(|&peer| peer == (port, to)).unwrap_or_else(|| {
            self.peers.push((port, to));
            self.peers.len() - 1
        });
        Ok(PeerId { slot: slot as u32, generation: self.generation })
    }

    fn context_of(&self, port: u8, to: InstanceAddr) -> Option<PeerId> {
        let slot = self.peers.iter().position(|&peer| peer == (port, to))?;
        Some(PeerId { slot: slot as u32, generation: self.generation })
    }

    fn send(
        &mut self,
        _now: Time,
        peer: PeerId,
        token: Token,
        op: Op,
        payload: VecPayload,
    ) -> Result<(), SendError> {
        if self.ended.contains(&peer) {
            return Err(SendError::NoPeer);
        }
        if let Some(error) = self.refuse {
            return Err(error);
        }
        self.open.push(Message { peer, token, op, payload });
        Ok(())
    }

    fn cancel(&mut self, _now: Time, peer: PeerId, which: &mut dyn FnMut(Token) -> bool) {
        self.open.retain(|message| {
            let cancel = message.peer == peer && which(message.token);
            if cancel {
                self.cancelled.push(message.token);
            }
            !cancel
        });
    }

    fn keep(&mut self, peer: PeerId, copy: &mut dyn FnMut(Token) -> Option<VecPayload>) {
        for message in self.open.iter_mut().filter(|message| self.sent && message.peer == peer) {
            if let Some(payload) = copy(message.token) {
                message.payload = payload;
            }
        }
    }
}

const QKEY: Qkey = Qkey(0x1234_5678);
const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };

/// One device with one queue pair, which a test speaks to as the peer.
struct Bench {
    objects: Objects<VecMemory>,
    transport: FakeTransport,
    pd: PdId,
    cq: CqId,
    qpn: Qpn,
    ah: AhNumber,
    /// 64 KiB of registered memory.
    addr: u64,
    key: MrKey,
}

fn peer_gid() -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, 2]))
}

fn peer_addr() -> InstanceAddr {
    InstanceAddr { gid: peer_gid(), port: DeviceConfig::default().port_base + 1 }
}

/// The peer's queue pair.
const PEER_QPN: Qpn = Qpn(128 + 9);

/// What a bench's queue pair is made with.
fn srd(pd: PdId, cq: CqId) -> QpInit {
    QpInit {
        kind: QpKind::Srd,
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: 16,
        rq_depth: 16,
        send_sge: 2,
        recv_sge: 2,
        inline: 32,
        rdma_read: true,
        rdma_write: true,
        unsolicited_write_recv: false,
    }
}

fn ud(pd: PdId, cq: CqId) -> QpInit {
    QpInit { kind: QpKind::Ud, rdma_read: false, rdma_write: false, ..srd(pd, cq) }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(DeviceConfig::default(), srd)
    }

    fn with(config: DeviceConfig, init: impl Fn(PdId, CqId) -> QpInit) -> Bench {
        let gid = Gid::from(std::net::IpAddr::from([10, 0, 0, 1]));
        let mut objects = Objects::new(config, gid, 1, VecMemory::default());
        objects.numbers.add_slot(0).unwrap();
        let pd = objects.alloc_pd().unwrap();
        let cq = objects.create_cq(1024).unwrap();
        let addr = objects.memory.allocate(1 << 16);
        let mut access = ALL;
        access.remote_read = objects.config.rdma_read;
        access.remote_write = objects.config.rdma_write;
        let key = objects.reg_mr(pd, addr, 1 << 16, addr, access).unwrap();
        let ah = objects.create_ah(pd, peer_gid()).unwrap();
        let qpn = objects.create_qp(init(pd, cq)).unwrap();
        let mut bench = Bench { objects, transport: FakeTransport::default(), pd, cq, qpn, ah, addr, key };
        bench.ready(qpn);
        bench
    }

    /// Another queue pair, ready to send.
    fn another(&mut self, init: QpInit) -> Qpn {
        let qpn = self.objects.create_qp(init).unwrap();
        self.ready(qpn);
        qpn
    }

    fn ready(&mut self, qpn: Qpn) {
        let init = QpModify { qkey: Some(QKEY), pkey_index: Some(0), port: Some(1), ..state(QpState::Init) };
        let rts = QpModify { sq_psn: Some(0), ..state(QpState::Rts) };
        for change in [init, state(QpState::Rtr), rts] {
            self.objects.modify_qp(&mut self.transport, qpn, &change).unwrap();
        }
    }

    fn modify(&mut self, change: QpModify) -> Result<(), DeviceError> {
        self.objects.modify_qp(&mut self.transport, self.qpn, &change)
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: self.addr + offset, len, lkey: self.key }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) -> Result<(), DeviceError> {
        let wr = self.wr(wr_id, op, SendData::Sges(sges));
        self.objects.post_send(&mut self.transport, self.qpn, &wr)
    }

    fn wr<'a>(&self, wr_id: u64, op: SendOp, data: SendData<'a>) -> SendWr<'a> {
        SendWr { wr_id, op, ah: self.ah, dst_qpn: PEER_QPN, qkey: QKEY, data }
    }

    fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.objects.post_recv(self.qpn, &RecvWr { wr_id, sges }).unwrap();
    }

    /// Completions as (wr_id, status).
    fn poll(&mut self) -> Vec<(u64, Status)> {
        self.poll_all().iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    fn poll_all(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.objects.poll_cq(self.cq)).collect()
    }

    /// The transport reports the outcome of the oldest open message.
    fn outcome(&mut self, outcome: Result<(), Status>) {
        let message = self.transport.open.remove(0);
        self.objects.outcome(message.peer, message.token, outcome);
        self.do_ready();
    }

    /// What a device does after each call of its endpoint.
    fn do_ready(&mut self) {
        while let Some(work) = self.objects.deferred.pop_ready() {
            self.objects.work(&mut self.transport, work);
        }
    }

    /// What a device does when time has come.
    fn advance_to(&mut self, now: Time) {
        self.objects.now = now;
        while let Some(work) = self.objects.deferred.pop_due(now) {
            self.objects.work(&mut self.transport, work);
        }
    }

    /// The peer's context, as the transport knows it.
    fn peer(&mut self) -> PeerId {
        self.transport.connect(Time(0), 0, peer_addr()).unwrap()
    }

    fn incoming(&mut self, op: Op, len: u32) -> Incoming {
        Incoming { peer: self.peer(), from: peer_addr(), claimed: false, port: 0, op, len }
    }

    fn route(&self) -> Route {
        Route { dst_qpn: self.qpn, src_qpn: PEER_QPN, qkey: QKEY }
    }

    /// A whole message of the peer, in one packet.
    fn deliver(&mut self, op: Op, bytes: &[u8]) -> Result<(), Status> {
        let message = self.incoming(op, bytes.len() as u32);
        let cookie = self.objects.begin(&message, None)?;
        if !bytes.is_empty() {
            self.objects.place(cookie, &message, 0, &VecPayload::from(bytes));
        }
        let concluded = self.objects.finish(cookie, &message);
        self.do_ready();
        concluded
    }

    fn send_op(&self) -> Op {
        Op::Send { route: self.route(), imm: None, datagram: false }
    }

    fn memory(&self, offset: u64, len: usize) -> &[u8] {
        self.objects.memory.at(self.addr + offset, len)
    }
}

fn state(state: QpState) -> QpModify {
    QpModify { state: Some(state), ..QpModify::default() }
}

const SEND: SendOp = SendOp::Send { imm: None };

fn is_request(token: Token) -> bool {
    matches!(TokenOf::of(token), TokenOf::Request(_))
}
