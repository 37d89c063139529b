//! Lists of memory, and copies between them and contiguous memory.

use crate::api::{IOV_LIMIT, Iov};
use arrayvec::ArrayVec;
use srd_device::Store;

/// A list of its own.
pub(crate) type Iovs = ArrayVec<Iov, IOV_LIMIT>;

/// How long a list is.
#[inline]
pub(crate) fn length(iov: &[Iov]) -> u64 {
    match iov {
        [piece] => piece.len,
        pieces => pieces.iter().map(|piece| piece.len).sum(),
    }
}

/// The pieces of a list from `skip` on that cover `len` bytes.
pub(crate) fn stretch(iov: &[Iov], mut skip: u64, mut len: u64) -> Iovs {
    let mut pieces = Iovs::new();
    for piece in iov {
        let passed = skip.min(piece.len);
        skip -= passed;
        let take = len.min(piece.len - passed);
        if take > 0 {
            pieces.push(Iov { addr: piece.addr + passed, len: take });
            len -= take;
        }
    }
    pieces
}

/// Whether some of it is an accelerator's, so that only copies reach it.
#[inline]
pub(crate) fn is_accelerators<M: Store>(memory: &M, iov: &[Iov]) -> bool {
    memory.is_accelerators(iov.iter().fold(0, |all, piece| all | piece.addr))
}

/// Copies a list to contiguous memory. False if some of it has gone, which is so of an accelerator's only.
#[must_use]
pub(crate) fn gather<M: Store>(memory: &mut M, iov: &[Iov], mut to: u64) -> bool {
    let mut all = true;
    for piece in iov {
        all &= memory.copy(piece.addr, to, piece.len as usize);
        to += piece.len;
    }
    all
}

/// Copies contiguous memory to a list, from `skip` on, as far as it has room. False as for [`gather`].
#[inline]
#[must_use]
pub(crate) fn scatter<M: Store>(memory: &mut M, from: u64, len: u64, iov: &[Iov], skip: u64) -> bool {
    match iov {
        // Most are.
        [piece] => {
            let passed = skip.min(piece.len);
            let take = len.min(piece.len - passed);
            take == 0 || memory.copy(from, piece.addr + passed, take as usize)
        }
        pieces => scatter_to_several(memory, from, len, pieces, skip),
    }
}

#[inline(never)]
fn scatter_to_several<M: Store>(memory: &mut M, mut from: u64, len: u64, iov: &[Iov], mut skip: u64) -> bool {
    let mut left = len;
    let mut all = true;
    for piece in iov {
        let passed = skip.min(piece.len);
        skip -= passed;
        let take = left.min(piece.len - passed);
        if take > 0 {
            all &= memory.copy(from, piece.addr + passed, take as usize);
            from += take;
            left -= take;
        }
    }
    all
}
