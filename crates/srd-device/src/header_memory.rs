//! Memory of a simulated host with a layer above the device: bytes of what that layer writes for its like (headers in front
//! of payload, small messages of its own), nothing but lengths of what is the program's. So a packet costs no copy beyond
//! a header, and a receive buffer as much memory as a header.
//!
//! Of what the device writes into memory of [`Store::allocate`] the first [`HeaderMemory::HEAD`] bytes are kept, if any of
//! them is known; zeros stand for those that are not, and what comes behind stays as it was. The same goes for copies of
//! the program's bytes. Addresses that were not allocated here are the program's.

use crate::api::{Memory, Piece};
use crate::store::Store;
use srd_proto::Payload;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See [`HeaderMemory::HEAD`].
const HEAD: usize = 192;

/// Bytes of an update ([`Store::update`]), at most.
const LONGEST_UPDATE: usize = 32;

/// What memory reads as where nobody has written, as far as anybody may look.
static UNTOUCHED: [u8; 16 << 10] = [0; 16 << 10];

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct HeaderMemory {
    /// Bytes given out so far. No address is given out twice.
    allocated: u64,
    /// What there is of it, by address. They do not overlap.
    stretches: BTreeMap<u64, Vec<u8>>,
}

impl HeaderMemory {
    /// Addresses from here on are memory of [`Store::allocate`]; those below are the program's.
    pub const BASE: u64 = 1 << 48;

    /// Bytes that are carried from the beginning of a message, and kept of what is written.
    pub const HEAD: usize = HEAD;

    /// Bytes that are really held.
    pub fn held(&self) -> usize {
        self.stretches.values().map(Vec::len).sum()
    }

    fn is_own(addr: u64) -> bool {
        addr >= HeaderMemory::BASE
    }

    /// The stretch that holds `addr`, with its own address.
    fn stretch(&self, addr: u64) -> Option<(u64, &Vec<u8>)> {
        let (&start, bytes) = self.stretches.range(..=addr).next_back()?;
        (addr - start < bytes.len() as u64).then_some((start, bytes))
    }

    /// Addresses of the stretches of which some bytes lie in `addr..addr + len`.
    fn overlapping(&self, addr: u64, len: usize) -> Vec<u64> {
        let first = self.stretch(addr).map_or(addr, |(start, _)| start);
        self.stretches.range(first..addr + len as u64).map(|(&start, _)| start).collect()
    }

    /// Makes one stretch of a range and of all that overlaps it, and returns the range.
    fn touch(&mut self, addr: u64, len: usize) -> &mut [u8] {
        assert!(HeaderMemory::is_own(addr), "only what was allocated here has bytes");
        let end = addr + len as u64;
        let holds = |(start, bytes): (u64, &Vec<u8>)| (end <= start + bytes.len() as u64).then_some(start);
        let start = self.stretch(addr).and_then(holds).unwrap_or_else(|| {
            let old: Vec<(u64, Vec<u8>)> = self
                .overlapping(addr, len)
                .into_iter()
                .filter_map(|start| Some((start, self.stretches.remove(&start)?)))
                .collect();
            let start = old.first().map_or(addr, |&(first, _)| first.min(addr));
            let last = old.last().map_or(end, |(last, bytes)| end.max(last + bytes.len() as u64));
            let mut whole = vec![0; (last - start) as usize];
            for (at, bytes) in old {
                whole[(at - start) as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            self.stretches.insert(start, whole);
            start
        });
        let stretch = self.stretches.get_mut(&start).expect("found, or made above");
        &mut stretch[(addr - start) as usize..][..len]
    }

    /// Copies what there is from `addr` on, up to the first byte that is not there. Returns how much.
    fn peek(&self, addr: u64, to: &mut [u8]) -> usize {
        let mut known = 0;
        while known < to.len() {
            let at = addr + known as u64;
            let Some((start, bytes)) = self.stretch(at) else { break };
            let rest = &bytes[(at - start) as usize..];
            let len = rest.len().min(to.len() - known);
            to[known..known + len].copy_from_slice(&rest[..len]);
            known += len;
        }
        known
    }

    /// Something of which nothing is known is written: it must not look like what was there before.
    fn forget(&mut self, addr: u64, len: usize) {
        let end = addr + len.min(HEAD) as u64;
        for start in self.overlapping(addr, len.min(HEAD)) {
            let bytes = self.stretches.get_mut(&start).expect("it was there a moment ago");
            let last = (end - start).min(bytes.len() as u64) as usize;
            bytes[addr.saturating_sub(start) as usize..last].fill(0);
        }
    }

    /// The beginning of something is written: what is known of it, the rest of `len` without content.
    fn write_beginning(&mut self, addr: u64, len: usize, known: &[u8]) {
        let (known_bytes, unknown) = self.touch(addr, len.min(HEAD)).split_at_mut(known.len());
        known_bytes.copy_from_slice(known);
        unknown.fill(0);
    }
}

/// A length, and as many bytes from the beginning as are known; at most [`HeaderMemory::HEAD`].
#[derive(Clone)]
pub struct HeaderPayload {
    len: u32,
    /// Where it begins in `head`, and how much of it lies there.
    start: u8,
    known: u8,
    /// Of the message that it is a part of. `None` if nothing is known.
    head: Option<Arc<[u8; HEAD]>>,
}

impl HeaderPayload {
    /// So many bytes, of which the first are known.
    ///
    /// # Panics
    /// If more than `HEAD` are known, or more than there are.
    fn new(len: u32, known: &[u8]) -> HeaderPayload {
        assert!(known.len() <= len as usize, "what is known is part of it");
        let mut head = [0; HEAD];
        head[..known.len()].copy_from_slice(known);
        let head = (!known.is_empty()).then(|| Arc::new(head));
        HeaderPayload { len, start: 0, known: known.len() as u8, head }
    }

    /// The bytes that are known.
    pub fn known(&self) -> &[u8] {
        let head = self.head.as_deref().map_or(&[][..], |head| head);
        &head[self.start as usize..][..self.known as usize]
    }
}

impl std::fmt::Debug for HeaderPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes: {:02x?}...", self.len, self.known())
    }
}

