//! What has arrived from one peer: which PSNs were accepted, and what the next ACK must say.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod ack_building;

use crate::psn_bits::PsnBits;
use arrayvec::ArrayVec;
use srd_wire::{Echo, MAX_ECHOES, MAX_SACK_WORDS, Nanos, PathId, Psn, Stamp, Time, WINDOW_PACKETS};

/// Most PSNs that may be withheld at a time: refused messages whose sender does not know it yet.
const MAX_WITHHELD: usize = 256;

/// Most packets that came cut of which nobody has been told: a batch of a host's.
const MAX_CUTS: usize = 256;

/// Where the end of a transfer puts its ACK off, it leaves after so many times its delay at the latest.
const MOST_ACK_DELAYS: u64 = 6;

/// How a PSN stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Not seen before.
    New,
    /// Seen before.
    Duplicate,
    /// Beyond the window.
    OutOfWindow,
}

#[derive(Clone, Copy)]
struct PendingEcho {
    path: PathId,
    tx_count: u8,
    psn: Psn,
    stamp: Stamp,
    at: Time,
}

/// See the module.
pub(crate) struct Arrivals {
    /// Next PSN expected.
    cum: Psn,
    /// One beyond the highest PSN accepted.
    end: Psn,
    accepted: PsnBits,
    /// PSNs that arrived but are not acknowledged yet (see [`crate::UpperLayer::begin`]'s refusal).
    withheld: Vec<Psn>,
    echoes: ArrayVec<PendingEcho, MAX_ECHOES>,
    /// Packets that came cut, and that nobody has been told of.
    cuts: Vec<PendingEcho>,
    /// Data packets since the last ACK.
    pub(crate) unacked: u32,
    /// When the ACK must leave; [`Time::NEVER`] if nothing is to be acknowledged.
    pub(crate) ack_at: Time,
    /// The transfer in the midst of which that was set began then, and nothing else wants the ACK sooner.
    transfer_since: Option<Time>,
    /// ACKs that must leave on different paths, because the last one may have been lost.
    pub(crate) repeat_acks: u8,
    rcvd_bytes: u32,
    newest: Time,
    newest_path: PathId,
    /// The last ACK was for what has come last.
    repeated: bool,
    ce_count: u16,
    /// The highest PSN that has come, and whether its sender had more to send then.
    last: Psn,
    more: bool,
}

impl Arrivals {
    pub(crate) fn new(first: Psn) -> Arrivals {
        Arrivals {
            cum: first,
            end: first,
            accepted: PsnBits::new(),
            withheld: Vec::new(),
            echoes: ArrayVec::new(),
            cuts: Vec::new(),
            unacked: 0,
            ack_at: Time::NEVER,
            transfer_since: None,
            repeat_acks: 0,
            rcvd_bytes: 0,
            newest: Time(0),
            newest_path: PathId(0),
            repeated: false,
            ce_count: 0,
            last: first,
            more: false,
        }
    }

    /// Packet `psn` says whether its sender has more to send.
    pub(crate) fn note_more(&mut self, psn: Psn, more: bool) {
        if !psn.before(self.last) {
            (self.last, self.more) = (psn, more);
        }
    }

    /// Whether the sender had more to send when the last of its packets left.
    pub(crate) fn more(&self) -> bool {
        self.more
    }

    /// Nothing has ever been accepted or refused.
    pub(crate) fn is_untouched(&self) -> bool {
        self.newest == Time(0) && self.rcvd_bytes == 0
    }

    pub(crate) fn cum(&self) -> Psn {
        self.cum
    }

    pub(crate) fn classify(&self, psn: Psn) -> Arrival {
        let offset = psn.offset_from(self.cum);
        if offset > u32::MAX / 2 {
            Arrival::Duplicate
        } else if offset >= WINDOW_PACKETS {
            Arrival::OutOfWindow
        } else if self.accepted.contains(psn) || self.is_withheld(psn) {
            Arrival::Duplicate
        } else {
            Arrival::New
        }
    }

    /// Takes a new PSN.
    pub(crate) fn accept(&mut self, psn: Psn, bytes: usize) {
        self.rcvd_bytes = self.rcvd_bytes.wrapping_add(bytes as u32);
        if self.end.before(psn.plus(1)) {
            self.end = psn.plus(1);
        }
        if psn == self.cum && self.end == psn.plus(1) {
            self.cum = self.end; // in order: nothing beyond it is set
            return;
        }
        self.accepted.insert(psn);
        loop {
            let run = self.accepted.run_at(self.cum);
            self.accepted.clear_run(self.cum, run);
            self.cum = self.cum.plus(run);
            if run < 64 {
                break;
            }
        }
    }

    /// Whether `psn` is the next, and nothing is beyond or before it that is not acknowledged.
    #[inline]
    pub(crate) fn is_next(&self, psn: Psn) -> bool {
        psn == self.cum && self.end == psn && self.withheld.is_empty()
    }

    /// Takes the next `count` PSNs, of packets of `bytes` each that came with the newest and say the same.
    #[inline]
    pub(crate) fn take_followers(&mut self, count: u32, bytes: usize) {
        let last = self.cum.plus(count - 1);
        let path = self.newest_path;
        if let Some(echo) = self.echo_of(path) {
            echo.psn = last;
        }
        self.last = last;
        self.unacked += count;
        self.rcvd_bytes = self.rcvd_bytes.wrapping_add(count * bytes as u32);
        (self.cum, self.end) = (last.plus(1), last.plus(1));
    }

