//! Registered memory, divided into places for one message each.

use super::pattern::{self, Corrupt};
use srd_net::Buffer;

/// Messages begin where a cache line does.
const ALIGNMENT: usize = 64;

/// Room for a number of messages of one size.
pub struct Slots {
    buffer: Buffer,
    size: usize,
    stride: usize,
    /// One message, while it is made or looked at.
    message: Vec<u8>,
}

impl Slots {
    /// `count` slots of `size` bytes, all zero and backed by memory now.
    pub fn new(count: usize, size: usize) -> Slots {
        let stride = size.next_multiple_of(ALIGNMENT);
        let slots = Slots { buffer: Buffer::new(count * stride), size, stride, message: vec![0; size] };
        (0..count).for_each(|slot| slots.clear(slot));
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
        slot * self.stride
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.buffer.len() / self.stride
    }

    /// Writes the pattern of message `number` into a slot.
    pub fn fill(&mut self, slot: usize, number: u64) {
        pattern::fill(&mut self.message, number);
        self.buffer.write(slot * self.stride, &self.message);
    }

    /// Zeroes a slot.
    pub fn clear(&self, slot: usize) {
        self.buffer.write(slot * self.stride, &vec![0; self.size]);
    }

    /// Whether nothing has been written to a zeroed slot.
    pub fn is_clear(&mut self, slot: usize) -> bool {
        self.buffer.read(slot * self.stride, &mut self.message);
        self.message.iter().all(|&byte| byte == 0)
    }

    /// Copies the first bytes of a slot.
    pub fn read(&self, slot: usize, out: &mut [u8]) {
        self.buffer.read(slot * self.stride, out);
    }

    /// The number of the message whose pattern the slot holds; see [`pattern::check`].
    pub fn check(&mut self, slot: usize) -> Result<Option<u64>, Corrupt> {
        self.buffer.read(slot * self.stride, &mut self.message);
        pattern::check(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let mut slots = Slots::new(4, 100);
        (0..4).for_each(|slot| slots.fill(slot, slot as u64));
        assert!((0..4).all(|slot| slots.check(slot) == Ok(Some(slot as u64))));
        assert_eq!((slots.count(), slots.offset(3), slots.bytes()), (4, 384, 512));
        slots.clear(1);
        assert!(slots.is_clear(1) && !slots.is_clear(0) && !slots.is_clear(2));
    }
}
