//! The process's own memory. The only module of this crate that touches raw addresses.
#![allow(unsafe_code)]

use crate::accelerator::is_marked;
use crate::api::{MAX_INLINE, MAX_SEND_SGE, Memory, Piece};
use crate::store::Store;
use arrayvec::ArrayVec;
use srd_proto::Payload;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Says whether a range (address, length) can be written.
pub type Check = fn(usize, usize) -> bool;

/// Copies the bytes of the pieces, together as long as the second argument; false if any of them is not there.
pub type Read = fn(&[Piece], &mut [u8]) -> bool;

/// Copies so many bytes from the first address to the second, of which one or both are an accelerator's (see
/// [`crate::accelerator`]); false if it cannot.
pub type Copies = fn(u64, u64, usize) -> bool;

/// The smallest page that any machine has.
const PAGE: u64 = 4096;

/// So much is looked at together at least, however little has come at once.
const LEAST_AHEAD: u64 = 16 << 10;

/// Ranges that are remembered: so many messages may come at the same time before they cost each other looks.
const REMEMBERED: usize = 8;

/// The process's own memory: the device reads and writes at the addresses that were registered with it.
#[derive(Debug)]
pub struct HostMemory {
    check: Option<Check>,
    read: Option<Read>,
    copies: Option<Copies>,
    /// See [`Memory::take`]: by their addresses.
    taken: HashMap<u64, Box<[u8]>>,
    /// What was found to be there since [`HostMemory::forget_checks`].
    there: [Range<u64>; REMEMBERED],
    /// Which of them was found last; [`REMEMBERED`] if there are none.
    newest: usize,
    /// How many bytes come together.
    together: u64,
}

impl HostMemory {
    /// Whether an aligned block of 128 bytes within one packet of an RDMA write is written once and from its first byte to
    /// its last, so that who sees its end sees all of it (`ibv_query_qp_data_in_order(3)`,
    /// `IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES`).
    /// x86-64 keeps the order of stores (Intel SDM volume 3, 9.2.2); other machines would need a barrier after each.
    pub const WRITES_IN_ORDER: bool = cfg!(target_arch = "x86_64");

    /// # Safety
    ///
    /// The caller promises, for the device that owns this memory:
    /// - a range given to `reg_mr` as `addr` and `len` is mapped for reading, and if it is registered with
    ///   `local_write` or `remote_write` for writing, from that call until `dereg_mr` of its key returns;
    /// - no Rust reference to bytes of the range is alive when the device writes there (receives, reads' sinks, peers'
    ///   writes), and none that permits writing when it reads (sends, peers' reads). Memory that a foreign program
    ///   shares with its network card is of this kind.
    pub unsafe fn new() -> HostMemory {
        HostMemory {
            check: None,
            read: None,
            copies: None,
            taken: HashMap::new(),
            there: [const { 0..0 }; REMEMBERED],
            newest: REMEMBERED,
            together: 0,
        }
    }

    /// Has `check` look before anything is written on behalf of a peer, as far as the program may have unmapped the
    /// memory since: its registrations are then no promise that it is still there.
    pub fn checked_by(self, check: Check) -> HostMemory {
        HostMemory { check: Some(check), ..self }
    }

    /// Has `read` copy what is taken from the program, for the same reason.
    pub fn read_by(self, read: Read) -> HostMemory {
        HostMemory { read: Some(read), ..self }
    }

    /// Has `copies` copy to and from the memory of accelerators; without it there is none.
    pub fn copied_by(self, copies: Copies) -> HostMemory {
        HostMemory { copies: Some(copies), ..self }
    }

    #[cold]
    fn copy_by_driver(&self, from: u64, to: u64, len: usize) -> bool {
        len == 0 || self.copies.is_some_and(|copies| copies(from, to, len))
    }

    /// From now on everything is looked at again: the program may have unmapped memory.
    #[inline]
    pub fn forget_checks(&mut self) {
        if self.newest < REMEMBERED {
            self.there.fill(0..0);
            self.newest = REMEMBERED;
        }
    }

