//! Answers to fi_getinfo(3) as C memory. libfabric's core frees them piece by piece with `free`, and copies them by the sizes
//! of its own structures, which may be larger than ours: every piece is therefore larger than any of them.

use crate::boundary::{Errno, Outcome};
use crate::layout::*;
use libc::{c_char, c_void};

/// Bytes of every piece.
const ROOM: usize = 512;

/// A piece of zeros that `free` gives back.
fn piece<T>() -> Outcome<*mut T> {
    const { assert!(size_of::<T>() <= ROOM) };
    // SAFETY: no memory is involved.
    let pointer = unsafe { libc::calloc(1, ROOM) };
    if pointer.is_null() { Err(Errno::NO_MEMORY) } else { Ok(pointer.cast()) }
}

/// A text that `free` gives back.
pub(crate) fn text(text: &str) -> Outcome<*mut c_char> {
    bytes(text.as_bytes(), text.len() + 1).map(|pointer| pointer.cast())
}

/// Bytes that `free` gives back, with zeros behind them up to `len` and beyond.
pub(crate) fn bytes(bytes: &[u8], len: usize) -> Outcome<*mut c_void> {
    // SAFETY: no memory is involved.
    let pointer = unsafe { libc::calloc(1, len.max(bytes.len()).max(64)) };
    if pointer.is_null() {
        return Err(Errno::NO_MEMORY);
    }
    // SAFETY: there is that much room.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
    Ok(pointer)
}

/// An info with all its attributes, of zeros. Freed on drop, unless it was handed over.
pub(crate) struct Info {
    info: *mut fi_info,
}

impl Info {
    pub fn new() -> Outcome<Info> {
        let made = Info { info: piece()? };
        // SAFETY: a piece of zeros, which is an info without parts.
        let info = unsafe { &mut *made.info };
        info.tx_attr = piece()?;
        info.rx_attr = piece()?;
        info.ep_attr = piece()?;
        info.domain_attr = piece()?;
        info.fabric_attr = piece()?;
        Ok(made)
    }

    /// All parts, to be filled in.
    pub fn parts(&mut self) -> Parts<'_> {
        // SAFETY: made by `new`, and ours alone.
        unsafe {
            let info = &mut *self.info;
            Parts {
                tx: &mut *info.tx_attr,
                rx: &mut *info.rx_attr,
                ep: &mut *info.ep_attr,
                domain: &mut *info.domain_attr,
                fabric: &mut *info.fabric_attr,
                info,
            }
        }
    }

    /// Hands it to C.
    pub fn into_raw(self) -> *mut fi_info {
        std::mem::ManuallyDrop::new(self).info
    }
}

/// The parts of an info.
pub(crate) struct Parts<'a> {
    pub info: &'a mut fi_info,
    pub tx: &'a mut fi_tx_attr,
    pub rx: &'a mut fi_rx_attr,
    pub ep: &'a mut fi_ep_attr,
    pub domain: &'a mut fi_domain_attr,
    pub fabric: &'a mut fi_fabric_attr,
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: whatever is not NULL was made by `calloc` and belongs to the info.
        unsafe {
            let info = &*self.info;
            if !info.domain_attr.is_null() {
                libc::free((*info.domain_attr).name.cast());
            }
            if !info.fabric_attr.is_null() {
                libc::free((*info.fabric_attr).name.cast());
            }
            for part in [
                info.src_addr,
                info.dest_addr,
                info.tx_attr.cast(),
                info.rx_attr.cast(),
                info.ep_attr.cast(),
                info.domain_attr.cast(),
                info.fabric_attr.cast(),
                self.info.cast(),
            ] {
                libc::free(part);
            }
        }
    }
}
