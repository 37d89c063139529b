//! Memory behind a DMA-BUF that the CPU can map.

use crate::boundary::{Errno, Outcome};
use crate::pages::page;
use libc::{c_int, c_void};

/// A mapping, for as long as this lasts.
#[derive(Debug)]
pub(crate) struct DmaBuf {
    at: *mut c_void,
    len: usize,
}

// SAFETY: a mapping, which belongs to no thread.
unsafe impl Send for DmaBuf {}
// SAFETY: as above; nothing is reached through it.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Maps `len` bytes from `offset` on. Also answers where they begin.
    pub fn map(fd: c_int, offset: u64, len: usize) -> Outcome<(DmaBuf, *mut c_void)> {
        // mmap(2): an offset is a multiple of the page's size.
        let skipped = offset % page() as u64;
        let all = len.max(1).checked_add(skipped as usize).ok_or(Errno::INVALID)?;
        let from = libc::off_t::try_from(offset - skipped).map_err(|_| Errno::INVALID)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever there is room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, libc::MAP_SHARED, fd, from) };
        if at == libc::MAP_FAILED {
            let errno = Errno::last();
            return Err(if errno.0 == libc::EBADF { errno } else { Errno::UNSUPPORTED });
        }
        Ok((DmaBuf { at, len: all }, at.wrapping_byte_add(skipped as usize)))
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and what used it has gone.
        unsafe { libc::munmap(self.at, self.len) };
    }
}
