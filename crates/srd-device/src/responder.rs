//! The responder: messages of peers, from their first segment to their last. Lets them in or refuses them, places
//! their bytes, and completes receives. What becomes of their reads is in [`crate::read_responses`].

use crate::api::*;
use crate::completion_counter::Counted;
use crate::inbound::{InboundMessage, Purpose};
use crate::keepalive::KEEPALIVE_QPN;
use crate::memory_region::RemoteAccess;
use crate::objects::Objects;
use crate::queue_pair::QueuePair;
use crate::receive_queue::Receive;
use crate::routing_header::{ROUTING_HEADER_LEN, routing_header};
use crate::slab::Key;
use crate::status;
use crate::token::TokenOf;
use srd_proto::{Cookie, Incoming, Payload, PeerId, PeerLoss, Stranger, Token, UpperLayer};
use srd_wire::{InstanceAddr, MrKey, Op, Qpn, Route, Status};

/// Messages of peers between their first segment and their last, beyond which no RDMA write begins; its sender comes back.
/// Sends are bounded by receive buffers, and answers by our reads.
const MAX_INBOUND: u32 = 1 << 14;

/// A message that is let in but dropped: a datagram for which there is no place.
const DROPPED: Cookie = Cookie(u64::MAX);

impl<M: Memory> Objects<M> {
    /// The queue pair that a peer wants something of.
    fn asked_for<'a>(&'a self, op: &'a Op) -> Option<(&'a QueuePair, &'a Route)> {
        let (Op::Send { route, .. } | Op::Write { route, .. } | Op::ReadRequest { route, .. }) = op else {
            return None;
        };
        Some((self.qp(self.numbers.find(route.dst_qpn)?), route))
    }
}

impl<M: Memory> UpperLayer<M::Payload> for Objects<M> {
    fn vouches(&self, op: &Op, from: InstanceAddr) -> bool {
        self.asked_for(op).is_some_and(|(qp, route)| {
            qp.receives() && qp.qkey == route.qkey && self.is_from(route.src_qpn, from)
        })
    }

    fn trusts(&self, op: &Op, expected: bool) -> bool {
        self.asked_for(op).is_some_and(|(qp, _)| match expected {
            true => !qp.well_known,
            false => qp.trusts_newcomers && qp.has_buffer_for(Some(Stranger::Unproven)),
        })
    }

    #[inline]
    fn begin(&mut self, message: &Incoming, rest_from: Option<Stranger>) -> Result<Cookie, Status> {
        match message.op {
            Op::Send { route, datagram: false, .. } => self.begin_send(message, route, rest_from),
            Op::Send { route, datagram: true, .. } => Ok(self.begin_datagram(message, route)),
            Op::Write { route, rkey, addr, imm } => {
                self.begin_write(message, route, rkey, addr, imm.is_some())
            }
            Op::ReadRequest { route, rkey, addr, read_len, .. } => {
                self.begin_read_request(message, route, rkey, addr, read_len)
            }
            Op::ReadResponse { read } => self.begin_read_data(message, read),
            Op::ReadFailed { read, status } => {
                self.read_failed(message.peer, read, status);
                Ok(DROPPED)
            }
            // These are the transport's own; it keeps them to itself.
            Op::Refuse { .. } | Op::Skip => Err(Status::RemoteBadStatus),
        }
    }

    #[inline]
    fn place(&mut self, cookie: Cookie, message: &Incoming, offset: u32, payload: &M::Payload) {
        let Some(inbound) = self.inbound.get_mut(key_of(cookie)) else { return };
        if matches!(inbound.purpose, Purpose::Dead(_)) || payload.is_empty() {
            return;
        }
        if let Purpose::Receive(receive) = inbound.purpose {
            // The program has posted the buffer, and knows that it is in use until it is told otherwise.
            if !self.memory.write(&inbound.pieces, (inbound.skip + offset) as usize, payload) {
                return self.memory_has_gone(key_of(cookie));
            }
            if std::mem::take(&mut inbound.tells) && offset == 0 {
                self.note_begun(key_of(cookie), receive, message, payload.len() as u32);
            }
            return;
        }
        // A program may watch the memory that it lets peers write; what it reads it is told of.
        let in_order = matches!(inbound.purpose, Purpose::Write(_));
        let there = self.regions.extent(inbound.keys[0]).is_some_and(|region| {
            self.memory.write_if_there(region, inbound.pieces[0], offset as usize, payload, in_order)
        });
        if !there {
            self.memory_has_gone(key_of(cookie));
        }
    }

