//! The sending half of a connection: what leaves next, and what timers do.

mod acks;

use crate::tcp::burst::{Bursts, Room};
use crate::tcp::config::{Config, Recovery};
use crate::tcp::congestion::{self, Congestion, Control, Phase, Window};
use crate::tcp::prr::Reduction;
use crate::tcp::rack::Rack;
use crate::tcp::rate::Delivery;
use crate::tcp::rtt::RoundTrip;
use crate::tcp::scoreboard::{Fate, Scoreboard, Sent};
use srd_wire::{Nanos, Time};

/// Timeouts in a row after which a connection is given up (Linux, tcp_retries2).
const MOST_TIMEOUTS: u32 = 15;

/// What a connection's end knows from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// Segments of a burst.
    pub burst: u32,
    /// Segments that the receiver has room for.
    pub room: u32,
    /// Round trip of the handshake.
    pub round_trip: Nanos,
    /// Seed of its own.
    pub seed: u64,
}

/// What a reduction that turns out to be a mistake is taken back to.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: Window,
    /// When the first segment was retransmitted.
    again_at: Option<Time>,
    /// Segments sent again of which no second copy has been reported.
    unanswered: u32,
}

/// A probe of the tail (RFC 8985, section 7).
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// What is acknowledged when the probe is.
    end: u64,
    /// It was sent before.
    again: bool,
}

/// A segment to leave, as the sender knows it.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Its number.
    pub number: u64,
    /// It has been sent before.
    pub again: bool,
    /// It ends a burst.
    pub push: bool,
    /// The receiver may stop echoing marks.
    pub reduced: bool,
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    board: Scoreboard,
    control: Box<dyn Control>,
    window: Window,
    trip: RoundTrip,
    rack: Rack,
    delivery: Delivery,
    bursts: Bursts,
    recovery: Recovery,
    paced: bool,
    ack_delay: Nanos,
    /// Segments that there are; `u64::MAX`: without end.
    end: u64,
    /// First segment that the receiver has no room for.
    room_end: u64,
    phase: Phase,
    /// The phase ends when this is acknowledged.
    phase_end: u64,
    reduction: Option<Reduction>,
    undo: Option<Undo>,
    probe: Option<Probe>,
    probing: bool,
    timeouts: u32,
    rto_at: Time,
    probe_at: Time,
    reorder_at: Time,
    /// When a segment last left, and whether the window becomes small again when none has for long.
    sent_at: Time,
    restarts: bool,
    initial_window: u32,
    /// The next new segment says that the window has been reduced.
    tell_reduced: bool,
    limited: bool,
    /// Most segments in flight since the last of them was sent that `limited` is about, and its number.
    most_out: u32,
    limited_end: u64,
    fresh: Vec<(u64, u64)>,
    /// The connection is in the queue of those that may send.
    pub queued: bool,
}

/// What timers have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expired {
    /// None of them was the retransmission timer.
    Other,
    /// It has run out.
    TimedOut,
    /// Too often.
    GivenUp,
}

impl Sender {
    /// A connection that is established and has sent nothing.
    pub fn new(config: &Config, begin: &Beginning) -> Sender {
        let window = Window { size: config.initial_window, threshold: u32::MAX };
        let control =
            congestion::control(config.congestion, &window, begin.round_trip, begin.burst, begin.seed);
        Sender {
            board: Scoreboard::new(config.recovery == Recovery::Rack),
            paced: config.pacing,
            control,
            window,
            trip: RoundTrip::new(begin.round_trip, config.min_rto),
            rack: Rack::default(),
            delivery: Delivery::default(),
            bursts: Bursts::new(begin.burst),
            recovery: config.recovery,
            ack_delay: config.delayed_ack,
            end: 0,
            room_end: begin.room as u64,
            phase: Phase::Open,
            phase_end: 0,
            reduction: None,
            undo: None,
            probe: None,
            probing: false,
            timeouts: 0,
            rto_at: Time::NEVER,
            probe_at: Time::NEVER,
            reorder_at: Time::NEVER,
            sent_at: Time(0),
            restarts: config.restarts,
            initial_window: config.initial_window,
            tell_reduced: false,
            limited: false,
            most_out: 0,
            limited_end: 0,
            fresh: Vec::new(),
            queued: false,
        }
    }

    /// There are segments up to this one, which is not among them.
    pub fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    /// Segments that there are.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// First segment that has not been sent.
    pub fn next(&self) -> u64 {
        self.board.next()
    }

