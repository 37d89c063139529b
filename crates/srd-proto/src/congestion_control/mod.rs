//! Congestion control: how much one peer context may have in flight, and how fast it may send.
//!
//! A controller sees acknowledgements and losses, and of paths only how many of them agree; the path selector is the
//! other half (`path_selector`), and neither knows the other. The default is `log_target`, with a folder for its parts. To
//! add one: a file here, and a line in the list of [`ControllerKind`].

mod fixed;
mod log_target;
mod paper;

pub use log_target::ControlLaw;

use crate::kinds::kinds;
use srd_wire::{Nanos, PathId, Time};

pub use crate::delivery::RateSample;

/// What one acknowledgement tells about one path's newest packet.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When the ACK came.
    pub now: Time,
    /// The path of which it tells, if of any.
    pub path: Option<PathId>,
    /// Round trip without the receiver's hold time, if it can be told.
    pub rtt: Option<Nanos>,
    /// Time that hosts, not the network, have held the packet or its ACK.
    pub host: Nanos,
    /// Time for which they often hold them.
    pub hosts_ns: f64,
    /// Of `host`, time for which this host has held the ACK.
    pub local: Nanos,
    /// Smallest round trip of late.
    pub min_rtt: Option<Nanos>,
    /// Packets newly acknowledged: those of the ACK, divided among what it tells of paths.
    pub newly_acked: u32,
    /// ACKs since the last sample that were predicted: they came without a delay, and in no need of a larger window.
    pub predicted: u32,
    /// Bytes in flight before this ACK.
    pub inflight_bytes: u64,
    /// Whether the window, not the program, limited what was in flight.
    pub window_limited: bool,
    /// Senders that the receiver serves (0: it does not say).
    pub senders: u16,
    /// Rate at which data arrives at the receiver, in bytes per nanosecond, best of late; 0 if unknown.
    pub delivery_rate: f64,
    /// How fast data arrived since the newest packet of this ACK left, once per ACK.
    pub rate: Option<RateSample>,
    /// Congestion marks newly reported, once per ACK.
    pub ce_marks: u32,
    /// Round trips completed: one ends when a packet is acknowledged that left after the last one's end.
    pub round: u32,
    /// Bytes sent so far, headers and retransmissions included.
    pub sent_bytes: u64,
}

impl Default for AckSample {
    /// An ACK that tells nothing.
    fn default() -> AckSample {
        AckSample {
            now: Time(0),
            path: None,
            rtt: None,
            host: Nanos::ZERO,
            hosts_ns: 0.0,
            local: Nanos::ZERO,
            min_rtt: None,
            newly_acked: 0,
            predicted: 0,
            inflight_bytes: 0,
            window_limited: false,
            senders: 0,
            delivery_rate: 0.0,
            rate: None,
            ce_marks: 0,
            round: 0,
            sent_bytes: 0,
        }
    }
}

/// What a controller goes by, for the event trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControllerView {
    /// Its own word for what it does.
    pub phase: &'static str,
    /// Queueing delay that it goes by.
    pub delay_ns: f64,
    /// Queueing delay that it aims at.
    pub target_ns: f64,
    /// Rate of delivery that it believes in, in bytes per nanosecond.
    pub delivery_rate: f64,
    /// Rate at which it has sent of late, in bytes per nanosecond.
    pub transmit_rate: f64,
}

/// What a controller allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendLimits {
    /// Most bytes in flight. One packet may always be in flight.
    pub window_bytes: u64,
    /// Bytes per nanosecond; infinite if unpaced.
    pub rate: f64,
    /// Most bytes that may leave back to back on one path: what the rate sends within the queueing target.
    pub burst_bytes: u64,
    /// Most bytes by which the pacing may be made up for after a pause: a burst, or what the rate sends while this host
    /// looks elsewhere.
    pub credit_bytes: u64,
    /// Packets sent longer ago than this do not count as in flight as long as others are answered: they are lost, though
    /// their timers have yet to say so.
    pub inflight_horizon: Nanos,
}

/// See the module.
pub trait CongestionController: Send {
    /// A packet was acknowledged.
    fn on_ack(&mut self, sample: &AckSample);

    /// A packet was found lost. Called for each of them.
    fn on_loss(&mut self, now: Time);

    /// A switch has cut a packet, and all are told of: so many can be that each says less.
    fn on_cut(&mut self, now: Time) {
        self.on_loss(now);
    }

    /// Nothing has been in flight for many round trips, and something is to be sent: what was measured then says nothing of now.
    fn on_restart_after_idle(&mut self) {}

    /// What may be sent.
    fn send_limits(&self) -> SendLimits;

    /// What it goes by.
    fn view(&self) -> ControllerView {
        ControllerView::default()
    }
}

kinds! {
    /// Which algorithm limits the rate.
    pub enum ControllerKind;
    pub(crate) fn controller(config.controller, packet_bytes: u32) -> dyn CongestionController;
    /// Window updated per ACK towards a delay target that falls with the logarithm of the window.
    LogTarget = "log-target": log_target::LogTarget::new(config, packet_bytes);
    /// What the SRD paper says: a rate limit that follows the rate of delivery, and an inflight limit.
    Paper = "paper": paper::Paper::new(config, packet_bytes);
    /// A constant window ([`crate::Config::fixed_window_bytes`]), no pacing.
    Fixed = "fixed": fixed::Fixed::new(config);
}

#[cfg(test)]
mod tests;
