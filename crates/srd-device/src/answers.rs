//! Reads of peers: a request is checked and let in like any message; its answer is a message of ours, which the requester
//! has been promised and so gets, or is told why not.

use crate::api::*;
use crate::memory_region::RemoteAccess;
use crate::responder::{Landing, Purpose};
use crate::slab::Key;
use crate::tables::Tables;
use crate::token::TokenOf;
use crate::transport::Transport;
use crate::work::Work;
use srd_proto::{Cookie, Incoming, Payload, PeerId, SendError};
use srd_wire::{MrKey, Op, Route, Status};

/// Read requests that are rarely under way in greater number.
const ANSWERS_AT_ONCE: usize = 256;

/// The answer to a peer's read, until the peer has all of it.
#[derive(Debug)]
pub(crate) struct Answer<P> {
    /// The queue pair that was spoken to.
    pub qp: u32,
    pub peer: PeerId,
    pub rkey: MrKey,
    /// What the peer calls it.
    pub read: u32,
    payload: P,
    doomed: bool,
}

/// Reads of peers that are answered at once, of all together and of each. Further ones are told to come back, as for a lack
/// of receive buffers: no read fails for that, and one peer leaves room for others. A queue pair of ours has not more.
pub(crate) const MAX_ANSWERS: u32 = 1 << 14;
pub(crate) const MAX_ANSWERS_OF_PEER: u16 = 1 << 12;

impl<M: Memory> Tables<M> {
    pub fn begin_read_request(
        &mut self,
        message: &Incoming,
        route: Route,
        rkey: MrKey,
        addr: u64,
        read_len: u32,
    ) -> Result<Cookie, Status> {
        let index = self.destination(route)?;
        self.check_rdma(message, self.config.rdma_read)?;
        if read_len > self.config.max_rdma {
            return Err(self.refuse(Some(index), Status::RemoteBadLength));
        }
        let pd = self.qp(index).init.pd;
        let Some(piece) = self.regions.remote(pd, rkey, addr, read_len, RemoteAccess::Read) else {
            return Err(self.refuse(Some(index), Status::RemoteBadAddress));
        };
        if self.answers.len() >= MAX_ANSWERS || self.answers_of(message.peer) >= MAX_ANSWERS_OF_PEER {
            return Err(self.refuse(Some(index), Status::RemoteRnr));
        }
        let key = if read_len == 0 { MrKey(0) } else { rkey };
        Ok(self.land(Landing {
            qp: index,
            purpose: Purpose::ReadRequest,
            pieces: [piece, Piece::default()],
            skip: 0,
            keys: [key, MrKey(0)],
        }))
    }

    pub fn answer(&mut self, landing: &Landing, message: &Incoming) {
        let Op::ReadRequest { read, read_len, .. } = message.op else { return };
        let payload = match read_len {
            0 => M::Payload::empty(),
            _ => self.memory.reference(&landing.pieces[..1]),
        };
        let (qp, peer, rkey) = (landing.qp, message.peer, landing.keys[0]);
        self.answers.reserve_first(ANSWERS_AT_ONCE);
        let key = self.answers.insert(Answer { qp, peer, rkey, read, payload, doomed: false });
        self.counters.answers_kept += 1;
        let slot = peer.slot as usize;
        if self.answers_of.len() <= slot {
            self.answers_of.resize(slot + 1, 0);
        }
        self.answers_of[slot] += 1;
        self.work.push_ready(Work::Answer(key));
    }

    /// How many reads of a peer are being answered.
    fn answers_of(&self, peer: PeerId) -> u16 {
        self.answers_of.get(peer.slot as usize).copied().unwrap_or(0)
    }

    /// An answer is over.
    pub fn take_answer(&mut self, key: Key) -> Option<Answer<M::Payload>> {
        let answer = self.answers.remove(key)?;
        self.counters.answers_kept -= 1;
        // The slot may be another peer's by now; what it counts is of both then, until the old ones are over.
        self.answers_of[answer.peer.slot as usize] -= 1;
        Some(answer)
    }

    pub fn send_answer<T: Transport<M::Payload>>(&mut self, transport: &mut T, key: Key) {
        let Some(answer) = self.answers.get(key) else { return };
        let op = Op::ReadResponse { read: answer.read };
        let token = TokenOf::Answer(key).token();
        match transport.send(self.now, answer.peer, token, op, answer.payload.clone()) {
            Ok(()) => {}
            Err(SendError::NoPeer) => {
                // The requester's transport has lost us too, and with it the read.
                self.take_answer(key);
            }
            Err(SendError::Full | SendError::TooManyPeers) => {
                self.work.push_later(self.now + self.config.rnr_wait_max, Work::Answer(key));
            }
        }
    }

    pub fn answer_outcome(&mut self, key: Key, outcome: Result<(), Status>) {
        let Some(answer) = self.take_answer(key) else { return };
        match outcome {
            Ok(()) => self.counters.rdma_read_resp_bytes += answer.payload.len() as u64,
            Err(status @ (Status::Unresponsive | Status::Unreachable)) => {
                // The requester may have heard us all the while, or hear us again, and would wait for ever.
                self.work.push_ready(Work::FailRead { peer: answer.peer, read: answer.read, status });
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
        mut which: impl FnMut(&Answer<M::Payload>) -> bool,
    ) {
        let mut peers = std::mem::take(&mut self.peers);
        let mut ended = Vec::new();
        for (key, answer) in self.answers.iter_mut() {
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
                TokenOf::Answer(key) => self.answers.get(key).is_some_and(|answer| answer.doomed),
                _ => false,
            });
        }
        peers.clear();
        self.peers = peers;
        for key in ended {
            if let Some(answer) = self.take_answer(key) {
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
                let work = Work::FailRead { peer, read, status };
                self.work.push_later(self.now + self.config.rnr_wait_max, work);
            }
        }
    }
}
