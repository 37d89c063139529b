//! What an ACK means: what has come, what is lost, and how the window answers.

use super::{Sender, Undo};
use crate::tcp::config::Recovery;
use crate::tcp::congestion::{Congestion, Phase, Sample};
use crate::tcp::prr::Reduction;
use crate::tcp::rate::{Losses, Sampling};
use crate::tcp::scoreboard::{Fate, Sent};
use crate::tcp::segment::Ack;
use srd_wire::{Nanos, Time};

/// What an ACK says.
#[derive(Default, Debug)]
struct Heard {
    /// Segments acknowledged for the first time.
    acked: u32,
    /// Segments acknowledged in order.
    advanced: u32,
    /// Some of those were sent more than once.
    again: bool,
    /// Round trips of the oldest and the newest of those that were sent once.
    oldest: Option<Nanos>,
    newest: Option<Nanos>,
    sampling: Sampling,
}

impl Sender {
    /// An ACK has come.
    pub fn acknowledge(&mut self, now: Time, ack: &Ack) {
        let next = ack.next.min(self.board.next());
        let flight = self.board.in_flight();
        self.room_end = self.room_end.max(next + ack.window as u64);
        let mut heard = Heard::default();
        while self.board.first() < next {
            let number = self.board.first();
            let Some(sent) = self.board.acknowledge_first() else { break };
            heard.advanced += 1;
            heard.again |= sent.times > 1;
            if sent.fate != Fate::Sacked {
                self.hear(now, number, &sent, &mut heard);
            }
        }
        self.hear_blocks(now, next, ack, &mut heard);
        if heard.again {
            // What was sent once may have waited at the receiver for what was retransmitted.
            (heard.oldest, heard.newest) = (None, None);
        }
        self.sample(now, &heard, ack);
        if let Some(duplicate) = ack.duplicate {
            self.hear_duplicate(duplicate);
        }
        let rate = heard.sampling.end(now, heard.acked, self.trip.least(), self.board.losses(), &mut self.delivery);
        let mut sample = Sample {
            now,
            acked: heard.acked,
            advanced: heard.advanced,
            lost: 0,
            marked: ack.marked,
            rtt: heard.newest,
            smoothed: self.trip.smoothed(),
            first: self.board.first(),
            next: self.board.next(),
            delivered: self.delivery.total,
            flights: (flight, self.board.in_flight()),
            rate,
            last_lost: None,
            phase: self.phase,
            limited: self.was_limited(),
            may_grow: false,
        };
        self.control.heard(&sample);
        self.judge_probe(ack);
        if heard.advanced > 0 {
            self.timeouts = 0;
        }
        self.end_phase();
        self.take_back(ack, heard.advanced);
        sample.lost = self.find_losses(now);
        let last_lost = self.board.take_last_lost();
        let losses = |sent: Sent| Losses { in_flight: sent.in_flight, lost: self.board.losses() - sent.losses };
        sample.last_lost = last_lost.map(losses);
        if sample.lost > 0 {
            self.react_to_loss();
        }
        if ack.marked && self.phase == Phase::Open {
            self.react_to_mark();
        }
        self.shrink(heard.acked, heard.advanced > 0 && sample.lost == 0);
        sample.flights.1 = self.board.in_flight();
        sample.phase = self.phase;
        sample.may_grow = self.reduction.is_none() && heard.acked > 0;
        self.control.acknowledged(&mut self.window, &sample);
        if heard.advanced > 0 {
            self.rto_at = match self.board.outstanding() {
                0 => Time::NEVER,
                _ => now + self.trip.timeout(self.timeouts),
            };
            self.arm_probe(now);
        }
        if self.board.sacked() > 0 || self.phase >= Phase::Recovering {
            self.probe_at = Time::NEVER;
        }
    }

    /// A segment is acknowledged for the first time.
    fn hear(&mut self, now: Time, number: u64, sent: &Sent, heard: &mut Heard) {
        heard.acked += 1;
        heard.sampling.delivered(sent);
        if sent.times == 1 {
            let rtt = now.since(sent.at);
            heard.oldest.get_or_insert(rtt);
            heard.newest = Some(heard.newest.map_or(rtt, |newest| newest.min(rtt)));
        }
        if self.recovery == Recovery::Rack {
            self.rack.delivered(now, number, sent, self.trip.least());
        }
    }

    fn hear_blocks(&mut self, now: Time, next: u64, ack: &Ack, heard: &mut Heard) {
        if ack.ranges == 0 {
            return;
        }
        let mut fresh = core::mem::take(&mut self.fresh);
        for &(start, end) in &ack.blocks[..ack.ranges as usize] {
            self.board.sack(next + start as u64, next + end as u64, &mut fresh);
        }
        for (start, end) in fresh.drain(..) {
            for number in start..end {
                if let Some(sent) = self.board.acknowledge(number) {
                    self.hear(now, number, &sent, heard);
                }
            }
        }
        self.fresh = fresh;
    }

