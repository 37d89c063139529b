//! The memory of a process, in which every access of the device is judged.
//!
//! Addresses are never used twice within the life of a process, and between buffers nothing is mapped: a read or write
//! of anything that the device has no business with (beside a buffer, after its work completed, after its region was
//! taken away) is a breach, whatever the bytes.

use crate::pattern::Pattern;
use arrayvec::ArrayVec;
use srd_device::{MAX_INLINE, MAX_RECV_SGE, Memory, Piece};
use srd_proto::Payload;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes on their way: named in memory, or held.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// Bytes in the memory of the process, to be read when the packet leaves.
    Named(ArrayVec<Piece, MAX_RECV_SGE>),
    /// Bytes copied when the work was posted.
    Inline(ArrayVec<u8, MAX_INLINE>),
    /// Bytes of a datagram.
    Wire {
        /// The datagram's payload or all of the datagram.
        data: Rc<[u8]>,
        /// Where these bytes begin.
        start: u32,
        /// How many they are.
        len: u32,
    },
}

impl Bytes {
    /// The bytes, if they are not in memory.
    pub fn held(&self) -> &[u8] {
        match self {
            Bytes::Named(_) => &[],
            Bytes::Inline(bytes) => bytes,
            Bytes::Wire { data, start, len } => &data[*start as usize..(*start + *len) as usize],
        }
    }

    /// `bytes` as they arrive.
    pub fn wire(bytes: &[u8]) -> Bytes {
        Bytes::Wire { data: bytes.into(), start: 0, len: bytes.len() as u32 }
    }
}

impl Payload for Bytes {
    fn empty() -> Bytes {
        Bytes::Inline(ArrayVec::new())
    }

    fn len(&self) -> usize {
        match self {
            Bytes::Named(pieces) => pieces.iter().map(|piece| piece.len as usize).sum(),
            Bytes::Inline(bytes) => bytes.len(),
            Bytes::Wire { len, .. } => *len as usize,
        }
    }

    fn slice(&self, offset: usize, len: usize) -> Bytes {
        assert!(offset + len <= self.len(), "slice {offset}+{len} of a payload of {} bytes", self.len());
        match self {
            Bytes::Named(pieces) => Bytes::Named(cut(pieces, offset, len).collect()),
            Bytes::Inline(bytes) => {
                Bytes::Inline(bytes[offset..offset + len].try_into().expect("shorter than inline"))
            }
            Bytes::Wire { data, start, .. } => {
                Bytes::Wire { data: data.clone(), start: start + offset as u32, len: len as u32 }
            }
        }
    }
}

/// The parts of `pieces` that hold `len` bytes from `skip` on.
fn cut(pieces: &[Piece], skip: usize, len: usize) -> impl Iterator<Item = Piece> {
    let (mut skip, mut left) = (skip as u64, len as u64);
    pieces.iter().filter_map(move |piece| {
        let from = skip.min(piece.len as u64);
        skip -= from;
        let n = left.min(piece.len as u64 - from);
        left -= n;
        (n > 0).then_some(Piece { addr: piece.addr + from, len: n as u32 })
    })
}

/// The parts of a range that have been covered.
#[derive(Clone, Default, Debug)]
pub struct Coverage {
    spans: Vec<(u32, u32)>,
}

impl Coverage {
    /// Covers `from..to`; false if some of it was covered before.
    pub fn add(&mut self, from: u32, to: u32) -> bool {
        let at = self.spans.partition_point(|span| span.1 < from);
        let mut merged = (from, to);
        let mut end = at;
        let mut fresh = true;
        while end < self.spans.len() && self.spans[end].0 <= to {
            let span = self.spans[end];
            fresh &= span.1 <= from || span.0 >= to;
            merged = (merged.0.min(span.0), merged.1.max(span.1));
            end += 1;
        }
        self.spans.splice(at..end, [merged]);
        fresh
    }

    /// Whether `0..len` is covered.
    pub fn is_full(&self, len: u32) -> bool {
        len == 0 || self.spans.first().is_some_and(|span| span.0 == 0 && span.1 >= len)
    }
}

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The bytes of a send or a write.
    Source,
    /// Where a read puts what it reads.
    Sink,
    /// Where a receive puts what it receives.
    Receive,
    /// What a peer reads.
    Exposed,
    /// Where a peer writes.
    Target,
}

/// A range of mapped memory.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: u32,
    /// What for.
    pub purpose: Use,
    /// The message or receive it belongs to.
    pub owner: u64,
    /// Which memory region of the process covers it.
    pub region: usize,
    open: bool,
    expect: Option<(Pattern, usize)>,
    written: Coverage,
}

/// See the module.
#[derive(Default, Debug)]
pub struct WorldMemory {
    buffers: BTreeMap<u64, Buffer>,
    /// What the device did that it may not, oldest first.
    pub breaches: Vec<String>,
    /// Bytes mapped now.
    pub mapped: u64,
}

/// What unwritten memory holds.
const POISON: u8 = 0xA5;