    /// First segment that is not acknowledged.
    pub fn first(&self) -> u64 {
        self.board.first()
    }

    /// Gives memory back. Nothing is in flight, and will not be for long.
    pub fn rest(&mut self) {
        self.board.rest();
        self.fresh = Vec::new();
    }

    /// When [`Sender::expire`] or [`Sender::begin_burst`] is to be called again.
    pub fn wakes_at(&self, now: Time) -> Time {
        let timers = self.rto_at.min(self.probe_at).min(self.reorder_at);
        let paced = !self.queued && self.bursts.next_at > now && self.has_work();
        if paced { timers.min(self.bursts.next_at) } else { timers }
    }

    // ---- sending ----

    fn new_segments(&self) -> u64 {
        self.end.min(self.room_end).saturating_sub(self.board.next())
    }

    /// There is something to send, and a window to send it in.
    pub fn has_work(&self) -> bool {
        let waiting = self.board.lost() > 0 || self.new_segments() > 0;
        self.probing || (waiting && self.board.in_flight() < self.window.size)
    }

    /// A burst may begin.
    pub fn may_begin(&self, now: Time) -> bool {
        self.has_work() && self.bursts.next_at <= now
    }

    /// Begins a burst, unless it is better to wait.
    pub fn begin_burst(&mut self, now: Time) -> bool {
        if self.bursts.left > 0 {
            return true;
        }
        if !self.may_begin(now) {
            self.limited |= self.board.in_flight() >= self.window.size;
            return false;
        }
        let room = Room {
            room: self.window.size.saturating_sub(self.board.in_flight()),
            waiting: self.board.lost() as u64 + self.new_segments(),
            window: self.window.size,
            oldest: self.board.get(self.board.first()).map(|sent| sent.at),
            smoothed: self.trip.smoothed(),
            pace: self.pace(),
            urgent: self.phase >= Phase::Recovering || self.board.lost() > 0,
        };
        let size = if self.probing { 1 } else { self.bursts.size(now, &room) };
        self.bursts.begin(now, size);
        // Waiting for a larger burst is the window's doing.
        self.limited |= size == 0 || size >= room.room;
        size > 0
    }

    /// Segments per second, if bursts are spaced out: what the control says, or more than the window asks for
    /// (Linux, tcp_pacing_ss_ratio and tcp_pacing_ca_ratio).
    fn pace(&self) -> Option<f64> {
        if !self.paced {
            return None;
        }
        self.control.pace().or_else(|| {
            let ratio = if self.window.size < self.window.threshold / 2 { 2.0 } else { 1.2 };
            Some(ratio * self.window.size as f64 * 1e9 / self.trip.smoothed().0.max(1) as f64)
        })
    }

    /// The next segment of the burst; `None`: it has ended early.
    pub fn send(&mut self, now: Time) -> Option<Leaving> {
        let probing = core::mem::take(&mut self.probing);
        let Some(number) = self.choose(probing) else {
            self.bursts.end(self.pace());
            return None;
        };
        if self.board.outstanding() == 0 {
            self.restart(now);
            self.delivery.restart(now);
            self.rto_at = now + self.trip.timeout(self.timeouts);
        }
        let before = self.board.get(number).copied();
        if before.is_some() {
            self.note_again(now, number);
        }
        self.board.send(
            number,
            Sent {
                at: now,
                order: 0,
                times: 0,
                fate: Fate::Flying,
                delivered: self.delivery.total,
                delivered_at: self.delivery.at,
                first_sent_at: self.delivery.first_sent_at,
                short: self.delivery.short(),
                in_flight: 0,
                losses: 0,
            },
        );
        if let Some(reduction) = &mut self.reduction {
            reduction.sent();
        }
        self.bursts.sent();
        self.sent_at = now;
        self.validate();
        let all_sent = self.board.next() == self.end && self.board.lost() == 0;
        if all_sent && self.board.in_flight() < self.window.size {
            self.delivery.short_until = (self.delivery.total + self.board.in_flight() as u64).max(1);
        }
        let push = self.bursts.left == 0 || all_sent || !self.has_work();
        if push {
            self.bursts.end(self.pace());
        }
        if before.is_none() {
            self.arm_probe(now);
        }
        let reduced = before.is_none() && core::mem::take(&mut self.tell_reduced);
        Some(Leaving { number, again: before.is_some(), push, reduced })
    }

