//! Bursts: segmentation offload gives the card up to 64 KB at once. How many segments, when waiting makes a
//! larger one, and how bursts are spaced out in time.

use srd_wire::{Nanos, Time};

/// A burst is at most a millisecond of the pace (Linux, tcp_tso_autosize with a shift of 10).
const PACE_SPAN: f64 = 1e-3;
/// With short round trips up to a full burst is added: halved for every so many nanoseconds (Linux,
/// tcp_tso_rtt_log 9).
const ROUND_TRIP_STEP: Nanos = Nanos::from_micros(512);
/// Segments that are always worth sending (Linux, tcp_min_tso_segs).
const LEAST: u32 = 2;
/// Waiting ends when this part of the window is free (Linux, tcp_tso_win_divisor).
const WINDOW_DIVISOR: u32 = 3;
/// Waiting ends when nothing has left for so long (Linux, tcp_tso_should_defer).
const LONGEST_WAIT: Nanos = Nanos::from_millis(1);

/// Bursts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    /// Segments of the largest.
    pub most: u32,
    /// Segments of the present one that have not left.
    pub left: u32,
    /// Of the present one that have.
    sent: u32,
    /// When the next may begin.
    pub next_at: Time,
    /// When the last began.
    begun_at: Time,
}

/// What decides about the next burst.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Segments that the window has room for.
    pub room: u32,
    /// Segments that wait.
    pub waiting: u64,
    /// Window.
    pub window: u32,
    /// When the first of the segments in flight left; `None`: none is.
    pub oldest: Option<Time>,
    /// SRTT.
    pub smoothed: Nanos,
    /// Segments per second, if bursts are spaced out.
    pub pace: Option<f64>,
    /// There is something to be repaired.
    pub urgent: bool,
}

impl Bursts {
    /// Of at most so many segments.
    pub fn new(most: u32) -> Bursts {
        Bursts { most, left: 0, sent: 0, next_at: Time(0), begun_at: Time(0) }
    }

    /// How many segments the next burst has; 0: it is better to wait for another ACK.
    pub fn size(&self, now: Time, room: &Room) -> u32 {
        let mut most = self.most.min((room.window / 2).max(1));
        if let Some(pace) = room.pace {
            let halvings = (room.smoothed.0 / ROUND_TRIP_STEP.0).min(31) as u32;
            let paced = (pace * PACE_SPAN) as u32 + (self.most >> halvings);
            most = most.min(paced.max(LEAST));
        }
        let size = (room.room.min(most) as u64).min(room.waiting) as u32;
        let full = size >= most || size as u64 == room.waiting || size >= room.window / WINDOW_DIVISOR;
        let late = now.since(self.begun_at) > LONGEST_WAIT;
        // An ACK of something that left a moment ago is too far away.
        let soon = room.oldest.is_some_and(|oldest| now.since(oldest).0 >= room.smoothed.0 / 2);
        if full || late || room.urgent || !soon { size } else { 0 }
    }

    /// A burst of so many segments begins, if any.
    pub fn begin(&mut self, now: Time, size: u32) {
        if size > 0 {
            (self.left, self.sent, self.begun_at) = (size, 0, now);
        }
    }

    /// A segment of the burst leaves.
    pub fn sent(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.sent += 1;
    }

    /// The burst is over; `pace`: segments per second.
    pub fn end(&mut self, pace: Option<f64>) {
        self.left = 0;
        if let Some(pace) = pace {
            let length = (self.sent as f64 * 1e9 / pace) as u64;
            // Lateness is made up for, up to half of a burst's length (Linux, tcp_update_skb_after_send).
            let credit = self.begun_at.since(self.next_at).0.min(length / 2);
            self.next_at = self.begun_at.max(self.next_at) + Nanos(length - credit);
        }
    }
}
