//! How large the window is: four answers behind one trait. What a loss is, and how a window shrinks, `sender`
//! says.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;

pub use bbr::{Bbr, Bbr3};
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use newreno::NewReno;

use super::rate::{Losses, Rate};
use srd_wire::{Nanos, Time};
use std::fmt::Debug;

/// Least window after congestion, in segments (RFC 5681, section 3.1).
const LEAST: u32 = 2;

/// Which answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// [`NewReno`].
    NewReno,
    /// [`Cubic`].
    Cubic,
    /// [`Dctcp`].
    Dctcp,
    /// [`Bbr`].
    Bbr,
    /// [`Bbr3`].
    Bbr3,
}

impl Algorithm {
    /// Any version of BBR, which is none without pacing (draft-cardwell-iccrg-bbr-congestion-control, section 4.2.1).
    pub fn is_bbr(self) -> bool {
        matches!(self, Algorithm::Bbr | Algorithm::Bbr3)
    }
}

/// The congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Segments that may be in flight: cwnd.
    pub size: u32,
    /// Below this size it grows fast: ssthresh.
    pub threshold: u32,
}

impl Window {
    /// Whether it grows by a segment for each that is acknowledged.
    pub fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows up to the threshold. Returns how many of the acknowledged segments are left over.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = acked.min(self.threshold.saturating_sub(self.size));
        self.size += grown;
        acked - grown
    }
}

/// What has happened to the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// Segments were lost.
    Loss,
    /// A timer ran out.
    Timeout,
    /// A switch has marked.
    Mark,
}

/// What the sender is doing about losses and marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Nothing.
    Open,
    /// It makes its window smaller because of a mark.
    Reducing,
    /// It repairs a loss.
    Recovering,
    /// It has started again after a timeout.
    TimedOut,
}

/// What an ACK has brought.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub now: Time,
    /// Segments that it is the first to acknowledge, in order or not.
    pub acked: u32,
    /// Of those, in order.
    pub advanced: u32,
    /// Segments that were found lost.
    pub lost: u32,
    /// It carries ECE.
    pub marked: bool,
    /// Round trip of the newest segment.
    pub rtt: Option<Nanos>,
    /// SRTT.
    pub smoothed: Nanos,
    /// First segment that is not acknowledged.
    pub first: u64,
    /// First segment that has not been sent.
    pub next: u64,
    /// Segments delivered since the connection's beginning.
    pub delivered: u64,
    /// Segments in flight before it, and after.
    pub flights: (u32, u32),
    /// Delivery rate.
    pub rate: Option<Rate>,
    /// Of the last segment that was found lost now: what else was lost of what was in flight with it.
    pub last_lost: Option<Losses>,
    /// What the sender is doing, this ACK included.
    pub phase: Phase,
    /// The window has been the limit of late.
    pub limited: bool,
    /// The window may grow: nobody is making it smaller.
    pub may_grow: bool,
}

/// An answer.
pub trait Control: Debug + Send {
    /// An ACK has come; the sender has not yet reacted to marks and losses.
    fn heard(&mut self, _sample: &Sample) {}

    /// The sender has reacted; now the window may grow.
    fn acknowledged(&mut self, window: &mut Window, sample: &Sample);

    /// How small the window is to become: the new threshold.
    fn reduced(&mut self, window: &Window, why: Congestion) -> u32;

    /// There was no congestion: the sender has given the window its old size.
    fn restored(&mut self) {}

    /// Segments per second at which bursts leave.
    fn pace(&self) -> Option<f64> {
        None
    }

    /// Whether it decides about the window alone, during recoveries too.
    fn rules(&self) -> bool {
        false
    }
}

/// An answer for a connection. `burst`: segments of its largest burst; `seed`: of its own.
pub fn control(algorithm: Algorithm, window: &Window, smoothed: Nanos, burst: u32, seed: u64) -> Box<dyn Control> {
    match algorithm {
        Algorithm::NewReno => Box::new(NewReno::default()),
        Algorithm::Cubic => Box::new(Cubic::default()),
        Algorithm::Dctcp => Box::new(Dctcp::default()),
        Algorithm::Bbr => Box::new(Bbr::new(window.size, smoothed, burst, seed)),
        Algorithm::Bbr3 => Box::new(Bbr3::new(window.size, smoothed, burst, seed)),
    }
}
