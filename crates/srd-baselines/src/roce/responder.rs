//! The receiving end of a queue pair: takes packets in order, or with IRN in any, and says what to answer.

use super::packet::Address;
use super::psn_set::PsnSet;
use srd_wire::{Nanos, Time};

/// What has become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Its bytes are where they belong.
    Placed,
    /// They were there already.
    Again,
    /// It is out of order, and thrown away.
    Dropped,
}

/// What to send to the requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Nothing yet.
    None,
    /// All before the expected one have come.
    Ack,
    /// The expected one is missing.
    Nak,
    /// The expected one is missing, and this one has come (IRN).
    SelectiveNak(u64),
}

/// The receiving end of a queue pair.
#[derive(Clone, Debug)]
pub(super) struct Responder {
    /// The requester's process.
    pub(super) from: Address,
    /// The requester's queue pair.
    pub(super) qp: u32,
    /// UDP source port of answers.
    pub(super) port: u16,
    /// An ACK waits to be sent: whatever else is to be acknowledged goes with it.
    pub(super) ack_waits: bool,
    expected: u64,
    /// From then on a NAK for `expected` may be sent. `None`: none has been.
    naks_at: Option<Time>,
    /// With IRN: what has come, from `expected` on.
    ahead: Option<PsnSet>,
    /// From then on a mark is notified again.
    notifies_at: Time,
}

impl Responder {
    pub(super) fn new(from: Address, qp: u32, port: u16, selective: bool) -> Responder {
        Responder {
            from,
            qp,
            port,
            ack_waits: false,
            expected: 0,
            naks_at: None,
            ahead: selective.then(PsnSet::default),
            notifies_at: Time(0),
        }
    }

    /// The first that has not come.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// The expected one is missing, and a NAK for it has been asked for.
    pub(super) fn naks(&self) -> bool {
        self.naks_at.is_some()
    }

    /// A marked packet has come: is a notification due? At most one per interval (SIGCOMM'15, section 3.1).
    pub(super) fn notifies(&mut self, now: Time, interval: Nanos) -> bool {
        let due = now >= self.notifies_at;
        if due {
            self.notifies_at = now + interval;
        }
        due
    }

    /// Takes a packet; `ack`: it asks for an acknowledgement; `nak_again`: after how long a NAK may be said again.
    pub(super) fn receive(&mut self, now: Time, psn: u64, ack: bool, nak_again: Nanos) -> (Fate, Answer) {
        if psn < self.expected {
            // InfiniBand, section 9.7.5.1.2: duplicates are acknowledged again.
            return (Fate::Again, Answer::Ack);
        }
        match &mut self.ahead {
            None if psn == self.expected => {
                self.expected += 1;
                self.naks_at = None;
                (Fate::Placed, if ack { Answer::Ack } else { Answer::None })
            }
            None => {
                // Section 9.7.5.1.1: one NAK per gap; what follows is dropped in silence until the expected one comes.
                let naks = self.naks_at.is_none_or(|at| now >= at);
                if naks {
                    self.naks_at = Some(now + nak_again);
                }
                (Fate::Dropped, if naks { Answer::Nak } else { Answer::None })
            }
            Some(ahead) => {
                let fresh = ahead.insert(psn);
                let answer = match psn == self.expected {
                    true => Answer::Ack,
                    false => Answer::SelectiveNak(psn),
                };
                self.expected = ahead.first_missing(self.expected);
                ahead.forget_below(self.expected);
                (if fresh { Fate::Placed } else { Fate::Again }, answer)
            }
        }
    }
}
