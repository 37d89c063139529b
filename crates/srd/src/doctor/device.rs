//! Whether the libibverbs of the software EFA can be loaded here, and whether it has a device: it is asked as a program asks it.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_int, c_void};
use std::path::Path;

type List = *mut *mut c_void;

/// How many devices it lists; an error in words if it cannot be loaded. Why there is none it says itself, on standard error.
pub fn count(libibverbs: &Path) -> Result<usize, libloading::Error> {
    // SAFETY: a library of ours, or a file of its name in our directory; nothing of it is used after it has been closed.
    let library = unsafe { Library::new(libibverbs) }?;
    // SAFETY: the types are those of infiniband/verbs.h.
    let (get, free) = unsafe {
        (
            library.get::<unsafe extern "C" fn(*mut c_int) -> List>(b"ibv_get_device_list\0")?,
            library.get::<unsafe extern "C" fn(List)>(b"ibv_free_device_list\0")?,
        )
    };
    let mut count = 0;
    // SAFETY: an integer of ours to write to, and the list back once.
    unsafe {
        let list = get(&mut count);
        if list.is_null() {
            return Ok(0);
        }
        free(list);
    }
    Ok(count as usize)
}