    /// So many bytes have come together, headers included: most often they go to one place, which is then looked at once for all of them.
    #[inline]
    pub fn expect(&mut self, bytes: usize) {
        self.together = bytes as u64;
    }

    /// Whether `target` can be written, which lies in a region that ends at `end`.
    #[inline]
    fn is_there(&mut self, check: Check, end: u64, target: &Range<u64>) -> bool {
        self.there.iter().any(|there| there.start <= target.start && target.end <= there.end)
            || self.look(check, end, target)
    }

    fn look(&mut self, check: Check, end: u64, target: &Range<u64>) -> bool {
        // What is true of a byte is true of its page.
        // The last page of the address space is nobody's, though a program may have registered "all memory".
        let Some(least) = target.end.checked_next_multiple_of(PAGE) else { return false };
        let start = target.start - target.start % PAGE;
        let ahead = target.start.saturating_add(self.together.max(LEAST_AHEAD)).min(end);
        let ahead = ahead.checked_next_multiple_of(PAGE).unwrap_or(least);
        let there = |to: u64| check(start as usize, (to - start) as usize);
        let end = if ahead > least && there(ahead) {
            ahead
        } else if there(least) {
            least
        } else {
            return false;
        };
        self.newest = (self.newest + 1) % REMEMBERED;
        self.there[self.newest] = start..end;
        true
    }
}

/// A reference to bytes in this process: registered memory by address, a slice of a receive buffer, or a few bytes of
/// its own. Plain data; whoever reads through it answers for the memory being there.
#[derive(Clone, Copy)]
pub struct HostPayload {
    len: u32,
    /// Inline: bytes to skip.
    start: u8,
    bytes: Bytes,
}

#[derive(Clone, Copy)]
enum Bytes {
    At([Piece; MAX_SEND_SGE]),
    Inline([u8; MAX_INLINE]),
}

impl HostPayload {
    /// A reference to bytes that have arrived in a packet, to be handed to `handle_packet`.
    ///
    /// # Safety
    ///
    /// The payload, and whatever is sliced from it, must not be read after `bytes` has ended. The device reads it
    /// during `handle_packet` only and keeps nothing of it.
    #[inline]
    pub unsafe fn borrowed(bytes: &[u8]) -> HostPayload {
        let piece = Piece { addr: bytes.as_ptr() as u64, len: bytes.len() as u32 };
        HostPayload { len: piece.len, start: 0, bytes: Bytes::At([piece, Piece::default()]) }
    }

    fn at(given: &[Piece]) -> HostPayload {
        let mut pieces = [Piece::default(); MAX_SEND_SGE];
        pieces[..given.len()].copy_from_slice(given);
        HostPayload { len: given.iter().map(|piece| piece.len).sum(), start: 0, bytes: Bytes::At(pieces) }
    }

    fn own(given: &[u8]) -> HostPayload {
        let mut bytes = [0; MAX_INLINE];
        bytes[..given.len()].copy_from_slice(given);
        HostPayload { len: given.len() as u32, start: 0, bytes: Bytes::Inline(bytes) }
    }

    /// Whether some of the bytes are an accelerator's: then they can be taken by its driver only.
    #[inline]
    pub fn is_accelerators(&self) -> bool {
        matches!(self.bytes, Bytes::At([first, second]) if is_marked(first.addr | second.addr))
    }

    /// Where the bytes lie, in order, as an `iovec` wants it: at most two ranges, none of them empty. A range may lie in
    /// `self`, so the pointers are good as long as `self` is borrowed and the memory behind it is there.
    #[inline]
    pub fn ranges(&self) -> impl Iterator<Item = (*const u8, usize)> + use<> {
        let ranges = match &self.bytes {
            Bytes::At(pieces) => pieces.map(|piece| (piece.addr as *const u8, piece.len as usize)),
            Bytes::Inline(bytes) => {
                let own = &bytes[self.start as usize..][..self.len as usize];
                [(own.as_ptr(), own.len()), (std::ptr::null(), 0)]
            }
        };
        ranges.into_iter().filter(|&(_, len)| len > 0)
    }

