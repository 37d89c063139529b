//! What one send consists of: pieces of memory that lie apart.

use crate::sys::memory::read_pieces;
use std::ptr::{self, NonNull};

/// Most bytes that one call sends: what fits an IPv6 packet without extension headers behind an IPv6 and a UDP
/// header (an IPv4 packet takes 20 more).
pub const MAX_SEND: usize = 65_535 - 40 - 8;

/// Most buffers that one call gathers from (`UIO_MAXIOV`).
pub const MAX_GATHER: usize = 1024;

/// The bytes of a call to [`super::SendSocket::send`], gathered from pieces: some written into the gather's own buffer, some
/// left where they are in the program's memory.
pub struct Gather {
    pub(super) pieces: Vec<libc::iovec>,
    // The own buffer. Raw, because pieces point into it while later ones are written.
    own: NonNull<u8>,
    own_used: usize,
    total: usize,
}

// SAFETY: the addresses are used only through `&self` and `&mut self`, from whichever thread that is.
unsafe impl Send for Gather {}

impl Default for Gather {
    fn default() -> Gather {
        Gather::new()
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` with this length, and nobody uses it any more.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.own.as_ptr(), Self::OWN_BYTES)) });
    }
}

impl Gather {
    /// Size of the own buffer: the longest send.
    const OWN_BYTES: usize = MAX_SEND;

    /// Without pieces.
    pub fn new() -> Gather {
        let own = Box::into_raw(vec![0u8; Self::OWN_BYTES].into_boxed_slice()).cast::<u8>();
        Gather {
            pieces: Vec::with_capacity(MAX_GATHER),
            own: NonNull::new(own).expect("a box is not null"),
            own_used: 0,
            total: 0,
        }
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How often `pieces` more pieces with `bytes` more bytes still fit.
    #[inline]
    pub fn room(&self, pieces: usize, bytes: usize) -> usize {
        ((MAX_GATHER - self.pieces.len()) / pieces).min((MAX_SEND - self.total) / bytes)
    }

    /// Forgets all pieces.
    #[inline]
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.own_used = 0;
        self.total = 0;
    }

    /// Adds `len` bytes of the own buffer, to be written by the caller: what they hold is left from before.
    ///
    /// # Panics
    ///
    /// If that is more than there is room for (see [`Gather::room`]).
    #[inline]
    pub fn append(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= Self::OWN_BYTES - self.own_used, "gather buffer overrun");
        // SAFETY: within the buffer, as just checked.
        let addr = unsafe { self.own.add(self.own_used) };
        self.own_used += len;
        self.push(addr.as_ptr(), len);
        // SAFETY: within the buffer, initialised when it was made, and given out to nobody else since `clear`.
        unsafe { std::slice::from_raw_parts_mut(addr.as_ptr(), len) }
    }

    /// Adds bytes that stay where they are.
    ///
    /// # Safety
    ///
    /// Until the gather is cleared, the `len` bytes at `addr` can be read.
    #[inline]
    pub unsafe fn reference(&mut self, addr: *const u8, len: usize) {
        self.push(addr.cast_mut(), len);
    }

    #[inline]
    fn push(&mut self, addr: *mut u8, len: usize) {
        self.total += len;
        if let Some(last) = self.pieces.last_mut()
            && last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == addr
        {
            last.iov_len += len;
            return;
        }
        self.pieces.push(libc::iovec { iov_base: addr.cast(), iov_len: len });
    }

    /// All bytes, if they are of the own buffer.
    #[inline]
    pub fn as_own(&self) -> Option<&[u8]> {
        // SAFETY: initialised when the buffer was made, and written by nobody while the gather is borrowed.
        let own = unsafe { std::slice::from_raw_parts(self.own.as_ptr(), self.own_used) };
        (self.own_used == self.total).then_some(own)
    }

    /// A copy of all bytes; `None` if memory of the program among them has gone.
    pub fn to_vec(&self) -> Option<Vec<u8>> {
        let mut out = vec![0; self.total];
        // SAFETY: the pieces can be read, by the promise of whoever added them or because they are ours.
        unsafe { read_pieces(&self.pieces, &mut out) }.then_some(out)
    }
}
