//! Credit: the receiver says how much may be sent (Ultra Ethernet's RCCC, as uet-htsim has it with `-receiver_cc_only`).
//!
//! A sender begins with a windowful of credit of its own ([`Purse`]), and tells with each packet up to where it wants more. A
//! receiver grants four packets' worth at a time, to whoever asks in turn, at a little less than its link's rate ([`Granting`]):
//! so that no more comes than its port can take. When nobody asks it grants a windowful ahead.
//!
//! Credit is told in bytes since the connection's beginning, so that neither a copy nor an overtaken packet does harm. Where
//! this differs from uet-htsim: of a packet that was cut the receiver knows that it needs credit again, and grants it without
//! being asked; and a sender that has waited long for credit asks for it, lest one lost packet hold it up for ever.

use super::packet::Label;
use srd_wire::{BitRate, Nanos, Time};
use std::collections::VecDeque;

/// Share of the link's rate at which credit is granted (main_uec.cpp, `UecPullPacer`).
const SHARE: f64 = 0.99;
/// Packets' worth of a grant (uec.cpp, `_mtus_per_pull`: "as per default in UEC spec").
const PACKETS: u64 = 4;
/// Credit is counted in these (uecpacket.h, `UEC_PULL_QUANTUM`).
const QUANTUM: u64 = 256;
/// A grant of nothing takes as long as one of so many bytes (uec.cpp, `UecPullPacer::doNextEvent`).
const EMPTY: u64 = 1024;
/// A sender asks when it has waited for so many times as long as from one grant to the next.
const LATE: u64 = 4;
/// Most doublings of that.
const DOUBLINGS: u32 = 8;

/// A connection's credit at its sender.
#[derive(Clone, Debug)]
pub(super) struct Purse {
    /// Bytes that may be sent; below 0 after a packet that was longer than what was left.
    bytes: i64,
    /// The most that it holds, and with which it begins.
    most: i64,
    /// What the receiver has granted since the beginning.
    granted: u64,
    /// Nothing has been heard of the receiver: what is sent was not granted.
    speculating: bool,
    /// When something was last granted, and for how long nothing had been then.
    granted_at: Time,
    gap: Nanos,
    /// When it last asked, and how often since the last grant.
    asked_at: Time,
    asked: u32,
    /// A packet has timed out: the receiver does not know that it needs credit again.
    urgent: bool,
}

impl Purse {
    pub(super) fn new(now: Time, most: f64) -> Purse {
        Purse {
            bytes: most as i64,
            most: most as i64,
            granted: 0,
            speculating: true,
            granted_at: now,
            gap: Nanos::ZERO,
            asked_at: now,
            asked: 0,
            urgent: false,
        }
    }

    /// A packet may be sent, however long: the next ones pay for it.
    pub(super) fn is_open(&self) -> bool {
        self.bytes > 0
    }

    pub(super) fn most(&self) -> u64 {
        self.most as u64
    }

    /// A packet is sent, and tells what is wanted.
    pub(super) fn spend(&mut self, bytes: i64) {
        self.bytes -= bytes;
        self.urgent = false;
    }

    /// The receiver has been heard: credit that it did not grant is worth nothing any more.
    pub(super) fn heard(&mut self) {
        if self.speculating {
            self.speculating = false;
            self.bytes = self.bytes.min(0);
        }
    }

    /// So much has been granted since the beginning.
    pub(super) fn take(&mut self, now: Time, granted: u64) {
        self.heard();
        let more = granted.saturating_sub(self.granted);
        if more > 0 {
            self.bytes = (self.bytes + more as i64).min(self.most);
            self.granted = granted;
            (self.gap, self.granted_at, self.asked) = (now.since(self.granted_at), now, 0);
        }
    }

    /// Up to where credit is wanted for so many bytes that wait, by one of so many connections that share the sender's link.
    /// While the receiver is silent at least a packet's worth is, unless nothing waits.
    pub(super) fn target(&self, waiting: u64, packet: u64, sharing: usize) -> u64 {
        let mut wanted = waiting.min(self.most()) as i64 - self.bytes;
        if self.speculating && waiting > 0 {
            wanted = wanted.max(packet as i64);
        }
        let wanted = wanted / sharing.max(1) as i64;
        ((self.granted as i64 + wanted).max(0) as u64).next_multiple_of(QUANTUM)
    }

    /// A packet has timed out.
    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// When a sender that waits for credit asks for it: at once after a timeout, but once in a round trip at most (uec.cpp,
    /// `sendRTS`), and when a grant is long overdue.
    pub(super) fn asks_at(&self, rtt: Nanos, rto: Nanos) -> Time {
        if self.urgent {
            return self.asked_at + rtt;
        }
        let wait = Nanos((LATE * self.gap.0).max(rto.0) << self.asked.min(DOUBLINGS));
        self.granted_at.max(self.asked_at) + wait
    }

