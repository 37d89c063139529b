//! Functions that exist so that programs load, and answer "not supported". `link.sh` makes one small function for
//! each name of `exports/libibverbs.exports` that is no function of ours; it calls these here.

use crate::boundary::{Errno, abi};
use crate::layout::ibv_recv_wr;
use libc::{c_char, c_int, c_void};
use srd_net::log;
use std::ffi::CStr;

/// # Safety
/// The name is a C string.
unsafe fn refuse(name: *const c_char) -> Errno {
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    log::debug(format_args!("{name}: not supported by the software EFA"));
    Errno::UNSUPPORTED
}

abi! {
    /// For functions that return an error number.
    exported status fn srd_unsupported_status(name: *const c_char) {
        Err(refuse(name))
    }

    /// For functions that return a pointer.
    exported pointer fn srd_unsupported_pointer(name: *const c_char) -> c_void {
        Err(refuse(name))
    }

    /// For functions that return -1 and set `errno`.
    exported minus_one fn srd_unsupported_minus_one(name: *const c_char) {
        Err(refuse(name))
    }

    /// For functions that return nothing, and for such as have nothing to do.
    exported value fn srd_unsupported_nothing(name: *const c_char) -> () {
        refuse(name);
    }

    /// There are no shared receive queues, so this is called by mistake only.
    status fn post_srq_recv(_srq: *mut c_void, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) {
        if let Some(bad) = bad.as_mut() {
            *bad = wr;
        }
        Err(Errno::UNSUPPORTED)
    }

    /// Fork is harmless: packets come through the CPU, so pages that a child copies stay where they are.
    exported value fn ibv_fork_init() -> c_int {
        0
    }

    exported value fn ibv_is_fork_initialized() -> c_int {
        crate::layout::constant::IBV_FORK_UNNEEDED
    }

    exported value fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
        0
    }

    exported value fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
        0
    }
}
