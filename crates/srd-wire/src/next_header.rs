//! Packets of one message that follow one another: each begins where the one before it ends, has the next PSN, and says the same in
//! all else. So nothing of them but that is written or read.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use crate::codec::{COMMON_LEN, data_len};
use crate::layout as raw;
use crate::packet::{Body, Packet};
use crate::units::Psn;
use arrayvec::ArrayVec;
use zerocopy::FromBytes;

/// Bytes of the longest header without hello and ACK.
const LONGEST: usize = COMMON_LEN + size_of::<raw::Data>() + size_of::<raw::ReadRequest>();

/// The header of the packet that comes next.
#[derive(Clone, Debug)]
pub struct NextHeader {
    bytes: ArrayVec<u8, LONGEST>,
    psn: Psn,
    offset: u32,
    segment: u16,
    message_len: u32,
}

impl NextHeader {
    /// What follows `packet`, with which `datagram` begins, if that is data with neither hello nor ACK.
    #[inline]
    pub fn after<P>(datagram: &[u8], packet: &Packet<P>) -> Option<NextHeader> {
        let Packet { hello: None, ack: None, body: Body::Data(data), .. } = packet else { return None };
        let header = datagram.get(..COMMON_LEN + data_len(&data.op))?;
        let (fields, _) = raw::Data::ref_from_prefix(header.get(COMMON_LEN..)?).ok()?;
        let segment = fields.seg_len.get();
        let mut bytes = ArrayVec::new();
        bytes.try_extend_from_slice(header).ok()?;
        let mut next =
            NextHeader { bytes, psn: data.psn, offset: data.offset, segment, message_len: data.len };
        next.go_on();
        Some(next)
    }

    /// PSN of the next packet.
    pub fn psn(&self) -> Psn {
        self.psn
    }

    /// Where its payload begins in the message.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Bytes of the header.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of payload behind it.
    pub fn segment(&self) -> u16 {
        self.segment
    }

    /// Writes the header, and goes on to the packet after that.
    ///
    /// # Panics
    ///
    /// If `out` is not of its length.
    #[inline]
    pub fn put(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes);
        self.go_on();
    }

    /// Whether `datagram` is the next packet, all of which has a place in the message. If so, it goes on to the packet after that.
    #[inline]
    pub fn take(&mut self, datagram: &[u8]) -> bool {
        let is_next = datagram.len() == self.bytes.len() + usize::from(self.segment)
            && datagram.starts_with(&self.bytes)
            && u64::from(self.offset) + u64::from(self.segment) <= u64::from(self.message_len);
        if is_next {
            self.go_on();
        }
        is_next
    }

    #[inline]
    fn go_on(&mut self) {
        self.psn = self.psn.plus(1);
        // An offset that does not fit is beyond its message: `take` refuses it before it is looked at again.
        self.offset = self.offset.saturating_add(u32::from(self.segment));
        if let Some((data, _)) =
            self.bytes.get_mut(COMMON_LEN..).and_then(|fields| raw::Data::mut_from_prefix(fields).ok())
        {
            (data.psn, data.offset) = (self.psn.0.into(), self.offset.into());
        }
    }
}
