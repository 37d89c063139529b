//! Calls into the system. All of this crate's unsafe code is in here, behind safe functions.
#![allow(unsafe_code)]

mod bpf;
mod cgroup;
pub mod cuda;
pub mod event;
pub mod interface;
mod link;
pub mod memory;
mod netlink;
pub mod packet;
mod page;
pub mod process;
pub mod route;
pub mod secret;
pub mod shaper;
pub mod simulated;
pub mod udp;
pub mod unix;
pub mod xdp;

use std::io;

/// The error of the call that has just returned `-1`; its value otherwise.
#[inline]
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
