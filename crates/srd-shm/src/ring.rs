//! Records in a ring: one process writes, one reads, and neither believes the other's numbers.
//!
//! Positions count bytes since the lane was opened and never wrap; the place of a position is its remainder by the ring's
//! length. A record begins on a cache line with a word that says how long it is, and lies in one piece: where it would
//! cross the end of the ring, a pad fills what is left. The word is written last. The reader waits for that word alone, so
//! a small message costs the two processes one cache line, word and bytes together.
//!
//! For that the word after the newest record must be zero whenever the reader may look at it. So the writer zeroes the
//! word of the next record's place before it publishes a record, and there is always a free line for that. It also zeroes
//! one place ahead, once a record is out: the place the next record will end at if it is as long as this one. Then the
//! line is here already when that record is in a hurry.
//!
//! The word also holds the low bits of its position, so that bytes which are no record's beginning are recognised.
#![allow(unsafe_code)]

use crate::lane::Iov;
use crate::layout::LINE;
use crate::memory::Bytes;
use crate::reason::{Damage, SendError};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::Mapping;
use std::sync::Arc;

/// Bytes of the word before a record.
const WORD: usize = 8;
/// Kinds of words. None is zero, so no word is.
const RECORD: u64 = 1;
const PAD: u64 = 2;

/// The longest record in a ring of that length: four always fit, whatever pads there are.
pub(crate) fn max_record(ring_bytes: usize) -> usize {
    ring_bytes / 4 - WORD
}

/// The word of a record at `position`: its place in the order, its length, its kind.
fn word(position: u64, len: usize, kind: u64) -> u64 {
    (position / LINE as u64) << 32 | (len as u64) << 2 | kind
}

/// The lines that a record of `len` bytes takes, in bytes.
fn span(len: usize) -> usize {
    (WORD + len).next_multiple_of(LINE)
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Bytes,
    /// Where the next record goes.
    position: u64,
    /// How far the reader has read, as last seen.
    head: u64,
    /// A position, beyond `position`, whose word is zero.
    zeroed: u64,
    /// Lines of the last record, in bytes.
    last: u64,
}

impl Writer {
    /// The writing end of an empty ring, which this makes of `len` bytes at `at`.
    pub fn new(mapping: Arc<Mapping>, at: usize, len: usize) -> Writer {
        let bytes = Bytes::new(mapping, at, len);
        bytes.word(0).store(0, Ordering::Release);
        Writer { bytes, position: 0, head: 0, zeroed: 0, last: 0 }
    }

    /// The longest record.
    #[inline]
    pub fn max_record(&self) -> usize {
        max_record(self.bytes.len())
    }

