//! The requester: send work requests from posting to completion. Checks what the local side can check, hands messages
//! to the transport, sends again what found no receive buffer, and keeps the book of reads.

use crate::api::*;
use crate::completion_counter::Counted;
use crate::deferred::Deferred;
use crate::inbound::ReadResponse;
use crate::objects::Objects;
use crate::send_queue::{Ending, Posted, Progress, RnrRetries, SendRequest, completion_op};
use crate::slab::Key;
use crate::status;
use crate::token::TokenOf;
use crate::transport::Transport;
use srd_proto::{Payload, PeerId, SendError, Token};
use srd_wire::{InstanceAddr, MrKey, Op, Qpn, Route, Status};

/// A peer knows a read of ours by slot and the low bits of its generation, since the wire has room for 32 bits.
const READ_SLOT_BITS: u32 = 22;

/// Most send work requests outstanding on a device: what a read's name can tell apart.
const MAX_REQUESTS: u32 = 1 << READ_SLOT_BITS;

fn read_name(key: Key) -> u32 {
    key.generation << READ_SLOT_BITS | key.index
}

impl<M: Memory> Objects<M> {
    #[inline]
    pub fn post_send<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        qpn: Qpn,
        wr: &SendWr<'_>,
    ) -> Result<(), DeviceError> {
        self.post(transport, qpn, wr, false)
    }

    /// `answers`: see [`SendRequest::answers`].
    #[inline]
    pub fn post<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        qpn: Qpn,
        wr: &SendWr<'_>,
        answers: bool,
    ) -> Result<(), DeviceError> {
        let index = self.qp_index(qpn)?;
        self.check_form(index, wr)?;
        if self.requests.len() == MAX_REQUESTS {
            return Err(DeviceError::Full("send work requests of the device (4,194,304)"));
        }
        let staged = if self.stage.is_some() { self.stage_post(transport, qpn, wr) } else { None };
        match staged.map_or_else(|| self.prepare(index, wr), Err) {
            Ok(posted) => {
                let qp = self.qp(index);
                let (held, retries) = (qp.state == QpState::Sqd, RnrRetries::new(qp.rnr_retry));
                let key = self.link(SendRequest::new(index, wr, posted, retries, answers));
                if held {
                    self.requests.get_mut(key).expect("just linked").progress = Progress::Held;
                } else if let Err(refused) = self.start(transport, key) {
                    self.unlink(key);
                    return Err(refused);
                }
                self.count_posted(index);
                if !held {
                    self.tell_datagram(key);
                }
            }
            Err(status) => {
                self.count_posted(index);
                self.report(index, wr.wr_id, wr.op, 0, status);
            }
        }
        Ok(())
    }

    /// Number of the receive port that a queue pair is behind.
    pub fn port_of(&self, qpn: Qpn) -> Result<u8, DeviceError> {
        Ok(self.qp(self.qp_index(qpn)?).port)
    }

    /// How many sends the queue pair takes now.
    pub fn send_room(&self, qpn: Qpn) -> Result<usize, DeviceError> {
        let qp = self.qp(self.qp_index(qpn)?);
        let queue = qp.init.sq_depth.saturating_sub(qp.sq.used);
        Ok(queue.min(MAX_REQUESTS - self.requests.len()) as usize)
    }

    fn count_posted(&mut self, index: u32) {
        self.counters.submitted_wrs += 1;
        let qp = self.qp_mut(index);
        qp.sq.used += 1;
        qp.counters.sends_posted += 1;
    }

    /// What the library refuses (libefa `efa_post_send_validate_wr`, `efa_send_wr_set_*`).
    #[inline]
    fn check_form(&self, index: u32, wr: &SendWr<'_>) -> Result<(), DeviceError> {
        let qp = self.qp(index);
        qp.check_can_send()?;
        let rdma = !matches!(wr.op, SendOp::Send { .. });
        match wr.data {
            SendData::Inline(bytes) if bytes.len() > qp.init.inline as usize => {
                return Err(DeviceError::Invalid("data: more inline bytes than the queue pair was made for"));
            }
            SendData::Inline(_) if matches!(wr.op, SendOp::Read { .. }) => {
                return Err(DeviceError::Invalid("data: a read needs registered memory, not inline bytes"));
            }
            SendData::Sges(sges) if sges.len() > qp.init.send_sge as usize => {
                return Err(DeviceError::Invalid("data: more elements than the queue pair's send_sge"));
            }
            SendData::Sges(sges) if rdma && sges.len() > 1 => {
                return Err(DeviceError::Invalid("data: RDMA takes one local element"));
            }
            _ => {}
        }
        if qp.sq.used >= qp.init.sq_depth {
            return Err(DeviceError::Full("send queue: poll the completion queue first"));
        }
        Ok(())
    }

    /// What the device refuses: the work request completes with the status.
    #[inline]
    fn prepare(&mut self, index: u32, wr: &SendWr<'_>) -> Result<Posted<M::Payload>, Status> {
        let qp = self.qp(index);
        let offered = match wr.op {
            SendOp::Send { .. } => true,
            SendOp::Read { .. } => qp.init.rdma_read,
            SendOp::Write { .. } => qp.init.rdma_write,
        };
        if !offered {
            return Err(Status::LocalUnsupportedOp);
        }
        let (pd, kind) = (qp.init.pd, qp.init.kind);
        if !self.handles.get(wr.ah).is_some_and(|host| host.is_open_to(pd)) {
            return Err(Status::LocalInvalidAh);
        }
        match wr.data {
            SendData::Inline(bytes) => self.prepare_inline(wr.op, bytes),
            SendData::Sges(sges) => self.prepare_memory(pd, kind, wr.op, sges),
        }
    }

    fn longest(&self, op: SendOp) -> u32 {
        match op {
            SendOp::Send { .. } => self.config.max_msg,
            SendOp::Read { .. } | SendOp::Write { .. } => self.config.max_rdma,
        }
    }

    fn prepare_inline(&self, op: SendOp, bytes: &[u8]) -> Result<Posted<M::Payload>, Status> {
        if bytes.len() > self.longest(op) as usize {
            return Err(Status::LocalBadLength);
        }
        Ok(Posted {
            payload: self.memory.inline(bytes),
            taken: false,
            len: bytes.len() as u32,
            sink: Piece::default(),
            keys: [MrKey(0); 2],
        })
    }

    #[inline]
    fn prepare_memory(
        &mut self,
        pd: PdId,
        kind: QpKind,
        op: SendOp,
        sges: &[Sge],
    ) -> Result<Posted<M::Payload>, Status> {
        let len: u64 = sges.iter().map(|sge| sge.len as u64).sum();
        if len > self.longest(op) as u64 {
            return Err(Status::LocalBadLength);
        }
        let is_read = matches!(op, SendOp::Read { .. });
        let mut pieces = [Piece::default(); MAX_SEND_SGE];
        let mut keys = [MrKey(0); MAX_SEND_SGE];
        for (at, sge) in sges.iter().enumerate() {
            // The target of a read needs LOCAL_WRITE (docs/design/efa-verbs.md, "Semantics").
            pieces[at] = self.regions.local(pd, sge, is_read).ok_or(Status::LocalInvalidLkey)?;
            keys[at] = if sge.len == 0 { MrKey(0) } else { sge.lkey };
        }
        let pieces = &pieces[..sges.len()];
        let (payload, taken) = match (is_read, len) {
            (false, 1..) if kind == QpKind::Ud => {
                // A card has sent a datagram by the time a program can think of it again, and keeps nothing of it.
                keys = [MrKey(0); MAX_SEND_SGE];
                let referred = self.memory.reference(pieces);
                (self.memory.take(&referred).ok_or(Status::LocalInvalidLkey)?, true)
            }
            (false, 1..) => (self.memory.reference(pieces), false),
            _ => (M::Payload::empty(), false),
        };
        let sink = pieces.first().copied().unwrap_or_default();
        Ok(Posted { payload, taken, len: len as u32, sink, keys })
    }

    fn link(&mut self, request: SendRequest<M::Payload>) -> Key {
        let index = request.qp;
        let key = self.requests.insert(request);
        let qp = self.queue_pairs.at_mut(index).expect("the caller has looked it up");
        qp.sq.link(&mut self.requests, key);
        key
    }

    fn unlink(&mut self, key: Key) -> Option<SendRequest<M::Payload>> {
        let request = self.requests.remove(key)?;
        let qp = self.queue_pairs.at_mut(request.qp).expect("work of a queue pair ends before it does");
        qp.sq.unlink(&mut self.requests, &request);
        if qp.init.kind == QpKind::Ud {
            qp.sq.told -= request.told as u32;
        }
        if request.taken {
            self.memory.give_back(request.payload.clone());
        }
        Some(request)
    }

    /// A datagram has no outcome to wait for: it completes when it is posted, and occupies no slot of the queue any more. As many
    /// as the queue has slots may be with the transport by then; further ones complete when they are over.
    #[inline]
    fn tell_datagram(&mut self, key: Key) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let qp = self.queue_pairs.at_mut(request.qp).expect("work of a queue pair ends before it does");
        if qp.init.kind != QpKind::Ud || qp.sq.told >= qp.init.sq_depth {
            return;
        }
        qp.sq.told += 1;
        request.told = true;
        let (index, wr_id, op, len) = (request.qp, request.wr_id, request.op, request.len);
        self.counters.send_wrs += 1;
        self.counters.send_bytes += len as u64;
        self.report(index, wr_id, op, len, Status::Ok);
    }

    /// Hands a request's message to the transport.
    #[inline]
    fn start<T: Transport<M::Payload>>(&mut self, transport: &mut T, key: Key) -> Result<(), DeviceError> {
        let request = self.requests.get(key).expect("the caller has looked it up");
        let qp = self.queue_pairs.at(request.qp).expect("work of a queue pair ends before it does");
        let (port, slot, kind) = (qp.port, request.dst_qpn.0 / QPS_PER_PORT, qp.init.kind);
        let op = message_op(request, qp.qpn, kind, key);
        let token = TokenOf::Request(key).token();
        let host = self.handles.get_mut(request.ah).expect("a host stays while work to it is under way");
        if !self.config.loopback && host.gid == self.gid {
            // Nobody takes it, and nobody answers. A datagram has no outcome to wait for.
            if kind == QpKind::Ud {
                self.end_request(key, Status::Ok);
            }
            return Ok(());
        }
        let mut sent = match host.context(port, slot) {
            Some(peer) => transport.send(self.now, peer, token, op, request.payload.clone()).map(|()| peer),
            None => Err(SendError::NoPeer),
        };
        if sent == Err(SendError::NoPeer) {
            // The first message to that instance, or the context has ended.
            let to = InstanceAddr { gid: host.gid, port: self.config.port_base + slot };
            let found = match request.answers {
                true => transport.context_of(port, to).ok_or(SendError::NoPeer),
                false => transport.connect(self.now, port, to),
            };
            sent = found.and_then(|peer| {
                if !request.answers {
                    host.set_context(port, slot, peer);
                }
                transport.send(self.now, peer, token, op, request.payload.clone()).map(|()| peer)
            });
            if request.answers && sent == Err(SendError::NoPeer) {
                // Nobody has spoken from there.
                self.end_request(key, Status::Unreachable);
                return Ok(());
            }
        }
        let peer = sent.map_err(transport_full)?;
        self.requests.get_mut(key).expect("the transport does not call back").progress =
            Progress::InFlight(peer);
        Ok(())
    }

    /// Hands a request to the transport that nobody waits to be refused: if the transport is full, it is tried again.
    pub fn start_or_wait<T: Transport<M::Payload>>(&mut self, transport: &mut T, key: Key) {
        if !self.requests.get(key).is_some_and(|request| request.progress == Progress::Waiting) {
            return;
        }
        if self.start(transport, key).is_err() {
            self.deferred.push_later(self.now + self.config.rnr_wait_max, Deferred::Start(key));
        }
    }

    /// SQD to RTS: what was posted meanwhile leaves, in order.
    pub fn release_held<T: Transport<M::Payload>>(&mut self, transport: &mut T, index: u32) {
        let held: Vec<Key> = self
            .qp(index)
            .sq
            .iter(&self.requests)
            .filter(|(_, request)| request.progress == Progress::Held)
            .map(|(key, _)| key)
            .collect();
        for key in held {
            self.requests.get_mut(key).expect("collected a moment ago").progress = Progress::Waiting;
            self.start_or_wait(transport, key);
        }
    }

    /// The transport reports what became of a message.
    #[inline]
    pub fn request_outcome(&mut self, peer: PeerId, key: Key, outcome: Result<(), Status>) {
        let Some(request) = self.requests.get_mut(key) else {
            // A read whose data came before its request was acknowledged: it is complete already.
            return;
        };
        match outcome {
            Ok(()) if matches!(request.op, SendOp::Read { .. }) => {
                request.progress = Progress::AwaitingData(peer);
                self.watch(peer);
            }
            Ok(()) => self.end_request(key, Status::Ok),
            Err(Status::RemoteRnr) if !request.told => self.receiver_not_ready(key),
            Err(reported) => self.end_request(key, status::of_message(reported)),
        }
    }

    /// SRD.txt, section 3.3.1, SRD RNR error; retries as current devices offer them. Each message waits for itself: others to
    /// the same receiver may find a buffer meanwhile, order is not promised.
    fn receiver_not_ready(&mut self, key: Key) {
        let request = self.requests.get_mut(key).expect("the caller has looked it up");
        let Some(wait) = request.rnr.take(&self.config) else {
            return self.end_request(key, Status::RemoteRnr);
        };
        request.progress = Progress::Waiting;
        let index = request.qp;
        self.deferred.push_later(self.now + wait, Deferred::Start(key));
        self.counters.rnr_retries += 1;
        self.qp_mut(index).counters.rnr_retries += 1;
    }

    /// All of a read's data has arrived.
    pub fn read_complete(&mut self, key: Key) {
        self.requests.get_mut(key).expect("its inbound message ends with it").inbound = None;
        self.end_request(key, Status::Ok);
    }

    /// The outstanding read that a peer names, if it is this peer's to answer.
    #[inline]
    pub fn find_read(&self, peer: PeerId, read: u32) -> Option<Key> {
        let key = self.requests.key_at(read & (MAX_REQUESTS - 1))?;
        let request = self.requests.get(key)?;
        let named = matches!(request.op, SendOp::Read { .. }) && read_name(key) == read;
        (named && request.peer() == Some(peer)).then_some(key)
    }

    /// Completes a request.
    #[inline]
    pub fn end_request(&mut self, key: Key, status: Status) {
        let Some(request) = self.unlink(key) else { return };
        if request.told {
            return;
        }
        if let Some(inbound) = request.inbound {
            self.kill_landing(inbound, Status::RemoteBadStatus);
        }
        let mut status = status;
        if self.qp(request.qp).init.kind == QpKind::Ud && status != Status::Flushed && !is_local(status) {
            // A datagram has no outcome: that it was lost is nobody's to tell (IB: UD is not acknowledged).
            status = Status::Ok;
        }
        let len = request.len as u64;
        match (request.op, status) {
            (SendOp::Send { .. }, Status::Ok) => {
                self.counters.send_wrs += 1;
                self.counters.send_bytes += len;
            }
            (SendOp::Read { .. }, Status::Ok) => {
                self.counters.rdma_read_wrs += 1;
                self.counters.rdma_read_bytes += len;
            }
            (SendOp::Write { .. }, Status::Ok) => {
                self.counters.rdma_write_wrs += 1;
                self.counters.rdma_write_bytes += len;
            }
            _ => {}
        }
        self.report(request.qp, request.wr_id, request.op, request.len, status);
    }

    /// Makes the completion of a send work request.
    #[inline]
    fn report(&mut self, index: u32, wr_id: u64, op: SendOp, len: u32, status: Status) {
        let failed = status != Status::Ok;
        let op = completion_op(op);
        if failed {
            self.counters.send_wr_err += 1;
            match op {
                CompletionOp::Read => self.counters.rdma_read_wr_err += 1,
                CompletionOp::Write => self.counters.rdma_write_wr_err += 1,
                _ => {}
            }
        }
        let qp = self.qp_mut(index);
        qp.counters.sends_completed += 1;
        qp.counters.sends_failed += failed as u64;
        match failed {
            false => qp.attached.completed(Counted::of(op), len),
            true => qp.attached.failed(Counted::of(op)),
        }
        let (cq, qpn) = (qp.init.send_cq, qp.qpn);
        self.complete(cq, Completion::bare(wr_id, op, qpn, status));
    }

    /// Ends the requests that `which` picks, in order of posting within each queue pair. The transport does not read
    /// their payload and nothing is written to their memory after this.
    pub fn end_requests<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        ending: Ending,
        mut which: impl FnMut(&SendRequest<M::Payload>) -> bool,
    ) {
        let mut peers = std::mem::take(&mut self.peers);
        let mut queues = Vec::new();
        for (_, request) in self.requests.iter_mut() {
            if which(request) {
                request.doomed = true;
                queues.push(request.qp);
                if let Progress::InFlight(peer) = request.progress {
                    peers.push(peer);
                }
            }
        }
        peers.sort_unstable();
        peers.dedup();
        for &peer in &peers {
            transport.cancel(self.now, peer, &mut |token| match TokenOf::of(token) {
                TokenOf::Request(key) => self.requests.get(key).is_some_and(|request| request.doomed),
                _ => false,
            });
        }
        peers.clear();
        self.peers = peers;
        queues.sort_unstable();
        queues.dedup();
        for index in queues {
            self.end_doomed(index, ending);
        }
    }

    /// The region of a key goes. What has left from it and waits for its acknowledgement only may have arrived, and the program may
    /// know (libfabric's `efa` deregisters when its peer has told it so): a copy of it is kept, in case a packet of it was lost.
    pub fn keep_what_has_left<T: Transport<M::Payload>>(&mut self, transport: &mut T, key: MrKey) {
        let uses = |request: &SendRequest<M::Payload>| request.is_in_flight() && request.keys.contains(&key);
        let mut peers: Vec<PeerId> = self
            .requests
            .iter_mut()
            .filter(|(_, request)| uses(request))
            .filter_map(|(_, request)| request.peer())
            .collect();
        peers.sort_unstable();
        peers.dedup();
        for peer in peers {
            transport.keep(peer, &mut |token| {
                let TokenOf::Request(of) = TokenOf::of(token) else { return None };
                let request = self.requests.get_mut(of).filter(|request| uses(request))?;
                let taken = self.memory.take(&request.payload)?;
                (request.payload, request.taken, request.keys) =
                    (taken.clone(), true, [MrKey(0); MAX_SEND_SGE]);
                Some(taken)
            });
        }
    }

    /// The memory of a message of ours has gone.
    pub fn unreadable<T: Transport<M::Payload>>(&mut self, transport: &mut T, token: Token) {
        match TokenOf::of(token) {
            TokenOf::Request(key) => {
                let Some(request) = self.requests.get_mut(key) else { return };
                let Progress::InFlight(peer) = request.progress else { return };
                transport.cancel(self.now, peer, &mut |other| other == token);
                self.end_request(key, Status::LocalInvalidLkey);
            }
            TokenOf::ReadResponse(key) => {
                let Some(ReadResponse { peer, read, .. }) = self.take_read_response(key) else { return };
                transport.cancel(self.now, peer, &mut |other| other == token);
                self.fail_read(transport, peer, read, Status::RemoteBadAddress);
            }
            TokenOf::Watch(_) | TokenOf::Nobody => {}
        }
    }

    fn end_doomed(&mut self, index: u32, ending: Ending) {
        let doomed: Vec<Key> = self
            .qp(index)
            .sq
            .iter(&self.requests)
            .filter(|(_, request)| request.doomed)
            .map(|(key, _)| key)
            .collect();
        for key in doomed {
            match ending {
                Ending::Complete(status) => self.end_request(key, status),
                Ending::Forget => {
                    let inbound = self.unlink(key).and_then(|request| request.inbound);
                    if let Some(inbound) = inbound {
                        self.kill_landing(inbound, Status::RemoteBadStatus);
                    }
                }
            }
        }
    }
}

fn is_local(status: Status) -> bool {
    matches!(
        status,
        Status::LocalQpInternal
            | Status::LocalUnsupportedOp
            | Status::LocalInvalidAh
            | Status::LocalInvalidLkey
            | Status::LocalBadLength
    )
}

fn transport_full(error: SendError) -> DeviceError {
    match error {
        SendError::Full => {
            DeviceError::Full("messages to this peer (max_messages_per_peer): poll, then post again")
        }
        SendError::TooManyPeers => DeviceError::Full("peer contexts (max_peers): fewer peers at once"),
        SendError::NoPeer => DeviceError::Full("peer context: it ended as it was made; post again"),
    }
}

fn message_op<P>(request: &SendRequest<P>, src_qpn: Qpn, kind: QpKind, key: Key) -> Op {
    let route = Route { dst_qpn: request.dst_qpn, src_qpn, qkey: request.qkey };
    match request.op {
        SendOp::Send { imm } => Op::Send { route, imm, datagram: kind == QpKind::Ud },
        SendOp::Write { rkey, addr, imm } => Op::Write { route, rkey, addr, imm },
        SendOp::Read { rkey, addr } => {
            Op::ReadRequest { route, rkey, addr, read_len: request.len, read: read_name(key) }
        }
    }
}
