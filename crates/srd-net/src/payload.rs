//! Between packets and memory: how payload goes into a send, and how a received datagram becomes payload.
#![allow(unsafe_code)]

use crate::sys::memory::read_pieces;
use crate::sys::udp::Gather;
use arrayvec::ArrayVec;
use srd_device::HostPayload;
use srd_proto::Payload;
use srd_wire::Packet;

/// Shorter payload is copied behind its header: that costs less than another piece for the kernel to gather.
pub const COPY_BELOW: usize = 512;

/// Adds `payload`, which the device has just handed out, to `gather`, which is sent before the device is called
/// again.
#[inline]
pub fn append(payload: &HostPayload, gather: &mut Gather) {
    let len = payload.len();
    if len < COPY_BELOW {
        copy(payload, gather.append(len));
        return;
    }
    for (addr, len) in payload.ranges() {
        // SAFETY: this much does not fit a payload's own bytes, so the range is registered memory, which can be read
        // until its key is deregistered (the promise of `HostMemory::new`). That takes the lock which this thread
        // holds until the batch is sent, and `Instance` sends the batch before it lets go of the lock.
        unsafe { gather.reference(addr, len) };
    }
}

/// Copies `payload`, which the device has just handed out, to `out`.
///
/// # Panics
///
/// If `out` is of another length.
#[inline]
pub fn copy(payload: &HostPayload, out: &mut [u8]) {
    // SAFETY: as in `append`. A program that writes to a buffer while that is being sent breaks the promise, and
    // may get either content sent.
    unsafe { payload.copy_to(out) };
}

/// The payloads of packets with `len` bytes of it each.
#[inline]
pub fn parts(payload: &HostPayload, len: usize) -> impl Iterator<Item = HostPayload> {
    (0..payload.len()).step_by(len).map(move |offset| payload.slice(offset, len))
}

/// As [`append`], for packets with `len` bytes of it each, behind what `before` adds for each.
#[inline]
pub fn append_parts(
    payload: &HostPayload,
    len: usize,
    gather: &mut Gather,
    mut before: impl FnMut(&mut Gather),
) {
    let mut ranges = payload.ranges();
    match (ranges.next(), ranges.next()) {
        (Some((addr, all)), None) if len >= COPY_BELOW => {
            for offset in (0..all).step_by(len) {
                before(gather);
                // SAFETY: as in `append`; all of these packets have that length.
                unsafe { gather.reference(addr.wrapping_add(offset), len) };
            }
        }
        _ => {
            for part in parts(payload, len) {
                before(gather);
                append(&part, gather);
            }
        }
    }
}

/// Copies `payload`, which the device has just handed out, to `out`, which is as long. Returns false if it is not there
/// any more.
pub fn try_copy(payload: &HostPayload, out: &mut [u8]) -> bool {
    let pieces =
        payload.ranges().map(|(addr, len)| libc::iovec { iov_base: addr.cast_mut().cast(), iov_len: len });
    let pieces: ArrayVec<libc::iovec, 2> = pieces.collect();
    // SAFETY: as in `append`, but that the program may have unmapped it.
    unsafe { read_pieces(&pieces, out) }
}

/// The packet with its payload as the device wants it. To be handled before the datagram's buffer is used again.
#[inline]
pub fn received(packet: Packet<&[u8]>) -> Packet<HostPayload> {
    packet.map_payload(received_part)
}

/// The payload alone; likewise.
#[inline]
pub fn received_part(payload: &[u8]) -> HostPayload {
    // SAFETY: the device reads the payload only while it handles the packet, which it does right away, while the buffer is
    // borrowed.
    unsafe { HostPayload::borrowed(payload) }
}
