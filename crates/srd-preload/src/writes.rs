//! What a thread that takes part writes to descriptors: the simulation then waits until whoever reads it has done what he does.
#![allow(unsafe_code)]

use crate::thread;
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

/// `write(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    thread::spoke();
    // SAFETY: the kernel checks the pointer.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) as ssize_t }
}

/// `writev(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    thread::spoke();
    // SAFETY: the kernel checks the pointers.
    unsafe { libc::syscall(libc::SYS_writev, fd, pieces, count) as ssize_t }
}

/// `send(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as the caller's.
    unsafe { sendto(fd, bytes, count, flags, std::ptr::null(), 0) }
}

/// `sendto(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    thread::spoke();
    // SAFETY: the kernel checks the pointers.
    unsafe { libc::syscall(libc::SYS_sendto, fd, bytes, count, flags, to, length) as ssize_t }
}

/// `sendmsg(2)`.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    thread::spoke();
    // SAFETY: the kernel checks the pointers.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) as ssize_t }
}
