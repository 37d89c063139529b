//! Memory as a layer above the device sees it: it has buffers of its own, which it reads and writes, and copies between
//! them and the program's.

use crate::api::Memory;
use std::ops::Range;

/// See the module. Addresses are real ones (see [`Memory`]).
pub trait Store: Memory {
    /// Memory for the layer's own use, aligned to a cache line (64 bytes); `None` if there is none left. What it holds at
    /// first is not said.
    fn allocate(&mut self, len: usize) -> Option<u64>;

    /// Gives back what [`Store::allocate`] gave, with the same length.
    fn free(&mut self, addr: u64, len: usize);

    /// Bytes that [`Store::allocate`] gave, while the device does not write them.
    fn bytes(&self, addr: u64, len: usize) -> &[u8];

    /// The same, to be written, while the device does not read them.
    fn bytes_mut(&mut self, addr: u64, len: usize) -> &mut [u8];

    /// Copies; the ranges may overlap. False if that cannot be: an accelerator's memory has gone.
    fn copy(&mut self, from: u64, to: u64, len: usize) -> bool;

    /// Whether the memory there, or some of it if several addresses are joined by OR, is an accelerator's, which only
    /// [`Store::copy`] and [`Store::update`] reach.
    fn is_accelerators(&self, _addr: u64) -> bool {
        false
    }

    /// Whether `range`, which a program has registered, can still be read, or with `write` be written.
    fn is_there(&mut self, _range: Range<u64>, _write: bool) -> bool {
        true
    }

    /// Lets `change` work on up to 32 bytes. Nothing else that this method does comes between, in this process. A value of 4
    /// or 8 bytes at an address that is a multiple of its length changes at once also for who looks with instructions of the
    /// machine; `change` may then run several times. False, and nothing has changed, where an accelerator's memory has gone.
    fn update(&mut self, addr: u64, len: usize, change: &mut dyn FnMut(&mut [u8])) -> bool;
}
