//! What peers have under way here: messages of which not everything has come, and answers that they have not got yet.

use crate::api::*;
use crate::receive_queue::Receive;
use crate::slab::Key;
use srd_proto::PeerId;
use srd_wire::{MrKey, Status};

/// An incoming message between its first segment and its last.
#[derive(Debug)]
pub(crate) struct InboundMessage {
    /// The queue pair's slot.
    pub qp: u32,
    pub purpose: Purpose,
    /// Where it goes.
    pub pieces: [Piece; MAX_RECV_SGE],
    /// Bytes of the pieces to leave free in front.
    pub skip: u32,
    /// Nothing of it has come; if its first bytes are the first to come they are told of ([`crate::Device::tell_begun`]).
    pub tells: bool,
    /// Keys of the memory in use; 0 is none.
    pub keys: [MrKey; MAX_RECV_SGE],
}

impl InboundMessage {
    /// For RDMA, which has one piece of memory.
    pub fn rdma(qp: u32, purpose: Purpose, piece: Piece, key: MrKey) -> InboundMessage {
        let mut pieces = [Piece::default(); MAX_RECV_SGE];
        pieces[0] = piece;
        let mut keys = [MrKey(0); MAX_RECV_SGE];
        keys[0] = key;
        InboundMessage { qp, purpose, pieces, skip: 0, tells: false, keys }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A send, into a receive buffer.
    Receive(Receive),
    /// An RDMA write; with immediate data also a receive, unless the queue pair takes them unsolicited.
    Write(Option<Receive>),
    /// The request of a read.
    ReadRequest,
    /// Data of a read of ours.
    ReadData(Key),
    /// What it was for has gone since; its bytes are dropped.
    Dead(Status),
}

/// The answer to a peer's read, until the peer has all of it.
#[derive(Debug)]
pub(crate) struct ReadResponse<P> {
    /// The queue pair that was spoken to.
    pub qp: u32,
    pub peer: PeerId,
    pub rkey: MrKey,
    /// What the peer calls it.
    pub read: u32,
    pub payload: P,
    pub doomed: bool,
}