    /// The bytes, in order, in at most two slices.
    ///
    /// # Safety
    ///
    /// The memory behind the payload is there and nobody writes to it while the slices live: for a payload from
    /// `poll_transmit`, the promise of [`HostMemory::new`] until the next call of the device; for one made by
    /// [`HostPayload::borrowed`], as long as its bytes live.
    #[inline]
    pub unsafe fn slices(&self) -> ArrayVec<&[u8], MAX_SEND_SGE> {
        // SAFETY: the caller promises that the ranges are readable and unchanging while `self` is borrowed.
        self.ranges().map(|(at, len)| unsafe { std::slice::from_raw_parts(at, len) }).collect()
    }

    /// Copies the bytes out.
    ///
    /// # Safety
    ///
    /// As for [`HostPayload::slices`], for the time of the call.
    ///
    /// # Panics
    /// If `to` is not as long as the payload.
    #[inline]
    pub unsafe fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len(), "a payload is copied whole");
        let mut done = 0;
        for (at, len) in self.ranges() {
            let target = &mut to[done..done + len];
            // SAFETY: the caller promises that `at` is readable for `len` bytes; `target` is as long and, being a
            // unique reference, does not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(at, target.as_mut_ptr(), len) };
            done += len;
        }
    }
}

impl std::fmt::Debug for HostPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.bytes {
            Bytes::At(_) => "at",
            Bytes::Inline(_) => "inline",
        };
        write!(f, "HostPayload({} bytes {kind})", self.len)
    }
}

impl Payload for HostPayload {
    fn empty() -> HostPayload {
        HostPayload::at(&[])
    }

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn slice(&self, offset: usize, len: usize) -> HostPayload {
        assert!(offset + len <= self.len as usize, "a slice lies within its payload");
        let (offset, len) = (offset as u32, len as u32);
        match self.bytes {
            Bytes::Inline(_) => HostPayload { len, start: self.start + offset as u8, bytes: self.bytes },
            Bytes::At([first, second]) => {
                let skip = offset.min(first.len);
                let head = Piece { addr: first.addr + skip as u64, len: len.min(first.len - skip) };
                let tail = Piece { addr: second.addr + (offset - skip) as u64, len: len - head.len };
                HostPayload { len, start: 0, bytes: Bytes::At([head, tail]) }
            }
        }
    }
}

impl Memory for HostMemory {
    type Payload = HostPayload;

    #[inline]
    fn reference(&self, pieces: &[Piece]) -> HostPayload {
        HostPayload::at(pieces)
    }

    fn take(&mut self, referred: &HostPayload) -> Option<HostPayload> {
        let Bytes::At(pieces) = &referred.bytes else { return Some(*referred) };
        let mut bytes = vec![0; referred.len()].into_boxed_slice();
        match self.read {
            Some(read) => read(pieces, &mut bytes).then_some(())?,
            // SAFETY: the device has checked that the pieces lie in registered regions, which are there by the promise of `new`.
            None => unsafe { referred.copy_to(&mut bytes) },
        }
        let piece = Piece { addr: bytes.as_ptr() as u64, len: bytes.len() as u32 };
        self.taken.insert(piece.addr, bytes);
        Some(HostPayload::at(&[piece]))
    }

    fn give_back(&mut self, taken: HostPayload) {
        if let Bytes::At([first, _]) = taken.bytes {
            self.taken.remove(&first.addr);
        }
    }

    #[inline]
    fn inline(&self, bytes: &[u8]) -> HostPayload {
        HostPayload::own(bytes)
    }

    #[inline]
    fn write(&mut self, pieces: &[Piece], skip: usize, payload: &HostPayload) -> bool {
        scatter(payload, pieces, skip, |from, to, len| {
            if is_marked(from as u64 | to as u64) {
                return self.copy_by_driver(from as u64, to as u64, len);
            }
            // SAFETY: `scatter` gives what is readable and writable, and overlap is allowed for.
            unsafe { std::ptr::copy(from, to, len) };
            true
        })
    }