    #[inline]
    fn finish(&mut self, cookie: Cookie, message: &Incoming) -> Result<(), Status> {
        // It takes effect, unless what it was for has gone since.
        let Some(inbound) = self.inbound.remove(key_of(cookie)) else { return Ok(()) };
        match inbound.purpose {
            Purpose::Receive(receive) => self.receive_complete(&inbound, receive, message),
            Purpose::Write(receive) => self.write_complete(inbound.qp, receive, message),
            Purpose::ReadRequest => self.answer(&inbound, message),
            Purpose::ReadData(request) => self.read_complete(request),
            Purpose::Dead(status) => return Err(self.refuse(None, status)),
        }
        Ok(())
    }

    fn abandon(&mut self, cookie: Cookie, _message: &Incoming) {
        let Some(inbound) = self.inbound.remove(key_of(cookie)) else { return };
        match inbound.purpose {
            Purpose::Receive(receive) | Purpose::Write(Some(receive)) => {
                self.qp_mut(inbound.qp).rq.give_back(receive);
            }
            Purpose::ReadData(request) => {
                if let Some(request) = self.requests.get_mut(request) {
                    request.inbound = None;
                }
            }
            Purpose::Write(None) | Purpose::ReadRequest | Purpose::Dead(_) => {}
        }
    }

    #[inline]
    fn outcome(&mut self, peer: PeerId, token: Token, outcome: Result<(), Status>) {
        match TokenOf::of(token) {
            TokenOf::Request(key) => self.request_outcome(peer, key, outcome),
            TokenOf::ReadResponse(key) => self.read_response_outcome(key, outcome),
            TokenOf::Watch(peer) => self.watch_outcome(peer),
            TokenOf::Nobody => {}
        }
    }

    fn peer_silent(&mut self, addr: InstanceAddr, answered_before: bool) {
        self.silent = Some((addr, answered_before));
    }

    fn peer_lost(&mut self, peer: PeerId, port: u8, addr: InstanceAddr, why: PeerLoss) {
        self.peer_is_lost(peer, port, addr, why);
    }
}

fn cookie_of(key: Key) -> Cookie {
    Cookie((key.generation as u64) << 32 | key.index as u64)
}

/// [`DROPPED`] is the key of no inbound message: generations have 30 bits.
fn key_of(cookie: Cookie) -> Key {
    Key { index: cookie.0 as u32, generation: (cookie.0 >> 32) as u32 }
}

impl<M: Memory> Objects<M> {
    /// Whether a queue pair of that number is behind the port of its host that a packet says that it comes from: who receives
    /// elsewhere would speak for a queue pair of another process.
    #[inline]
    fn is_from(&self, qpn: Qpn, from: InstanceAddr) -> bool {
        from.port == self.config.port_base.wrapping_add(qpn.0 / QPS_PER_PORT)
    }

    /// The SRD queue pair that a message is for. A queue key that differs is refused like a queue pair that does not
    /// exist (our choice; the sources do not say, docs/design/efa-verbs.md, "Semantics"): a stranger learns nothing from it,
    /// and the program that restarts with a new key sees the error that it expects of a queue pair that has gone.
    #[inline]
    pub fn destination(&mut self, route: Route, from: InstanceAddr) -> Result<u32, Status> {
        let found = self.numbers.find(route.dst_qpn).filter(|&index| {
            let qp = self.qp(index);
            qp.init.kind == QpKind::Srd
                && qp.receives()
                && qp.qkey == route.qkey
                && self.is_from(route.src_qpn, from)
        });
        found.ok_or_else(|| self.refuse(None, Status::RemoteBadDestQpn))
    }

    /// Counts a refusal and returns its status.
    pub fn refuse(&mut self, qp: Option<u32>, status: Status) -> Status {
        let rnr = status == Status::RemoteRnr;
        *if rnr { &mut self.counters.rnr_refused } else { &mut self.counters.refused_msgs } += 1;
        if let Some(index) = qp {
            let counters = &mut self.qp_mut(index).counters;
            *if rnr { &mut counters.rnr_refused } else { &mut counters.refused } += 1;
        }
        status
    }

    pub fn accept(&mut self, inbound: InboundMessage) -> Cookie {
        cookie_of(self.inbound.insert(inbound))
    }

    #[inline]
    fn begin_send(
        &mut self,
        message: &Incoming,
        route: Route,
        rest_from: Option<Stranger>,
    ) -> Result<Cookie, Status> {
        let index = self.destination(route, message.from)?;
        match self.take_buffer(index, 0, message.len, rest_from) {
            Ok(inbound) => Ok(self.accept(inbound)),
            Err(status) => Err(self.refuse(Some(index), status)),
        }
    }

