//! The memory of a ring: a word and bytes for each line. Whoever puts bytes where the other side may be reading, or reads
//! where it may be putting some, is found out.

use crate::layout::{LINE, LoanTable};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::Mapping;
use std::sync::Arc;

/// What a word holds once a record's bytes have lain over it: nothing that a reader may take for a record.
const OVERWRITTEN: u64 = u64::MAX;

/// The memory of one ring.
#[derive(Clone, Debug)]
pub struct Bytes {
    mapping: Arc<Mapping>,
    len: usize,
}

impl Bytes {
    pub fn new(mapping: Arc<Mapping>, at: usize, len: usize) -> Bytes {
        assert!(at == 0 && len == mapping.lines.len() * LINE, "a mapping is a ring");
        Bytes { mapping, len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn place(&self, position: u64) -> usize {
        position as usize & (self.len - 1)
    }

    pub fn word(&self, position: u64) -> &AtomicU64 {
        &self.mapping.lines[self.place(position) / LINE].word
    }

    /// # Safety
    ///
    /// As of the original.
    #[allow(unsafe_code)]
    pub unsafe fn put(&self, at: usize, from: *const u8, len: usize) {
        let mut done = 0;
        while done < len {
            let (line, within) = (&self.mapping.lines[(at + done) / LINE], (at + done) % LINE);
            let step = (LINE - within).min(len - done);
            if within == 0 {
                line.word.store(OVERWRITTEN, Ordering::Relaxed);
            }
            // SAFETY: `from` can be read by the caller's promise; loom checks that nobody else has the line's bytes.
            line.bytes.with_mut(|bytes| unsafe {
                (&mut (*bytes))[within..within + step]
                    .copy_from_slice(std::slice::from_raw_parts(from.add(done), step));
            });
            done += step;
        }
    }

    /// # Safety
    ///
    /// As of the original.
    #[allow(unsafe_code)]
    pub unsafe fn get(&self, at: usize, len: usize) -> &[u8] {
        let (first, from) = (&self.mapping.lines[at / LINE], at % LINE);
        if from + len <= LINE {
            // SAFETY: loom checks that nobody is putting bytes there.
            return first.bytes.with(|bytes| unsafe { &(&(*bytes))[from..from + len] });
        }
        let mut copy = Vec::with_capacity(from + len);
        for line in &self.mapping.lines[at / LINE..(at + len).div_ceil(LINE)] {
            // SAFETY: as above.
            line.bytes.with(|bytes| copy.extend_from_slice(unsafe { &*bytes }));
        }
        // In one piece, for as long as the test runs.
        &copy.leak()[from..from + len]
    }
}

/// The table of what is lent.
#[derive(Clone)]
pub struct Table(pub Arc<LoanTable>);

impl Table {
    pub fn words(&self) -> &LoanTable {
        &self.0
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("what is lent")
    }
}
