//! Memory of a simulator: nothing but lengths, so that a simulated packet costs no copy.

use crate::api::{Memory, Piece};
use srd_proto::Payload;

/// See the module. Addresses mean nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct LengthMemory;

/// So many bytes, with no content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Length(pub u32);

impl Payload for Length {
    #[inline]
    fn empty() -> Length {
        Length(0)
    }

    #[inline]
    fn len(&self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn slice(&self, offset: usize, len: usize) -> Length {
        debug_assert!(offset + len <= self.len(), "a slice lies within its payload");
        Length(len as u32)
    }
}

impl Memory for LengthMemory {
    type Payload = Length;

    #[inline]
    fn reference(&self, pieces: &[Piece]) -> Length {
        Length(pieces.iter().map(|piece| piece.len).sum())
    }

    #[inline]
    fn inline(&self, bytes: &[u8]) -> Length {
        Length(bytes.len() as u32)
    }

    #[inline]
    fn write(&mut self, pieces: &[Piece], skip: usize, payload: &Length) -> bool {
        debug_assert!(
            skip + payload.len() <= pieces.iter().map(|piece| piece.len as usize).sum(),
            "the device has checked that the pieces have room"
        );
        true
    }
}
