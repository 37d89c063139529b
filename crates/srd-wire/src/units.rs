//! Quantities as types, so that no bare integer crosses a module boundary.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since an origin that the caller chose (process start, or the simulation's zero).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Nanos(pub u64);

impl Time {
    /// The end of time: a deadline that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// Time since `earlier`; zero if `earlier` is later (a clock that stepped back counts as no time passed).
    #[inline]
    pub fn since(self, earlier: Time) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// This time as a wire stamp.
    #[inline]
    pub fn stamp(self) -> Stamp {
        Stamp((self.0 >> Stamp::SHIFT) as u32)
    }
}

impl Nanos {
    /// No time.
    pub const ZERO: Nanos = Nanos(0);

    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    /// The span as a count of nanoseconds in floating point.
    #[inline]
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl Add<Nanos> for Time {
    type Output = Time;
    #[inline]
    fn add(self, span: Nanos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Nanos> for Time {
    #[inline]
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

/// A time as it travels: the low 32 bits of a clock that ticks every 16 ns. It wraps after 68 s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Stamp(pub u32);

impl Stamp {
    const SHIFT: u32 = 4;
    /// One tick of its clock.
    pub const UNIT: Nanos = Nanos(1 << Stamp::SHIFT);

    /// Nanoseconds from `earlier` to this stamp, modulo 68 s.
    #[inline]
    pub fn since(self, earlier: Stamp) -> Nanos {
        Nanos((self.0.wrapping_sub(earlier.0) as u64) << Stamp::SHIFT)
    }
}

/// How long a receiver held a packet before its ACK left, in units of 64 ns; [`Hold::TOO_LONG`] means 4.19 ms or
/// more, and such an ACK gives no round-trip sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Hold(pub u16);

impl Hold {
    /// Held too long to be measured.
    pub const TOO_LONG: Hold = Hold(u16::MAX);
    const SHIFT: u32 = 6;

    /// Rounds `span` to the wire's unit.
    #[inline]
    pub fn from_nanos(span: Nanos) -> Hold {
        Hold((span.0 >> Hold::SHIFT).min(u16::MAX as u64) as u16)
    }

    /// The span, or `None` if it was too long to measure.
    #[inline]
    pub fn nanos(self) -> Option<Nanos> {
        (self != Hold::TOO_LONG).then_some(Nanos((self.0 as u64) << Hold::SHIFT))
    }
}

/// Packet sequence number of one direction of one peer context. Compared modulo 2^32; a window is far below 2^31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Psn(pub u32);

impl Psn {
    /// The number `n` places on.
    #[inline]
    pub fn plus(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n))
    }

    /// How far this number lies after `base`; more than 2^31 means before it.
    #[inline]
    pub fn offset_from(self, base: Psn) -> u32 {
        self.0.wrapping_sub(base.0)
    }

    /// Whether this number comes before `other`.
    #[inline]
    pub fn before(self, other: Psn) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

/// Number of a message within one direction of one peer context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MsgId(pub u32);

/// A path slot of a peer, 0 to 255. The slot names a source port; see the path table of `srd-proto`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, PartialOrd, Ord)]
pub struct PathId(pub u8);

/// Queue pair number, 16 bits as on EFA.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, PartialOrd, Ord)]
pub struct Qpn(pub u16);

/// Queue key: the receiving queue pair compares it with its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Qkey(pub u32);

/// Key that names a memory region, local or remote: 24 bits in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MrKey(pub u32);

/// Random number that a device instance draws when it opens; never zero. A restarted process has another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The part that every packet carries. Never zero.
    #[inline]
    pub fn tag(self) -> Tag {
        let low = self.0 as u32;
        Tag(if low == 0 { 1 } else { low })
    }
}

/// Short form of an incarnation; zero means "not known yet".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tag(pub u32);

impl Tag {
    /// The sender does not know whom it talks to yet.
    pub const UNKNOWN: Tag = Tag(0);
}

/// Global identifier of a host, as verbs give it: an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl From<std::net::IpAddr> for Gid {
    fn from(ip: std::net::IpAddr) -> Gid {
        match ip {
            std::net::IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            std::net::IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }
}

impl Gid {
    /// The address this identifier stands for.
    pub fn ip(self) -> std::net::IpAddr {
        std::net::IpAddr::V6(self.0.into()).to_canonical()
    }

    /// Whether that is an IPv6 address. (IPv4 addresses are mapped: RFC 4291, section 2.5.5.2.)
    #[inline]
    pub fn is_ipv6(self) -> bool {
        u128::from_be_bytes(self.0) >> 32 != 0xffff
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.ip(), f)
    }
}

/// Where a device instance receives: a host and a UDP port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct InstanceAddr {
    /// The host.
    pub gid: Gid,
    /// The UDP port of the instance's receive socket.
    pub port: u16,
}

impl fmt::Display for InstanceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::net::SocketAddr::new(self.gid.ip(), self.port))
    }
}

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct BitRate(pub u64);

impl BitRate {
    /// Bytes that pass in `span` at this rate.
    pub fn bytes_in(self, span: Nanos) -> u64 {
        (self.0 as u128 * span.0 as u128 / 8_000_000_000) as u64
    }

    /// Time that `bytes` take at this rate.
    pub fn time_for(self, bytes: u64) -> Nanos {
        if self.0 == 0 {
            return Nanos(u64::MAX);
        }
        Nanos((bytes as u128 * 8_000_000_000 / self.0 as u128) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_gid_knows_of_what_kind_its_address_is() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "::fffe:a01:203",
            "1::ffff:a01:203",
        ] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(Gid::from(ip).is_ipv6(), ip.is_ipv6(), "{text}");
        }
    }
}
