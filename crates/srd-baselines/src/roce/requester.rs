//! The sending end of a queue pair: what is posted, what is in flight, what is to be sent next and when.

use super::config::{Config, Dcqcn, Recovery};
use super::dcqcn::ReactionPoint;
use super::packet::{ADDRESS_HEADER, Address, DATA_HEADERS};
use super::psn_set::PsnSet;
use crate::frame::ETHERNET_HEADER;
use srd_wire::{BitRate, Nanos, Time};
use std::collections::VecDeque;

/// RTO_low is for so few packets in flight (SIGCOMM'18, section 4.1).
const FEW: u64 = 3;
/// A timeout doubles so many times at most.
const MOST_DOUBLINGS: u32 = 7;

/// What a flow has posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// The flow.
    pub(super) flow: u32,
    /// Where it goes.
    pub(super) inbox: u32,
    /// Sequence number of its first packet.
    pub(super) first: u64,
    /// Its packets.
    pub(super) packets: u64,
    /// Its bytes.
    pub(super) bytes: u64,
    /// More follow: the flow has no end and is not stopped.
    pub(super) endless: bool,
    /// The flow ends with it.
    pub(super) ends: bool,
}

/// A data packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outbound {
    pub(super) psn: u64,
    pub(super) inbox: u32,
    pub(super) payload: u16,
    /// Bytes of the message from this packet on.
    pub(super) left: u32,
    /// Bytes of the datagram.
    pub(super) bytes: u32,
    pub(super) ack: bool,
    /// It has been sent before.
    pub(super) again: bool,
    /// It is the first of a flow without end's message: the next message is to be posted.
    pub(super) posts: Option<Write>,
}

/// IRN: what is known to have come, and what is being sent again.
#[derive(Clone, Default, Debug)]
struct Selective {
    sacked: PsnSet,
    /// Behind the last that is known to have come.
    top: u64,
    /// Recovery lasts until all before this one are acknowledged.
    until: Option<u64>,
    /// Before this one, nothing more is to be retransmitted.
    swept: u64,
    /// After a timeout: the first is lost, though nothing later may have come.
    first_is_lost: bool,
}

/// The sending end of a queue pair.
#[derive(Clone, Debug)]
pub(super) struct Requester {
    pub(super) to: Address,
    pub(super) port: u16,
    /// Its turn will come.
    pub(super) in_turn: bool,
    /// When it is to be looked at again because its rate allows a packet.
    pub(super) due_alarm: Time,
    /// When it is to be looked at again because it may have timed out.
    pub(super) deadline_alarm: Time,
    /// It has given up.
    pub(super) dead: bool,
    posted: VecDeque<Write>,
    /// Behind the last that is posted.
    end: u64,
    /// The first that is not acknowledged.
    una: u64,
    /// The next to be sent.
    next: u64,
    /// Behind the last that was ever sent.
    top: u64,
    selective: Option<Selective>,
    /// Without an answer until then it times out.
    deadline: Time,
    /// Timeouts since something was acknowledged.
    failures: u32,
    /// Packets since an ACK was asked for, and when that was.
    unasked: u32,
    asked_at: Time,
    point: Option<ReactionPoint>,
    /// When the last packet was due, in picoseconds, and its bytes.
    last_ps: u64,
    last_bytes: u32,
}

impl Requester {
    pub(super) fn new(to: Address, port: u16, line: BitRate, config: &Config) -> Requester {
        Requester {
            to,
            port,
            in_turn: false,
            due_alarm: Time::NEVER,
            deadline_alarm: Time::NEVER,
            dead: false,
            posted: VecDeque::new(),
            end: 0,
            una: 0,
            next: 0,
            top: 0,
            selective: (config.recovery == Recovery::Irn).then(Selective::default),
            deadline: Time::NEVER,
            failures: 0,
            unasked: 0,
            asked_at: Time(0),
            point: config.dcqcn.map(|_| ReactionPoint::new(line)),
            last_ps: 0,
            last_bytes: 0,
        }
    }

