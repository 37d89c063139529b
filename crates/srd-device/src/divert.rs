//! Long messages whose first bytes say where they are wanted: their owner is told as soon as those are there, and may divert the rest to
//! where it is to end up, so that it is not copied again. A message of which other bytes have come before is not told of.

use crate::api::*;
use crate::inbound::Purpose;
use crate::objects::Objects;
use crate::receive_queue::Receive;
use crate::slab::Key;
use srd_proto::Incoming;
use srd_wire::MrKey;

impl<M: Memory> Objects<M> {
    /// The first `here` bytes of a message are in its receive.
    #[cold]
    pub fn note_begun(&mut self, key: Key, receive: Receive, message: &Incoming, here: u32) {
        let Some(inbound) = self.inbound.get(key) else { return };
        let (index, skip) = (inbound.qp, inbound.skip);
        if here < message.len
            && let Some(receive) = self.received(index, skip, &receive, message)
        {
            self.begun = Some(Begun { receive, here, inbound: InboundId(key) });
        }
    }

    /// See [`crate::Device::divert`].
    pub fn divert(&mut self, begun: &Begun, front: u32, rest: &Sge) -> bool {
        let InboundId(key) = begun.inbound;
        let Some(inbound) = self.inbound.get(key) else { return false };
        let pd = self.qp(inbound.qp).init.pd;
        let fits = front as u64 + rest.len as u64 >= begun.receive.byte_len as u64;
        let Some(piece) = self.regions.local(pd, rest, true).filter(|_| fits) else { return false };
        let Some(inbound) = self.inbound.get_mut(key) else { return false };
        match inbound.purpose {
            Purpose::Receive(receive) if receive.sges().len() == 1 && front <= inbound.pieces[0].len => {
                inbound.pieces[0].len = front;
                (inbound.pieces[1], inbound.keys[1]) = (piece, rest.lkey);
                true
            }
            _ => false,
        }
    }

    /// See [`crate::Device::divert_back`].
    pub fn divert_back(&mut self, inbound: InboundId) {
        if let Some(inbound) = self.inbound.get_mut(inbound.0)
            && let Purpose::Receive(receive) = inbound.purpose
            && let [whole] = receive.sges()
        {
            inbound.pieces[0].len = whole.len;
            inbound.pieces[1] = Piece::default();
            inbound.keys[1] = MrKey(0);
        }
    }
}
