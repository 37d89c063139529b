//! How many peers send to us, told to each of them in ACKs so that they can share the link from the first round trip on.

use srd_wire::{Nanos, Time};

/// Base round trips of an epoch in which senders of single packets are counted.
const SHORT_EPOCH: u64 = 2;
/// Base round trips of an epoch in which senders of unfinished messages are counted: of 1,000 senders that share a link
/// each sends a packet in some 24 round trips (docs/design/congestion-control.md, "The prototype").
const LONG_EPOCH: u64 = 64;

/// Peers that were seen in this epoch, and those seen in the last one and not yet in this.
#[derive(Clone, Copy, Default)]
struct Epochs {
    number: u64,
    current: u16,
    previous: u16,
}

impl Epochs {
    fn at(&mut self, now: Time, length: u64) -> u64 {
        let number = now.0 / length.max(1) + 1;
        if number != self.number {
            self.previous = if number == self.number + 1 { self.current } else { 0 };
            self.current = 0;
            self.number = number;
        }
        number
    }

    /// A peer seen last in epoch `seen` (0: never) is seen now.
    fn see(&mut self, seen: &mut u64) {
        if *seen != self.number {
            self.forget(*seen);
            *seen = self.number;
            self.current = self.current.saturating_add(1);
        }
    }

    fn forget(&mut self, seen: u64) {
        if seen == self.number {
            self.current = self.current.saturating_sub(1);
        } else if seen + 1 == self.number {
            self.previous = self.previous.saturating_sub(1);
        }
    }

    fn count(&self, now: Time, length: u64) -> u16 {
        match (now.0 / length.max(1) + 1).saturating_sub(self.number) {
            0 => self.current.saturating_add(self.previous),
            1 => self.current,
            _ => 0,
        }
    }
}

/// When a peer was counted last.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    any: u64,
    unfinished: u64,
    /// What it sends is on no link ([`crate::OwnAddress`]).
    near: bool,
}

impl Counted {
    pub(crate) fn new(near: bool) -> Counted {
        Counted { near, ..Counted::default() }
    }

    /// See there.
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }
}

/// Those that come the same way.
#[derive(Default)]
struct Senders {
    any: Epochs,
    unfinished: Epochs,
}

impl Senders {
    /// How many there are: those that were heard just now, or those of which more is awaited.
    fn count(&self, now: Time, base_rtt: Nanos) -> u16 {
        if self.any.number == 0 {
            return 0; // nobody has ever come this way
        }
        self.any.count(now, SHORT_EPOCH * base_rtt.0).max(self.awaited(now, base_rtt))
    }

    fn awaited(&self, now: Time, base_rtt: Nanos) -> u16 {
        self.unfinished.count(now, LONG_EPOCH * base_rtt.0)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct ActiveSenders {
    away: Senders,
    near: Senders,
    /// Senders to other instances behind the same link.
    pub(crate) neighbours: u16,
}

impl ActiveSenders {
    /// How many there are to this instance over the link.
    pub(crate) fn on_link(&self, now: Time, base_rtt: Nanos) -> u16 {
        self.away.count(now, base_rtt)
    }

    /// Of how many of those more is awaited.
    pub(crate) fn awaited(&self, now: Time, base_rtt: Nanos) -> u16 {
        self.away.awaited(now, base_rtt)
    }

    /// How many share what lies between a peer and this instance.
    pub(crate) fn senders(&self, now: Time, base_rtt: Nanos, peer: &Counted) -> u16 {
        let all = self.on_link(now, base_rtt).saturating_add(self.near.count(now, base_rtt));
        if peer.near { all } else { all.saturating_add(self.neighbours) }
    }

    /// A data packet of a peer has come; `awaited`: more of its messages is.
    pub(crate) fn count(&mut self, now: Time, base_rtt: Nanos, peer: &mut Counted, awaited: bool) {
        let senders = if peer.near { &mut self.near } else { &mut self.away };
        senders.any.at(now, SHORT_EPOCH * base_rtt.0);
        senders.any.see(&mut peer.any);
        senders.unfinished.at(now, LONG_EPOCH * base_rtt.0);
        if awaited {
            senders.unfinished.see(&mut peer.unfinished);
        } else if peer.unfinished > 0 {
            // It has come to an end, and leaves its share to the others.
            senders.unfinished.forget(peer.unfinished);
            senders.any.forget(peer.any);
            *peer = Counted::new(peer.near);
        }
    }
}

/// Of the receiver's socket buffer all senders together may fill so much: the kernel charges a datagram with up to twice its
/// size.
const RCVBUF_SHARE: u64 = 2;

/// What a sender may have of its receiver's socket buffer.
pub(crate) struct Share {
    /// Senders that the receiver serves, as it said last.
    pub(crate) senders: u16,
    /// Bytes that may be in flight for the receiver's sake.
    pub(crate) bytes: u64,
    /// Its buffer in bytes; 0 until it has said so.
    buffer: u64,
}

impl Default for Share {
    fn default() -> Share {
        Share { senders: 0, bytes: u64::MAX, buffer: 0 }
    }
}

impl Share {
    #[inline]
    pub(crate) fn buffer(&self) -> u64 {
        self.buffer
    }

    /// The receiver has a buffer of so many bytes, as far as one knows for this sender alone.
    #[inline]
    pub(crate) fn of_buffer(&mut self, buffer: u64, max_datagram: u16) {
        self.buffer = buffer;
        self.among(1, max_datagram);
    }

    /// The receiver serves so many senders.
    #[inline]
    pub(crate) fn among(&mut self, senders: u16, max_datagram: u16) {
        self.senders = senders;
        if self.buffer > 0 {
            let share = self.buffer / RCVBUF_SHARE / senders.max(1) as u64;
            self.bytes = share.max(max_datagram as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Nanos = Nanos(1000);

    #[test]
    fn a_sender_counts_as_long_as_more_of_it_is_awaited_and_it_is_heard() {
        let mut load = ActiveSenders::default();
        let mut peers = [Counted::default(); 100];
        for (i, peer) in peers.iter_mut().enumerate() {
            load.count(Time(i as u64 * 500), BASE, peer, true);
        }
        assert_eq!(load.on_link(Time(50_000), BASE), 100);
        for (i, peer) in peers.iter_mut().enumerate() {
            load.count(Time(100_000 + i as u64), BASE, peer, i % 2 == 0);
        }
        load.count(Time(110_000), BASE, &mut peers[0], true);
        load.count(Time(112_000), BASE, &mut peers[0], true);
        assert_eq!(load.on_link(Time(112_000), BASE), 50);
        load.count(Time(1_000_000), BASE, &mut peers[0], true);
        assert_eq!(load.on_link(Time(1_000_000), BASE), 1, "the others have been silent for long");
    }

    #[test]
    fn who_sends_from_our_own_address_shares_no_link_with_neighbours() {
        let mut load = ActiveSenders { neighbours: 5, ..ActiveSenders::default() };
        let (mut near, mut away) = (Counted::new(true), Counted::new(false));
        load.count(Time(0), BASE, &mut near, true);
        load.count(Time(0), BASE, &mut away, true);
        assert_eq!(load.on_link(Time(0), BASE), 1);
        assert_eq!(load.senders(Time(0), BASE, &near), 2);
        assert_eq!(load.senders(Time(0), BASE, &away), 7);
        load.count(Time(1), BASE, &mut near, false);
        assert_eq!(load.senders(Time(1), BASE, &away), 6);
        load.count(Time(2), BASE, &mut Counted::new(false), false);
        assert_eq!((load.on_link(Time(2), BASE), load.awaited(Time(2), BASE)), (2, 1));
    }
}
