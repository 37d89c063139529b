//! The layer's own buffers: a few sizes, each with a list of free ones, so that nothing is allocated once the lists are
//! filled. Longer ones come from the memory each time.

use srd_device::Store;

/// A piece of the layer's memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub addr: u64,
    class: u8,
    /// Of one without a class.
    len: usize,
}

/// Sizes. Those of more than a page are odd numbers of cache lines, so that not all of them begin in the same few sets of
/// a cache.
const SIZES: [usize; 4] = [256, 1088, 9_024, 66_112];
/// How many are allocated together.
const TOGETHER: [usize; 4] = [64, 16, 4, 1];
const NO_CLASS: u8 = u8::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: [Vec<u64>; 4],
    chunks: Vec<(u64, usize)>,
}

impl Buffers {
    /// A buffer of at least `len` bytes.
    #[inline]
    pub fn take<M: Store>(&mut self, memory: &mut M, len: usize) -> Option<Buffer> {
        let Some(class) = SIZES.iter().position(|&size| len <= size) else {
            return memory.allocate(len).map(|addr| Buffer { addr, class: NO_CLASS, len });
        };
        if self.free[class].is_empty() {
            self.allocate(memory, class)?;
        }
        let addr = self.free[class].pop()?;
        Some(Buffer { addr, class: class as u8, len: SIZES[class] })
    }

    #[cold]
    fn allocate<M: Store>(&mut self, memory: &mut M, class: usize) -> Option<()> {
        let (size, count) = (SIZES[class], TOGETHER[class]);
        let addr = memory.allocate(size * count)?;
        self.chunks.push((addr, size * count));
        self.free[class].extend((0..count).rev().map(|i| addr + (i * size) as u64));
        Some(())
    }

    /// Takes a buffer back.
    #[inline]
    pub fn give<M: Store>(&mut self, memory: &mut M, buffer: Buffer) {
        match buffer.class {
            NO_CLASS => memory.free(buffer.addr, buffer.len),
            class => self.free[class as usize].push(buffer.addr),
        }
    }

    /// Gives everything back to the memory. No buffer is in use any more.
    pub fn close<M: Store>(&mut self, memory: &mut M) {
        self.free = Default::default();
        for (addr, len) in self.chunks.drain(..) {
            memory.free(addr, len);
        }
    }
}