    /// Karn's rule: only segments that were sent once tell the time; otherwise the timestamp does (RFC 7323,
    /// section 4).
    fn sample(&mut self, now: Time, heard: &Heard, ack: &Ack) {
        match heard.oldest {
            Some(rtt) => self.trip.sample(rtt),
            None if heard.advanced > 0 => self.trip.sample(now.since(ack.echo)),
            None => {}
        }
        if let Some(rtt) = heard.newest {
            self.trip.sample_newest(rtt);
        }
    }

    fn hear_duplicate(&mut self, number: u64) {
        let probed = self.probe.is_some_and(|probe| probe.again && number + 1 == probe.end);
        if self.recovery == Recovery::Rack && !probed {
            self.rack.duplicated(self.board.first(), self.board.next());
        }
        if let Some(undo) = &mut self.undo
            && number < self.phase_end
        {
            undo.unanswered = undo.unanswered.saturating_sub(1);
        }
    }

    /// Whether a probe has repaired a loss that nobody saw (RFC 8985, section 7.4).
    fn judge_probe(&mut self, ack: &Ack) {
        let Some(probe) = self.probe.filter(|probe| ack.next >= probe.end) else { return };
        if !probe.again || ack.duplicate.is_some() {
            self.probe = None;
        } else if ack.next > probe.end {
            self.probe = None;
            if self.phase == Phase::Open {
                self.remember();
                self.window.threshold = self.control.reduced(&self.window, Congestion::Loss);
                if !self.control.rules() {
                    self.window.size = self.window.threshold;
                }
                self.undo = None;
            }
        } else if self.board.outstanding() == 0 || ack.ranges == 0 {
            self.probe = None;
        }
    }

    /// A phase ends when all that had been sent at its beginning is acknowledged.
    fn end_phase(&mut self) {
        // A reduction lasts until the segment that tells of it has come.
        let end = self.phase_end + (self.phase == Phase::Reducing && self.board.outstanding() > 0) as u64;
        if self.phase == Phase::Open || self.board.first() < end {
            return;
        }
        if self.phase >= Phase::Recovering {
            self.rack.recovered();
        }
        if self.reduction.take().is_some() {
            self.window.size = self.window.threshold;
        }
        // What the last ACKs say may still take the reduction back.
        self.phase = Phase::Open;
    }

    /// Takes a reduction back that was a mistake: the segments were late, not lost (Eifel, RFC 3522 and RFC
    /// 4015; DSACK, RFC 3708). It does for spurious timeouts, too, what F-RTO does without timestamps.
    fn take_back(&mut self, ack: &Ack, advanced: u32) {
        let Some(undo) = &self.undo else { return };
        let Some(again_at) = undo.again_at else { return };
        let early = advanced > 0 && ack.echo < again_at;
        if !early && undo.unanswered > 0 {
            if self.phase == Phase::Open && self.board.first() > self.phase_end {
                self.undo = None;
            }
            return;
        }
        if early && self.phase == Phase::Recovering {
            self.rack.reordered();
        }
        self.window.size = self.window.size.max(undo.window.size);
        self.window.threshold = self.window.threshold.max(undo.window.threshold);
        (self.undo, self.reduction, self.phase) = (None, None, Phase::Open);
        self.board.find_all();
        self.control.restored();
    }

    /// Finds losses, and says how many.
    pub(super) fn find_losses(&mut self, now: Time) -> u32 {
        let before = self.board.lost();
        match self.recovery {
            Recovery::Rack => {
                let recovering = self.phase >= Phase::Recovering;
                let (least, smoothed) = (self.trip.least(), self.trip.smoothed());
                self.reorder_at = self.rack.detect(now, &mut self.board, recovering, least, smoothed);
            }
            Recovery::Sack => self.board.lose_by_count(),
        }
        self.board.lost() - before
    }

    pub(super) fn remember(&mut self) {
        self.undo = Some(Undo { window: self.window, again_at: None, unanswered: 0 });
    }

    pub(super) fn react_to_loss(&mut self) {
        if self.phase >= Phase::Recovering {
            return;
        }
        if self.phase == Phase::Open {
            self.remember();
            self.begin_reduction(Congestion::Loss);
        }
        (self.phase, self.phase_end) = (Phase::Recovering, self.board.next());
        self.probe = None;
        self.probe_at = Time::NEVER;
    }

    fn react_to_mark(&mut self) {
        self.undo = None;
        self.begin_reduction(Congestion::Mark);
        (self.phase, self.phase_end) = (Phase::Reducing, self.board.next());
        self.tell_reduced = true;
    }

    fn begin_reduction(&mut self, why: Congestion) {
        let prior = self.window.size;
        self.window.threshold = self.control.reduced(&self.window, why);
        if !self.control.rules() {
            self.reduction = Some(Reduction::new(prior));
        }
    }

    pub(super) fn shrink(&mut self, acked: u32, progress: bool) {
        if let Some(reduction) = &mut self.reduction {
            let in_flight = self.board.in_flight();
            self.window.size = reduction.window(self.window.threshold, in_flight, acked, progress).max(1);
        }
    }
}
