//! What travels: segments with data, and ACKs. Sequence numbers count segments, not bytes: a flow is cut at
//! the same places every time.

use super::wire;
use crate::frame::{Content, DataPacket};
use crate::wire::{Departure, Headers, Protocol, Streams};
use srd_wire::Time;

/// Bytes of IPv4 and TCP headers without options.
pub const IP_TCP: u32 = 40;
/// Bytes of the timestamps option, padded (RFC 7323, appendix A).
pub const TIMESTAMPS: u32 = 12;
/// Ranges that an ACK with timestamps has room for (RFC 2018, section 3).
pub const MOST_BLOCKS: usize = 3;

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Its host.
    pub host: u32,
    /// Its number there.
    pub process: u16,
}

/// A connection, as its sender knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Place among the sender's connections.
    pub slot: u32,
    /// How many the sender had opened before.
    pub serial: u32,
}

/// A segment.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Carries data.
    Data(Data),
    /// Carries none.
    Ack(Ack),
}

/// A segment with data.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Who sends.
    pub from: Address,
    /// On which connection.
    pub connection: Connection,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// Inbox that its message fills.
    pub inbox: u32,
    /// Number of the message's first segment.
    pub first: u64,
    /// Number of the segment on its connection, from 0.
    pub number: u64,
    /// Bytes of the message.
    pub payload: u32,
    /// When it left: the option's TSval.
    pub sent_at: Time,
    /// PSH: the last of a burst, or of a message.
    pub push: bool,
    /// CWR: the sender has reacted to the receiver's ECE.
    pub reduced: bool,
}

/// An ACK.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Of which connection.
    pub connection: Connection,
    /// First segment that is not there.
    pub next: u64,
    /// TSecr.
    pub echo: Time,
    /// Segments from `next` on that there is room for.
    pub window: u32,
    /// ECE.
    pub marked: bool,
    /// Ranges beyond `next` that are there, counted from `next`, the newest first; the first `ranges` are
    /// valid.
    pub blocks: [(u32, u32); MOST_BLOCKS],
    /// How many.
    pub ranges: u8,
    /// A segment that has come twice (RFC 2883).
    pub duplicate: Option<u64>,
}

impl Ack {
    /// Bytes of the IP datagram. Blocks come with four bytes of kind, length and padding.
    pub fn bytes(&self, headers: u32) -> u32 {
        let blocks = self.ranges as u32 + self.duplicate.is_some() as u32;
        headers + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }
}

impl Content for Segment {
    fn trim(&mut self) -> Option<u32> {
        None // a receiver finds the checksum wrong
    }

    fn data(&self) -> Option<DataPacket> {
        let Segment::Data(data) = self else { return None };
        let &Data { connection, number, inbox, payload, .. } = data;
        Some(DataPacket { connection: connection.serial, psn: number as u32, inbox, payload, path: 0 })
    }

    fn acknowledges(&self) -> Option<u32> {
        match self {
            Segment::Data(_) => None,
            Segment::Ack(ack) => Some(ack.connection.serial),
        }
    }

    fn covers(&self, psn: u32) -> bool {
        let Segment::Ack(ack) = self else { return false };
        let beyond = (psn as u64).checked_sub(ack.next);
        beyond.is_none_or(|beyond| {
            let mut blocks = ack.blocks[..ack.ranges as usize].iter();
            blocks.any(|&(begin, end)| (begin as u64..end as u64).contains(&beyond))
        })
    }

    fn headers(&self, leaves: &Departure, streams: &mut Streams) -> Option<Headers> {
        let bytes = match self {
            Segment::Data(data) => wire::data(data, leaves, streams),
            Segment::Ack(ack) => wire::ack(ack, leaves, streams),
        };
        Some(Headers { protocol: Protocol::Tcp, bytes })
    }
}