    /// UD: whatever is wrong, the sender does not hear of it (IB: invalid packets are silently dropped).
    #[inline]
    fn begin_datagram(&mut self, message: &Incoming, route: Route) -> Cookie {
        let found = self.numbers.find(route.dst_qpn).filter(|&index| {
            let qp = self.qp(index);
            qp.init.kind == QpKind::Ud && qp.receives() && self.is_from(route.src_qpn, message.from)
        });
        let Some(index) = found else {
            if route.dst_qpn != KEEPALIVE_QPN {
                self.count_drop(None);
            }
            return DROPPED;
        };
        if self.qp(index).qkey != route.qkey {
            self.count_drop(Some(index));
            return DROPPED;
        }
        match self.take_buffer(index, ROUTING_HEADER_LEN as u32, message.len, None) {
            Ok(inbound) => self.accept(inbound),
            Err(_) => {
                self.count_drop(Some(index));
                DROPPED
            }
        }
    }

    fn count_drop(&mut self, qp: Option<u32>) {
        self.counters.ud_drops += 1;
        self.counters.rx_drops += 1;
        if let Some(index) = qp {
            self.qp_mut(index).counters.dropped += 1;
        }
    }

    /// Takes the first receive of the queue, if it has `skip` bytes and `len` more.
    ///
    /// A receive whose memory its keys do not open (any more) completes with an error of its own, and the message gets
    /// the next one. A receive that is too short stays where it is: the sender is told, and nothing of its message
    /// shows at the receiver, so neither does a receive that went missing.
    #[inline]
    fn take_buffer(
        &mut self,
        index: u32,
        skip: u32,
        len: u32,
        rest_from: Option<Stranger>,
    ) -> Result<InboundMessage, Status> {
        loop {
            let qp = self.queue_pairs.at_mut(index).expect("the caller has looked it up");
            if !qp.has_buffer_for(rest_from) {
                return Err(Status::RemoteRnr);
            }
            let mut receive = *qp.rq.first().ok_or(Status::RemoteRnr)?;
            let mut pieces = [Piece::default(); MAX_RECV_SGE];
            let mut keys = [MrKey(0); MAX_RECV_SGE];
            let mut room = 0;
            let mut valid = true;
            for (at, sge) in receive.sges().iter().enumerate() {
                match self.regions.local(qp.init.pd, sge, true) {
                    Some(piece) => pieces[at] = piece,
                    None => valid = false,
                }
                keys[at] = if sge.len == 0 { MrKey(0) } else { sge.lkey };
                room += sge.len as u64;
            }
            if !valid {
                qp.rq.take();
                self.end_receive(index, receive.wr_id, Status::LocalInvalidLkey);
                continue;
            }
            if room < skip as u64 + len as u64 {
                return Err(Status::RemoteBadLength);
            }
            qp.rq.take();
            qp.rq.lend(&mut receive, rest_from);
            let tells = len >= qp.tells_begun;
            let purpose = Purpose::Receive(receive);
            return Ok(InboundMessage { qp: index, purpose, pieces, skip, tells, keys });
        }
    }

    /// What RDMA needs beyond a send: the device offers it, and knows the requester.
    pub fn check_rdma(&mut self, message: &Incoming, offered: bool) -> Result<(), Status> {
        if !offered {
            return Err(self.refuse(None, Status::FeatureMismatch));
        }
        // efa_io_defs.h: "No valid AH at remote side (required for RDMA operations)".
        if self.handles.number_of(message.peer, message.from.gid) == AhNumber::NONE {
            return Err(self.refuse(None, Status::UnknownPeer));
        }
        Ok(())
    }

    fn begin_write(
        &mut self,
        message: &Incoming,
        route: Route,
        rkey: MrKey,
        addr: u64,
        has_imm: bool,
    ) -> Result<Cookie, Status> {
        let index = self.destination(route, message.from)?;
        self.check_rdma(message, self.config.rdma_write)?;
        let qp = self.qp(index);
        let (pd, consumes) = (qp.init.pd, has_imm && !qp.init.unsolicited_write_recv);
        let Some(piece) = self.regions.remote(pd, rkey, addr, message.len, RemoteAccess::Write) else {
            return Err(self.refuse(Some(index), Status::RemoteBadAddress));
        };
        if self.inbound.len() >= MAX_INBOUND {
            return Err(self.refuse(Some(index), Status::RemoteRnr));
        }
        let mut receive = None;
        if consumes {
            // Its buffer is not used (man ibv_post_recv: RDMA write with immediate consumes a receive), so neither
            // are its keys.
            receive = self.qp_mut(index).rq.take();
            if receive.is_none() {
                return Err(self.refuse(Some(index), Status::RemoteRnr));
            }
        }
        let key = if message.len == 0 { MrKey(0) } else { rkey };
        Ok(self.accept(InboundMessage::rdma(index, Purpose::Write(receive), piece, key)))
    }