impl PartialEq for HeaderPayload {
    fn eq(&self, other: &HeaderPayload) -> bool {
        self.len == other.len && self.known() == other.known()
    }
}

impl Payload for HeaderPayload {
    #[inline]
    fn empty() -> HeaderPayload {
        HeaderPayload { len: 0, start: 0, known: 0, head: None }
    }

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn slice(&self, offset: usize, len: usize) -> HeaderPayload {
        debug_assert!(offset + len <= self.len(), "a slice lies within its payload");
        let known = (self.known as usize).saturating_sub(offset).min(len);
        if known == 0 {
            return HeaderPayload { len: len as u32, ..HeaderPayload::empty() };
        }
        let start = self.start + offset as u8;
        HeaderPayload { len: len as u32, start, known: known as u8, head: self.head.clone() }
    }
}

impl Memory for HeaderMemory {
    type Payload = HeaderPayload;

    fn reference(&self, pieces: &[Piece]) -> HeaderPayload {
        let mut head = [0; HEAD];
        let mut known = 0;
        for piece in pieces {
            let len = (piece.len as usize).min(HEAD - known);
            let there = self.peek(piece.addr, &mut head[known..known + len]);
            known += there;
            if there < piece.len as usize {
                break;
            }
        }
        HeaderPayload::new(pieces.iter().map(|piece| piece.len).sum(), &head[..known])
    }

    fn inline(&self, bytes: &[u8]) -> HeaderPayload {
        HeaderPayload::new(bytes.len() as u32, bytes)
    }

    fn write(&mut self, pieces: &[Piece], skip: usize, payload: &HeaderPayload) -> bool {
        let mut rest = payload.clone();
        let mut skip = skip as u64;
        for piece in pieces {
            let passed = skip.min(piece.len as u64);
            skip -= passed;
            let len = rest.len().min((piece.len as u64 - passed) as usize);
            if len > 0 && HeaderMemory::is_own(piece.addr) {
                let (addr, written) = (piece.addr + passed, rest.slice(0, len));
                match written.known() {
                    [] => self.forget(addr, len),
                    known => self.write_beginning(addr, len, known),
                }
            }
            rest = rest.slice(len, rest.len() - len);
        }
        debug_assert!(rest.is_empty(), "the device has checked that the pieces have room");
        true
    }
}

impl Store for HeaderMemory {
    fn allocate(&mut self, len: usize) -> Option<u64> {
        const LINE: u64 = 64; // and a gap, so that no two allocations touch
        let addr = HeaderMemory::BASE + self.allocated;
        self.allocated += (len as u64 + 1).next_multiple_of(LINE);
        Some(addr)
    }