    #[inline]
    fn write_if_there(
        &mut self,
        region: Range<u64>,
        piece: Piece,
        skip: usize,
        payload: &HostPayload,
        in_order: bool,
    ) -> bool {
        let start = piece.addr + skip as u64;
        if is_marked(start) {
            return self.write(&[piece], skip, payload);
        }
        let target = start..start + payload.len() as u64;
        if !self.check.is_none_or(|check| self.is_there(check, region.end, &target)) {
            return false;
        }
        if in_order {
            scatter(payload, &[piece], skip, |from, to, len| {
                // SAFETY: as in `write`.
                unsafe { copy_in_order(from, to, len) };
                true
            })
        } else {
            self.write(&[piece], skip, payload)
        }
    }
}

/// Gives `copy` each range of bytes of the payload, and where it goes: the pieces, from `skip` bytes into them. True if it says so each
/// time.
#[inline]
fn scatter(
    payload: &HostPayload,
    mut pieces: &[Piece],
    skip: usize,
    copy: impl Fn(*const u8, *mut u8, usize) -> bool,
) -> bool {
    let mut skip = skip as u64;
    while let [first, rest @ ..] = pieces
        && skip >= u64::from(first.len)
    {
        (skip, pieces) = (skip - u64::from(first.len), rest);
    }
    // `to` lies in a region that the device has checked for writing, which the caller of `HostMemory::new` promised is
    // mapped and not referred to; `from` is readable by the promise of `borrowed`, or is a registered region or the
    // payload's own bytes. If both are one region (a message to oneself), neither is a reference, and they may overlap.
    match (&payload.bytes, pieces) {
        (Bytes::At([from, Piece { len: 0, .. }]), [to, ..])
            if skip + u64::from(from.len) <= u64::from(to.len) =>
        {
            copy(from.addr as *const u8, (to.addr + skip) as *mut u8, from.len as usize)
        }
        _ => scatter_in_parts(payload, pieces, skip, copy),
    }
}

/// As [`scatter`], where more than one range is copied, or to more than one piece.
fn scatter_in_parts(
    payload: &HostPayload,
    pieces: &[Piece],
    mut skip: u64,
    copy: impl Fn(*const u8, *mut u8, usize) -> bool,
) -> bool {
    let mut source = payload.ranges();
    let (mut from, mut left) = source.next().unwrap_or((std::ptr::null(), 0));
    let mut all = true;
    for piece in pieces {
        let (mut to, mut room) = (piece.addr + skip, (u64::from(piece.len) - skip) as usize);
        skip = 0;
        while room > 0 && left > 0 {
            let len = room.min(left);
            all &= copy(from, to as *mut u8, len);
            (to, room) = (to + len as u64, room - len);
            (from, left) = (from.wrapping_add(len), left - len);
            if left == 0 {
                (from, left) = source.next().unwrap_or((std::ptr::null(), 0));
            }
        }
    }
    assert_eq!(left, 0, "the device has checked that the pieces have room");
    all
}

/// Updates of values that no instruction changes at once.
static UPDATES: Mutex<()> = Mutex::new(());

/// A cache line.
const LINE: usize = 64;

fn own_layout(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len.max(1), LINE).expect("no length is that large")
}

impl Store for HostMemory {
    fn allocate(&mut self, len: usize) -> Option<u64> {
        // SAFETY: the layout has a size.
        let at = unsafe { std::alloc::alloc(own_layout(len)) };
        (!at.is_null()).then_some(at as u64)
    }

    fn free(&mut self, addr: u64, len: usize) {
        // SAFETY: `allocate` gave it with this layout, says the caller, whose promise to the device (`new`) covers its own
        // buffers too.
        unsafe { std::alloc::dealloc(addr as *mut u8, own_layout(len)) };
    }

