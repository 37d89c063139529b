//! Packets of one message that leave one behind the other, at one moment and on one path: a train. What [`Peer::poll_transmit`]
//! asks for each packet holds for the next of its message as well, until something else happens to the endpoint or one of the
//! bounds below is reached. So the packets within a train ask for these bounds alone.

use crate::controller::SendLimits;
use crate::messages::OutMessage;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Payload, Transmit};
use srd_wire::Time;

/// What holds for the next packet of a train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    message: u32,
    /// Bytes of each packet that count as in flight.
    bytes: u16,
    entropy: u16,
    /// With more in flight the window is in the way, or near.
    most_in_flight: u64,
    limits: SendLimits,
    /// A packet of it has left: the next differs from it in PSN and offset alone.
    moving: bool,
}

impl<P: Payload> Peer<P> {
    /// What may follow the packet of `message` that leaves now on the path of `entropy`; `header`: its bytes without payload.
    #[inline]
    pub(crate) fn begin_train(
        &mut self,
        message: u32,
        header: u16,
        entropy: u16,
        limits: &SendLimits,
        shared: &Shared,
    ) -> Option<Train> {
        let OutMessage { len, next, segment, .. } = *self.messages.get(message);
        if len - next <= segment as u32 || shared.trace.is_on() || !self.standing.proven {
            return None;
        }
        let bytes = header + segment;
        // A packet that leaves the window no room for another one asks for an ACK.
        let window = limits.window_bytes.min(self.share.bytes);
        let most_in_flight = window.checked_sub(2 * self.max_datagram as u64)?;
        Some(Train { message, bytes, entropy, most_in_flight, limits: *limits, moving: false })
    }

    /// The next packet of the train, given to `sink`. `None`: its end is reached.
    #[inline(never)] // lone packets need not carry it
    pub(crate) fn poll_train<R>(
        &mut self,
        now: Time,
        shared: &mut Shared,
        sink: &mut impl FnMut(Transmit<P>) -> R,
    ) -> Option<R> {
        let train = self.train.as_mut()?;
        let message = self.messages.get(train.message);
        let len = message.segment as u32;
        // The last of a message, and of all that waits, may be shorter, carry an ACK or ask for one.
        let goes_on = message.len - message.next > len
            && self.messages.queued_bytes() > self.max_datagram as u64
            && self.sent.inflight_bytes() <= train.most_in_flight
            && !self.sent.window_full()
            && self.pacer.is_open(now)
            && self.burst.goes_on(train.bytes as u64, len);
        if !goes_on {
            return None;
        }
        let Train { message, bytes, entropy, limits, .. } = *train;
        let follows = std::mem::replace(&mut train.moving, true);
        let outgoing = self.outgoing.as_mut()?;
        let offset = self.messages.take_segment(message, len);
        self.burst.take(bytes as u64);
        let path = self.burst.path;
        let paths = &mut outgoing.paths;
        let psn = self.sent.first_transmission(now, path, message, offset, len as u16, bytes, paths);
        paths.get_mut(path).bytes += len as u64;
        self.pacer.sent(now, &limits, bytes as u64, &mut shared.rng);
        let sent = *self.sent.record(psn);
        let data = self.data(now, psn, &sent, false);
        let mut transmit = self.data_transmit(data, sent.len, len as u16, entropy, None, shared);
        transmit.follows = follows;
        Some(sink(transmit))
    }
}
