//! Registered memory, divided into places for one message each.

use super::pattern::{self, Corrupt};
use srd_net::Buffer;

/// Messages begin where a cache line does.
const ALIGNMENT: usize = 64;

/// How much memory messages come from and go to where nobody looks at their content: what iperf3 uses for TCP. As in
/// perftest and the OSU benchmarks, messages then share it, so that the measure is the transport and not the caches.
pub const SHARED_BYTES: usize = 128 << 10;

/// Room for a number of messages of one size.
pub struct Slots {
    buffer: Buffer,
    count: usize,
    /// How many of them have memory of their own.
    distinct: usize,
    size: usize,
    stride: usize,
    /// One message, while it is made or looked at.
    message: Vec<u8>,
}

impl Slots {
    /// `count` slots of `size` bytes, all zero and backed by memory now. Unless they are `distinct`, those beyond
    /// [`SHARED_BYTES`] share the memory of earlier ones.
    pub fn new(count: usize, size: usize, distinct: bool) -> Slots {
        let stride = size.next_multiple_of(ALIGNMENT);
        let distinct = if distinct { count } else { (SHARED_BYTES / stride).clamp(1, count) };
        let buffer = Buffer::new(distinct * stride);
        let slots = Slots { buffer, count, distinct, size, stride, message: vec![0; size] };
        (0..distinct).for_each(|slot| slots.clear(slot));
        slots
    }

    /// Address of the first slot.
    pub fn address(&self) -> u64 {
        self.buffer.addr()
    }

    /// Length of all slots together in bytes.
    pub fn bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// How far a slot's first byte lies from the first slot's, in bytes.
    pub fn offset(&self, slot: usize) -> usize {
        slot % self.distinct * self.stride
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Writes the pattern of message `number` into a slot.
    pub fn fill(&mut self, slot: usize, number: u64) {
        pattern::fill(&mut self.message, number);
        self.buffer.write(self.offset(slot), &self.message);
    }

    /// Zeroes a slot.
    pub fn clear(&self, slot: usize) {
        self.buffer.write(self.offset(slot), &vec![0; self.size]);
    }

    /// Whether nothing has been written to a zeroed slot.
    pub fn is_clear(&mut self, slot: usize) -> bool {
        self.buffer.read(self.offset(slot), &mut self.message);
        self.message.iter().all(|&byte| byte == 0)
    }

    /// Copies the first bytes of a slot.
    pub fn read(&self, slot: usize, out: &mut [u8]) {
        self.buffer.read(self.offset(slot), out);
    }

    /// The number of the message whose pattern the slot holds; see [`pattern::check`].
    pub fn check(&mut self, slot: usize) -> Result<Option<u64>, Corrupt> {
        self.buffer.read(self.offset(slot), &mut self.message);
        pattern::check(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let mut slots = Slots::new(4, 100, true);
        (0..4).for_each(|slot| slots.fill(slot, slot as u64));
        assert!((0..4).all(|slot| slots.check(slot) == Ok(Some(slot as u64))));
        assert_eq!((slots.count(), slots.offset(3), slots.bytes()), (4, 384, 512));
        slots.clear(1);
        assert!(slots.is_clear(1) && !slots.is_clear(0) && !slots.is_clear(2));
    }

    #[test]
    fn shared_slots_take_no_more_memory_than_they_may() {
        let slots = Slots::new(1000, 8192, false);
        assert_eq!((slots.count(), slots.bytes()), (1000, SHARED_BYTES as u64));
        assert_eq!(slots.offset(999), 999 % 16 * 8192);
        assert_eq!(Slots::new(3, 1 << 20, false).bytes(), 1 << 20);
        assert_eq!(Slots::new(3, 8, false).bytes(), 3 * 64);
    }
}