    /// When it times out.
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Posts a write of a whole flow, or of an endless one's next message.
    pub(super) fn post(&mut self, flow: u32, inbox: u32, bytes: u64, endless: bool, payload: u32) {
        let packets = bytes.div_ceil(payload as u64).max(1);
        let first = self.end;
        self.posted.push_back(Write { flow, inbox, first, packets, bytes, endless, ends: !endless });
        self.end += packets;
    }

    /// Posts no more of an endless flow. Of what is posted, one packet more is sent, which asks for the ACK.
    pub(super) fn stop(&mut self, flow: u32, payload: u32) {
        let top = self.top;
        let mut end = self.posted.front().map_or(top, |write| write.first);
        self.posted.retain_mut(|write| {
            if write.flow == flow {
                write.endless = false;
                if write.first >= top {
                    return false;
                }
                write.packets = write.packets.min(top + 1 - write.first);
                write.bytes = write.bytes.min(write.packets * payload as u64);
            }
            // Only what has not been sent moves up.
            write.first = end;
            end += write.packets;
            true
        });
        self.end = end;
    }

    fn write_of(&self, psn: u64) -> Option<&Write> {
        let behind = self.posted.partition_point(|write| write.first <= psn);
        self.posted.get(behind.checked_sub(1)?)
    }

    /// The next to be sent, if there is one, whatever the rate allows.
    fn choose(&self, config: &Config) -> Option<u64> {
        if let Some(selective) = self.selective.as_ref().filter(|selective| selective.until.is_some()) {
            let lost = selective.sacked.first_missing(selective.swept.max(self.una));
            if lost < selective.top || (selective.first_is_lost && lost == self.una) {
                return Some(lost);
            }
        }
        (self.next < self.end && self.next - self.una < config.window).then_some(self.next)
    }

    pub(super) fn has_work(&self, config: &Config) -> bool {
        !self.dead && self.choose(config).is_some()
    }

    /// From when on it may send, and when that may change by itself.
    pub(super) fn due(&mut self, now: Time, config: &Config) -> (Time, Time) {
        let due = Time(self.due_ps(now, config).div_ceil(1000));
        let changes = self.point.as_ref().map_or(Time::NEVER, ReactionPoint::changes_at);
        (due, changes)
    }

    fn due_ps(&mut self, now: Time, config: &Config) -> u64 {
        let (Some(point), Some(dcqcn)) = (&mut self.point, &config.dcqcn) else { return 0 };
        match point.rate(now, &dcqcn.reaction_point) {
            Some(rate) => self.last_ps + ((self.last_bytes + ETHERNET_HEADER) as f64 * 8e12 / rate) as u64,
            None => 0,
        }
    }

    /// The next packet. To be asked for only when it is due.
    pub(super) fn transmit(&mut self, now: Time, config: &Config) -> Option<Outbound> {
        let psn = self.choose(config)?;
        let write = *self.write_of(psn)?;
        let at = psn - write.first;
        let payload = (write.bytes - at * config.payload as u64).min(config.payload as u64) as u32;
        let last = at + 1 == write.packets;
        let irn = config.recovery == Recovery::Irn;
        let address = if irn || at % config.message_packets == 0 { ADDRESS_HEADER } else { 0 };
        let again = psn < self.top;
        self.top = self.top.max(psn + 1);
        match &mut self.selective {
            Some(selective) if again => (selective.swept, selective.first_is_lost) = (psn + 1, false),
            _ => self.next = psn + 1,
        }
        let ends = last || (at + 1) % config.message_packets == 0;
        let outbound = Outbound {
            psn,
            inbox: write.inbox,
            payload: payload as u16,
            left: left_of_message(&write, at, config),
            bytes: payload + DATA_HEADERS + address,
            ack: irn || self.asks(now, ends, config),
            again,
            posts: (write.endless && at == 0 && !again).then_some(write),
        };
        self.pace(now, outbound.bytes, config);
        if self.deadline == Time::NEVER {
            self.deadline = now + self.rto(config);
        }
        Some(outbound)
    }

    /// Whether the packet just chosen asks for an ACK: at the end of a message, with every so many, when nothing more may be
    /// sent without one, and often enough for the timer.
    fn asks(&mut self, now: Time, ends: bool, config: &Config) -> bool {
        self.unasked += 1;
        let asks = ends
            || self.unasked >= config.ack_every
            || self.next - self.una >= config.window
            || now.since(self.asked_at).0 >= config.rto.0 / 4;
        if asks {
            (self.unasked, self.asked_at) = (0, now);
        }
        asks
    }

