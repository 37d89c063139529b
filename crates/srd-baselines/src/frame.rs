//! What hosts put on a cable, as far as the fabric sees it, and what a recording of it tells.

use crate::wire::{Departure, Headers, Streams};

/// Bytes before an IP datagram on Ethernet: two addresses and the type.
pub const ETHERNET_HEADER: u32 = 14;
/// Shortest Ethernet frame without its check sequence.
pub(crate) const SHORTEST_FRAME: u32 = 60;

/// What a frame carries from one transport to another.
pub trait Content {
    /// Cuts the content down to its headers. Returns the bytes that are left of the frame's, or `None` if the transport
    /// makes nothing of such a frame.
    fn trim(&mut self) -> Option<u32>;

    /// A number that no other connection to the same process is likely to have, where packets of one connection have many
    /// 5-tuples. `None`: the 5-tuple is the connection's.
    fn connection(&self) -> Option<u32> {
        None
    }

    /// For recordings: which packet with data it is. `None`: it has none, or the transport does not tell.
    fn data(&self) -> Option<DataPacket> {
        None
    }

    /// For recordings: the connection of which it says what has come, as its receiver numbers it.
    fn acknowledges(&self) -> Option<u32> {
        None
    }

    /// For recordings: whether it says that packet `psn` of that connection has come.
    fn covers(&self, _psn: u32) -> bool {
        false
    }

    /// For captures: its headers on a real wire. `None`: the transport has none here.
    fn headers(&self, _leaves: &Departure, _streams: &mut Streams) -> Option<Headers> {
        None
    }
}

/// A packet with data, as recordings name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataPacket {
    /// Its connection, as its sender numbers it.
    pub connection: u32,
    /// Its number there: the same each time that it is sent.
    pub psn: u32,
    /// The receiver's inbox that its payload fills.
    pub inbox: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// Its path, for transports that have several.
    pub path: u16,
}

/// What switches look at.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead {
    /// Hash of addresses, ports and protocol: ECMP's input.
    pub tuple_hash: u32,
    /// Destination host.
    pub dst: u32,
    /// Bytes on the wire, everything included.
    pub bytes: u32,
    /// Class, 0 to 7.
    pub class: u8,
    /// Whether the sender understands congestion marks.
    pub ecn_capable: bool,
    /// Whether it carries one.
    pub marked: bool,
    /// Whether a switch has cut it.
    pub trimmed: bool,
    /// Whether it has been damaged on its way.
    pub corrupt: bool,
    /// State of the cable when the frame was put on it; if that has changed, the frame is lost.
    pub epoch: u8,
    /// Process at the destination that it is for.
    pub process: u16,
}