    #[inline]
    fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        // SAFETY: `allocate` gave it, says the caller, and the device does not write it now.
        unsafe { std::slice::from_raw_parts(addr as *const u8, len) }
    }

    #[inline]
    fn bytes_mut(&mut self, addr: u64, len: usize) -> &mut [u8] {
        // SAFETY: as for `bytes`, and nobody else refers to it while this memory is borrowed.
        unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, len) }
    }

    #[inline]
    fn copy(&mut self, from: u64, to: u64, len: usize) -> bool {
        if is_marked(from | to) {
            return self.copy_by_driver(from, to, len);
        }
        // SAFETY: buffers of the caller's, or registered or posted by the program, which by the promise of `new` are there.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
        true
    }

    #[inline]
    fn is_accelerators(&self, addr: u64) -> bool {
        is_marked(addr)
    }

    fn is_there(&mut self, range: Range<u64>, write: bool) -> bool {
        let Some(check) = self.check else { return true };
        // Looking is the same for both: what cannot be written may not be read either.
        let _ = write;
        // Whether an accelerator's memory is there is found out by the copy.
        range.is_empty() || is_marked(range.start) || self.is_there(check, range.end, &range)
    }

    fn update(&mut self, addr: u64, len: usize, change: &mut dyn FnMut(&mut [u8])) -> bool {
        match len {
            _ if is_marked(addr) => {
                let _turn = UPDATES.lock().unwrap_or_else(PoisonError::into_inner);
                let mut bytes = [0; 32];
                let own = bytes.as_mut_ptr() as u64;
                if !self.copy_by_driver(addr, own, len) {
                    return false;
                }
                change(&mut bytes[..len]);
                return self.copy_by_driver(own, addr, len);
            }
            4 if addr.is_multiple_of(4) => {
                // SAFETY: the value is there by the promise of `new`, and aligned.
                let value = unsafe { AtomicU32::from_ptr(addr as *mut u32) };
                let _ = value.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
                    let mut bytes = old.to_ne_bytes();
                    change(&mut bytes);
                    Some(u32::from_ne_bytes(bytes))
                });
            }
            8 if addr.is_multiple_of(8) => {
                // SAFETY: as above.
                let value = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
                let _ = value.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
                    let mut bytes = old.to_ne_bytes();
                    change(&mut bytes);
                    Some(u64::from_ne_bytes(bytes))
                });
            }
            _ => {
                let _turn = UPDATES.lock().unwrap_or_else(PoisonError::into_inner);
                let mut bytes = [0; 32];
                let bytes = &mut bytes[..len];
                // SAFETY: the value is there by the promise of `new`; the copy is our own.
                unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, bytes.as_mut_ptr(), len) };
                change(bytes);
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, len) };
            }
        }
        true
    }
}

/// Copies so that every byte is written once, from the first to the last; see [`HostMemory::WRITES_IN_ORDER`].
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_in_order(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_store_si128};
    use std::sync::atomic::{Ordering, compiler_fence};
    const WORD: usize = size_of::<__m128i>();
    // So many words are read before the first of them is written: each by itself takes almost twice the time.
    const WORDS: usize = 4;

    let mut done = 0;
    let byte = |at: usize| {
        // SAFETY: `at` is below `len`. Volatile stores keep their order and number.
        unsafe { to.add(at).write_volatile(from.add(at).read()) }
    };
    while done < len && !(to.addr() + done).is_multiple_of(WORD) {
        byte(done);
        done += 1;
    }
    while len - done >= WORDS * WORD {
        // SAFETY: there are so many words more, and `to` is aligned since the loop before.
        unsafe {
            let (from, to) = (from.add(done).cast::<__m128i>(), to.add(done).cast::<__m128i>());
            let first = _mm_loadu_si128(from);
            let second = _mm_loadu_si128(from.add(1));
            let third = _mm_loadu_si128(from.add(2));
            let fourth = _mm_loadu_si128(from.add(3));
            // The processor keeps the order of stores; the fences make the compiler keep it.
            _mm_store_si128(to, first);
            compiler_fence(Ordering::SeqCst);
            _mm_store_si128(to.add(1), second);
            compiler_fence(Ordering::SeqCst);
            _mm_store_si128(to.add(2), third);
            compiler_fence(Ordering::SeqCst);
            _mm_store_si128(to.add(3), fourth);
            compiler_fence(Ordering::SeqCst);
        }
        done += WORDS * WORD;
    }
    while len - done >= WORD {
        // SAFETY: likewise.
        unsafe { _mm_store_si128(to.add(done).cast(), _mm_loadu_si128(from.add(done).cast())) };
        compiler_fence(Ordering::SeqCst);
        done += WORD;
    }
    while done < len {
        byte(done);
        done += 1;
    }
}

