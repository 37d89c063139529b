//! Time inside the fabric, in picoseconds: a byte at 800 Gb/s takes ten.

use srd_wire::{BitRate, Nanos, Time};
use std::ops::{Add, AddAssign, Sub};

/// A point in simulated time, or a span of it, in picoseconds. 2^64 of them are 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Ps(pub u64);

impl Ps {
    /// The beginning, or no time.
    pub const ZERO: Ps = Ps(0);
    /// A moment that never comes.
    pub const NEVER: Ps = Ps(u64::MAX);

    /// `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Ps {
        Ps(n * 1_000)
    }

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Ps {
        Ps(n * 1_000_000)
    }

    /// `n` microseconds, rounded to the nearest picosecond; 0 if negative.
    pub fn from_micros_f64(n: f64) -> Ps {
        Ps((n * 1e6).round() as u64)
    }

    /// In microseconds.
    pub fn as_micros(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long `bytes` take at `rate`, rounded up. The rate must not be zero.
    #[inline]
    pub fn to_send(bytes: u64, rate: BitRate) -> Ps {
        Ps((bytes as u128 * 8_000_000_000_000).div_ceil(rate.0 as u128) as u64)
    }

    /// The protocol's clock, which ticks in nanoseconds, at this moment.
    #[inline]
    pub fn time(self) -> Time {
        Time(self.0 / 1_000)
    }

    /// The first moment at which the protocol's clock shows `time`.
    #[inline]
    pub fn of(time: Time) -> Ps {
        Ps(time.0.saturating_mul(1_000))
    }

    /// Time since `earlier`; zero if that is later.
    #[inline]
    pub fn since(self, earlier: Ps) -> Ps {
        Ps(self.0.saturating_sub(earlier.0))
    }
}

impl From<Nanos> for Ps {
    fn from(span: Nanos) -> Ps {
        Ps(span.0.saturating_mul(1_000))
    }
}

impl Add for Ps {
    type Output = Ps;
    #[inline]
    fn add(self, span: Ps) -> Ps {
        Ps(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Ps {
    #[inline]
    fn add_assign(&mut self, span: Ps) {
        *self = *self + span;
    }
}

impl Sub for Ps {
    type Output = Ps;
    #[inline]
    fn sub(self, earlier: Ps) -> Ps {
        self.since(earlier)
    }
}
