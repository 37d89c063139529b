//! How a process makes its objects and posts work.

use crate::ledger::{Flaw, Ledger, Message, Qp, RECV_BASE, Recv, Since, State, Verb, Violation, broken};
use crate::memory::Use;
use crate::node::{Identity, MAX_MSG, PORT_BASE, REGION_LEN};
use crate::rng::mix;
use crate::workload::{self, Draft};
use crate::world::{Event, World};
use arrayvec::ArrayVec;
use srd_device::{
    AhNumber, DeviceError, MAX_INLINE, Piece, QPS_PER_PORT, QpKind, RecvWr, SendData, SendOp, SendWr, Sge,
};
use srd_wire::{Incarnation, InstanceAddr, MrKey, Qkey, Qpn};

/// What became of a draft.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posted {
    /// The device has taken it; it is message number so much.
    Taken(usize),
    /// A queue is full.
    Full,
    /// The device refused it, or there was nobody to send it to.
    No,
}

/// The receives that fit any run's messages.
const AMPLE: u64 = 1_000;

/// Turns an error of set-up into a violation.
pub(crate) fn setup<T>(what: &str, result: Result<T, DeviceError>) -> Result<T, Violation> {
    result.or_else(|error| broken("refused call", format!("{what}: {error:?}")))
}