/// Copies; other machines do not keep the order of stores.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn copy_in_order(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as promised by the caller.
    unsafe { std::ptr::copy(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(payload: &HostPayload) -> Vec<u8> {
        let mut bytes = vec![0; payload.len()];
        // SAFETY: the tests keep the memory alive and unchanged.
        unsafe { payload.copy_to(&mut bytes) };
        // SAFETY: as above.
        assert_eq!(unsafe { payload.slices() }.concat(), bytes);
        bytes
    }

    fn memory() -> HostMemory {
        // SAFETY: the tests hand in their own live buffers only.
        unsafe { HostMemory::new() }
    }

    fn piece(bytes: &mut [u8]) -> Piece {
        Piece { addr: bytes.as_mut_ptr() as u64, len: bytes.len() as u32 }
    }

    #[test]
    fn inline_bytes_are_the_payloads_own() {
        let mut bytes = *b"hello world";
        let payload = memory().inline(&bytes);
        bytes.fill(0);
        assert_eq!(read(&payload), b"hello world");
        assert_eq!(read(&payload.slice(6, 5).slice(1, 3)), b"orl");
        assert!(read(&HostPayload::empty()).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_was_referred_to(
            cut in 0usize..300, len in 0usize..300, offset in 0usize..300, part in 0usize..300,
            room in 0usize..400, skip in 0usize..64, shift in 0usize..32,
        ) {
            let mut source: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
            let expected = source.clone();
            let cut = cut.min(len);
            let (a, b) = source.split_at_mut(cut);
            let payload = memory().reference(&[piece(a), piece(b)]);
            let offset = offset.min(len);
            let part = part.min(len - offset);
            let payload = payload.slice(offset, part);
            prop_assert_eq!(read(&payload), &expected[offset..offset + part]);

            // Into two pieces that together are just long enough, at an odd address.
            let total = skip + part;
            let first = room.min(total);
            let mut target = vec![0xAA; total + shift];
            let mut second = vec![0xAA; total];
            let (a, b) = (&mut target[shift..shift + first], &mut second[..total - first]);
            let pieces = [piece(a), piece(b)];
            memory().write(&pieces, skip, &payload);
            let got = [&target[shift..shift + first], &second[..total - first]].concat();
            prop_assert!(got[..skip].iter().all(|&byte| byte == 0xAA));
            prop_assert_eq!(&got[skip..], &expected[offset..offset + part]);
            prop_assert!(target[..shift].iter().chain(&target[shift + first..]).all(|&byte| byte == 0xAA));

            // In order, it is the same.
            let mut third = vec![0xAA; total + shift];
            let there = piece(&mut third[shift..]);
            let region = there.addr..there.addr + total as u64;
            prop_assert!(memory().write_if_there(region, there, skip, &payload, true));
            prop_assert!(third[..shift + skip].iter().all(|&byte| byte == 0xAA));
            prop_assert_eq!(&third[shift + skip..], &expected[offset..offset + part]);
        }
    }

    #[test]
    fn nothing_is_written_where_the_check_says_no() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        static END: AtomicUsize = AtomicUsize::new(0);
        let check: Check = |addr, len| {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            addr + len <= END.load(Ordering::Relaxed)
        };
        let layout = std::alloc::Layout::from_size_align(200_000, PAGE as usize).expect("a layout");
        // SAFETY: of a size that is not zero; freed below.
        let addr = unsafe { std::alloc::alloc_zeroed(layout) };
        let region = addr as u64..addr as u64 + 200_000;
        let message = Piece { addr: addr as u64, len: 200_000 };
        let mut source = vec![1u8; 1000];
        let mut memory = memory().checked_by(check);
        let payload = memory.reference(&[piece(&mut source)]);
        let write = |memory: &mut HostMemory, offset| {
            let before = LOOKS.load(Ordering::Relaxed);
            let there = memory.write_if_there(region.clone(), message, offset, &payload, true);
            (there, LOOKS.load(Ordering::Relaxed) - before)
        };
        END.store(addr as usize + 150_000, Ordering::Relaxed);
        // A page is looked at once, until the looks are forgotten, with some that follow.
        let looks = (0..40_000).step_by(1000).map(|offset| {
            let (there, looks) = write(&mut memory, offset);
            assert!(there);
            looks
        });
        assert_eq!(looks.sum::<usize>(), 3);
        assert_eq!(write(&mut memory, 0), (true, 0));
        memory.forget_checks();
        assert_eq!(write(&mut memory, 0), (true, 1));
        // What comes together is looked at together.
        memory.forget_checks();
        memory.expect(40_000);
        assert_eq!(write(&mut memory, 40_000), (true, 1));
        assert_eq!(write(&mut memory, 79_000), (true, 0));
        // Where not all of that is there, each page is looked at by itself.
        assert_eq!(write(&mut memory, 120_000), (true, 2));
        assert_eq!(write(&mut memory, 148_000), (false, 2));
        assert_eq!(write(&mut memory, 198_000), (false, 1));
        // SAFETY: allocated above with the same layout, and written before that.
        let written: Vec<usize> = (0..200_000).filter(|&at| unsafe { addr.add(at).read() } != 0).collect();
        let expected: Vec<usize> =
            [0..41_000, 79_000..80_000, 120_000..121_000].into_iter().flatten().collect();
        assert_eq!(written, expected);
        // SAFETY: as above.
        unsafe { std::alloc::dealloc(addr, layout) };
    }

    /// A program may register all memory, and a peer then names any byte of it.
    #[test]
    fn the_last_page_of_the_address_space_is_nobodys() {
        let mut memory = memory().checked_by(|_, _| true);
        let mut source = [1u8; 10];
        let payload = memory.reference(&[piece(&mut source)]);
        let last = Piece { addr: u64::MAX - 100, len: 100 };
        assert!(!memory.write_if_there(0..u64::MAX, last, 0, &payload, true));
    }

    #[test]
    fn who_sees_the_end_of_an_aligned_block_sees_all_of_it() {
        // One thread writes blocks of one value, another reads the last word first and then the others backwards: no
        // word may be older than one behind it. This can only fail where the order is promised.
        use std::sync::atomic::{AtomicU64, Ordering};
        if !HostMemory::WRITES_IN_ORDER {
            return;
        }
        #[repr(align(128))]
        struct Block([AtomicU64; 16]);
        let block = Block([const { AtomicU64::new(0) }; 16]);
        const ROUNDS: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let target = Piece { addr: block.0.as_ptr() as u64, len: 128 };
                for round in 1..=ROUNDS {
                    let mut words = [round; 16];
                    let source = Piece { addr: words.as_mut_ptr() as u64, len: 128 };
                    let mut memory = memory();
                    let payload = memory.reference(&[source]);
                    let region = target.addr..target.addr + 128;
                    assert!(memory.write_if_there(region, target, 0, &payload, true));
                }
            });
            while block.0[15].load(Ordering::Acquire) < ROUNDS {
                let mut newest = 0;
                for word in block.0.iter().rev() {
                    let seen = word.load(Ordering::Acquire);
                    assert!(seen >= newest, "a word of round {seen} lies before one of round {newest}");
                    newest = seen;
                }
                std::thread::yield_now();
            }
        });
    }
}