    /// Writes one record of several parts, or nothing. `head` is where the reader says how far it is.
    #[inline]
    pub fn push(&mut self, head: &AtomicU64, parts: &[&[u8]]) -> Result<(), SendError> {
        let len = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()));
        let mut to = self.room_for(head, len)?;
        for part in parts {
            // SAFETY: there is room for all parts. Nobody else touches it before the word is there.
            unsafe { self.bytes.put(to, part.as_ptr(), part.len()) };
            to += part.len();
        }
        self.publish(span(len), word(self.position, len, RECORD));
        Ok(())
    }

    /// As [`Writer::push`]; the parts behind the first are anywhere in memory.
    ///
    /// # Safety
    ///
    /// All of `payload` can be read.
    pub unsafe fn push_from(
        &mut self,
        head: &AtomicU64,
        header: &[u8],
        payload: &[Iov],
    ) -> Result<(), SendError> {
        let all = payload.iter().fold(header.len() as u64, |sum, part| sum.saturating_add(part.len));
        let len = usize::try_from(all).map_err(|_| SendError::TooLong)?;
        let mut to = self.room_for(head, len)?;
        // SAFETY: there is room for all parts, `payload` can be read by the caller's promise, and is no part of a ring's
        // free room, which nobody has a name for.
        unsafe {
            self.bytes.put(to, header.as_ptr(), header.len());
            to += header.len();
            for part in payload {
                self.bytes.put(to, part.addr as *const u8, part.len as usize);
                to += part.len as usize;
            }
        }
        self.publish(span(len), word(self.position, len, RECORD));
        Ok(())
    }

    /// Where in the ring the bytes of a record of that length go. Fills the end of the ring with a pad if they do not fit there.
    #[inline]
    fn room_for(&mut self, head: &AtomicU64, len: usize) -> Result<usize, SendError> {
        if len > self.max_record() {
            return Err(SendError::TooLong);
        }
        let to_end = self.bytes.len() - self.bytes.place(self.position);
        let pad = if span(len) > to_end { to_end } else { 0 };
        // A line more: the word behind the record must be writable.
        let need = (pad + span(len) + LINE) as u64;
        if self.position + need - self.head > self.bytes.len() as u64 {
            self.see(head)?;
            if self.position + need - self.head > self.bytes.len() as u64 {
                return Err(SendError::Busy);
            }
        }
        if pad > 0 {
            self.publish(pad, word(self.position, pad - WORD, PAD));
        }
        Ok(self.bytes.place(self.position) + WORD)
    }

    #[cold]
    fn see(&mut self, head: &AtomicU64) -> Result<(), SendError> {
        let now = head.load(Ordering::Acquire);
        if now < self.head || now > self.position {
            return Err(SendError::Damaged(Damage::Head));
        }
        self.head = now;
        Ok(())
    }

    /// Makes `span` bytes the reader's, by writing the word before them.
    #[inline]
    fn publish(&mut self, span: usize, word: u64) {
        let next = self.position + span as u64;
        if self.zeroed != next {
            self.bytes.word(next).store(0, Ordering::Relaxed);
        }
        // Sequentially consistent: what the sender then loads of `Signals` is not older than this (see `inbox.rs`).
        self.bytes.word(self.position).store(word, Ordering::SeqCst);
        self.position = next;
        self.zeroed = next;
        self.last = span as u64;
    }

    /// Zeroes the word behind the next record if that is as long as the last one.
    #[inline]
    pub fn look_ahead(&mut self) {
        let next = self.position + self.last;
        if next + LINE as u64 - self.head <= self.bytes.len() as u64 {
            self.bytes.word(next).store(0, Ordering::Relaxed);
            self.zeroed = next;
        }
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: Bytes,
    /// Where the next record is.
    position: u64,
}

impl Reader {
    /// The reading end of a ring whose writer has just begun.
    pub fn new(mapping: Arc<Mapping>, at: usize, len: usize) -> Reader {
        Reader { bytes: Bytes::new(mapping, at, len), position: 0 }
    }

