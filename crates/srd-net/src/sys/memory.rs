//! Memory for the device.

use crate::accelerator;
use arrayvec::ArrayVec;
use nix::unistd::{SysconfVar, sysconf};
use srd_device::accelerator::is_marked;
use srd_device::{HostMemory, MAX_SEND_SGE, Piece};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The process's memory, as the device wants it.
pub fn host_memory() -> HostMemory {
    // SAFETY: the promise is about memory that is registered later; `Instance::open` hands it on to the program.
    unsafe { HostMemory::new() }
        .checked_by(|addr, len| is_there(addr, len, true))
        .read_by(read)
        .copied_by(accelerator::copy)
}

fn read(pieces: &[Piece], out: &mut [u8]) -> bool {
    let pieces: ArrayVec<libc::iovec, MAX_SEND_SGE> = pieces
        .iter()
        .map(|piece| libc::iovec { iov_base: piece.addr as *mut libc::c_void, iov_len: piece.len as usize })
        .collect();
    // SAFETY: the device has found them in registered regions.
    unsafe { read_pieces(&pieces, out) }
}

static PAGE: LazyLock<usize> = LazyLock::new(|| {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.expect("every system knows the size of its pages") as usize
});

/// Whether the kernel faults pages in when asked to (Linux 5.14 and later).
static POPULATES: LazyLock<bool> = LazyLock::new(|| {
    // SAFETY: an empty range: only the advice is looked at.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) == 0 }
});

/// Whether there is memory behind every byte of the range, and it may be read, or with `write` written. Its pages are
/// faulted in as for a device that pins them, and the kernel refuses where it would refuse to pin. A kernel that cannot
/// do that only says whether something is mapped.
pub fn is_there(addr: usize, len: usize, write: bool) -> bool {
    let Some(end) = addr.checked_add(len) else { return false };
    let start = addr & !(*PAGE - 1);
    if !*POPULATES {
        return is_mapped(start, end);
    }
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no byte; the kernel checks the range.
    unsafe { libc::madvise(start as *mut libc::c_void, end - start, advice) == 0 }
}

/// Whether something is mapped from `start`, where a page begins, to `end`.
fn is_mapped(start: usize, end: usize) -> bool {
    let mut resident = [0u8; 4096];
    let mut at = start;
    while at < end {
        let step = (end - at).min(resident.len() * *PAGE);
        // SAFETY: the vector has a byte for each page of the step; the kernel checks the range.
        if unsafe { libc::mincore(at as *mut libc::c_void, step, resident.as_mut_ptr()) } != 0 {
            return false;
        }
        at += step;
    }
    true
}

/// Set once the system has refused `process_vm_readv` (a seccomp filter may).
static PLAIN_COPIES: AtomicBool = AtomicBool::new(false);

/// Copies `pieces`, at most `UIO_MAXIOV`, to `out`, which is as long as all of them. Returns false if some of it is not
/// there (an accelerator's memory: its driver says so): the kernel copies, and answers where a plain copy would end the process.
///
/// # Safety
///
/// The pieces can be read, but for what their owner has unmapped meanwhile. Where the system refuses the call, they can
/// be read without this exception.
pub unsafe fn read_pieces(pieces: &[libc::iovec], out: &mut [u8]) -> bool {
    let total: usize = pieces.iter().map(|piece| piece.iov_len).sum();
    assert_eq!(total, out.len(), "there is room for exactly the pieces");
    if total == 0 {
        return true;
    }
    if pieces.iter().any(|piece| is_marked(piece.iov_base as u64)) {
        // SAFETY: as the caller says.
        return unsafe { read_piece_by_piece(pieces, out) };
    }
    if !PLAIN_COPIES.load(Ordering::Relaxed) {
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        // SAFETY: the kernel writes at most `out.len()` bytes to `out`, and checks what it reads.
        let got = unsafe {
            libc::process_vm_readv(
                libc::getpid(),
                &local,
                1,
                pieces.as_ptr(),
                pieces.len() as libc::c_ulong,
                0,
            )
        };
        if got >= 0 {
            return got as usize == total;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => PLAIN_COPIES.store(true, Ordering::Relaxed),
            _ => return false,
        }
    }
    let mut at = out.as_mut_ptr();
    for piece in pieces {
        // SAFETY: by the caller's promise; `out` has room for all pieces. A program that writes its buffer while it is
        // being sent may get either content sent, as with any device that reads memory.
        unsafe {
            piece.iov_base.cast::<u8>().copy_to_nonoverlapping(at, piece.iov_len);
            at = at.add(piece.iov_len);
        }
    }
    true
}

/// As [`read_pieces`], where some are an accelerator's.
///
/// # Safety
///
/// As there.
#[cold]
unsafe fn read_piece_by_piece(pieces: &[libc::iovec], out: &mut [u8]) -> bool {
    let mut rest = out;
    pieces.iter().all(|piece| {
        let (to, behind) = std::mem::take(&mut rest).split_at_mut(piece.iov_len);
        rest = behind;
        match is_marked(piece.iov_base as u64) {
            true => {
                to.is_empty() || accelerator::copy(piece.iov_base as u64, to.as_mut_ptr() as u64, to.len())
            }
            // SAFETY: as the caller says.
            false => unsafe { read_pieces(&[*piece], to) },
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_or_is_protected_is_recognised() {
        let here = vec![7u8; 100_000];
        let addr = here.as_ptr() as usize;
        for write in [false, true] {
            assert!(is_there(addr, here.len(), write));
            assert!(is_there(addr + 1, 1, write));
            assert!(!is_there(*PAGE, *PAGE, write));
            assert!(!is_there(addr, usize::MAX, write));
        }
        assert!(here.iter().all(|&byte| byte == 7));
        let map = |pages: usize, protection| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a mapping of our own.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), pages * *PAGE, protection, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            at
        };
        let (two, none) = (map(2, libc::PROT_READ), map(1, libc::PROT_NONE));
        // SAFETY: of the same mapping.
        unsafe { libc::munmap(two.byte_add(*PAGE), *PAGE) };
        let two = two as usize;
        assert!(is_there(two, *PAGE, false));
        assert!(!is_there(two, *PAGE + 1, false));
        assert!(is_mapped(two, two + *PAGE));
        assert!(!is_mapped(two, two + *PAGE + 1));
        if *POPULATES {
            assert!(!is_there(two, *PAGE, true));
            assert!(!is_there(none as usize, 1, false));
        }
        // SAFETY: as above.
        unsafe {
            libc::munmap(two as *mut libc::c_void, *PAGE);
            libc::munmap(none, *PAGE);
        }
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        let here = [7u8; 100];
        let piece = |addr: *const u8, len| libc::iovec { iov_base: addr.cast_mut().cast(), iov_len: len };
        let mut out = [0; 150];
        // SAFETY: the first can be read, and the second range is unmapped, as is allowed.
        unsafe {
            assert!(read_pieces(&[piece(here.as_ptr(), 100), piece(here.as_ptr(), 50)], &mut out));
            assert_eq!(out, [7; 150]);
            assert!(!read_pieces(&[piece(here.as_ptr(), 100), piece(4096 as *const u8, 50)], &mut out));
            assert!(!read_pieces(&[piece(4096 as *const u8, 50)], &mut out[..50]));
            assert!(read_pieces(&[], &mut []));
        }
    }
}
