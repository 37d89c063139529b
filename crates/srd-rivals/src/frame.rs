//! What hosts put on a cable, as far as the fabric sees it.

/// Bytes before an IP datagram on Ethernet: two addresses and the type.
pub const ETHERNET_HEADER: u32 = 14;
/// Shortest Ethernet frame without its check sequence.
pub(crate) const SHORTEST_FRAME: u32 = 60;

/// What a frame carries from one transport to another.
pub trait Content {
    /// Cuts the content down to its headers. Returns the bytes that are left of the frame's, or `None` if the transport
    /// makes nothing of such a frame.
    fn trim(&mut self) -> Option<u32>;

    /// Which connection a frame is of, for transports whose connections take many paths at a time: the frame's addresses and
    /// ports are those of a path. `None`: they are those of the connection.
    fn connection(&self) -> Option<u32> {
        None
    }
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
