//! Memory that a program writes to as to a card's: pages of their own, with nothing of ours or of the program's beside them, that are
//! unmapped at the end. Who goes on writing then, or beyond them, is ended by SIGSEGV at that very line, as with the queues of
//! a card (`efa_sq_terminate` and `efa_rq_terminate` of rdma-core's `providers/efa/verbs.c` unmap them).

use crate::boundary::{Errno, Outcome};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Words that are zero to begin with.
pub(crate) struct Pages {
    start: NonNull<AtomicU64>,
    words: usize,
    /// In bytes, the page after them included, which nobody may touch.
    mapped: usize,
}

// SAFETY: the mapping is this value's alone, and what is in it is reached as atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least as many words.
    pub fn new(words: usize) -> Outcome<Pages> {
        let page = page();
        let bytes = (words * size_of::<AtomicU64>()).next_multiple_of(page).max(page);
        let mapped = bytes + page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::NO_MEMORY);
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::NO_MEMORY)?;
        let pages = Pages { start, words: bytes / size_of::<AtomicU64>(), mapped };
        // SAFETY: the first part of that mapping.
        match unsafe { libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) } {
            0 => Ok(pages),
            _ => Err(Errno::NO_MEMORY),
        }
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as `self`, is aligned to a page, and holds zeroes or what was stored; the program stores
        // there as well, as another thread with atomics would.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody of ours refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

/// Bytes of a page.
pub(crate) fn page() -> usize {
    // SAFETY: a call that changes nothing.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
