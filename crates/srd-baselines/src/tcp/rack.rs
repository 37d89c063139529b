//! RACK: a segment is lost if one that was sent later has come and time enough has passed for it to come late
//! (RFC 8985).

use super::scoreboard::{DUP_THRESHOLD, Scoreboard, Sent};
use srd_wire::{Nanos, Time};

/// Recoveries without DSACK after which the window for reordering shrinks again (section 6.2, step 4).
const PERSISTENCE: u32 = 16;

/// What RACK knows of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// Transmissions before that of the segment which was sent last, of all that have come. `None`: none has.
    newest: Option<u64>,
    /// Its round trip.
    rtt: Nanos,
    /// Highest segment that has come.
    highest: u64,
    reordering: bool,
    /// Quarters of the shortest round trip to wait.
    quarters: u32,
    persistence: u32,
    /// Until this segment is acknowledged, DSACKs do not count.
    round_end: Option<u64>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            newest: None,
            rtt: Nanos::ZERO,
            highest: 0,
            reordering: false,
            quarters: 1,
            persistence: 0,
            round_end: None,
        }
    }
}

impl Rack {
    /// A segment has come (steps 1 to 3).
    pub fn delivered(&mut self, now: Time, number: u64, sent: &Sent, least: Nanos) {
        if number >= self.highest {
            self.highest = number;
        } else if sent.times == 1 {
            self.reordering = true;
        }
        let rtt = now.since(sent.at);
        if sent.times > 1 && rtt < least {
            return; // what has come is an earlier copy
        }
        if self.newest.is_none_or(|newest| sent.order > newest) {
            (self.newest, self.rtt) = (Some(sent.order), rtt);
        }
    }

    /// An ACK says that a segment has come twice: the window for reordering is too narrow, once per round
    /// trip (step 4).
    pub fn duplicated(&mut self, first: u64, next: u64) {
        if self.round_end.is_some_and(|end| first < end) {
            return;
        }
        self.round_end = Some(next);
        self.quarters += 1;
        self.persistence = PERSISTENCE;
    }

    /// A segment that was retransmitted has come late, as a timestamp shows (Linux, tcp_try_undo_partial).
    pub fn reordered(&mut self) {
        self.reordering = true;
    }

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.quarters = 1;
        }
    }

    fn window(&self, recovering: bool, sacked: u32, least: Nanos, smoothed: Nanos) -> Nanos {
        if !self.reordering && (recovering || sacked >= DUP_THRESHOLD) {
            return Nanos::ZERO;
        }
        Nanos(least.0.saturating_mul(self.quarters as u64) / 4).min(smoothed)
    }

    /// Loses what is lost, and says when to look again (step 5).
    pub fn detect(
        &self,
        now: Time,
        board: &mut Scoreboard,
        recovering: bool,
        least: Nanos,
        smoothed: Nanos,
    ) -> Time {
        let Some(newest) = self.newest else { return Time::NEVER };
        let late = self.rtt + self.window(recovering, board.sacked(), least, smoothed);
        while let Some((number, sent)) = board.oldest() {
            if sent.order >= newest {
                break;
            }
            if sent.at + late > now {
                return sent.at + late;
            }
            board.lose(number);
        }
        Time::NEVER
    }

    /// At a timeout, segments that were sent at this time or before are lost (section 6.3).
    pub fn lost_before(&self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.rtt.0))
    }
}
