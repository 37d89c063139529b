//! One direction of a cable and the queue in front of it.
//!
//! A plain first-in-first-out queue is a single number, the moment at which all that is in it has left: a packet's
//! departure is known when it arrives, so that a hop is one event.

use crate::net::rng;
use crate::net::topology::NodeId;
use crate::net::topology::PortId;
use rand::Rng;
use srd_baselines::units::Ps;
use srd_wire::BitRate;

/// Times per byte are in units of 2^-16 ps.
const SHIFT: u32 = 16;

/// What a port has seen.
#[derive(Clone, Copy, Default, Debug)]
pub struct PortCounters {
    /// Frames that left.
    pub frames: u64,
    /// Bytes that left.
    pub bytes: u64,
    /// Frames that found no room.
    pub dropped: u64,
    /// Frames marked.
    pub marked: u64,
    /// Frames trimmed to their headers.
    pub trimmed: u64,
    /// Frames lost to faults of the cable.
    pub lost: u64,
    /// Most bytes that have waited.
    pub most_waiting: u64,
    /// What waited, as a time, summed up over time: in square picoseconds.
    pub(super) area: f64,
}

/// See the module.
pub(super) struct Port {
    /// When all that has been put in has left.
    pub(super) free_at: Ps,
    per_byte: u64,
    /// Propagation, and the latency of the switch at the other end.
    pub(super) delay: Ps,
    /// Capacity and thresholds of marking, as the time that so many bytes take.
    pub(super) capacity: Ps,
    pub(super) mark_from: Ps,
    pub(super) mark_all: Ps,
    pub(super) mark_probability: f32,
    /// Whether it marks at all: not every port does, of switches that do.
    pub(super) marks: bool,
    /// Node at the other end.
    pub(super) to: NodeId,
    /// Number of its queued form, if a single first-in-first-out queue does not do.
    pub(super) queued: u32,
    /// Changes with every fault that loses what is on the cable.
    pub(super) epoch: u8,
    /// Something is wrong with the cable: see `Faults`.
    pub(super) faulty: bool,
    /// Whoever watches the fabric wants to see this port's frames.
    pub(super) watched: bool,
    /// Random numbers drawn for its frames.
    draws: u32,
    pub(super) counters: PortCounters,
}

impl Port {
    pub(super) fn new(to: NodeId, rate: BitRate, delay: Ps) -> Port {
        let mut port = Port {
            free_at: Ps::ZERO,
            per_byte: 0,
            delay,
            capacity: Ps::NEVER,
            mark_from: Ps::NEVER,
            mark_all: Ps::NEVER,
            mark_probability: 0.0,
            marks: false,
            to,
            queued: u32::MAX,
            epoch: 0,
            faulty: false,
            watched: false,
            draws: 0,
            counters: PortCounters::default(),
        };
        port.set_rate(rate.0 as f64);
        port
    }

    /// The next random number for its frames, in 0..1: each port has a sequence of its own, so that the order in which ports
    /// come to draw makes no difference.
    pub(super) fn draw(&mut self, seed: u64, id: PortId) -> f64 {
        self.draws += 1;
        rng::source(seed ^ 0xFAB, id.0, self.draws).random()
    }

    /// A host's or its card's: nothing is dropped there.
    pub(super) fn is_unlimited(&self) -> bool {
        self.capacity == Ps::NEVER
    }

    pub(super) fn set_rate(&mut self, bits_per_second: f64) {
        self.per_byte = (8e12 / bits_per_second * (1u64 << SHIFT) as f64).round() as u64;
    }

    /// How long so many bytes take.
    #[inline]
    pub(super) fn time_of(&self, bytes: u64) -> Ps {
        Ps(((bytes as u128 * self.per_byte as u128) >> SHIFT) as u64)
    }

    /// As [`Port::time_of`], for a frame.
    #[inline]
    pub(super) fn frame_time(&self, bytes: u32) -> Ps {
        Ps((bytes as u64 * self.per_byte) >> SHIFT)
    }

    /// As [`Port::bytes_of`], in fractions.
    pub(super) fn bytes_of_real(&self, ps: f64) -> f64 {
        ps * (1u64 << SHIFT) as f64 / self.per_byte.max(1) as f64
    }

    /// How many bytes leave in so long.
    pub(super) fn bytes_of(&self, span: Ps) -> u64 {
        ((span.0 as u128) << SHIFT).checked_div(self.per_byte as u128).unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_takes_its_time_at_any_rate() {
        for (gbps, ps) in [(100, 80), (400, 20), (800, 10), (25, 320)] {
            let port = Port::new(NodeId(0), BitRate(gbps * 1_000_000_000), Ps::ZERO);
            assert_eq!(port.time_of(1000), Ps(1000 * ps));
            assert_eq!(port.bytes_of(Ps(1000 * ps)), 1000);
        }
        let mut port = Port::new(NodeId(0), BitRate(100_000_000_000), Ps::ZERO);
        port.set_rate(33e9);
        assert!((port.time_of(1_000_000).0 as f64 / (8e18 / 33e9) - 1.0).abs() < 1e-5);
    }
}