    fn pace(&mut self, now: Time, bytes: u32, config: &Config) {
        let (now_ps, due) = (now.0.saturating_mul(1000), self.due_ps(now, config));
        // Late by less than the packet before: the NIC was busy for a moment, and makes up for it.
        let late = now_ps.saturating_sub(due);
        self.last_ps = if due > 0 && late < due - self.last_ps { due } else { now_ps };
        self.last_bytes = bytes;
        if let (Some(point), Some(dcqcn)) = (&mut self.point, &config.dcqcn) {
            point.sent((bytes + ETHERNET_HEADER) as u64, &dcqcn.reaction_point);
        }
    }

    fn rto(&self, config: &Config) -> Nanos {
        let few = self.selective.is_some() && self.top - self.una <= FEW;
        let base = if few { config.rto_low } else { config.rto };
        Nanos(base.0 << self.failures.min(MOST_DOUBLINGS))
    }

    /// All before `psn` have come; `nak`: the next has not, but `sack` has. Calls `done` with writes that are complete.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        psn: u64,
        nak: bool,
        sack: Option<u64>,
        config: &Config,
        mut done: impl FnMut(Write),
    ) {
        let psn = psn.min(self.top);
        let progress = psn > self.una;
        if progress {
            self.una = psn;
            self.next = self.next.max(psn);
            self.failures = 0;
            while let Some(write) = self.posted.front().filter(|write| write.first + write.packets <= psn) {
                done(*write);
                self.posted.pop_front();
            }
        }
        match &mut self.selective {
            Some(selective) => selective.take(progress, self.una, self.top, sack),
            None if nak && psn == self.una && self.una < self.top => {
                self.next = self.una;
                self.deadline = Time::NEVER; // until it is sent
                return;
            }
            None => {}
        }
        if progress {
            let in_flight = self.una < if self.selective.is_some() { self.top } else { self.next };
            self.deadline = if in_flight { now + self.rto(config) } else { Time::NEVER };
        }
    }

    /// The deadline is over. False: there have been too many.
    pub(super) fn time_out(&mut self, config: &Config) -> bool {
        self.failures += 1;
        self.deadline = Time::NEVER; // until the first is retransmitted
        match &mut self.selective {
            Some(selective) => {
                (selective.until, selective.swept) = (Some(self.top), self.una);
                selective.first_is_lost = true;
            }
            None => self.next = self.una,
        }
        self.failures <= config.retries
    }

    /// Gives up. Calls `lost` with what was posted.
    pub(super) fn die(&mut self, lost: impl FnMut(Write)) {
        self.dead = true;
        self.deadline = Time::NEVER;
        self.posted.drain(..).for_each(lost);
    }

    /// A congestion notification has come.
    pub(super) fn notify(&mut self, now: Time, dcqcn: &Dcqcn) {
        if let Some(point) = &mut self.point {
            point.notify(now, &dcqcn.reaction_point);
        }
    }
}

/// Bytes of a write's message from its packet number `at` on: long writes are several messages.
fn left_of_message(write: &Write, at: u64, config: &Config) -> u32 {
    let payload = config.payload as u64;
    let of_message = (config.message_packets - at % config.message_packets) * payload;
    of_message.min(write.bytes - at * payload).min(u32::MAX as u64) as u32
}

impl Selective {
    /// All before `una` have come, and `sack`; `sent` is behind the last that was sent.
    fn take(&mut self, progress: bool, una: u64, sent: u64, sack: Option<u64>) {
        self.first_is_lost &= !progress;
        self.sacked.forget_below(una);
        self.top = self.top.max(una);
        if let Some(sack) = sack.filter(|sack| (una..sent).contains(sack)) {
            self.sacked.insert(sack);
            self.top = self.top.max(sack + 1);
            if self.until.is_none() {
                (self.until, self.swept) = (Some(sent), una);
            }
        }
        if self.until.is_some_and(|until| una >= until) {
            self.until = None;
        }
    }
}
