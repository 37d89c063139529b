//! How large a datagram towards one peer may be. Networks that swallow large packets without a word exist (path-MTU black
//! holes), so that nothing above the size that every network carries is sent before a padded probe of that size has been
//! answered: packetization layer path MTU discovery, after RFC 8899.

use srd_wire::codec::MIN_DATAGRAM;
use srd_wire::{Nanos, Time};

/// What every network carries: IPv6's smallest MTU, 1280, less the IPv6 and UDP headers.
pub(crate) const BASE_DATAGRAM: u16 = 1232;
/// Tried if the largest size does not get through: Ethernet's MTU, less the IPv6 and UDP headers.
const ETHERNET_DATAGRAM: u16 = 1452;
/// Probes of one size. RFC 8899, section 5.1.2 (MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// When a larger size is tried again.
const RAISE_AFTER: Nanos = Nanos::from_secs(10);
/// Rounds in a row with losses of larger packets and deliveries of smaller ones only that make the proven size
/// doubtful...
const DOUBT_AFTER: u32 = 6;
/// ...and that end the message: its packets cannot be cut smaller.
const GIVE_UP_AFTER: u32 = 24;
/// Losses in a row that count as one once the size is in doubt.
const RESTS: u64 = 15;
/// Bit that tells probes of size from probes of paths.
const SIZE_PROBE: u32 = 1 << 31;

/// See the module.
#[derive(Clone)]
pub(crate) struct PathMtu {
    /// Bytes that sealing adds to what is counted here.
    seal: u16,
    max: u16,
    proven: u16,
    trying: u16,
    attempts: u8,
    number: u32,
    probe_at: Time,
    bad_rounds: u32,
    /// Packets sent before this belong to rounds that are counted.
    counted_until: Time,
}

impl PathMtu {
    /// Up to `max` bytes; at once if `trusted`. On its way a datagram is `seal` bytes longer.
    pub(crate) fn new(max: u16, trusted: bool, seal: u16) -> PathMtu {
        let proven = if trusted { max } else { max.min(BASE_DATAGRAM - seal) };
        let probe_at = if proven == max { Time::NEVER } else { Time(0) };
        PathMtu {
            seal,
            max,
            proven,
            trying: max,
            attempts: 0,
            number: SIZE_PROBE,
            probe_at,
            bad_rounds: 0,
            counted_until: Time(0),
        }
    }

    /// Largest datagram for new packets.
    pub(crate) fn datagram(&self) -> u16 {
        self.proven
    }

    /// Whoever knows says that nothing larger than `max` gets through. (That it be less than every peer must take is not
    /// believed.)
    pub(crate) fn limit(&mut self, max: u16) {
        let max = max.max(MIN_DATAGRAM);
        if max < self.max {
            *self = PathMtu::new(max, false, self.seal);
        }
    }

    fn base(&self) -> u16 {
        BASE_DATAGRAM - self.seal
    }

    fn ethernet(&self) -> u16 {
        ETHERNET_DATAGRAM - self.seal
    }

    /// When [`PathMtu::poll`] has something to do.
    pub(crate) fn next_event(&self) -> Time {
        self.probe_at
    }

    /// The number and size of a probe to be sent now. `patience`: how long an answer may take.
    pub(crate) fn poll(&mut self, now: Time, patience: Nanos) -> Option<(u32, u16)> {
        if now < self.probe_at {
            return None;
        }
        if self.attempts == MAX_PROBES {
            self.attempts = 0;
            if self.trying > self.ethernet() && self.proven < self.ethernet() {
                self.trying = self.ethernet();
            } else {
                self.trying = self.max;
                self.probe_at = now + RAISE_AFTER;
                return None;
            }
        }
        self.attempts += 1;
        self.number = (self.number + 1) | SIZE_PROBE;
        self.probe_at = now + Nanos(patience.0 << self.attempts);
        Some((self.number, self.trying))
    }

    /// A probe has been answered.
    pub(crate) fn on_echo(&mut self, now: Time, number: u32) {
        if number & SIZE_PROBE == 0 || number != self.number || self.trying <= self.proven {
            return;
        }
        self.proven = self.trying;
        self.attempts = 0;
        self.bad_rounds = 0;
        self.trying = self.max;
        self.probe_at = if self.proven == self.max { Time::NEVER } else { now + RAISE_AFTER };
    }

    /// A packet of `bytes` has been acknowledged.
    #[inline]
    pub(crate) fn on_ack(&mut self, bytes: u16) {
        if bytes > self.base() {
            self.bad_rounds = 0;
        }
    }

    /// A packet of `bytes`, sent at `sent`, was lost while others arrived. Whether its message should be given up.
    pub(crate) fn on_loss(&mut self, now: Time, sent: Time, bytes: u16) -> bool {
        if bytes <= self.base() {
            return false;
        }
        if sent >= self.counted_until {
            self.bad_rounds += 1;
            // The size is in doubt soon, the message is given up late: a full queue may be what swallows its packets.
            let rest = if self.bad_rounds > DOUBT_AFTER { RESTS * now.since(sent).0 } else { 0 };
            self.counted_until = now + Nanos(rest);
        }
        if self.bad_rounds == DOUBT_AFTER && self.proven > self.base() {
            self.proven = self.base();
            self.trying = self.max;
            self.attempts = 0;
            self.probe_at = now;
        }
        self.bad_rounds >= GIVE_UP_AFTER && self.proven <= self.base()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Nanos = Nanos::from_micros(100);

    /// Answers every probe of at most `carried` bytes, until `mtu` asks no more for a while.
    fn discover(mtu: &mut PathMtu, carried: u16) {
        let end = Time(1_000_000_000);
        while mtu.next_event() < end {
            let now = mtu.next_event();
            if let Some((number, size)) = mtu.poll(now, PATIENCE)
                && size <= carried
            {
                mtu.on_echo(now + PATIENCE, number);
            }
        }
    }

    #[test]
    fn nothing_large_is_sent_before_a_probe_of_that_size_was_answered() {
        let mut mtu = PathMtu::new(8972, false, 0);
        assert_eq!(mtu.datagram(), BASE_DATAGRAM);
        discover(&mut mtu, 9000);
        assert_eq!(mtu.datagram(), 8972);
    }

    #[test]
    fn a_black_hole_for_jumbo_frames_leaves_ethernets_size() {
        let mut mtu = PathMtu::new(8972, false, 0);
        discover(&mut mtu, 1472);
        assert_eq!(mtu.datagram(), ETHERNET_DATAGRAM);
    }

    #[test]
    fn a_black_hole_that_opens_later_is_found() {
        let mut mtu = PathMtu::new(8972, true, 0);
        for round in 0..DOUBT_AFTER as u64 {
            for _ in 0..100 {
                assert!(!mtu.on_loss(Time(1000 * round + 500), Time(1000 * round), 8972));
            }
        }
        assert_eq!(mtu.datagram(), BASE_DATAGRAM);
        discover(&mut mtu, 1472);
        assert_eq!(mtu.datagram(), ETHERNET_DATAGRAM);
    }

    #[test]
    fn losses_among_deliveries_are_no_black_hole() {
        let mut mtu = PathMtu::new(8972, true, 0);
        for round in 0..100 {
            mtu.on_loss(Time(1000 * round + 500), Time(1000 * round), 8972);
            mtu.on_ack(8972);
        }
        assert_eq!(mtu.datagram(), 8972);
    }
}
