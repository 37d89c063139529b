//! Memory of tests: a vector of bytes with addresses of its own. Payloads are copies made when they are referred to, so
//! a test of what is read *when* needs [`crate::HostMemory`].

use crate::api::{Memory, Piece};
use crate::store::Store;
use srd_proto::Payload;
use std::ops::Range;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct VecMemory {
    bytes: Vec<u8>,
}

impl VecMemory {
    /// The address of the first byte. Not zero, so that a forgotten address is found out.
    pub const BASE: u64 = 0x1_0000;

    /// Adds `len` zeroed bytes and returns their address. Allocations do not touch each other.
    pub fn allocate(&mut self, len: usize) -> u64 {
        const GAP: usize = 64;
        let at = self.bytes.len().next_multiple_of(128);
        self.bytes.resize(at + len + GAP, 0);
        VecMemory::BASE + at as u64
    }

    fn range(addr: u64, len: usize) -> Range<usize> {
        let at = addr.checked_sub(VecMemory::BASE).expect("an address of this memory") as usize;
        at..at + len
    }

    /// The bytes at an address.
    ///
    /// # Panics
    /// If they were not allocated.
    pub fn at(&self, addr: u64, len: usize) -> &[u8] {
        &self.bytes[VecMemory::range(addr, len)]
    }

    /// The bytes at an address, to change.
    ///
    /// # Panics
    /// If they were not allocated.
    pub fn at_mut(&mut self, addr: u64, len: usize) -> &mut [u8] {
        &mut self.bytes[VecMemory::range(addr, len)]
    }
}

/// A range of shared bytes.
#[derive(Clone, Debug)]
pub struct VecPayload {
    bytes: Arc<[u8]>,
    range: Range<usize>,
}

impl VecPayload {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl From<&[u8]> for VecPayload {
    fn from(bytes: &[u8]) -> VecPayload {
        VecPayload { bytes: bytes.into(), range: 0..bytes.len() }
    }
}

impl PartialEq for VecPayload {
    fn eq(&self, other: &VecPayload) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Payload for VecPayload {
    fn empty() -> VecPayload {
        VecPayload::from(&[][..])
    }

    fn len(&self) -> usize {
        self.range.len()
    }

    fn slice(&self, offset: usize, len: usize) -> VecPayload {
        assert!(offset + len <= self.len(), "a slice lies within its payload");
        let start = self.range.start + offset;
        VecPayload { bytes: self.bytes.clone(), range: start..start + len }
    }
}

impl Memory for VecMemory {
    type Payload = VecPayload;

    fn reference(&self, pieces: &[Piece]) -> VecPayload {
        let bytes: Vec<u8> = pieces
            .iter()
            .filter(|piece| piece.len > 0)
            .flat_map(|piece| self.at(piece.addr, piece.len as usize).iter().copied())
            .collect();
        VecPayload::from(&bytes[..])
    }

    fn inline(&self, bytes: &[u8]) -> VecPayload {
        VecPayload::from(bytes)
    }

    fn write(&mut self, pieces: &[Piece], skip: usize, payload: &VecPayload) -> bool {
        let mut rest = payload.as_slice();
        let mut skip = skip as u64;
        for piece in pieces {
            let passed = skip.min(piece.len as u64);
            skip -= passed;
            let len = rest.len().min((piece.len as u64 - passed) as usize);
            if len > 0 {
                self.at_mut(piece.addr + passed, len).copy_from_slice(&rest[..len]);
                rest = &rest[len..];
            }
        }
        assert!(rest.is_empty(), "the device has checked that the pieces have room");
        true
    }
}

impl Store for VecMemory {
    fn allocate(&mut self, len: usize) -> Option<u64> {
        Some(VecMemory::allocate(self, len))
    }

    /// Tests end before their memory does.
    fn free(&mut self, _addr: u64, _len: usize) {}

    fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        self.at(addr, len)
    }

    fn bytes_mut(&mut self, addr: u64, len: usize) -> &mut [u8] {
        self.at_mut(addr, len)
    }

    fn copy(&mut self, from: u64, to: u64, len: usize) -> bool {
        if len > 0 {
            let from = VecMemory::range(from, len);
            self.bytes.copy_within(from, VecMemory::range(to, len).start);
        }
        true
    }

    fn update(&mut self, addr: u64, len: usize, change: &mut dyn FnMut(&mut [u8])) -> bool {
        change(self.at_mut(addr, len));
        true
    }
}
