//! Memory for the device.

use srd_device::HostMemory;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The process's memory, as the device wants it.
pub fn host_memory() -> HostMemory {
    // SAFETY: the promise is about memory that is registered later; `Instance::open` hands it on to the program.
    unsafe { HostMemory::new() }
}

/// Memory that the device and peers may read and write while the program does: it is reached by copying only, never
/// by reference.
#[derive(Debug)]
pub struct Buffer {
    addr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is reached by copying only; what two copies at the same time make of it is bytes, and nothing
// depends on which.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes of zeroes, aligned to a page.
    pub fn new(len: usize) -> Buffer {
        let layout =
            Layout::from_size_align(len.max(1), 4096).expect("a buffer is smaller than the address space");
        // SAFETY: the size is not zero.
        let Some(addr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Buffer { addr, layout }
    }

    /// Where it begins.
    pub fn addr(&self) -> u64 {
        self.addr.as_ptr() as u64
    }

    /// How many bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Copies from it.
    ///
    /// # Panics
    ///
    /// If that goes beyond its end.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(
            out.len() <= self.len() && offset <= self.len() - out.len(),
            "read beyond the end of a buffer"
        );
        // SAFETY: within the buffer; `out` is memory of its own.
        unsafe { self.addr.as_ptr().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
    }

    /// Copies to it.
    ///
    /// # Panics
    ///
    /// If that goes beyond its end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.len() && offset <= self.len() - bytes.len(),
            "write beyond the end of a buffer"
        );
        // SAFETY: within the buffer; `bytes` is memory of its own.
        unsafe { self.addr.as_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies `len` bytes from it.
    pub fn to_vec(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(offset, &mut out);
        out
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.addr.as_ptr(), self.layout) };
    }
}
