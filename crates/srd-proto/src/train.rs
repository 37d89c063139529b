//! Packets of one message that leave one behind the other, at one moment and on one path: a train. What [`Peer::poll_transmit`]
//! asks for each packet holds for the next of its message as well, until something else happens to the endpoint or one of the
//! bounds below is reached. So for those that follow these bounds alone are looked at.

use crate::congestion_control::SendLimits;
use crate::messages::OutMessage;
use crate::peer::Peer;
use crate::sent::Load;
use crate::shared::Shared;
use crate::{Followers, Payload};
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

    /// Up to `most` packets that follow the last one, given to `sink` with the payload of all that it is given.
    #[inline]
    pub(crate) fn poll_followers(
        &mut self,
        now: Time,
        most: usize,
        shared: &mut Shared,
        sink: &mut impl FnMut(Followers, &P),
    ) {
        let Some(Train { message: slot, bytes, most_in_flight, limits }) = self.train else { return };
        let Some(outgoing) = self.outgoing.as_mut() else { return };
        let OutMessage { next: begin, len: end, segment: len, .. } = *self.messages.get(slot);
        let first = Load { message: slot, offset: begin, len, bytes };
        let (psn, turn) = (self.sent.next(), shared.config.turn());
        let (packet, segment) = (u64::from(bytes), u32::from(len));
        // The last of a message, and of all that waits, may be shorter, carry an ACK or ask for one.
        let waiting = self.messages.queued_bytes().saturating_sub(self.max_datagram as u64);
        let of_message = (end - begin).div_ceil(segment).saturating_sub(1);
        let window =
            most_in_flight.checked_sub(self.sent.inflight_bytes()).map_or(0, |room| room / packet + 1);
        let most = [waiting.div_ceil(u64::from(len)), window]
            .into_iter()
            .fold((most as u32).min(self.sent.room()).min(of_message), |most, other| {
                u64::from(most).min(other) as u32
            });
        let mut packets = 0;
        while packets < most {
            // Another message may have its turn.
            if self.burst.turn_is_over() && self.messages.head() != Some(slot) {
                break;
            }
            let count = self.burst.packets(packet, segment, turn).min(most - packets);
            if count == 0 || !self.pacer.is_open(now) {
                break;
            }
            let count = self.pacer.sent(now, &limits, packet, count, &mut shared.rng);
            let offset = self.messages.take_segments(slot, segment, count);
            if self.burst.ends_turn(count, packet, segment, false, turn) {
                self.messages.end_turn();
            }
            let payload = &self.messages.get(slot).payload.slice(offset as usize, (count * segment) as usize);
            sink(
                Followers { psn: psn.plus(packets), offset, len, count, bytes: usize::from(bytes) },
                payload,
            );
            packets += count;
        }
        if packets == 0 {
            return;
        }
        let path = self.burst.path;
        let payload_bytes = u64::from(packets * segment);
        self.sent.first_transmissions(now, path, first, packets, &mut outgoing.paths);
        outgoing.paths.get_mut(path).bytes += payload_bytes;
        for counters in [&mut shared.stats.tx_pkts, &mut self.counters.tx_pkts] {
            *counters += u64::from(packets);
        }
        for counters in [&mut shared.stats.tx_bytes, &mut self.counters.tx_bytes] {
            *counters += payload_bytes;
        }
    }
}
