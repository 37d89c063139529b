//! What is under way: operations of the program, and the pieces of work that they take.

use crate::api::*;
use crate::buffers::Buffer;
use crate::iov::Iovs;
use crate::shared::Shared;
use arrayvec::ArrayVec;
use srd_device::{SendOp, Sge};
use srd_wire::MrKey;

/// What an operation waits for beside its own work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Await {
    Nothing,
    /// The peer says what became of it.
    Answer,
    /// The peer is introduced, or says what is behind a key.
    Peer,
    /// The peer accepts the session.
    Acceptance,
}

/// An operation of the program that takes more than one piece of work, or an answer.
#[derive(Debug)]
pub(crate) struct Op {
    pub peer: u32,
    pub kind: Kind,
    pub context: u64,
    pub report: bool,
    /// Pieces of work that are not done.
    pub parts: u32,
    /// A message by rendezvous: up to where its receiver has it, or has let it come.
    pub granted: Option<u64>,
    /// What it has of the peer's room for operations by message.
    pub asked: u32,
    pub awaits: Await,
    pub failure: Option<Failure>,
    /// The program's memory, or the copy.
    pub local: Iovs,
    /// A copy of what was injected.
    pub copy: Option<Buffer>,
    /// What of it peers may read, for as long as it lasts.
    pub exposed: ArrayVec<MrKey, IOV_LIMIT>,
    /// One-sided operations: what is done where.
    pub remote: ArrayVec<RemoteIov, IOV_LIMIT>,
    /// Reads and writes: what the peer is to hear of it, until that has been sent.
    pub notice: Option<Told>,
    /// The key has been asked for again, since the answer was out of date.
    pub asked_again: bool,
}

impl Op {
    /// An operation of which nothing has been done.
    pub fn new(peer: u32, context: u64, local: Iovs) -> Op {
        Op {
            peer,
            kind: Kind::Read,
            context,
            report: true,
            parts: 0,
            granted: None,
            asked: 0,
            awaits: Await::Nothing,
            failure: None,
            local,
            copy: None,
            exposed: ArrayVec::new(),
            remote: ArrayVec::new(),
            notice: None,
            asked_again: false,
        }
    }
}

/// What a peer hears of what was done to its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Completion data.
    Data(u64),
    /// That it is to be counted.
    Count,
    /// Both.
    CountedData(u64),
    /// That it is to be counted in the region of that piece, too.
    Also(u8),
}

impl Told {
    pub fn data(self) -> Option<u64> {
        match self {
            Told::Data(data) | Told::CountedData(data) => Some(data),
            Told::Count | Told::Also(_) => None,
        }
    }

    pub fn is_counted(self) -> bool {
        !matches!(self, Told::Data(_))
    }

    /// What the peer is to hear, who counts it or does not.
    pub fn new(data: Option<u64>, counted: bool) -> Option<Told> {
        match (data, counted) {
            (Some(data), true) => Some(Told::CountedData(data)),
            (Some(data), false) => Some(Told::Data(data)),
            (None, true) => Some(Told::Count),
            (None, false) => None,
        }
    }
}

/// A piece of work to be given to the device, or a message to a lane.
pub(crate) struct Work {
    pub purpose: Purpose,
    /// A message's header, and whatever of its payload was copied.
    pub buffer: Option<Buffer>,
    pub op: SendOp,
    pub sges: ArrayVec<Sge, 2>,
}

impl Work {
    /// A message: `len` bytes of `buffer`, then `payload`.
    #[inline]
    pub fn message(
        shared: &Shared,
        purpose: Purpose,
        buffer: Buffer,
        len: usize,
        payload: Option<Iov>,
    ) -> Work {
        let lkey = shared.all_memory;
        let mut sges = ArrayVec::new();
        sges.push(Sge { addr: buffer.addr, len: len as u32, lkey });
        if let Some(payload) = payload.filter(|payload| payload.len > 0) {
            sges.push(Sge { addr: payload.addr, len: payload.len as u32, lkey });
        }
        Work { purpose, buffer: Some(buffer), op: SendOp::Send { imm: None }, sges }
    }
}

/// What a piece of work is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Nobody waits for it.
    Control,
    /// A ping.
    Ask,
    /// A whole message that completes with it.
    Eager { context: u64, tagged: bool, report: bool },
    /// A part of an operation of ours.
    Part(u32),
    /// A read for a message of a peer's.
    Pull { incoming: u32, len: u32 },
}

/// Work that the device has, or will get.
#[derive(Debug)]
pub(crate) struct Tx {
    pub peer: u32,
    /// Our session with it at that time.
    pub session: u32,
    /// Its number, if it takes part in the order.
    pub number: Option<u32>,
    pub purpose: Purpose,
    /// Ours to give back when it is done.
    pub buffer: Option<Buffer>,
    pub op: SendOp,
    pub sges: ArrayVec<Sge, 2>,
    /// How often it was given to the device again.
    pub again: u8,
}
