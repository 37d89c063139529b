//! Packets of one message that leave one behind the other, at one moment and on one path: a train. What [`Peer::poll_transmit`]
//! asks for each packet holds for the next of its message as well, until something else happens to the endpoint or one of the
//! bounds below is reached. So for those that follow these bounds alone are looked at.

use crate::congestion_control::SendLimits;
use crate::messages::OutMessage;
use crate::peer::Peer;
use crate::sent::Load;
use crate::shared::Shared;
use crate::{Follower, Payload};
use srd_wire::Time;

/// What holds for the next packet of a train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    message: u32,
    /// Bytes of each packet that count as in flight.
    bytes: u16,
    /// With more in flight the window is in the way, or near.
    most_in_flight: u64,
    limits: SendLimits,
}

impl<P: Payload> Peer<P> {
    /// What may follow the packet of `message` that leaves now with `payload` bytes behind a header of `header`, and no padding.
    #[inline]
    pub(crate) fn begin_train(
        &mut self,
        message: u32,
        header: u16,
        payload: u16,
        limits: &SendLimits,
        shared: &Shared,
    ) -> Option<Train> {
        let OutMessage { len, next, segment, .. } = *self.messages.get(message);
        let has_more = payload == segment && len - next > segment as u32;
        if !has_more || !self.standing.proven || self.carries_hello(true) || shared.trace.is_on() {
            return None;
        }
        // A packet that leaves the window no room for another one asks for an ACK.
        let window = limits.window_bytes.min(self.share.bytes);
        let most_in_flight = window.checked_sub(2 * self.max_datagram as u64)?;
        Some(Train { message, bytes: header + segment, most_in_flight, limits: *limits })
    }

    /// Up to `most` packets that follow the last one, given to `sink`.
    #[inline]
    pub(crate) fn poll_followers(
        &mut self,
        now: Time,
        most: usize,
        shared: &mut Shared,
        sink: &mut impl FnMut(Follower<'_, P>),
    ) {
        let Some(Train { message: slot, bytes, most_in_flight, limits }) = self.train else { return };
        let Some(outgoing) = self.outgoing.as_mut() else { return };
        let OutMessage { next: begin, len: end, segment: len, .. } = *self.messages.get(slot);
        let first = Load { message: slot, offset: begin, len, bytes };
        let psn = self.sent.next();
        // The last of a message, and of all that waits, may be shorter, carry an ACK or ask for one.
        let waiting = self.messages.queued_bytes().saturating_sub(self.max_datagram as u64);
        let most = (most as u32).min(self.sent.room());
        let (mut packets, mut payload_bytes) = (0, 0);
        let mut in_flight = self.sent.inflight_bytes();
        while packets < most {
            // Another message may have its turn.
            if self.burst.turn_is_over() && self.messages.head() != Some(slot) {
                break;
            }
            let offset = begin + payload_bytes;
            let goes_on = waiting > payload_bytes as u64
                && end - offset > len as u32
                && in_flight <= most_in_flight
                && self.pacer.is_open(now)
                && self.burst.has_room(bytes as u64);
            if !goes_on {
                break;
            }
            if self.burst.ends_turn(bytes as u64, len as u32, false, shared.config.turn()) {
                self.messages.end_turn();
            }
            self.pacer.sent(now, &limits, bytes as u64, &mut shared.rng);
            let payload = &self.messages.get(slot).payload.slice(offset as usize, len as usize);
            sink(Follower { psn: psn.plus(packets), offset, payload, bytes: bytes as usize });
            packets += 1;
            payload_bytes += len as u32;
            in_flight += bytes as u64;
        }
        if packets == 0 {
            return;
        }
        let path = self.burst.path;
        self.messages.take_segments(slot, len as u32, packets);
        self.sent.first_transmissions(now, path, first, packets, &mut outgoing.paths);
        outgoing.paths.get_mut(path).bytes += payload_bytes as u64;
        for counters in [&mut shared.stats.tx_pkts, &mut self.counters.tx_pkts] {
            *counters += packets as u64;
        }
        for counters in [&mut shared.stats.tx_bytes, &mut self.counters.tx_bytes] {
            *counters += payload_bytes as u64;
        }
    }
}