    /// It asks now.
    pub(super) fn ask(&mut self, now: Time) {
        (self.asked_at, self.urgent) = (now, false);
        self.asked += 1;
    }
}

/// What one connection wants of the receiver.
#[derive(Clone, Debug)]
struct Demand {
    label: Label,
    /// Up to where it wants credit, and up to where it has been granted.
    target: u64,
    granted: u64,
    /// It stands in the queue of those that ask, and of those that are granted something ahead.
    asks: bool,
    idle: bool,
}

/// A process's grants to those that send to it.
#[derive(Clone, Debug)]
pub(super) struct Granting {
    rate: BitRate,
    /// Bytes of a grant.
    grant: u64,
    /// Bytes that are granted ahead, at most.
    most: u64,
    /// By the connections' places.
    demands: Vec<Demand>,
    asking: VecDeque<u32>,
    idle: VecDeque<u32>,
    /// When the last grant has had its time.
    free_at: Time,
    /// Flows into other processes of the host, which share its link.
    pub(super) neighbours: u16,
}

impl Granting {
    /// `most`: bytes of credit that a connection holds at most.
    pub(super) fn new(rate: BitRate, payload: u16, most: f64) -> Granting {
        Granting {
            rate: BitRate((rate.0 as f64 * SHARE) as u64),
            grant: (PACKETS * payload as u64 / QUANTUM).max(1) * QUANTUM,
            most: most as u64 / QUANTUM * QUANTUM,
            demands: Vec::new(),
            asking: VecDeque::new(),
            idle: VecDeque::new(),
            free_at: Time(0),
            neighbours: 0,
        }
    }

    /// Connections that wait for credit.
    pub(super) fn asking(&self) -> usize {
        self.asking.len()
    }

    fn demand(&mut self, place: u32, label: &Label) -> &mut Demand {
        let at = place as usize;
        if self.demands.len() <= at {
            let none = Demand { label: *label, target: 0, granted: 0, asks: false, idle: false };
            self.demands.resize(at + 1, none);
        }
        let demand = &mut self.demands[at];
        if demand.label.serial != label.serial {
            // Another connection has its place, and its place in queues.
            *demand = Demand { label: *label, target: 0, granted: 0, ..*demand };
        }
        demand
    }

    /// A connection wants credit up to there. `always`: it is to hear of it even if it has all of that.
    pub(super) fn want(&mut self, place: u32, label: &Label, target: u64, always: bool) {
        let demand = self.demand(place, label);
        demand.target = demand.target.max(target);
        if always || demand.target > demand.granted {
            self.enter(place);
        } else {
            self.rest(place);
        }
    }

    /// A packet of so many bytes was cut: it will be sent again.
    pub(super) fn was_cut(&mut self, place: u32, label: &Label, bytes: u64) {
        let demand = self.demand(place, label);
        demand.target = demand.target.max(demand.granted) + bytes;
        self.enter(place);
    }

    fn enter(&mut self, place: u32) {
        let demand = &mut self.demands[place as usize];
        if !std::mem::replace(&mut demand.asks, true) {
            self.asking.push_back(place);
        }
    }

    fn rest(&mut self, place: u32) {
        let demand = &mut self.demands[place as usize];
        let has_all = demand.granted >= demand.target + self.most;
        if !demand.asks && !has_all && !std::mem::replace(&mut demand.idle, true) {
            self.idle.push_back(place);
        }
    }

    /// The next grant, if its time has come: to whom, and how much since the connection's beginning.
    pub(super) fn poll(&mut self, now: Time) -> Option<(Label, u64)> {
        if now < self.free_at {
            return None;
        }
        let (place, more) = match self.asking.pop_front() {
            Some(place) => {
                let demand = &mut self.demands[place as usize];
                demand.asks = false;
                (place, demand.target.saturating_sub(demand.granted).min(self.grant))
            }
            None => {
                let place = self.idle.pop_front()?;
                self.demands[place as usize].idle = false;
                (place, self.grant)
            }
        };
        let demand = &mut self.demands[place as usize];
        demand.granted += more;
        let (label, granted) = (demand.label, demand.granted);
        if demand.target > granted {
            self.enter(place);
        } else {
            self.rest(place);
        }
        // Processes of a host share its link by how many send to each.
        let own = self.asking.len().max(1) as u64;
        let shared = (more.max(EMPTY) * (own + self.neighbours as u64)).div_ceil(own);
        self.free_at = now + self.rate.time_for(shared);
        Some((label, granted))
    }

    /// When [`Granting::poll`] has something.
    pub(super) fn timer(&self) -> Time {
        match self.asking.is_empty() && self.idle.is_empty() {
            true => Time::NEVER,
            false => self.free_at,
        }
    }
}

#[cfg(test)]
mod tests;
