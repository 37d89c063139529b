//! Reads of peers: a request is checked and let in like any message; its answer is a message of ours, which the requester
//! has been promised and so gets, or is told why not.

use crate::api::*;
use crate::completion_counter::Counted;
use crate::deferred::Deferred;
use crate::inbound::{InboundMessage, Purpose, ReadResponse};
use crate::memory_region::RemoteAccess;
use crate::objects::Objects;
use crate::slab::Key;
use crate::token::TokenOf;
use crate::transport::Transport;
use srd_proto::{Cookie, Incoming, Payload, PeerId, SendError};
use srd_wire::{MrKey, Op, Route, Status};

/// Read requests that are rarely under way in greater number.
const READ_RESPONSES_AT_ONCE: usize = 256;

/// Reads of peers that are answered at once, of all together and of each. Further ones are told to come back, as for a lack
/// of receive buffers: no read fails for that, and one peer leaves room for others. A queue pair of ours has not more.
pub(crate) const MAX_READ_RESPONSES: u32 = 1 << 14;
pub(crate) const MAX_READ_RESPONSES_OF_PEER: u16 = 1 << 12;

impl<M: Memory> Objects<M> {
    pub fn begin_read_request(
        &mut self,
        message: &Incoming,
        route: Route,
        rkey: MrKey,
        addr: u64,
        read_len: u32,
    ) -> Result<Cookie, Status> {
        let index = self.destination(route, message.from)?;
        self.check_rdma(message, self.config.rdma_read)?;
        if read_len > self.config.max_rdma {
            return Err(self.refuse(Some(index), Status::RemoteBadLength));
        }
        let pd = self.qp(index).init.pd;
        let Some(piece) = self.regions.remote(pd, rkey, addr, read_len, RemoteAccess::Read) else {
            return Err(self.refuse(Some(index), Status::RemoteBadAddress));
        };
        if self.read_responses.len() >= MAX_READ_RESPONSES
            || self.read_responses_of(message.peer) >= MAX_READ_RESPONSES_OF_PEER
        {
            return Err(self.refuse(Some(index), Status::RemoteRnr));
        }
        let key = if read_len == 0 { MrKey(0) } else { rkey };
        Ok(self.accept(InboundMessage::rdma(index, Purpose::ReadRequest, piece, key)))
    }

    pub fn answer(&mut self, inbound: &InboundMessage, message: &Incoming) {
        let Op::ReadRequest { read, read_len, .. } = message.op else { return };
        let payload = match read_len {
            0 => M::Payload::empty(),
            _ => self.memory.reference(&inbound.pieces[..1]),
        };
        let (qp, peer, rkey) = (inbound.qp, message.peer, inbound.keys[0]);
        self.read_responses.reserve_first(READ_RESPONSES_AT_ONCE);
        let key = self.read_responses.insert(ReadResponse { qp, peer, rkey, read, payload, doomed: false });
        self.counters.answers_kept += 1;
        let slot = peer.slot as usize;
        if self.read_responses_of.len() <= slot {
            self.read_responses_of.resize(slot + 1, 0);
        }
        self.read_responses_of[slot] += 1;
        self.deferred.push_ready(Deferred::ReadResponse(key));
    }

    /// How many reads of a peer are being answered.
    fn read_responses_of(&self, peer: PeerId) -> u16 {
        self.read_responses_of.get(peer.slot as usize).copied().unwrap_or(0)
    }

    /// An answer is over.
    pub fn take_read_response(&mut self, key: Key) -> Option<ReadResponse<M::Payload>> {
        let answer = self.read_responses.remove(key)?;
        self.counters.answers_kept -= 1;
        // The slot may be another peer's by now; what it counts is of both then, until the old ones are over.
        self.read_responses_of[answer.peer.slot as usize] -= 1;
        Some(answer)
    }

    pub fn send_read_response<T: Transport<M::Payload>>(&mut self, transport: &mut T, key: Key) {
        let Some(answer) = self.read_responses.get(key) else { return };
        let op = Op::ReadResponse { read: answer.read };
        let token = TokenOf::ReadResponse(key).token();
        match transport.send(self.now, answer.peer, token, op, answer.payload.clone()) {
            Ok(()) => {}
            Err(SendError::NoPeer) => {
                // The requester's transport has lost us too, and with it the read.
                self.take_read_response(key);
            }
            Err(SendError::Full | SendError::TooManyPeers) => {
                self.deferred.push_later(self.now + self.config.rnr_wait_max, Deferred::ReadResponse(key));
            }
        }
    }

    pub fn read_response_outcome(&mut self, key: Key, outcome: Result<(), Status>) {
        let Some(answer) = self.take_read_response(key) else { return };
        match outcome {
            Ok(()) => {
                let bytes = answer.payload.len();
                self.counters.rdma_read_resp_bytes += bytes as u64;
                self.qp(answer.qp).attached.completed(Counted::RemoteRead, bytes as u32);
            }
            Err(status @ (Status::Unresponsive | Status::Unreachable)) => {
                // The requester may have heard us all the while, or hear us again, and would wait for ever.
                self.deferred.push_ready(Deferred::FailRead { peer: answer.peer, read: answer.read, status });
            }
            // It does not want it any more, or is another process now.
            Err(_) => {}
        }
    }

    /// Ends the answers that `which` picks; their requesters are told, for they have been promised an answer.
    pub fn end_answers<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        status: Status,
        mut which: impl FnMut(&ReadResponse<M::Payload>) -> bool,
    ) {
        let mut peers = std::mem::take(&mut self.peers);
        let mut ended = Vec::new();
        for (key, answer) in self.read_responses.iter_mut() {
            if which(answer) {
                answer.doomed = true;
                ended.push(key);
                peers.push(answer.peer);
            }
        }
        peers.sort_unstable();
        peers.dedup();
        for &peer in &peers {
            transport.cancel(self.now, peer, &mut |token| match TokenOf::of(token) {
                TokenOf::ReadResponse(key) => {
                    self.read_responses.get(key).is_some_and(|answer| answer.doomed)
                }
                _ => false,
            });
        }
        peers.clear();
        self.peers = peers;
        for key in ended {
            if let Some(answer) = self.take_read_response(key) {
                self.fail_read(transport, answer.peer, answer.read, status);
            }
        }
    }

    pub fn fail_read<T: Transport<M::Payload>>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        read: u32,
        status: Status,
    ) {
        let op = Op::ReadFailed { read, status };
        match transport.send(self.now, peer, TokenOf::Nobody.token(), op, M::Payload::empty()) {
            // Without a context there is nobody who waits.
            Ok(()) | Err(SendError::NoPeer) => {}
            Err(SendError::Full | SendError::TooManyPeers) => {
                let work = Deferred::FailRead { peer, read, status };
                self.deferred.push_later(self.now + self.config.rnr_wait_max, work);
            }
        }
    }
}