impl WorldMemory {
    /// Maps `len` bytes at `addr`. `expect` is what is there (a source) or what alone may be written (a sink, a
    /// target): a message's contents from an offset on.
    pub fn map(
        &mut self,
        addr: u64,
        len: u32,
        purpose: Use,
        owner: u64,
        region: usize,
        expect: Option<(Pattern, usize)>,
    ) {
        // What is only written gets its bytes when it is.
        let mut bytes = Vec::new();
        if let (Use::Source | Use::Exposed, Some((pattern, offset))) = (purpose, expect) {
            bytes.resize(len as usize, POISON);
            pattern.fill(offset, &mut bytes);
        }
        self.mapped += len as u64;
        let written = Coverage::default();
        let buffer = Buffer { bytes, len, purpose, owner, region, open: true, expect, written };
        let before = self.buffers.insert(addr, buffer);
        assert!(before.is_none(), "address given out twice");
    }

    /// The device has no business with the buffer at `addr` any more. Its bytes go; what it was is remembered.
    pub fn close(&mut self, addr: u64) {
        if let Some(buffer) = self.buffers.get_mut(&addr) {
            if buffer.open {
                self.mapped -= buffer.len as u64;
            }
            buffer.open = false;
            buffer.bytes = Vec::new();
        }
    }

    /// Closes every buffer of a memory region that is no more.
    pub fn close_region(&mut self, region: usize) {
        let of_region: Vec<u64> =
            self.buffers.iter().filter(|(_, b)| b.region == region).map(|(&addr, _)| addr).collect();
        of_region.into_iter().for_each(|addr| self.close(addr));
    }

    /// Whether the buffer at `addr` is open.
    pub fn is_open(&self, addr: u64) -> bool {
        self.buffers.get(&addr).is_some_and(|buffer| buffer.open)
    }

    /// Whether all of the buffer at `addr` has been written.
    pub fn is_written(&self, addr: u64) -> bool {
        self.buffers.get(&addr).is_some_and(|buffer| buffer.written.is_full(buffer.len))
    }

    /// The first `len` bytes of a message that lies in `pieces` (buffers or parts of them), for the program to look
    /// at. `None` if it does not lie in open memory.
    pub fn look(&self, pieces: &[Piece], len: usize, out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        for piece in cut(pieces, 0, len) {
            let (base, buffer) = self.find(piece)?;
            let from = (piece.addr - base) as usize;
            match buffer.bytes.get(from..from + piece.len as usize) {
                Some(bytes) => out.extend_from_slice(bytes),
                None if buffer.open => out.resize(out.len() + piece.len as usize, POISON),
                None => return None,
            }
        }
        (out.len() == len).then_some(())
    }

    /// Bytes of a payload at the moment when its packet leaves.
    pub fn resolve(&mut self, payload: &Bytes) -> Bytes {
        let Bytes::Named(pieces) = payload else {
            return Bytes::wire(payload.held());
        };
        if let [piece] = pieces[..]
            && let Some((base, buffer)) = self.find(piece)
            && buffer.open
            && !buffer.bytes.is_empty()
        {
            let from = (piece.addr - base) as usize;
            return Bytes::wire(&buffer.bytes[from..from + piece.len as usize]);
        }
        let mut out = Vec::with_capacity(payload.len());
        for &piece in pieces {
            match self.find(piece) {
                Some((base, buffer)) if buffer.open => {
                    let from = (piece.addr - base) as usize;
                    match buffer.bytes.get(from..from + piece.len as usize) {
                        Some(bytes) => out.extend_from_slice(bytes),
                        None => out.resize(out.len() + piece.len as usize, POISON),
                    }
                }
                found => {
                    let what = describe(found);
                    self.breaches.push(format!("reads {} bytes of {what} at {:#x}", piece.len, piece.addr));
                    out.resize(out.len() + piece.len as usize, POISON);
                }
            }
        }
        Bytes::wire(&out)
    }

    fn find(&self, piece: Piece) -> Option<(u64, &Buffer)> {
        let (&base, buffer) = self.buffers.range(..=piece.addr).next_back()?;
        (piece.addr - base + piece.len as u64 <= buffer.len as u64).then_some((base, buffer))
    }

    fn write_piece(&mut self, piece: Piece, bytes: &[u8]) {
        let refused = match self.find(piece) {
            Some((_, buffer)) if buffer.open && matches!(buffer.purpose, Use::Source | Use::Exposed) => {
                Some(format!("{:?} of {}", buffer.purpose, buffer.owner))
            }
            Some((_, buffer)) if buffer.open => None,
            found => Some(describe(found)),
        };
        if let Some(what) = refused {
            self.breaches.push(format!("writes {} bytes to {what} at {:#x}", piece.len, piece.addr));
            return;
        }
        let (base, _) = self.find(piece).expect("found just now");
        let buffer = self.buffers.get_mut(&base).expect("found just now");
        let from = (piece.addr - base) as usize;
        if buffer.bytes.is_empty() {
            buffer.bytes.resize(buffer.len as usize, POISON);
        }
        buffer.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        let fresh = buffer.written.add(from as u32, (from + bytes.len()) as u32);
        // A receive that was given up in the middle serves another message, so only these are written once.
        if !fresh && matches!(buffer.purpose, Use::Target | Use::Sink) {
            let what = format!("{:?} of {}", buffer.purpose, buffer.owner);
            self.breaches.push(format!("writes {} bytes at {from} of {what} a second time", bytes.len()));
        }
        if let Some(bad) = buffer.expect.and_then(|(pattern, offset)| pattern.mismatch(offset + from, bytes))
        {
            let what = format!("{:?} of {}", buffer.purpose, buffer.owner);
            self.breaches.push(format!("writes wrong bytes to {what}: the first at offset {}", from + bad));
        }
    }
}

