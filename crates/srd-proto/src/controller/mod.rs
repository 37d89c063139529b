//! Congestion control: how much one peer context may have in flight, and how fast it may send.
//!
//! A controller sees acknowledgements and losses, never paths by name; the path selector is the other half
//! (`selector`), and neither knows the other. To add one: a file here, a variant of
//! [`crate::ControllerKind`], a line in [`controller`].

mod fixed;
mod log_target;

pub use log_target::Law;

use crate::{Config, ControllerKind};
use srd_wire::{Nanos, Time};

/// What one acknowledgement tells about one path's newest packet.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When the ACK came.
    pub now: Time,
    /// Round trip without the receiver's hold time, if it can be told.
    pub rtt: Option<Nanos>,
    /// Time that hosts, not the network, have held the packet or its ACK.
    pub host: Nanos,
    /// Of that, time for which this host has held the ACK.
    pub local: Nanos,
    /// Smallest round trip of late.
    pub min_rtt: Option<Nanos>,
    /// Packets newly acknowledged, counted once per ACK (0 on its further echoes).
    pub newly_acked: u32,
    /// Bytes in flight before this ACK.
    pub inflight_bytes: u64,
    /// Whether the window, not the program, limited what was in flight.
    pub window_limited: bool,
    /// Senders that the receiver serves (0: it does not say).
    pub senders: u16,
    /// Rate at which data arrives at the receiver, in bytes per nanosecond, best of late; 0 if unknown.
    pub delivery_rate: f64,
}

/// What a controller allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
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
    pub memory: Nanos,
}

/// See the module.
pub trait CongestionController: Send {
    /// A packet was acknowledged.
    fn on_ack(&mut self, sample: &AckSample);

    /// A packet was found lost.
    fn on_loss(&mut self, now: Time);

    /// What may be sent.
    fn allowance(&self) -> Allowance;
}

/// The controller that `config` names, for packets of `packet_bytes`.
pub(crate) fn controller(config: &Config, packet_bytes: u32) -> Box<dyn CongestionController> {
    match config.controller {
        ControllerKind::Fixed { window_bytes } => Box::new(fixed::Fixed::new(window_bytes, config)),
        ControllerKind::LogTarget => Box::new(log_target::LogTarget::new(config, packet_bytes)),
    }
}
