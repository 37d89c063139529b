//! What the endpoints of a domain share, and what each call works with.

use crate::api::{Config, Done, Iov};
use crate::buffers::{Buffer, Buffers};
use crate::counters::Counters;
use crate::regions::Regions;
use srd_device::{Access, AhNumber, CqId, Device, DeviceError, PdId, Store};
use srd_wire::{MrKey, Time};

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
    pub done: Completed,
    pub counters: Counters,
    /// The device has been asked for something since the last call of [`crate::Domain::take_touched`].
    pub touched: bool,
    /// Some endpoint has peers that are gone, or strangers of this host.
    pub any_gone: bool,
    pub any_strangers: bool,
}

/// Completions that nobody has taken, the oldest first. Mostly all are taken at once, and the next is the first again.
#[derive(Default)]
pub(crate) struct Completed {
    list: Vec<Done>,
    /// Of the list, which begins anew when all are.
    taken: usize,
}

impl Completed {
    #[inline]
    pub fn push(&mut self, done: Done) {
        self.list.push(done);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.list.len() - self.taken
    }

    /// Hands all of them to `each`. Returns whether there was any.
    #[inline]
    pub fn take(&mut self, each: impl FnMut(&Done)) -> bool {
        let any = !self.list.is_empty();
        if any {
            self.take_all(each);
        }
        any
    }

    #[inline(never)]
    fn take_all(&mut self, each: impl FnMut(&Done)) {
        self.list[self.taken..].iter().for_each(each);
        self.list.clear();
        self.taken = 0;
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<Done> {
        let &done = self.list.get(self.taken)?;
        self.taken += 1;
        if self.taken * 2 > self.list.len() {
            self.list.drain(..self.taken);
            self.taken = 0;
        }
        Some(done)
    }

    pub fn retain(&mut self, stays: impl FnMut(&Done) -> bool) {
        self.list.drain(..self.taken);
        self.taken = 0;
        self.list.retain(stays);
    }
}

/// What a call works with.
pub(crate) struct Cx<'a, M: Store> {
    device: &'a mut Device<M>,
    pub now: Time,
    pub shared: &'a mut Shared,
}

impl<'a, M: Store> Cx<'a, M> {
    #[inline]
    pub fn new(device: &'a mut Device<M>, now: Time, shared: &'a mut Shared) -> Cx<'a, M> {
        Cx { device, now, shared }
    }

    /// The device, to have it do something.
    #[inline]
    pub fn device(&mut self) -> &mut Device<M> {
        self.shared.touched = true;
        self.device
    }

    /// The device, to ask it something.
    #[inline]
    pub fn asked(&self) -> &Device<M> {
        self.device
    }

    /// Registers memory of the program. That gives the device nothing to do.
    pub fn register(&mut self, piece: &Iov, access: Access) -> Result<MrKey, DeviceError> {
        self.device.reg_mr(self.shared.pd, piece.addr, piece.len, piece.addr, access)
    }

    pub fn destroy_ah(&mut self, ah: AhNumber) {
        let (now, pd) = (self.now, self.shared.pd);
        let _ = self.device().destroy_ah(now, pd, ah);
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{EndpointId, Kind};

    fn done(context: u64) -> Done {
        Done::new(EndpointId(context as u32 % 2), Kind::Read, context, true)
    }

    #[test]
    fn what_has_completed_is_taken_once_and_the_oldest_first() {
        let mut completed = Completed::default();
        (0..5).for_each(|context| completed.push(done(context)));
        assert_eq!([completed.pop(), completed.pop()].map(|done| done.unwrap().context), [0, 1]);
        completed.push(done(5));
        completed.retain(|done| done.endpoint == EndpointId(1));
        assert_eq!(completed.len(), 2);
        assert_eq!(completed.pop().unwrap().context, 3);
        completed.push(done(7));
        let mut taken = Vec::new();
        assert!(completed.take(|done| taken.push(done.context)));
        assert_eq!((taken, completed.len(), completed.pop()), (vec![5, 7], 0, None));
        assert!(!completed.take(|_| unreachable!("all are taken")));
    }
}
