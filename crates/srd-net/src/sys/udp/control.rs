//! Control messages (`cmsg(3)`), read with bounds checks.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use std::mem::size_of;
use std::ptr;

/// Room for control messages, aligned as they want it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlBuffer<const N: usize>(pub(super) [u8; N]);

/// Calls `f` with level, type and data of each control message of `header`.
pub(super) fn for_each_control(header: &libc::msghdr, f: impl FnMut(i32, i32, &[u8])) {
    if header.msg_controllen > 0 {
        // SAFETY: the kernel has written that many bytes there, and they are not written while `header` is borrowed.
        let control = unsafe {
            std::slice::from_raw_parts(header.msg_control.cast_const().cast::<u8>(), header.msg_controllen)
        };
        for_each_control_in(control, f);
    }
}

/// Calls `f` with level, type and data of each control message in `control`: `cmsg(3)` with bounds checks.
#[inline]
pub(super) fn for_each_control_in(mut control: &[u8], mut f: impl FnMut(i32, i32, &[u8])) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    const WORD: usize = size_of::<usize>();
    while control.len() >= HEADER {
        // SAFETY: there are that many bytes, and every bit pattern is a value.
        let header: libc::cmsghdr = unsafe { ptr::read_unaligned(control.as_ptr().cast()) };
        let len = header.cmsg_len;
        let Some(data) = control.get(HEADER..len) else { return };
        f(header.cmsg_level, header.cmsg_type, data);
        control = control.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
    }
}

/// The time in `data`, a `struct timespec`.
#[inline]
pub(super) fn timespec_nanos(data: &[u8]) -> Option<u64> {
    if data.len() < size_of::<libc::timespec>() {
        return None;
    }
    // SAFETY: there are that many bytes, and every bit pattern is a value.
    let time: libc::timespec = unsafe { ptr::read_unaligned(data.as_ptr().cast()) };
    Some((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

pub(super) fn first_int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
