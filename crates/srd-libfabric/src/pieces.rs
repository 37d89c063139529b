//! Scatter-gather lists as programs give them, for the messaging layer. They stand on the stack: nothing is allocated for an
//! operation.

use crate::boundary::{Errno, Outcome, array};
use crate::layout::{fi_ioc, fi_rma_ioc, fi_rma_iov};
use libc::{c_void, iovec};
use srd_device::accelerator::MARK;
use srd_msg::{IOV_LIMIT, Iov, RemoteIov};

/// Room for a list.
pub(crate) type Pieces<T> = [T; IOV_LIMIT];

/// The descriptor of memory of an accelerator (fi_mr_desc(3)): the mark of its addresses. All other memory needs none.
pub(crate) const ACCELERATORS: *mut c_void = MARK as *mut c_void;

/// What a program says of its memory by a descriptor, which may be NULL.
#[inline]
pub(crate) fn mark_of(desc: *mut c_void) -> u64 {
    desc as u64 & MARK
}

/// The same of the elements of a list; NULL for all of them.
///
/// # Safety
/// `descs` is NULL or has `index` elements and one more.
#[inline]
pub(crate) unsafe fn mark_in(descs: *mut *mut c_void, index: usize) -> u64 {
    // SAFETY: as the caller says.
    if descs.is_null() { 0 } else { mark_of(unsafe { *descs.add(index) }) }
}

/// One piece.
#[inline]
pub(crate) fn one(buf: *const c_void, len: usize, desc: *mut c_void) -> [Iov; 1] {
    [Iov { addr: buf as u64 | mark_of(desc), len: len as u64 }]
}

#[inline]
fn fill<'a, F, T>(
    room: &'a mut Pieces<T>,
    list: &[F],
    of: impl Fn(usize, &F) -> Outcome<T>,
) -> Outcome<&'a [T]> {
    // More than iov_limit is the program's mistake (fi_msg(3)).
    let room = room.get_mut(..list.len()).ok_or(Errno::INVALID)?;
    for (index, (to, from)) in room.iter_mut().zip(list).enumerate() {
        *to = of(index, from)?;
    }
    Ok(room)
}

/// # Safety
/// `count` elements at `list` are live, and as many at `descs`, or that is NULL.
#[inline]
pub(crate) unsafe fn local(
    room: &mut Pieces<Iov>,
    list: *const iovec,
    descs: *mut *mut c_void,
    count: usize,
) -> Outcome<&[Iov]> {
    // SAFETY: as the caller says.
    fill(room, unsafe { array(list, count) }?, |index, piece| {
        // SAFETY: as above.
        let mark = unsafe { mark_in(descs, index) };
        Ok(Iov { addr: piece.iov_base as u64 | mark, len: piece.iov_len as u64 })
    })
}

/// # Safety
/// `count` elements at `list` are live.
#[inline]
pub(crate) unsafe fn remote(
    room: &mut Pieces<RemoteIov>,
    list: *const fi_rma_iov,
    count: usize,
) -> Outcome<&[RemoteIov]> {
    // SAFETY: as the caller says.
    fill(room, unsafe { array(list, count) }?, |_, piece| {
        Ok(RemoteIov { addr: piece.addr, len: piece.len as u64, key: piece.key })
    })
}

/// As [`local`], for elements of `size` bytes.
///
/// # Safety
/// `count` elements at `list` are live.
#[inline]
pub(crate) unsafe fn local_elements(
    room: &mut Pieces<Iov>,
    list: *const fi_ioc,
    descs: *mut *mut c_void,
    count: usize,
    size: usize,
) -> Outcome<&[Iov]> {
    // SAFETY: as the caller says.
    fill(room, unsafe { array(list, count) }?, |index, piece| {
        // SAFETY: as above.
        let mark = unsafe { mark_in(descs, index) };
        Ok(Iov { addr: piece.addr as u64 | mark, len: bytes(piece.count, size)? })
    })
}

/// As [`remote`], for elements of `size` bytes.
///
/// # Safety
/// `count` elements at `list` are live.
#[inline]
pub(crate) unsafe fn remote_elements(
    room: &mut Pieces<RemoteIov>,
    list: *const fi_rma_ioc,
    count: usize,
    size: usize,
) -> Outcome<&[RemoteIov]> {
    // SAFETY: as the caller says.
    fill(room, unsafe { array(list, count) }?, |_, piece| {
        Ok(RemoteIov { addr: piece.addr, len: bytes(piece.count, size)?, key: piece.key })
    })
}

/// Bytes of `count` elements.
#[inline]
pub(crate) fn bytes(count: usize, size: usize) -> Outcome<u64> {
    count.checked_mul(size).map(|bytes| bytes as u64).ok_or(Errno::INVALID)
}

/// Bytes of a list.
#[inline]
pub(crate) fn total(list: &[Iov]) -> u64 {
    list.iter().fold(0, |sum, piece| sum.saturating_add(piece.len))
}