fn describe(found: Option<(u64, &Buffer)>) -> String {
    match found {
        None => "unmapped memory".to_string(),
        Some((_, buffer)) => format!("a closed {:?} of {}", buffer.purpose, buffer.owner),
    }
}

impl Memory for WorldMemory {
    type Payload = Bytes;

    fn reference(&self, pieces: &[Piece]) -> Bytes {
        Bytes::Named(pieces.iter().copied().collect())
    }

    fn take(&mut self, referred: &Bytes) -> Option<Bytes> {
        Some(Bytes::wire(self.resolve(referred).held()))
    }

    fn inline(&self, bytes: &[u8]) -> Bytes {
        Bytes::Inline(bytes.try_into().expect("at most MAX_INLINE bytes"))
    }

    fn write(&mut self, pieces: &[Piece], skip: usize, payload: &Bytes) -> bool {
        let copied;
        let bytes = match payload {
            Bytes::Named(_) => {
                copied = self.resolve(payload);
                copied.held()
            }
            held => held.held(),
        };
        let mut at = 0;
        for piece in cut(pieces, skip, bytes.len()) {
            self.write_piece(piece, &bytes[at..at + piece.len as usize]);
            at += piece.len as usize;
        }
        if at < bytes.len() {
            self.breaches.push(format!("writes {} bytes beyond the end of its pieces", bytes.len() - at));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> WorldMemory {
        let mut memory = WorldMemory::default();
        memory.map(1000, 100, Use::Receive, 1, 0, None);
        memory.map(2000, 100, Use::Target, 2, 0, Some((Pattern::of(0, 2), 0)));
        memory
    }

    fn piece(addr: u64, len: u32) -> Piece {
        Piece { addr, len }
    }

    #[test]
    fn a_write_beside_a_buffer_is_a_breach() {
        for (addr, len) in [(995, 10), (1095, 10), (1100, 1), (500, 1)] {
            let mut memory = memory();
            memory.write(&[piece(addr, len)], 0, &Bytes::wire(&vec![0; len as usize]));
            assert_eq!(memory.breaches.len(), 1, "{addr}+{len}");
        }
    }

    #[test]
    fn access_to_a_closed_buffer_is_a_breach() {
        let mut memory = memory();
        memory.close(1000);
        memory.write(&[piece(1000, 1)], 0, &Bytes::wire(&[0]));
        memory.resolve(&Bytes::Named([piece(1000, 5)].into_iter().collect()));
        assert_eq!(memory.breaches.len(), 2);
    }

    #[test]
    fn a_target_takes_its_own_bytes_once() {
        let mut bytes = vec![0; 100];
        Pattern::of(0, 2).fill(0, &mut bytes);
        let mut memory = memory();
        let target = [piece(2000, 100)];
        memory.write(&target, 0, &Bytes::wire(&bytes[..60]));
        assert!(!memory.is_written(2000));
        memory.write(&target, 60, &Bytes::wire(&bytes[60..]));
        assert!(memory.is_written(2000) && memory.breaches.is_empty());
        memory.write(&target, 10, &Bytes::wire(&bytes[10..11]));
        assert_eq!(memory.breaches.len(), 1, "written twice");
        memory.write(&[piece(2000, 100)], 0, &Bytes::wire(&[!bytes[0]]));
        assert_eq!(memory.breaches.len(), 3, "written twice, and wrong");
    }

    #[test]
    fn pieces_are_cut_where_slices_say() {
        let named = Bytes::Named([piece(10, 5), piece(100, 20)].into_iter().collect());
        let Bytes::Named(cut) = named.slice(3, 10) else { panic!() };
        assert_eq!(cut[..], [piece(13, 2), piece(100, 8)]);
        let Bytes::Named(cut) = named.slice(5, 20) else { panic!() };
        assert_eq!(cut[..], [piece(100, 20)]);
    }

    #[test]
    fn coverage_knows_what_is_missing() {
        let mut coverage = Coverage::default();
        assert!(coverage.is_full(0) && !coverage.is_full(1));
        assert!(coverage.add(0, 10) && coverage.add(20, 30));
        assert!(!coverage.is_full(30));
        assert!(coverage.add(10, 20) && coverage.is_full(30));
        assert!(!coverage.add(29, 31) && coverage.is_full(31));
    }
}
