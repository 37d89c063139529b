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
/// Bytes of a size that stay when none of it is in use.
const STAYS: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: [Vec<u64>; 4],
    chunks: [Vec<u64>; 4],
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
        self.chunks[class].push(addr);
        self.free[class].extend((0..count).rev().map(|i| addr + (i * size) as u64));
        Some(())
    }

    /// Takes a buffer back.
    #[inline]
    pub fn give<M: Store>(&mut self, memory: &mut M, buffer: Buffer) {
        match buffer.class {
            NO_CLASS => memory.free(buffer.addr, buffer.len),
            class => {
                let class = class as usize;
                self.free[class].push(buffer.addr);
                let all = self.chunks[class].len() * TOGETHER[class];
                if self.free[class].len() == all && all * SIZES[class] > STAYS {
                    self.shrink(memory, class);
                }
            }
        }
    }

    /// A burst is over: most of what it took goes back to the memory.
    #[cold]
    fn shrink<M: Store>(&mut self, memory: &mut M, class: usize) {
        let (size, count) = (SIZES[class], TOGETHER[class]);
        let stay = STAYS / 2 / (size * count);
        for addr in self.chunks[class].drain(stay..) {
            memory.free(addr, size * count);
        }
        self.chunks[class].shrink_to_fit();
        let stay = self.chunks[class].iter();
        self.free[class] =
            stay.flat_map(|&addr| (0..count).rev().map(move |i| addr + (i * size) as u64)).collect();
    }

    /// Gives everything back to the memory. No buffer is in use any more.
    pub fn close<M: Store>(&mut self, memory: &mut M) {
        self.free = Default::default();
        for (class, chunks) in self.chunks.iter_mut().enumerate() {
            for addr in chunks.drain(..) {
                memory.free(addr, SIZES[class] * TOGETHER[class]);
            }
        }
    }
}
