//! The receiver's side of a connection: which packets have come, and when to say so.

use super::packet::{Ack, Data, HEADERS, Label};
use std::collections::VecDeque;

/// Packets that a bitmap covers.
const BITMAP: u32 = 64;

/// A set of packets of which all below `next` have come.
#[derive(Clone, Default, Debug)]
struct Came {
    next: u32,
    /// Bits of the packets from `next / 64 * 64` on.
    words: VecDeque<u64>,
    /// Packets above `next`.
    above: u32,
}

impl Came {
    fn has(&self, psn: u32) -> bool {
        psn < self.next || self.words.get(self.word(psn)).is_some_and(|word| word >> (psn % 64) & 1 == 1)
    }

    fn word(&self, psn: u32) -> usize {
        (psn / 64 - self.next / 64) as usize
    }

    /// Takes a packet in. Returns whether it is the first copy.
    fn take(&mut self, psn: u32) -> bool {
        if self.has(psn) {
            return false;
        }
        let word = self.word(psn);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (psn % 64);
        self.above += 1;
        while self.words.front().is_some_and(|word| word >> (self.next % 64) & 1 == 1) {
            self.next += 1;
            self.above -= 1;
            if self.next.is_multiple_of(64) {
                self.words.pop_front();
            }
        }
        true
    }

    /// Bits of 64 packets from `base` on.
    fn bitmap(&self, base: u32) -> u64 {
        if base < self.next {
            return (0..BITMAP).filter(|&bit| self.has(base + bit)).fold(0, |bits, bit| bits | 1 << bit);
        }
        let (word, shift) = (self.word(base), base % 64);
        let low = self.words.get(word).map_or(0, |bits| bits >> shift);
        let high = self.words.get(word + 1).map_or(0, |bits| bits.checked_shl(64 - shift).unwrap_or(0));
        low | high
    }
}

/// What becomes of a data packet.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The ACK to send at once.
    pub(super) ack: Option<Ack>,
    /// The packet had come before.
    pub(super) duplicate: bool,
}

/// A connection's receiving side.
#[derive(Clone, Debug)]
pub(super) struct Receiving {
    came: Came,
    /// Bytes on the wire that have come, each packet once.
    wire: u64,
    /// Packets since the last ACK.
    unacknowledged: u32,
    /// The sender wants an ACK when there are no more holes.
    wanted: bool,
    /// Number of the connection among all of its sender's.
    pub(super) serial: u32,
    /// Its place among the receiver's, which the sender learns from ACKs.
    pub(super) place: u32,
}

impl Receiving {
    pub(super) fn new(serial: u32, place: u32) -> Receiving {
        Receiving { came: Came::default(), wire: 0, unacknowledged: 0, wanted: false, serial, place }
    }

    /// A data packet has come, whole. Marked packets, those that ask for it, copies and the first packet are
    /// acknowledged at once, others when there are `every` of them (uec.cpp, `processData`).
    pub(super) fn take(&mut self, data: &Data, marked: bool, every: u32) -> Taken {
        self.unacknowledged += 1;
        let first = self.wire == 0;
        let duplicate = !self.came.take(data.psn);
        if duplicate {
            return Taken { ack: Some(self.ack(data, marked, marked)), duplicate };
        }
        self.wire += (data.payload as u32 + HEADERS) as u64;
        let mut at_once = first || marked || data.ack_request || self.unacknowledged >= every;
        self.wanted |= data.ack_request;
        if self.came.above == 0 && self.wanted {
            (at_once, self.wanted) = (true, false);
        }
        let ack = at_once.then(|| self.ack(data, marked, marked || data.ack_request));
        Taken { ack, duplicate }
    }

    /// Whether a packet has come.
    pub(super) fn has(&self, psn: u32) -> bool {
        self.came.has(psn)
    }

    /// The ACK of a data packet. `from_it`: the bitmap begins with it; otherwise it ends with it, unless that is below the
    /// first hole.
    pub(super) fn ack(&mut self, data: &Data, marked: bool, from_it: bool) -> Ack {
        self.unacknowledged = 0;
        let base = match from_it {
            true => data.psn,
            false => data.psn.saturating_sub(BITMAP - 1).max(self.came.next + 1),
        };
        Ack { of: data.psn, again: data.again, path: data.path, ..self.told(data.label, base, marked) }
    }

    /// The ACK of a probe.
    pub(super) fn answer(&mut self, label: Label, number: u32, path: u16, marked: bool) -> Ack {
        Ack { of: number, probe: true, path, ..self.told(label, self.came.next + 1, marked) }
    }

    fn told(&self, label: Label, base: u32, marked: bool) -> Ack {
        Ack {
            slot: label.slot,
            serial: label.serial,
            place: self.place,
            cumulative: self.came.next,
            of: 0,
            again: false,
            probe: false,
            path: 0,
            marked,
            out_of_order: self.came.above,
            received: self.wire,
            base,
            bitmap: self.came.bitmap(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bitmap_is_the_set(psns in prop::collection::vec(0u32..400, 1..400), base in 0u32..420) {
            let (mut came, mut set) = (Came::default(), std::collections::BTreeSet::new());
            for psn in psns {
                prop_assert_eq!(came.take(psn), set.insert(psn));
                let next = (0..).find(|psn| !set.contains(psn)).expect("a set has an end");
                prop_assert_eq!((came.next, came.above), (next, set.range(next..).count() as u32));
            }
            for bit in 0..64 {
                prop_assert_eq!(came.bitmap(base) >> bit & 1 == 1, set.contains(&(base + bit)), "packet {}", base + bit);
            }
        }
    }
}
