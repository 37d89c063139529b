//! Functions with which other libraries of rdma-core read the system's files.

use crate::boundary::{Errno, Outcome, abi};
use crate::sysfs;
use libc::{c_char, c_int, size_t};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// # Safety
/// The pointer is NULL or a C string that lives for `'a`.
unsafe fn path<'a>(pointer: *const c_char) -> Outcome<&'a Path> {
    if pointer.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller says.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes())))
}

abi! {
    /// Reads a file without its last newline into a C string. Returns the length.
    exported minus_one fn ibv_read_sysfs_file(
        directory: *const c_char,
        file: *const c_char,
        buffer: *mut c_char,
        size: size_t,
    ) {
        let content = std::fs::read(path(directory)?.join(path(file)?))
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
        let text = content.strip_suffix(b"\n").unwrap_or(&content);
        if buffer.is_null() || text.len() >= size {
            return Err(Errno::INVALID);
        }
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        buffer.add(text.len()).write(0);
        c_int::try_from(text.len()).map_err(|_| Errno::INVALID)
    }
}

/// Where the system's files are; the answer is kept, as in libibverbs.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static ROOT: OnceLock<CString> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = sysfs::system_root();
        let text = root.as_bytes();
        let end = text.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        CString::new(&text[..end]).unwrap_or_else(|_| c"/sys".into())
    })
    .as_ptr()
}
