//! Memory of an accelerator (a GPU) that the processor must not touch: its driver copies there and back. Whoever registers such memory
//! marks its address, and the mark goes wherever the address goes: through regions, pieces and payloads to the few places that
//! read and write bytes, which ask for it ([`crate::HostMemory::copied_by`]).

/// The mark: no address of a program has this bit (x86-64 and AArch64 give programs the lower half of the address space; pointers
/// that AArch64 lets carry a tag in their highest byte are not taken). Registrations refuse addresses that have it. One in a request
/// is the driver's to copy from, which knows no such memory: the request fails.
pub const MARK: u64 = 1 << 63;

/// Whether the address, or one of several joined by OR, is marked.
#[inline]
pub fn is_marked(addr: u64) -> bool {
    addr & MARK != 0
}

/// The address as the program knows it.
#[inline]
pub fn unmarked(addr: u64) -> u64 {
    addr & !MARK
}
