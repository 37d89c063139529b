//! The 40 bytes in front of a received datagram (UD): an InfiniBand global routing header, which has the layout of an
//! IPv6 header (InfiniBand specification, 8.3).

use srd_wire::Gid;

/// Bytes that a UD receive leaves in front of the data (`struct ibv_grh`).
pub const ROUTING_HEADER_LEN: usize = 40;

/// The header of a datagram with `len` bytes of data.
pub(crate) fn routing_header(from: Gid, to: Gid, len: u32) -> [u8; ROUTING_HEADER_LEN] {
    const VERSION_6: u8 = 6 << 4;
    const NEXT_HEADER_IBA: u8 = 0x1b;
    const HOP_LIMIT: u8 = 64;
    let mut header = [0; ROUTING_HEADER_LEN];
    header[0] = VERSION_6;
    header[4..6].copy_from_slice(&(len.min(u16::MAX as u32) as u16).to_be_bytes());
    header[6] = NEXT_HEADER_IBA;
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&from.0);
    header[24..40].copy_from_slice(&to.0);
    header
}