    fn begin_read_data(&mut self, message: &Incoming, read: u32) -> Result<Cookie, Status> {
        // A read that was given up meanwhile has no place for its data, nor has a second answer.
        let Some(key) = self.find_read(message.peer, read) else { return Err(Status::RemoteBadStatus) };
        let request = self.requests.get(key).expect("found a moment ago");
        if request.inbound.is_some() {
            return Err(Status::RemoteBadStatus);
        }
        if request.len != message.len {
            self.end_request(key, Status::RemoteBadStatus);
            return Err(Status::RemoteBadStatus);
        }
        let purpose = Purpose::ReadData(key);
        let inbound = InboundMessage::rdma(request.qp, purpose, request.sink, request.keys[0]);
        let cookie = self.accept(inbound);
        self.requests.get_mut(key).expect("found a moment ago").inbound = Some(key_of(cookie));
        Ok(cookie)
    }

    fn read_failed(&mut self, peer: PeerId, read: u32, reported: Status) {
        if let Some(key) = self.find_read(peer, read) {
            self.end_request(key, status::of_message(reported));
        }
    }

    #[inline]
    fn receive_complete(&mut self, inbound: &InboundMessage, mut receive: Receive, message: &Incoming) {
        self.qp_mut(inbound.qp).rq.settle(&mut receive);
        if inbound.skip > 0 && !self.write_routing_header(&inbound.pieces, message) {
            return self.end_receive(inbound.qp, receive.wr_id, Status::LocalInvalidLkey);
        }
        self.counters.recv_wrs += 1;
        self.counters.recv_bytes += message.len as u64;
        self.qp(inbound.qp).attached.completed(Counted::Recv, message.len);
        if let Some(completion) = self.received(inbound.qp, inbound.skip, &receive, message) {
            self.complete_receive(inbound.qp, completion);
        }
    }

    /// What the completion of a receive says.
    #[inline]
    pub fn received(
        &mut self,
        index: u32,
        skip: u32,
        receive: &Receive,
        message: &Incoming,
    ) -> Option<Completion> {
        let Op::Send { route, imm, .. } = message.op else { return None };
        Some(Completion {
            wr_id: receive.wr_id,
            status: Status::Ok,
            op: CompletionOp::Recv,
            qpn: route.dst_qpn,
            src_qpn: route.src_qpn,
            src_ah: self.source(index, message),
            src_gid: message.from.gid,
            byte_len: skip + message.len,
            imm,
            unsolicited: false,
            claimed: message.claimed && self.qp(index).well_known,
        })
    }

    /// The number under which the queue pair's protection domain knows a host.
    #[inline]
    fn source(&mut self, index: u32, message: &Incoming) -> AhNumber {
        let ah = self.handles.number_of(message.peer, message.from.gid);
        let pd = self.qp(index).init.pd;
        if self.handles.get(ah).is_some_and(|host| host.is_open_to(pd)) { ah } else { AhNumber::NONE }
    }

    fn write_routing_header(&mut self, pieces: &[Piece], message: &Incoming) -> bool {
        let header = routing_header(message.from.gid, self.gid, message.len);
        let (front, back) = header.split_at(MAX_INLINE);
        let (front, back) = (self.memory.inline(front), self.memory.inline(back));
        self.memory.write(pieces, 0, &front) && self.memory.write(pieces, MAX_INLINE, &back)
    }

    fn write_complete(&mut self, index: u32, receive: Option<Receive>, message: &Incoming) {
        let Op::Write { route, imm, .. } = message.op else { return };
        self.counters.rdma_write_recv_bytes += message.len as u64;
        self.qp(index).attached.completed(Counted::RemoteWrite, message.len);
        if imm.is_none() {
            return;
        }
        let completion = Completion {
            // man efadv_wc_is_unsolicited: such a completion has no work request.
            wr_id: receive.map_or(0, |receive| receive.wr_id),
            status: Status::Ok,
            op: CompletionOp::RecvRdmaWithImm,
            qpn: route.dst_qpn,
            src_qpn: route.src_qpn,
            src_ah: self.source(index, message),
            src_gid: message.from.gid,
            byte_len: message.len,
            imm,
            unsolicited: receive.is_none(),
            claimed: false, // he knows the key of the memory
        };
        self.complete_receive(index, completion);
    }

    #[inline]
    fn complete_receive(&mut self, index: u32, completion: Completion) {
        let qp = self.qp_mut(index);
        qp.counters.recvs_completed += 1;
        let cq = qp.init.recv_cq;
        self.complete(cq, completion);
    }

