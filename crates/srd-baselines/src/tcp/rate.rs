//! How fast segments are delivered (draft-cheng-iccrg-delivery-rate-estimation).

use super::scoreboard::Sent;
use srd_wire::{Nanos, Time};

/// What a connection has delivered.
#[derive(Clone, Copy, Default, Debug)]
pub struct Delivery {
    /// Segments.
    pub total: u64,
    /// When the last of them was acknowledged.
    pub at: Time,
    /// When the newest of them had been sent.
    pub first_sent_at: Time,
    /// Until so many are delivered, the flow has had too little to send.
    pub short_until: u64,
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Segments that had been delivered when the segment left that this ACK is about.
    pub prior: u64,
    /// Segments delivered since.
    pub segments: u64,
    /// In this time.
    pub interval: Nanos,
    /// The flow had too little to send.
    pub short: bool,
    /// What was lost of what was in flight with that segment.
    pub losses: Losses,
}

impl Rate {
    /// Segments.
    pub fn per_second(&self) -> f64 {
        self.segments as f64 * 1e9 / self.interval.as_f64()
    }
}

/// What was lost since a segment left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Losses {
    /// Segments in flight when it left, itself included.
    pub in_flight: u32,
    /// Segments found lost since.
    pub lost: u64,
}

impl Losses {
    /// Whether more than this part of them was.
    pub fn exceed(&self, part: f64) -> bool {
        self.lost as f64 > part * f64::from(self.in_flight)
    }
}

/// A measurement in the making.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sampling {
    newest: Option<Sent>,
}

impl Delivery {
    /// Nothing is in flight when this is called: a new measurement begins.
    pub fn restart(&mut self, now: Time) {
        (self.at, self.first_sent_at) = (now, now);
    }

    /// Whether samples of segments that leave now would be too low.
    pub fn short(&self) -> bool {
        self.short_until > 0
    }
}

impl Sampling {
    /// A segment is acknowledged.
    pub fn delivered(&mut self, sent: &Sent) {
        if self.newest.is_none_or(|newest| sent.order > newest.order) {
            self.newest = Some(*sent);
        }
    }

    /// All that an ACK acknowledges is known. `fresh`: how many segments; `losses`: how many were ever found lost.
    pub fn end(self, now: Time, fresh: u32, least: Nanos, losses: u64, delivery: &mut Delivery) -> Option<Rate> {
        delivery.total += fresh as u64;
        if delivery.short_until > 0 && delivery.total > delivery.short_until {
            delivery.short_until = 0;
        }
        if fresh > 0 {
            delivery.at = now;
        }
        let sent = self.newest?;
        delivery.first_sent_at = delivery.first_sent_at.max(sent.at);
        let interval = sent.at.since(sent.first_sent_at).max(now.since(sent.delivered_at));
        // Shorter than a round trip: ACKs were held up and came together.
        (interval >= least && interval > Nanos::ZERO).then_some(Rate {
            prior: sent.delivered,
            segments: delivery.total - sent.delivered,
            interval,
            short: sent.short,
            losses: Losses { in_flight: sent.in_flight, lost: losses - sent.losses },
        })
    }
}
