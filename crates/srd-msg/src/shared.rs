//! What the endpoints of a domain share, and what each call works with.

use crate::api::{Config, Done};
use crate::buffers::{Buffer, Buffers};
use crate::counters::Counters;
use crate::regions::Regions;
use srd_device::{CqId, Device, PdId, Store};
use srd_wire::{MrKey, Time};
use std::collections::VecDeque;

/// What the endpoints of a domain have in common.
pub(crate) struct Shared {
    pub config: Config,
    pub pd: PdId,
    pub cq: CqId,
    /// Local key of all memory of the process.
    pub all_memory: MrKey,
    pub max_msg: u32,
    /// Of that, what writes and atomic operations by message may have: they are copied, or carried out, in one go.
    pub short_msg: u32,
    pub buffers: Buffers,
    pub regions: Regions,
    /// Some endpoint or region counts what peers do.
    pub counts: bool,
    pub done: VecDeque<Done>,
    pub counters: Counters,
}

/// What a call works with.
pub(crate) struct Cx<'a, M: Store> {
    pub device: &'a mut Device<M>,
    pub now: Time,
    pub shared: &'a mut Shared,
}

impl<M: Store> Cx<'_, M> {
    #[inline]
    pub fn memory(&mut self) -> &mut M {
        self.device.memory()
    }

    /// A buffer for what a peer has sent, if there is memory.
    #[inline]
    pub fn try_buffer(&mut self, len: usize) -> Option<Buffer> {
        self.shared.buffers.take(self.device.memory(), len)
    }

    /// A buffer; there must be memory for it, as for everything else of the process.
    #[inline]
    pub fn take_buffer(&mut self, len: usize) -> Buffer {
        let buffer = self.shared.buffers.take(self.device.memory(), len);
        buffer.unwrap_or_else(|| panic!("out of memory: {len} bytes for a message"))
    }

    #[inline]
    pub fn give_buffer(&mut self, buffer: Buffer) {
        self.shared.buffers.give(self.device.memory(), buffer);
    }
}