    /// Completes a receive that no message filled.
    fn end_receive(&mut self, index: u32, wr_id: u64, status: Status) {
        let qp = self.qp(index);
        qp.attached.failed(Counted::Recv);
        let completion = Completion::bare(wr_id, CompletionOp::Recv, qp.qpn, status);
        self.complete_receive(index, completion);
    }

    // Landings that end before their time. The transport does not know: it goes on to deliver.

    /// The message's memory is not touched any more.
    pub fn kill_landing(&mut self, key: Key, status: Status) {
        if let Some(inbound) = self.inbound.get_mut(key) {
            inbound.purpose = Purpose::Dead(status);
        }
    }

    /// The program has unmapped memory that a message is for, or freed an accelerator's: its sender is told so at the end, as for an
    /// address out of bounds. A read of ours, or a receive, fails at once.
    #[cold]
    fn memory_has_gone(&mut self, key: Key) {
        let Some(inbound) = self.inbound.get_mut(key) else { return };
        let index = inbound.qp;
        match std::mem::replace(&mut inbound.purpose, Purpose::Dead(Status::RemoteBadAddress)) {
            Purpose::Write(Some(receive)) => self.qp_mut(index).rq.give_back(receive),
            Purpose::ReadData(request) => self.end_request(request, Status::LocalInvalidLkey),
            Purpose::Receive(mut receive) => {
                self.qp_mut(index).rq.settle(&mut receive);
                self.end_receive(index, receive.wr_id, Status::LocalInvalidLkey);
            }
            _ => {}
        }
    }

    /// A region has gone: messages that were being written to it are dropped, and receives that lay in it fail.
    pub fn end_landings_in(&mut self, rkey: MrKey) {
        let mut failed = Vec::new();
        for (_, inbound) in self.inbound.iter_mut().filter(|(_, inbound)| inbound.keys.contains(&rkey)) {
            match std::mem::replace(&mut inbound.purpose, Purpose::Dead(Status::RemoteBadAddress)) {
                Purpose::Receive(receive) => failed.push((inbound.qp, receive, Status::LocalInvalidLkey)),
                // Its receive lies elsewhere, but the message that took it will not complete it.
                Purpose::Write(Some(receive)) => failed.push((inbound.qp, receive, Status::Flushed)),
                _ => {}
            }
        }
        failed.sort_unstable_by_key(|(_, receive, _)| receive.serial);
        for (index, mut receive, status) in failed {
            self.qp_mut(index).rq.settle(&mut receive);
            self.end_receive(index, receive.wr_id, status);
        }
    }

    /// Takes the receives that messages of a queue pair have taken, in the order of posting.
    fn end_landings_of(&mut self, index: u32) -> Vec<Receive> {
        let mut taken = Vec::new();
        for (_, inbound) in self.inbound.iter_mut().filter(|(_, inbound)| inbound.qp == index) {
            if let Purpose::Receive(receive) | Purpose::Write(Some(receive)) =
                std::mem::replace(&mut inbound.purpose, Purpose::Dead(Status::RemoteBadDestQpn))
            {
                taken.push(receive);
            }
        }
        taken.iter_mut().for_each(|receive| self.qp_mut(index).rq.settle(receive));
        taken.sort_unstable_by_key(|receive| receive.serial);
        taken
    }

    /// The receives of a queue pair, in the order of posting: those that messages have taken, and those that wait.
    pub fn receives_of(&self, index: u32) -> Vec<Receive> {
        let taken = self.inbound.iter().filter(|(_, inbound)| inbound.qp == index);
        let mut receives: Vec<Receive> = taken
            .filter_map(|(_, inbound)| match inbound.purpose {
                Purpose::Receive(receive) | Purpose::Write(Some(receive)) => Some(receive),
                _ => None,
            })
            .chain(self.qp(index).rq.iter().copied())
            .collect();
        receives.sort_unstable_by_key(|receive| receive.serial);
        receives
    }

    /// To ERR: all receives complete flushed, in the order of posting.
    pub fn flush_receives(&mut self, index: u32) {
        for receive in self.end_landings_of(index) {
            self.end_receive(index, receive.wr_id, Status::Flushed);
        }
        while let Some(receive) = self.qp_mut(index).rq.take() {
            self.end_receive(index, receive.wr_id, Status::Flushed);
        }
    }

    /// To RESET, and before the end: all receives are forgotten.
    pub fn forget_receives(&mut self, index: u32) {
        self.end_landings_of(index);
        self.qp_mut(index).rq.clear();
    }
}
