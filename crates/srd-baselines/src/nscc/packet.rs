//! What goes over the wire, and how many bytes of it there are.

use super::wire;
use crate::frame::{Content, DataPacket, ETHERNET_HEADER};
use crate::wire::{Departure, Headers, Protocol, Streams};

/// Bytes of an acknowledgement's frame and of a data frame's headers where a frame costs nothing beside Ethernet's header:
/// as uet-htsim counts (uec.h, `_hdr_size`; uecpacket.h, `ACKSIZE`), so that runs can be compared byte by byte.
pub const HEADERS: u32 = 64;
/// Of them, those of the IP datagram: IP, UDP, and the headers of packet delivery and of the message.
pub const DATAGRAM_HEADERS: u32 = HEADERS - ETHERNET_HEADER;

/// A connection's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Sending host.
    pub host: u32,
    /// Process there.
    pub process: u16,
    /// The connection's place at the sender.
    pub slot: u32,
    /// Number of the connection among all that the sender has begun: places are used again.
    pub serial: u32,
    /// Its place at the receiver, when the sender knows it: [`Label::UNKNOWN`] before.
    pub place: u32,
}

impl Label {
    /// No place.
    pub const UNKNOWN: u32 = u32::MAX;
}

/// A frame's content.
#[derive(Clone, Debug)]
pub enum Packet {
    /// Data.
    Data(Data),
    /// What has come.
    Ack(Ack),
    /// A data packet has come without its payload.
    Nack(Nack),
    /// Asks for an ACK.
    Probe {
        /// Of which connection.
        label: Label,
        /// Number among the connection's probes.
        number: u32,
        /// The path it takes.
        path: u16,
    },
    /// The receiver has granted so many bytes since the connection's beginning.
    Credit {
        /// The connection's place at the sender.
        slot: u32,
        /// The connection.
        serial: u32,
        /// The bytes.
        granted: u64,
    },
    /// The sender wants credit up to there.
    Ask {
        /// Of which connection.
        label: Label,
        /// Bytes since the connection's beginning.
        target: u64,
    },
}

/// A data packet.
#[derive(Clone, Debug)]
pub struct Data {
    /// The connection.
    pub label: Label,
    /// The receiver's inbox that its payload fills, in whatever order.
    pub inbox: u32,
    /// Number of the packet.
    pub psn: u32,
    /// The path it takes.
    pub path: u16,
    /// Bytes of payload.
    pub payload: u16,
    /// It has been sent before.
    pub again: bool,
    /// It wants an ACK at once.
    pub ack_request: bool,
    /// The sender makes something of a NACK.
    pub may_be_trimmed: bool,
    /// Up to where the sender wants credit, in bytes since the connection's beginning.
    pub target: u64,
}

/// An acknowledgement.
#[derive(Clone, Debug)]
pub struct Ack {
    /// The connection's place at the sender.
    pub slot: u32,
    /// The connection.
    pub serial: u32,
    /// Its place at the receiver.
    pub place: u32,
    /// All packets below have come.
    pub cumulative: u32,
    /// The packet that made the receiver answer; a probe's number if `probe`.
    pub of: u32,
    /// That packet had been sent before.
    pub again: bool,
    /// It was a probe.
    pub probe: bool,
    /// That packet's path.
    pub path: u16,
    /// It was marked.
    pub marked: bool,
    /// Packets that have come out of order and wait.
    pub out_of_order: u32,
    /// Bytes on the wire of all packets that have come, each counted once.
    pub received: u64,
    /// Packet that the bitmap's lowest bit stands for.
    pub base: u32,
    /// Packets from `base` on that have come.
    pub bitmap: u64,
}

/// A packet was cut.
#[derive(Clone, Debug)]
pub struct Nack {
    /// The connection's place at the sender.
    pub slot: u32,
    /// The connection.
    pub serial: u32,
    /// The packet.
    pub psn: u32,
    /// It had been sent before.
    pub again: bool,
    /// Its path.
    pub path: u16,
}

impl Content for Packet {
    /// Of data the headers are left. Packets without data are headers already: where there is no room for them, they join
    /// what was cut, as control packets have a queue of their own in UET's fabrics (uet-htsim, compositequeue.cpp).
    fn trim(&mut self) -> Option<u32> {
        match self {
            Packet::Data(data) if !data.may_be_trimmed => None,
            _ => Some(HEADERS),
        }
    }

    fn connection(&self) -> Option<u32> {
        let label = match self {
            Packet::Data(Data { label, .. }) | Packet::Probe { label, .. } | Packet::Ask { label, .. } => label,
            _ => return None,
        };
        let process = label.host << 9 ^ label.process as u32;
        Some(process.wrapping_mul(0x9e37_79b1) ^ label.slot.wrapping_mul(0x85eb_ca6b))
    }

    fn data(&self) -> Option<DataPacket> {
        let Packet::Data(data) = self else { return None };
        let &Data { ref label, inbox, psn, path, payload, .. } = data;
        Some(DataPacket { connection: label.serial, psn, inbox, payload: payload as u32, path })
    }

    fn acknowledges(&self) -> Option<u32> {
        match self {
            Packet::Ack(ack) => Some(ack.serial),
            _ => None,
        }
    }

    fn covers(&self, psn: u32) -> bool {
        let Packet::Ack(ack) = self else { return false };
        let bit = psn.checked_sub(ack.base).filter(|&bit| bit < u64::BITS);
        psn < ack.cumulative
            || bit.is_some_and(|bit| ack.bitmap >> bit & 1 == 1)
            || !ack.probe && psn == ack.of
    }

    fn headers(&self, _: &Departure, _: &mut Streams) -> Option<Headers> {
        Some(Headers { protocol: Protocol::Udp, bytes: wire::header(self) })
    }
}
