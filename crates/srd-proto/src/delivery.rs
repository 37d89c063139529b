//! How fast data arrives at the receiver, told from the timing of ACKs.
//!
//! Each packet remembers what had been delivered when it left. Its own ACK then tells how much was delivered since and in
//! what time: the longer of the time that sending took and the time that arriving took, so that neither a burst of ACKs
//! nor one of packets looks like a fast network. The form is BBR's (docs/design/congestion-control.md, "Samples of the
//! delivered rate"). Arrival times are differences of the receiver's own clock: nothing is synchronised, and the way back does
//! not count. Reordering does no harm, since bytes are counted and not sequence numbers.

use crate::sent::SentPacket;
use srd_wire::{Ack, Nanos, Stamp, Time};

/// Longest interval believed; beyond it a host stood still.
const MAX_INTERVAL: Nanos = Nanos::from_secs(1);

/// What had been delivered when a packet left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryMark {
    /// Bytes that the receiver had reported, low 32 bits; 0: it had not.
    bytes: u32,
    /// The receiver's clock at that report.
    at: Stamp,
    /// When the packet left of which that report told: from here on sending takes time.
    since: Stamp,
}

impl DeliveryMark {
    pub(crate) const NONE: DeliveryMark = DeliveryMark { bytes: 0, at: Stamp(0), since: Stamp(0) };
}

/// How fast data arrived of late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSample {
    /// Bytes per nanosecond.
    pub rate: f64,
    /// The program, not the network, may have set this pace: it is a lower bound.
    pub app_limited: bool,
}

/// One context's deliveries.
pub(crate) struct Deliveries {
    mark: DeliveryMark,
    /// Our clock when the receiver's last report came.
    reported: Time,
    /// Transmissions up to this number are followed by a time in which there was nothing to send.
    dry: u64,
    /// Bytes sent, retransmissions included.
    pub(crate) sent_bytes: u64,
    /// The round trip in progress ends when this transmission is acknowledged.
    round_end: u64,
    rounds: u32,
}

impl Deliveries {
    pub(crate) fn new() -> Deliveries {
        Deliveries {
            mark: DeliveryMark::NONE,
            reported: Time(0),
            dry: 0,
            sent_bytes: 0,
            round_end: 0,
            rounds: 0,
        }
    }

    /// A packet leaves while nothing is in flight. If that was for want of data, it begins a new interval; if the pace was
    /// so low, the pause belongs to the interval.
    pub(crate) fn note_idle(&mut self, now: Time) {
        if self.dry == 0 && self.mark.bytes != 0 {
            return;
        }
        self.mark.since = now.stamp();
        // The receiver's clock has gone on as ours has.
        let ticks = now.since(self.reported).0 / Stamp::UNIT.0;
        self.mark.at = Stamp(self.mark.at.0.wrapping_add(ticks as u32));
        self.reported = now;
    }

    /// For a packet that leaves now: what has been delivered, and whether there was a lull of the program's of which the
    /// network has not told yet.
    #[inline(always)]
    pub(crate) fn mark(&self) -> (DeliveryMark, bool) {
        (self.mark, self.dry > 0)
    }

    /// There is nothing to send; `order` is the number of the next transmission.
    pub(crate) fn note_dry(&mut self, order: u64) {
        self.dry = order;
    }

    /// Round trips completed.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// An ACK has come, and `newest` is the last transmission of which it tells. `next`: the number of the next one.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        newest: &SentPacket,
        next: u64,
        least: Nanos,
    ) -> Option<RateSample> {
        if newest.order >= self.round_end {
            self.rounds = self.rounds.wrapping_add(1);
            self.round_end = next;
        }
        if newest.order >= self.dry {
            self.dry = 0;
        }
        let mark = newest.mark;
        // Before the first report the receiver's clock is not known: then the round trip counts, as in BBR.
        let arriving =
            if mark.bytes == 0 { now.stamp().since(mark.since) } else { ack.rx_time.since(mark.at) };
        let sending = newest.sent.stamp().since(mark.since);
        let interval = Nanos(arriving.0.max(sending.0));
        if ack.rx_time.since(self.mark.at) < MAX_INTERVAL || self.mark.bytes == 0 {
            self.mark = DeliveryMark { bytes: ack.rcvd_bytes, at: ack.rx_time, since: newest.sent.stamp() };
            self.reported = now;
        }
        // Shorter intervals are artefacts of batching; very long ones are old ACKs, or a host that stood still.
        if interval < least || interval > MAX_INTERVAL {
            return None;
        }
        let bytes = ack.rcvd_bytes.wrapping_sub(mark.bytes);
        if bytes > i32::MAX as u32 {
            return None; // an ACK that was overtaken
        }
        let rate = bytes as f64 / interval.as_f64();
        Some(RateSample { rate, app_limited: newest.app_limited })
    }
}

/// The best rate of late at which the receiver's count of bytes grows from ACK to ACK.
#[derive(Default)]
pub(crate) struct DeliveryRate {
    /// Its byte count and clock at the last sample.
    last: Option<(u32, Stamp)>,
    /// Bytes per nanosecond.
    best: f64,
}

impl DeliveryRate {
    #[inline]
    pub(crate) fn best(&self) -> f64 {
        self.best
    }

    /// An ACK has come. Spans below `least` are artefacts of batching (docs/design/congestion-control.md, "Samples of the
    /// delivered rate"); very long ones are old ACKs.
    #[inline]
    pub(crate) fn on_ack(&mut self, ack: &Ack, least: Nanos) {
        if let Some((bytes, at)) = self.last {
            let span = ack.rx_time.since(at);
            if span < least || span > MAX_INTERVAL {
                return;
            }
            let rate = ack.rcvd_bytes.wrapping_sub(bytes) as f64 / span.as_f64();
            // It fades over some tens of samples.
            self.best = rate.max(self.best * (1.0 - 1.0 / 64.0));
        }
        self.last = Some((ack.rcvd_bytes, ack.rx_time));
    }
}