    fn echo_of(&mut self, path: PathId) -> Option<&mut PendingEcho> {
        self.echoes.iter_mut().find(|echo| echo.path == path && echo.tx_count != Echo::PROBE)
    }

    /// Whether another PSN may be withheld.
    pub(crate) fn may_withhold(&self) -> bool {
        self.withheld.len() < MAX_WITHHELD
    }

    /// Takes a new PSN without acknowledging it.
    pub(crate) fn withhold(&mut self, psn: Psn) {
        self.withheld.push(psn);
    }

    /// Whether `psn` is withheld.
    pub(crate) fn is_withheld(&self, psn: Psn) -> bool {
        !self.withheld.is_empty() && self.withheld.contains(&psn)
    }

    /// Acknowledges a withheld PSN.
    pub(crate) fn release_withheld(&mut self, now: Time, psn: Psn) {
        if let Some(i) = self.withheld.iter().position(|&held| held == psn) {
            self.withheld.swap_remove(i);
            self.accept(psn, 0);
            self.ack_by(now);
        }
    }

    /// Notes that a packet came, for the echo of its path.
    pub(crate) fn note(&mut self, now: Time, path: PathId, tx_count: u8, psn: Psn, stamp: Stamp) {
        self.newest = now;
        self.newest_path = path;
        self.repeated = false;
        let pending = PendingEcho { path, tx_count, psn, stamp, at: now };
        if let Some(echo) = self.echo_of(path) {
            *echo = pending;
        } else if self.echoes.try_push(pending).is_err() {
            self.echoes.remove(0);
            self.echoes.push(pending);
        }
        self.make_room(now);
    }

    /// Notes that a packet came without its payload.
    pub(crate) fn note_cut(&mut self, now: Time, path: PathId, tx_count: u8, psn: Psn, stamp: Stamp) {
        self.newest_path = path;
        self.repeated = false;
        if self.cuts.len() < MAX_CUTS {
            self.cuts.push(PendingEcho { path, tx_count, psn, stamp, at: now }); // of others their sender finds out by itself
        }
        self.make_room(now);
    }

    /// An ACK leaves now if the next echo would push one out.
    #[inline]
    fn make_room(&mut self, now: Time) {
        if self.echo_count() >= MAX_ECHOES {
            self.ack_at = now;
        }
    }

    /// Counts a congestion mark.
    pub(crate) fn note_ce(&mut self) {
        self.ce_count = self.ce_count.wrapping_add(1);
    }

    /// The next ACK leaves by `deadline`.
    pub(crate) fn ack_by(&mut self, deadline: Time) {
        (self.ack_at, self.transfer_since) = (self.ack_at.min(deadline), None);
    }

    /// The next ACK leaves by `now + delay`; the program's answer may carry it before. That comes when a transfer is there from its
    /// beginning, where more is `awaited`, to its end: so the end puts off what the beginning has set.
    pub(crate) fn answer_by(&mut self, now: Time, delay: Nanos, awaited: bool) {
        if self.ack_at == Time::NEVER {
            (self.ack_at, self.transfer_since) = (now + delay, awaited.then_some(now));
        } else if let Some(since) = self.transfer_since
            && !awaited
        {
            self.ack_at = (now + delay).min(since + Nanos(MOST_ACK_DELAYS * delay.0));
        } else {
            self.ack_at = self.ack_at.min(now + delay);
        }
    }

    /// Bytes of ACK that [`Arrivals::take_ack`] would make (an upper bound).
    pub(crate) fn sack_words(&self) -> usize {
        let beyond = self.end.offset_from(self.cum);
        if beyond > WINDOW_PACKETS { 0 } else { (beyond as usize).div_ceil(64).min(MAX_SACK_WORDS) }
    }

    /// The path of the newest packet.
    pub(crate) fn newest_path(&self) -> PathId {
        self.newest_path
    }

    /// Whether the next ACK says again what the last one said.
    pub(crate) fn repeats(&self) -> bool {
        self.repeated
    }

    /// How many echoes wait.
    pub(crate) fn echo_count(&self) -> usize {
        self.echoes.len() + self.cuts.len()
    }

    /// Nothing is to be acknowledged for now.
    pub(crate) fn clear_due(&mut self) {
        self.unacked = 0;
        self.repeat_acks = 0;
        self.ack_at = Time::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any order of arrival: each PSN is new once, and the ACK names exactly what was accepted.
        #[test]
        fn ack_names_exactly_what_was_accepted(seed_order in prop::collection::vec(0u32..600, 1..400), base in any::<u32>()) {
            let mut arrivals = Arrivals::new(Psn(base));
            let mut model = std::collections::BTreeSet::new();
            for offset in seed_order {
                let psn = Psn(base).plus(offset);
                let arrival = arrivals.classify(psn);
                prop_assert_eq!(arrival == Arrival::New, model.insert(offset));
                if arrival == Arrival::New {
                    arrivals.accept(psn, 1);
                }
                let ack = arrivals.take_ack(Time(0), 0);
                let cum = (0..).find(|i| !model.contains(i)).unwrap();
                prop_assert_eq!(ack.cum.offset_from(Psn(base)), cum);
                let mut named: Vec<u32> = (0..cum).collect();
                for (word, bits) in ack.sack.iter().enumerate() {
                    named.extend((0..64).filter(|i| bits >> i & 1 == 1).map(|i| cum + 1 + word as u32 * 64 + i));
                }
                prop_assert_eq!(named, model.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