    fn free(&mut self, addr: u64, len: usize) {
        for start in self.overlapping(addr, len) {
            self.stretches.remove(&start);
        }
    }

    /// # Panics
    /// If some of it has been written and some has not: so whoever takes a whole message for its header finds out.
    fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        match self.stretch(addr) {
            Some((start, bytes)) if (addr - start) as usize + len <= bytes.len() => {
                &bytes[(addr - start) as usize..][..len]
            }
            _ if self.overlapping(addr, len).is_empty() => &UNTOUCHED[..len],
            _ => panic!("not all {len} bytes are there: of what arrives only the first {HEAD} are kept"),
        }
    }

    fn bytes_mut(&mut self, addr: u64, len: usize) -> &mut [u8] {
        self.touch(addr, len)
    }

    fn copy(&mut self, from: u64, to: u64, len: usize) -> bool {
        if !HeaderMemory::is_own(to) || len == 0 {
            return true;
        }
        if !HeaderMemory::is_own(from) {
            self.write_beginning(to, len, &[]);
            return true;
        }
        let end = from + len as u64;
        let parts: Vec<(u64, Vec<u8>)> = self
            .overlapping(from, len)
            .into_iter()
            .map(|start| {
                let bytes = &self.stretches[&start];
                let first = start.max(from);
                let last = end.min(start + bytes.len() as u64);
                (to + (first - from), bytes[(first - start) as usize..(last - start) as usize].to_vec())
            })
            .collect();
        for (at, bytes) in parts {
            self.touch(at, bytes.len()).copy_from_slice(&bytes);
        }
        true
    }

    /// What is the program's reads as zeros.
    fn update(&mut self, addr: u64, len: usize, change: &mut dyn FnMut(&mut [u8])) -> bool {
        match HeaderMemory::is_own(addr) {
            true => change(self.touch(addr, len)),
            false => change(&mut [0; LONGEST_UPDATE][..len]),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROGRAM: u64 = 0x7000;

    fn own(memory: &mut HeaderMemory, len: usize) -> u64 {
        memory.allocate(len).unwrap()
    }

    fn piece(addr: u64, len: u32) -> Piece {
        Piece { addr, len }
    }

    fn header(len: usize) -> Vec<u8> {
        (0..len).map(|n| n as u8 ^ 0x5a).collect()
    }

    #[test]
    fn a_header_crosses_in_front_of_payload_that_is_only_a_length() {
        for header_len in [1, 64, 128, HEAD] {
            let (mut here, mut there) = (HeaderMemory::default(), HeaderMemory::default());
            let slot = own(&mut here, 256);
            let buffer = own(&mut there, 9024);
            here.bytes_mut(slot, header_len).copy_from_slice(&header(header_len));
            let message = here.reference(&[piece(slot, header_len as u32), piece(PROGRAM, 8000)]);
            assert_eq!(message.len(), header_len + 8000);
            // The slot is used again, the packets come in the wrong order, and two of them twice.
            here.bytes_mut(slot, header_len).fill(0xff);
            let packets: Vec<usize> = (0..message.len()).step_by(1408).collect();
            for &at in packets.iter().rev().chain(&packets[..2]) {
                let packet = message.slice(at, 1408.min(message.len() - at));
                assert!(at == 0 || packet.known().is_empty());
                there.write(&[piece(buffer, 9024)], at, &packet);
            }
            assert_eq!(there.bytes(buffer, header_len), header(header_len));
            // What is behind it is there up to some length, and has no content.
            assert!(there.bytes(buffer + header_len as u64, HEAD - header_len).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_used_buffer_shows_the_next_message_and_nothing_of_the_last() {
        let mut memory = HeaderMemory::default();
        let buffer = own(&mut memory, 9024);
        let room = [piece(buffer, 9024)];
        memory.write(&room, 0, &HeaderPayload::new(500, &header(150)));
        memory.write(&room, 0, &HeaderPayload::new(100, &header(10)));
        assert_eq!(memory.bytes(buffer, 10), header(10));
        assert_eq!(memory.bytes(buffer + 10, 90), [0; 90]);
        memory.write(&room, 0, &HeaderPayload::new(8000, &[]));
        assert_eq!(memory.bytes(buffer, 100), [0; 100]);
        memory.write(&room, 5, &HeaderPayload::new(8, &header(8)));
        memory.write(&room, 8, &HeaderPayload::new(2, &[]));
        assert_eq!(memory.bytes(buffer + 5, 8), [0x5a, 0x5b, 0x58, 0, 0, 0x5f, 0x5c, 0x5d]);
    }

    #[test]
    fn a_message_is_scattered_over_two_pieces() {
        let mut memory = HeaderMemory::default();
        let (first, second) = (own(&mut memory, 64), own(&mut memory, 64));
        let payload = memory.inline(&header(32));
        memory.write(&[piece(first, 24), piece(second, 64)], 4, &payload);
        assert_eq!(memory.bytes(first + 4, 20), &header(32)[..20]);
        assert_eq!(memory.bytes(second, 12), &header(32)[20..]);
    }

    #[test]
    fn what_is_the_programs_has_no_bytes() {
        let mut memory = HeaderMemory::default();
        let slot = own(&mut memory, 256);
        memory.write(&[piece(PROGRAM, 100)], 0, &HeaderPayload::new(100, &header(50)));
        assert_eq!(memory.reference(&[piece(PROGRAM, 100)]).known(), []);
        memory.bytes_mut(slot, 30).fill(7);
        memory.copy(PROGRAM, slot, 20);
        assert_eq!(memory.bytes(slot, 30), [[0; 20].as_slice(), &[7; 10]].concat());
        memory.copy(slot, PROGRAM, 30);
        memory.update(PROGRAM, 8, &mut |bytes| {
            assert_eq!(bytes, [0; 8]);
            bytes.fill(1);
        });
        memory.update(slot + 20, 8, &mut |bytes| bytes.fill(1));
        assert_eq!(memory.bytes(slot + 18, 12), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 7, 7]);
    }

    #[test]
    fn receive_buffers_cost_what_is_looked_at() {
        let mut memory = HeaderMemory::default();
        let buffers = own(&mut memory, 1024 * 9024);
        assert_eq!(memory.held(), 0);
        for round in 0..3 {
            for buffer in 0..1024 {
                let at = buffers + buffer * 9024;
                memory.write(&[piece(at, 9024)], 0, &HeaderPayload::new(8800, &header(64)));
                assert_eq!(memory.bytes(at, 64), header(64));
            }
            assert_eq!(memory.held(), 1024 * HEAD, "round {round}");
        }
        memory.free(buffers, 1024 * 9024);
        assert_eq!(memory.held(), 0);
        assert_eq!(memory.bytes(buffers, 9024), [0; 9024]);
    }

    #[test]
    #[should_panic(expected = "only the first 192 are kept")]
    fn who_looks_at_payload_finds_out() {
        let mut memory = HeaderMemory::default();
        let buffer = own(&mut memory, 9024);
        memory.write(&[piece(buffer, 9024)], 0, &HeaderPayload::new(8800, &header(64)));
        memory.bytes(buffer, 8800);
    }

    const SPAN: usize = 600;

    proptest! {
        #[test]
        fn bytes_are_those_last_written(
            steps in prop::collection::vec((0usize..SPAN, 0usize..SPAN, 1usize..100, any::<bool>()), 1..40),
        ) {
            // Writes and copies, against one array in which nobody has written yet.
            let mut memory = HeaderMemory::default();
            let base = own(&mut memory, SPAN + 100);
            let mut model = [None; SPAN + 100];
            for (n, (at, from, len, copy)) in steps.into_iter().enumerate() {
                let n = n as u8 + 1;
                if copy {
                    memory.copy(base + from as u64, base + at as u64, len);
                    let source = model[from..from + len].to_vec();
                    for (to, byte) in model[at..].iter_mut().zip(source) {
                        *to = byte.or(*to);
                    }
                } else {
                    memory.bytes_mut(base + at as u64, len).fill(n);
                    model[at..at + len].fill(Some(n));
                    prop_assert_eq!(memory.bytes(base + at as u64, len), vec![n; len]);
                }
            }
            prop_assert_eq!(memory.held(), model.iter().flatten().count());
            // As one payload, of which the beginning is known, and as a whole.
            let expected: Vec<u8> = model.iter().map_while(|&byte| byte).take(HEAD).collect();
            let payload = memory.reference(&[piece(base, 10), piece(base + 10, SPAN as u32)]);
            prop_assert_eq!(payload.known(), expected);
            let whole = model.map(Option::unwrap_or_default);
            prop_assert_eq!(memory.bytes_mut(base, whole.len()), &whole);
        }
    }
}