    /// Whether something has come.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.bytes.word(self.position).load(Ordering::SeqCst) != 0
    }

    /// The next record. Its bytes are the reader's until [`Reader::position`] is told to the writer.
    #[inline]
    pub fn next(&mut self) -> Result<Option<&[u8]>, Damage> {
        let mut word = self.bytes.word(self.position).load(Ordering::Acquire);
        if word & 3 == PAD {
            let at = self.bytes.place(self.position);
            let len = self.check(word)?;
            // A pad goes to the end, and is never all of a ring.
            if at == 0 || at + WORD + len != self.bytes.len() {
                return Err(Damage::Length);
            }
            self.position += (WORD + len) as u64;
            word = self.bytes.word(self.position).load(Ordering::Acquire);
        }
        if word == 0 {
            return Ok(None);
        }
        let len = self.check(word)?;
        let at = self.bytes.place(self.position);
        if word & 3 != RECORD {
            return Err(Damage::Kind);
        }
        if len > max_record(self.bytes.len()) || at + span(len) > self.bytes.len() {
            return Err(Damage::Length);
        }
        self.position += span(len) as u64;
        // SAFETY: within the ring, by the check above. The writer leaves these bytes alone until the reader has told it
        // that they are read, which needs `self`. (Whoever writes there nevertheless: see the crate's documentation.)
        Ok(Some(unsafe { self.bytes.get(at + WORD, len) }))
    }

    /// Length of what begins at the reader's position.
    #[inline]
    fn check(&self, word: u64) -> Result<usize, Damage> {
        if word >> 32 != (self.position / LINE as u64) & 0xffff_ffff {
            return Err(Damage::Misplaced);
        }
        Ok((word as u32 >> 2) as usize)
    }

    /// How far it has read.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, RngCore, SeedableRng};
    use std::collections::VecDeque;
    use std::thread;

    fn ring(len: usize) -> (Writer, Reader) {
        let mapping = Arc::new(Mapping::anonymous(len));
        (Writer::new(mapping.clone(), 0, len), Reader::new(mapping, 0, len))
    }

    /// The record number `n` of a run: length and bytes follow from the seed.
    fn record(seed: u64, n: u64, most: usize) -> Vec<u8> {
        let mut random = SmallRng::seed_from_u64(seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let most = if random.random_ratio(1, 8) { most } else { most.min(100) };
        let mut bytes = vec![0; random.random_range(0..=most)];
        random.fill_bytes(&mut bytes);
        // Bytes that look like words of records, and like none.
        if random.random_ratio(1, 4) {
            bytes.fill([0, 1, 2, 0xff][random.random_range(0..4)]);
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order(
            steps in prop::collection::vec((prop::bool::ANY, 0usize..1100, any::<u8>()), 1..600),
            ahead in any::<bool>(),
        ) {
            let (mut writer, mut reader) = ring(4096);
            let head = AtomicU64::new(0);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            for (push, len, fill) in steps {
                if push {
                    let bytes = vec![fill; len];
                    let (left, right) = bytes.split_at(len / 3);
                    match writer.push(&head, &[left, right]) {
                        Ok(()) => model.push_back(bytes),
                        Err(SendError::TooLong) => prop_assert!(len > writer.max_record()),
                        Err(e) => {
                            prop_assert_eq!(e, SendError::Busy);
                            prop_assert!(!model.is_empty(), "an empty ring has room");
                        }
                    }
                    if ahead {
                        writer.look_ahead();
                    }
                } else {
                    let got = reader.next().unwrap().map(<[u8]>::to_vec);
                    prop_assert_eq!(got, model.pop_front());
                    head.store(reader.position(), Ordering::Release);
                }
                prop_assert_eq!(reader.has_next(), !model.is_empty());
            }
        }

        #[test]
        fn no_bytes_make_the_reader_go_astray(words in prop::collection::vec(any::<u64>(), 512), tag in any::<bool>()) {
            let mapping = Arc::new(Mapping::anonymous(4096));
            let mut reader = Reader::new(mapping.clone(), 0, 4096);
            let bytes = Bytes::new(mapping, 0, 4096);
            for (line, word) in words.iter().step_by(8).enumerate() {
                // With the right position more of them get further.
                let right = if tag { word & 0x3fff | (line as u64) << 32 } else { *word };
                bytes.word((line * LINE) as u64).store(right, Ordering::Relaxed);
            }
            let mut sum = 0u64;
            for _ in 0..100 {
                match reader.next() {
                    Ok(Some(bytes)) => sum += bytes.iter().map(|&b| u64::from(b)).sum::<u64>(),
                    Ok(None) | Err(_) => break,
                }
            }
            prop_assert!(sum < u64::MAX);
        }
    }

    #[test]
    fn a_full_ring_is_busy_and_has_room_again_when_read() {
        let (mut writer, mut reader) = ring(4096);
        let head = AtomicU64::new(0);
        let mut sent = 0;
        while writer.push(&head, &[&[7; 100]]).is_ok() {
            sent += 1;
        }
        // 128 bytes each, and one line always free.
        assert_eq!(sent, 31);
        assert_eq!(writer.push(&head, &[&[7; 100]]), Err(SendError::Busy));
        assert_eq!(writer.push(&head, &[]), Ok(()), "a line is left for a short one");
        // Two are read: it does not fit before the end of the ring, and a pad takes room, too.
        for _ in 0..2 {
            assert_eq!(writer.push(&head, &[&[7; 100]]), Err(SendError::Busy));
            reader.next().unwrap().unwrap();
            head.store(reader.position(), Ordering::Release);
        }
        assert_eq!(writer.push(&head, &[&[7; 100]]), Ok(()));
    }

    #[test]
    fn the_longest_record_fits_wherever_the_ring_stands() {
        for before in 0..64 {
            let (mut writer, mut reader) = ring(4096);
            let head = AtomicU64::new(0);
            for _ in 0..before {
                writer.push(&head, &[&[1]]).unwrap();
                reader.next().unwrap().unwrap();
                head.store(reader.position(), Ordering::Release);
            }
            let longest = vec![9; writer.max_record()];
            for _ in 0..3 {
                writer.push(&head, &[&longest]).unwrap();
                assert_eq!(reader.next().unwrap().unwrap(), longest);
                head.store(reader.position(), Ordering::Release);
            }
            assert_eq!(writer.push(&head, &[&longest, &[1]]), Err(SendError::TooLong));
        }
    }

    #[test]
    fn payload_is_taken_from_where_it_is() {
        let (mut writer, mut reader) = ring(4096);
        let head = AtomicU64::new(0);
        let payload = [3u8; 50];
        let iov =
            [Iov { addr: payload.as_ptr() as u64, len: 20 }, Iov { addr: payload.as_ptr() as u64, len: 30 }];
        // SAFETY: both are parts of the payload.
        unsafe { writer.push_from(&head, b"head", &iov) }.unwrap();
        let got = reader.next().unwrap().unwrap();
        assert_eq!((&got[..4], &got[4..]), (&b"head"[..], &payload[..]));
        let endless = [Iov { addr: 8, len: u64::MAX }; 2];
        // SAFETY: too long to be looked at.
        assert_eq!(unsafe { writer.push_from(&head, b"", &endless) }, Err(SendError::TooLong));
    }

    #[test]
    fn a_reader_that_claims_what_cannot_be_is_damage() {
        for wrong in [1 << 40, u64::MAX, 4097] {
            let (mut writer, _reader) = ring(4096);
            let head = AtomicU64::new(0);
            while writer.push(&head, &[&[7; 100]]).is_ok() {}
            head.store(wrong, Ordering::Release);
            assert_eq!(writer.push(&head, &[&[7; 100]]), Err(SendError::Damaged(Damage::Head)));
        }
    }

    #[test]
    fn damaged_words_are_recognised_by_name() {
        let damaged = |word: u64| {
            let (mut writer, mut reader) = ring(4096);
            writer.push(&AtomicU64::new(0), &[b"abc"]).unwrap();
            writer.bytes.word(0).store(word, Ordering::SeqCst);
            reader.next().map(|record| record.is_some())
        };
        assert_eq!(damaged(word(0, 3, RECORD)), Ok(true));
        assert_eq!(damaged(word(0, 3, 3)), Err(Damage::Kind));
        assert_eq!(damaged(word(64, 3, RECORD)), Err(Damage::Misplaced));
        assert_eq!(damaged(word(0, 4000, RECORD)), Err(Damage::Length));
        assert_eq!(damaged(word(0, 4088, PAD)), Err(Damage::Length), "a pad of a whole ring");
        assert_eq!(damaged(word(0, 1 << 29, RECORD)), Err(Damage::Length));
    }

    #[test]
    fn two_threads_agree_on_every_record() {
        const RECORDS: u64 = 50_000;
        for seed in [1, 2, 3] {
            let (mut writer, mut reader) = ring(8192);
            let most = writer.max_record();
            let head = Arc::new(AtomicU64::new(0));
            let heard = head.clone();
            let sender = thread::spawn(move || {
                for n in 0..RECORDS {
                    let bytes = record(seed, n, most);
                    while let Err(e) = writer.push(&heard, &[&bytes]) {
                        assert_eq!(e, SendError::Busy);
                        thread::yield_now();
                    }
                    writer.look_ahead();
                }
            });
            for n in 0..RECORDS {
                let got = loop {
                    if let Some(got) = reader.next().unwrap() {
                        break got.to_vec();
                    }
                    thread::yield_now();
                };
                assert!(got == record(seed, n, most), "record {n} of seed {seed} differs");
                head.store(reader.position(), Ordering::Release);
            }
            sender.join().unwrap();
        }
    }
}