impl World {
    /// Starts a process, or starts it again.
    pub(crate) fn start(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].gone || self.nodes[node].device.is_some() {
            return Ok(());
        }
        let life = self.ledger.lives[node].0;
        let incarnation = Incarnation(self.births.word() | 1);
        let seed = self.births.word();
        self.tell(|| format!("{node} starts, life {life}, incarnation {:x}", incarnation.0));
        setup("start", self.nodes[node].start(life, incarnation, seed))?;
        let addr = self.nodes[node].addr;
        let ports = [addr.port].into_iter().chain(self.nodes[node].more_ports.clone());
        let own = ports.map(|port| InstanceAddr { gid: addr.gid, port });
        self.keys[node] = Some(Identity::new(incarnation, self.plan.shape.codec == 2, own));
        for host in 0..self.nodes[node].handles.len() {
            let lacks = mix(self.plan.seed ^ mix((node as u64) << 8 | host as u64)) % 100;
            if lacks >= self.plan.shape.no_ah_percent {
                self.make_handle(node, host)?;
            }
        }
        for _ in 0..self.plan.shape.qps {
            self.make_qp(node, QpKind::Srd)?;
        }
        for _ in 0..self.plan.shape.ud_qps {
            self.make_qp(node, QpKind::Ud)?;
        }
        self.wake_at(node, self.now);
        Ok(())
    }

    /// Makes an address handle of a host, if the process lives and has none.
    pub(crate) fn make_handle(&mut self, node: usize, host: usize) -> Result<(), Violation> {
        if self.nodes[node].device.is_none() || self.nodes[node].handles[host].is_some() {
            return Ok(());
        }
        let pd = self.nodes[node].pd;
        let gid = crate::node::gid_of(host);
        let number = setup("create_ah", self.nodes[node].device().create_ah(pd, gid))?;
        self.nodes[node].handles[host] = Some(number);
        self.note_handle(node, host, Some(number));
        Ok(())
    }

    /// Tells the oracle that a process has or has not an address handle of a host.
    pub(crate) fn note_handle(&mut self, node: usize, host: usize, number: Option<AhNumber>) {
        for peer in self.nodes.iter().filter(|peer| peer.host == host) {
            self.ledger.handles[node][peer.index] = Since { so: number.is_some(), at: self.now };
            self.ledger.handle_numbers[node][peer.index] = number;
        }
    }

    /// Makes a queue pair as the plan says, and posts its receives.
    pub(crate) fn make_qp(&mut self, node: usize, kind: QpKind) -> Result<usize, Violation> {
        let shape = &self.plan.shape;
        let drawn = if shape.rnr_retry > 7 { self.births.below(8) } else { shape.rnr_retry } as u8;
        let rnr_retry = if self.healed { 7 } else { drawn };
        let unsolicited = kind == QpKind::Srd && self.births.percent(30);
        let ample = shape.receives >= AMPLE || self.healed;
        let rq_depth = if ample { shape.messages + shape.post_burst + 16 } else { shape.receives };
        let init = self.nodes[node].qp_init(kind, shape.sq_depth as u32, rq_depth as u32, unsolicited);
        let qkey = Qkey(self.births.below(1 << 31) as u32);
        let qpn = setup("make_qp", self.nodes[node].make_qp(self.now, init, qkey, rnr_retry))?;
        let qp = self.ledger.qps.len();
        self.tell(|| format!("{node} makes queue pair {qp}: {kind:?} {qpn:?} rnr {rnr_retry}"));
        self.ledger.qps.push(Qp {
            node,
            life: self.ledger.lives[node].0,
            qpn,
            kind,
            qkey,
            unsolicited,
            rnr_retry,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            rq_depth: init.rq_depth,
            ample: ample && self.now >= self.slow_until[node] && self.nodes[node].runs(self.now),
            short: false,
            destroyed: None,
            errored: None,
            recvs_open: 0,
            sends_open: 0,
        });
        self.nodes[node].qps.push(qp);
        self.stock(qp)?;
        Ok(qp)
    }

    /// Posts receives until the queue pair has as many as it should.
    pub(crate) fn stock(&mut self, qp: usize) -> Result<(), Violation> {
        let record = &self.ledger.qps[qp];
        let node = record.node;
        let lives = record.life == self.ledger.lives[node].0 && self.nodes[node].runs(self.now);
        let gone = record.destroyed.is_some() || record.errored.is_some();
        if !lives || gone || self.now < self.slow_until[node] {
            return Ok(());
        }
        while self.ledger.qps[qp].recvs_open < self.ledger.qps[qp].rq_depth {
            self.post_receive(qp)?;
        }
        Ok(())
    }

    /// A process that was stopped goes on: it posts the receives that it owes, and runs its engine.
    pub(crate) fn resume(&mut self, node: usize) -> Result<(), Violation> {
        for qp in self.nodes[node].qps.clone() {
            self.stock(qp)?;
        }
        self.serve(node)
    }

    fn post_receive(&mut self, qp: usize) -> Result<(), Violation> {
        let (node, qpn) = (self.ledger.qps[qp].node, self.ledger.qps[qp].qpn);
        let short = !self.healed && self.work.percent(self.plan.shape.short_recv_percent);
        let len = if short { self.work.below(MAX_MSG as u64) as u32 } else { MAX_MSG };
        self.ledger.qps[qp].short |= short;
        let first = if self.work.percent(20) { self.work.below(len as u64 + 1) as u32 } else { len };
        let region = self.some_region(node, false);
        let index = self.ledger.recvs.len();
        let mut pieces: ArrayVec<Piece, 2> = ArrayVec::new();
        let mut sges: ArrayVec<Sge, 2> = ArrayVec::new();
        for part in [first, len - first] {
            if part > 0 {
                let (addr, sge) = self.map(node, region, part, Use::Receive, index as u64, None);
                pieces.push(Piece { addr, len: part });
                sges.push(sge);
            }
        }
        self.ledger.recvs.push(Recv { qp, pieces, len, region, open: true });
        self.ledger.qps[qp].recvs_open += 1;
        let wr = RecvWr { wr_id: RECV_BASE + index as u64, sges: &sges };
        setup("post_recv", self.nodes[node].device().post_recv(qpn, &wr))
    }

    /// A registered region of a process.
    pub(crate) fn some_region(&mut self, node: usize, remote: bool) -> usize {
        let regions = &self.nodes[node].regions;
        let fit = |at: &usize| regions[*at].alive && (regions[*at].remote || !remote);
        let count = (0..regions.len()).filter(fit).count() as u64;
        let chosen = self.work.below(count) as usize;
        (0..regions.len()).filter(fit).nth(chosen).expect("a region is always there")
    }

    /// Maps a buffer in a region; returns its address and the element that names it.
    fn map(
        &mut self,
        node: usize,
        region: usize,
        len: u32,
        purpose: Use,
        owner: u64,
        offset: Option<usize>,
    ) -> (u64, Sge) {
        let pattern = offset.map(|offset| (self.ledger.pattern(owner as usize), offset));
        let place = &mut self.nodes[node].regions[region];
        let addr = place.take(len);
        let sge = Sge { addr: addr + place.shift, len, lkey: place.key };
        self.nodes[node].device().memory().map(addr, len, purpose, owner, region, pattern);
        (addr, sge)
    }

    /// A process posts its next messages.
    pub(crate) fn post_messages(&mut self, node: usize) -> Result<(), Violation> {
        if self.healed || self.left[node] == 0 {
            return Ok(());
        }
        let later = 1 + self.plan.shape.span_ns / 20;
        if !self.nodes[node].runs(self.now) {
            self.after(later, Event::Post(node));
            return Ok(());
        }
        for _ in 0..self.plan.shape.post_burst.min(self.left[node]) {
            let draft = workload::draft(&self.plan.shape, &mut self.work);
            let Some((qp, dst_qp)) = self.choose_ends(node, &draft) else {
                self.left[node] -= 1;
                continue;
            };
            if self.post(qp, dst_qp, &draft)? == Posted::Full {
                let wait = self.work.below(later);
                self.after(wait, Event::Post(node));
                break;
            }
            self.left[node] -= 1;
        }
        self.poll_if_prompt(node)?;
        self.wake_at(node, self.now);
        Ok(())
    }

    pub(crate) fn poll_if_prompt(&mut self, node: usize) -> Result<(), Violation> {
        if self.plan.shape.cq_lag_ns == 0 { self.poll_now(node).map(|_| ()) } else { Ok(()) }
    }

    fn choose_ends(&mut self, node: usize, draft: &Draft) -> Option<(usize, usize)> {
        let n = self.nodes.len() as u64;
        let other = if draft.to_self || n == 1 {
            node
        } else {
            ((node as u64 + self.work.within(1, n - 1)) % n) as usize
        };
        let kind = if draft.datagram { QpKind::Ud } else { QpKind::Srd };
        let qp = self.some_qp(node, kind)?;
        let dst_qp = self.some_qp(other, kind)?;
        Some((qp, dst_qp))
    }

    fn some_qp(&mut self, node: usize, kind: QpKind) -> Option<usize> {
        let of_kind: ArrayVec<usize, 16> = self.nodes[node]
            .qps
            .iter()
            .copied()
            .filter(|&qp| self.ledger.qps[qp].kind == kind)
            .take(16)
            .collect();
        (!of_kind.is_empty()).then(|| self.work.pick(&of_kind))
    }

    /// Posts a message from one queue pair to another.
    pub(crate) fn post(&mut self, qp: usize, dst_qp: usize, draft: &Draft) -> Result<Posted, Violation> {
        let id = self.ledger.messages.len();
        let (node, other) = (self.ledger.qps[qp].node, self.ledger.qps[dst_qp].node);
        let ah = match (draft.flaw, self.nodes[node].handles[self.nodes[other].host]) {
            (Flaw::Handle, _) => AhNumber(60_000),
            (_, Some(ah)) => ah,
            (_, None) => return Ok(Posted::No),
        };
        let imm = draft.imm.then_some(id as u32);
        let (remote, remote_region, rkey, remote_addr) = self.remote_buffer(dst_qp, id, draft);
        let op = match draft.verb {
            Verb::Send => SendOp::Send { imm },
            Verb::Read => SendOp::Read { rkey, addr: remote_addr },
            Verb::Write => SendOp::Write { rkey, addr: remote_addr, imm },
        };
        let mut inline = [0; MAX_INLINE];
        let inline = &mut inline[..if draft.inline { draft.len as usize } else { 0 }];
        self.ledger.pattern(id).fill(0, inline);
        let local_region = self.some_region(node, false);
        let (local, sges) = self.local_buffers(node, local_region, id, draft);
        let data = if draft.inline { SendData::Inline(inline) } else { SendData::Sges(&sges) };
        let (dst_qpn, qkey) = self.destination(dst_qp, draft);
        let wr = SendWr { wr_id: id as u64, op, ah, dst_qpn, qkey, data };
        let (qpn, at) = (self.ledger.qps[qp].qpn, self.nodes[node].local(self.now));
        let answer = self.nodes[node].device().post_send(at, qpn, &wr);
        self.tell(|| {
            format!("{node} posts {id} to {other}: {draft:?} on {qpn:?} to {dst_qpn:?}: {answer:?}")
        });
        if let Err(error) = answer {
            self.unmap(node, &local);
            self.unmap(other, remote.as_slice());
            return self.judge_refusal(qp, draft, error);
        }
        let message = Message {
            verb: draft.verb,
            imm,
            len: draft.len,
            flaw: draft.flaw,
            qp,
            dst_qp,
            posted: self.now,
            posted_local: at,
            state: State::Outstanding,
            delivered: false,
            placed: false,
            local,
            local_region,
            remote,
            remote_region,
        };
        Ok(Posted::Taken(self.ledger.posted(message)))
    }

    fn destination(&self, dst_qp: usize, draft: &Draft) -> (Qpn, Qkey) {
        let dst = &self.ledger.qps[dst_qp];
        let slot = self.nodes[dst.node].addr.port - PORT_BASE;
        match draft.flaw {
            // Numbers are given out from below, and few.
            Flaw::Qpn => (Qpn(slot * QPS_PER_PORT + 120), dst.qkey),
            Flaw::Qkey => (dst.qpn, Qkey(dst.qkey.0 ^ 0x0505)),
            _ => (dst.qpn, dst.qkey),
        }
    }

    /// The memory at the far end of an RDMA operation: its buffer if one was mapped, its region, its key, and the
    /// address by which the operation names it.
    fn remote_buffer(&mut self, dst_qp: usize, id: usize, draft: &Draft) -> (Option<u64>, usize, MrKey, u64) {
        if draft.verb == Verb::Send {
            return (None, 0, MrKey(0), 0);
        }
        let other = self.ledger.qps[dst_qp].node;
        let region = match draft.flaw {
            Flaw::Access => self.nodes[other].regions.iter().position(|region| !region.remote),
            _ => Some(self.some_region(other, true)),
        };
        let region = region.expect("every process has both kinds");
        let place = &self.nodes[other].regions[region];
        let (key, base) = (place.key, place.base + place.shift);
        let lives =
            self.nodes[other].device.is_some() && self.ledger.qps[dst_qp].life == self.ledger.lives[other].0;
        match draft.flaw {
            Flaw::Rkey => (None, region, Ledger::no_such_key(id as u64), base),
            Flaw::Range => (None, region, key, base + REGION_LEN - draft.len as u64 / 2),
            Flaw::Access => (None, region, key, base + 4_096),
            _ if !lives => (None, region, key, base),
            _ => {
                let purpose = if draft.verb == Verb::Read { Use::Exposed } else { Use::Target };
                let (addr, sge) = self.map(other, region, draft.len, purpose, id as u64, Some(0));
                (Some(addr), region, key, sge.addr)
            }
        }
    }

    fn local_buffers(
        &mut self,
        node: usize,
        region: usize,
        id: usize,
        draft: &Draft,
    ) -> (ArrayVec<u64, 2>, ArrayVec<Sge, 2>) {
        let (mut local, mut sges) = (ArrayVec::new(), ArrayVec::new());
        if draft.inline {
            return (local, sges);
        }
        let purpose = if draft.verb == Verb::Read { Use::Sink } else { Use::Source };
        let first = if draft.split == 0 { draft.len } else { draft.split.min(draft.len) };
        for (offset, len) in [(0, first), (first, draft.len - first)] {
            // One element even where there are no bytes; RDMA wants one, and no more.
            if len == 0 && !local.is_empty() {
                continue;
            }
            let (addr, mut sge) = self.map(node, region, len, purpose, id as u64, Some(offset as usize));
            if draft.flaw == Flaw::Lkey {
                sge.lkey = Ledger::no_such_key(id as u64);
            }
            local.push(addr);
            sges.push(sge);
        }
        (local, sges)
    }

    fn unmap(&mut self, node: usize, buffers: &[u64]) {
        if let Some(device) = &mut self.nodes[node].device {
            buffers.iter().for_each(|&addr| device.memory().close(addr));
        }
    }

    /// The device did not take a message: was that right?
    fn judge_refusal(&self, qp: usize, draft: &Draft, error: DeviceError) -> Result<Posted, Violation> {
        let record = &self.ledger.qps[qp];
        let shape = &self.plan.shape;
        match error {
            DeviceError::Full(_) => {
                let queue = record.sends_open as u64 >= shape.sq_depth;
                let peer = shape.messages_per_peer <= shape.messages * 2;
                if queue || peer {
                    return Ok(Posted::Full);
                }
                broken(
                    "refused post",
                    format!(
                        "{error:?} with {} of {} sends open: {draft:?}",
                        record.sends_open, shape.sq_depth
                    ),
                )
            }
            _ if draft.flaw.is_local() || record.errored.is_some() => Ok(Posted::No),
            _ => broken("refused post", format!("{error:?}: {draft:?}")),
        }
    }
}