    /// Which segment leaves.
    fn choose(&mut self, probing: bool) -> Option<u64> {
        if !probing && self.board.in_flight() >= self.window.size {
            return None;
        }
        if let Some(lost) = self.board.first_lost() {
            return Some(lost);
        }
        if self.new_segments() > 0 {
            return Some(self.board.next());
        }
        let highest = self.board.next().checked_sub(1)?;
        let flying = self.board.get(highest).is_some_and(|sent| sent.fate == Fate::Flying);
        (probing && flying).then_some(highest)
    }

    /// After a pause the window is halved for each timeout that it lasted (RFC 2861; Linux,
    /// tcp_cwnd_restart).
    fn restart(&mut self, now: Time) {
        let halvings = (now.since(self.sent_at).0 / self.trip.timeout(0).0).min(31) as u32;
        if self.restarts && halvings > 0 && self.sent_at > Time(0) && !self.control.rules() {
            let size = self.window.size;
            self.window.threshold = self.window.threshold.max(size / 2 + size / 4);
            self.window.size = (size >> halvings).max(self.initial_window.min(size));
        }
    }

    fn note_again(&mut self, now: Time, number: u64) {
        if let Some(undo) = &mut self.undo {
            undo.again_at.get_or_insert(now);
            undo.unanswered += 1;
        }
        if number == self.board.first() {
            self.rto_at = now + self.trip.timeout(self.timeouts);
        }
    }

    /// Whether the window was used in the last round trip (Linux, tcp_cwnd_validate; RFC 7661 in spirit).
    fn validate(&mut self) {
        let out = self.board.outstanding();
        let limited = self.board.in_flight() >= self.window.size;
        if self.board.first() >= self.limited_end || limited || (!self.limited && out > self.most_out) {
            self.limited = limited;
            (self.most_out, self.limited_end) = (out, self.board.next());
        }
    }

    fn was_limited(&self) -> bool {
        self.limited || (self.window.in_slow_start() && self.window.size < 2 * self.most_out)
    }

    // ---- timers ----

    /// A probe leaves two round trips after the last segment (RFC 8985, section 7.2).
    fn arm_probe(&mut self, now: Time) {
        self.probe_at = Time::NEVER;
        let calm = self.phase < Phase::Recovering && self.board.sacked() == 0 && self.probe.is_none();
        if self.recovery != Recovery::Rack || !calm || self.board.outstanding() == 0 {
            return;
        }
        let alone = if self.board.outstanding() == 1 { self.ack_delay } else { Nanos::ZERO };
        let at = now + Nanos(2 * self.trip.smoothed().0) + alone;
        self.probe_at = at.min(self.rto_at);
    }

    /// Timers that are due.
    pub fn expire(&mut self, now: Time) -> Expired {
        if self.reorder_at <= now {
            self.reorder_at = Time::NEVER;
            let lost = self.find_losses(now);
            if lost > 0 {
                self.react_to_loss();
                self.shrink(0, false);
            }
        }
        if self.rto_at <= now {
            return self.time_out(now);
        }
        if self.probe_at <= now {
            self.probe_at = Time::NEVER;
            if self.board.outstanding() > 0 {
                let again = self.new_segments() == 0;
                self.probe = Some(Probe { end: self.board.next() + !again as u64, again });
                self.probing = true;
            }
        }
        Expired::Other
    }

    /// RFC 6298, section 5; RFC 8985, section 6.3.
    fn time_out(&mut self, now: Time) -> Expired {
        if self.board.outstanding() == 0 {
            self.rto_at = Time::NEVER;
            return Expired::Other;
        }
        self.timeouts += 1;
        if self.timeouts > MOST_TIMEOUTS {
            return Expired::GivenUp;
        }
        let first = self.phase <= Phase::Reducing || self.board.first() >= self.phase_end;
        if first {
            self.remember();
            self.window.threshold = self.control.reduced(&self.window, Congestion::Timeout);
        }
        let before = match self.recovery {
            Recovery::Rack => self.rack.lost_before(now),
            Recovery::Sack => now,
        };
        self.board.lose_all(before);
        (self.phase, self.phase_end) = (Phase::TimedOut, self.board.next());
        (self.reduction, self.probe, self.probing) = (None, None, false);
        self.window.size = self.board.in_flight() + 1;
        self.bursts.left = 0;
        self.bursts.next_at = now;
        (self.probe_at, self.reorder_at) = (Time::NEVER, Time::NEVER);
        self.rto_at = now + self.trip.timeout(self.timeouts);
        Expired::TimedOut
    }
}
