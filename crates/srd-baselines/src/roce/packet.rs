//! What crosses the wire, and what it costs there.

use super::wire;
use crate::frame::{Content, DataPacket};
use crate::wire::{Departure, Headers, Protocol, Streams};

/// IPv4's header.
const IP: u32 = 20;
/// UDP's header.
const UDP: u32 = 8;
/// Base transport header (InfiniBand, volume 1, section 9.2).
const BTH: u32 = 12;
/// Check sum over what routers leave alone.
const ICRC: u32 = 4;
/// Extended header with address, key and length (section 9.3.3).
const RETH: u32 = 16;
/// Extended header of an acknowledgement (section 9.3.5).
const AETH: u32 = 4;
/// Reserved bytes of a congestion notification (section A17.9.3 of the RoCEv2 annex).
const CNP_RESERVED: u32 = 16;
/// IRN: the packet that has come out of order, in a NAK (SIGCOMM'18, section 5.2).
const SACK: u32 = 4;

/// UDP port of RoCEv2.
pub(super) const PORT: u16 = 4791;

/// Bytes of a data packet's headers; RETH is not among them.
pub(super) const DATA_HEADERS: u32 = IP + UDP + BTH + ICRC;
/// Bytes of RETH, which the first packet of a message has, and with IRN each.
pub(super) const ADDRESS_HEADER: u32 = RETH;
/// Bytes of a datagram that acknowledges.
pub(super) const ACK: u32 = IP + UDP + BTH + AETH + ICRC;
/// Bytes of a NAK of IRN.
pub(super) const SELECTIVE_NAK: u32 = ACK + SACK;
/// Bytes of a congestion notification.
pub(super) const NOTIFICATION: u32 = IP + UDP + BTH + CNP_RESERVED + ICRC;

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// Its host.
    pub host: u32,
    /// Its number there.
    pub process: u16,
}

/// What a data packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Who sends.
    pub from: Address,
    /// Queue pair there.
    pub qp: u32,
    /// Sequence number.
    pub psn: u64,
    /// Where it belongs.
    pub inbox: u32,
    /// Bytes of payload.
    pub bytes: u16,
    /// Bytes of the message from this packet on: the same if it is the last.
    pub left: u32,
    /// An acknowledgement is asked for.
    pub ack: bool,
}

/// A packet. Sequence numbers have 24 bits on the wire and wrap; here they are wide enough not to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// Part of an RDMA write.
    Write(Segment),
    /// An acknowledgement or its opposite.
    Ack {
        /// The requester's queue pair.
        qp: u32,
        /// All before this one have come.
        psn: u64,
        /// A later one has come before it.
        nak: bool,
        /// Which one that was (IRN).
        sack: Option<u64>,
    },
    /// Congestion notification.
    Notification {
        /// The requester's queue pair.
        qp: u32,
    },
}

impl Content for Packet {
    fn trim(&mut self) -> Option<u32> {
        None // a NIC drops a packet whose check sum is wrong
    }

    fn data(&self) -> Option<DataPacket> {
        let Packet::Write(segment) = self else { return None };
        let &Segment { qp, psn, inbox, bytes, .. } = segment;
        Some(DataPacket { connection: qp, psn: psn as u32, inbox, payload: bytes as u32, path: 0 })
    }

    fn acknowledges(&self) -> Option<u32> {
        match self {
            Packet::Ack { qp, .. } => Some(*qp),
            _ => None,
        }
    }

    fn covers(&self, other: u32) -> bool {
        let other = other as u64;
        matches!(*self, Packet::Ack { psn, sack, .. } if other < psn || sack == Some(other))
    }

    fn headers(&self, leaves: &Departure, _: &mut Streams) -> Option<Headers> {
        Some(Headers { protocol: Protocol::Udp, bytes: wire::transport_header(self, leaves) })
    }
}
