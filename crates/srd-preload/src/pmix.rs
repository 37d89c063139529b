//! What Open MPI asks its launcher: which ranks are on its host. It would share memory with them.
#![allow(unsafe_code)]

use crate::mpi::next_in;
use libc::{c_char, c_int, c_void, size_t};
use std::ffi::CStr;

/// `PMIX_LOCAL_PEERS` of the PMIx standard: ranks of a node, in decimal, with commas between them.
const LOCAL_PEERS: &CStr = c"pmix.lpeers";
/// `PMIX_STRING`, a value's type.
const STRING: u16 = 3;
/// `PMIX_ERR_NOT_FOUND`.
const NOT_FOUND: c_int = -46;

/// `pmix_value_t`, of a string.
#[repr(C)]
pub struct Value {
    kind: u16,
    string: *mut c_char,
}

type Get =
    unsafe extern "C" fn(*const c_void, *const c_char, *const c_void, size_t, *mut *mut Value) -> c_int;

/// `PMIx_Get`: the calling rank is the only one of its host, as in a simulation it may well be.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn PMIx_Get(
    process: *const c_void,
    key: *const c_char,
    infos: *const c_void,
    count: size_t,
    value: *mut *mut Value,
) -> c_int {
    let own = next_in(c"PMIx_Get", b"libpmix");
    if own.is_null() {
        return NOT_FOUND;
    }
    // SAFETY: PMIx's function of that name takes and returns that; what it is given is what our caller was.
    let result = unsafe { std::mem::transmute::<*mut c_void, Get>(own)(process, key, infos, count, value) };
    let rank = std::env::var("PMIX_RANK").unwrap_or_default();
    // SAFETY: a key is null or a C string.
    let asks = !key.is_null() && unsafe { CStr::from_ptr(key) } == LOCAL_PEERS;
    if result == 0 && asks {
        // SAFETY: a call that goes well has written a value, which is the caller's, and its own rank is among those of it.
        unsafe { keep_only(&mut **value, &rank) };
    }
    result
}

/// Of a list only this rank stays, if it is there.
///
/// # Safety
/// The value's string, if it is one, is a C string that may be written to.
unsafe fn keep_only(value: &mut Value, rank: &str) {
    if value.kind != STRING || value.string.is_null() || rank.is_empty() {
        return;
    }
    // SAFETY: the caller's promise.
    let list = unsafe { CStr::from_ptr(value.string) };
    if list.to_bytes().split(|byte| *byte == b',').any(|peer| peer == rank.as_bytes()) {
        // SAFETY: a list in which the rank stands has room for it, and for the end of a string.
        unsafe {
            std::ptr::copy_nonoverlapping(rank.as_ptr().cast(), value.string, rank.len());
            *value.string.add(rank.len()) = 0;
        }
    }
}
