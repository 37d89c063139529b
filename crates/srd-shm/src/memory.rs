//! The memory of a ring: words that both sides use at once, and bytes that are one side's at a time. Which are whose is the
//! ring's business. And the table of what is lent, which is words alone.
#![allow(unsafe_code)]

use crate::layout::{LINE, LoanTable};
use crate::sync::AtomicU64;
use crate::sys::Mapping;
use std::ptr::NonNull;
use std::sync::Arc;

/// The memory of one ring.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

// SAFETY: it points into the mapping it holds, and a mapping may be used by any thread.
unsafe impl Send for Bytes {}

impl Bytes {
    /// `len` bytes at `at`.
    pub fn new(mapping: Arc<Mapping>, at: usize, len: usize) -> Bytes {
        assert!(len.is_power_of_two() && len >= 4 * LINE && at.is_multiple_of(LINE), "no shape of a ring");
        assert!(at <= mapping.len() && len <= mapping.len() - at, "a ring lies within its mapping");
        // SAFETY: within the mapping.
        Bytes { base: unsafe { mapping.base().add(at) }, len, _mapping: mapping }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The place of a position.
    #[inline]
    pub fn place(&self, position: u64) -> usize {
        position as usize & (self.len - 1)
    }

    /// The word at a position.
    #[inline]
    pub fn word(&self, position: u64) -> &AtomicU64 {
        let at = self.place(position) & !(LINE - 1);
        // SAFETY: a line lies wholly within the ring, and all lines are aligned. Words are accessed atomically by both
        // sides, but for bytes of a record's inside that once were words: those the writer alone touches, or the reader
        // alone, by the ring's protocol.
        unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// Copies `len` bytes from `from` to the place `at`.
    ///
    /// # Safety
    ///
    /// `from` can be read; the place and what follows it lie within the ring and are the caller's alone.
    #[inline]
    pub unsafe fn put(&self, at: usize, from: *const u8, len: usize) {
        debug_assert!(at + len <= self.len, "within the ring");
        // SAFETY: by the caller's promise. What is read is no part of a ring's free room, which nobody has a name for.
        unsafe { from.copy_to_nonoverlapping(self.base.add(at).as_ptr(), len) };
    }

    /// The bytes from the place `at` on.
    ///
    /// # Safety
    ///
    /// They lie within the ring, and nobody writes them as long as the slice is used.
    #[inline]
    pub unsafe fn get(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.len, "within the ring");
        // SAFETY: by the caller's promise.
        unsafe { NonNull::slice_from_raw_parts(self.base.add(at), len).as_ref() }
    }
}

/// The table of what a segment's owner lends.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    base: NonNull<LoanTable>,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

// SAFETY: as above.
unsafe impl Send for Table {}
// SAFETY: it is made of atomics.
unsafe impl Sync for Table {}

impl Table {
    /// That at `at`.
    pub fn new(mapping: Arc<Mapping>, at: usize) -> Table {
        assert!(
            at.is_multiple_of(LINE) && at + size_of::<LoanTable>() <= mapping.len(),
            "within its mapping"
        );
        // SAFETY: within the mapping.
        Table { base: unsafe { mapping.base().add(at) }.cast(), _mapping: mapping }
    }

    /// Its words.
    #[inline]
    pub fn words(&self) -> &LoanTable {
        // SAFETY: within the mapping that this keeps, aligned, and made of atomics, for which all bytes are values.
        unsafe { self.base.as_ref() }
    }
}
