//! The receiving half of a connection: puts segments in order, and says when and what to acknowledge.

use super::config::{Config, Marks, Placement};
use super::ranges::Ranges;
use super::segment::{Ack, Connection, Data, MOST_BLOCKS};
use srd_wire::Time;
use std::collections::VecDeque;

/// Segments that are acknowledged at once at the beginning (Linux, TCP_MAX_QUICKACKS).
const QUICK: u32 = 16;
/// Segments that an ACK may wait for (RFC 5681, section 4.2).
const ACK_EVERY: u32 = 2;

/// What became of a segment that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It is kept.
    Fresh,
    /// It had come before.
    Again,
    /// There is no room for it.
    Dropped,
}

/// How soon a segment is to be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Whatever comes after it.
    Now,
    /// When what came together with it has been looked at.
    Due,
    /// When there is a second one, or time has passed.
    Later,
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// Its first segment.
    pub first: u64,
    /// The segment after its last.
    pub end: u64,
    /// What it fills.
    pub inbox: u32,
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    placement: Placement,
    marks: Marks,
    /// Bytes of a full segment.
    full: u32,
    /// Segments that there is room for.
    room: u32,
    /// First segment that is not there: RCV.NXT.
    next: u64,
    here: Ranges,
    /// Segments beyond `next` that are there.
    waiting: u64,
    /// Messages of which something has come and something is missing, in order.
    messages: VecDeque<Coming>,
    /// Ranges, the newest first.
    newest: [(u64, u64); MOST_BLOCKS],
    duplicate: Option<u64>,
    /// Segments in order that no ACK tells of.
    unacked: u32,
    acked: u64,
    quick: u32,
    echo: Time,
    /// The last segment was marked: DCTCP.CE.
    marked: bool,
    /// Marks are echoed until the sender says that it has reacted.
    echoing: bool,
    fresh: Vec<(u64, u64)>,
    /// When an ACK is due that waits.
    pub ack_at: Time,
}

impl Receiver {
    /// Nothing has come. `full`: bytes of a full segment.
    pub fn new(config: &Config, full: u32) -> Receiver {
        Receiver {
            placement: config.placement,
            marks: config.marks,
            full,
            room: config.room(full),
            next: 0,
            here: Ranges::default(),
            waiting: 0,
            messages: VecDeque::new(),
            newest: [(0, 0); MOST_BLOCKS],
            duplicate: None,
            unacked: 0,
            acked: 0,
            quick: QUICK,
            echo: Time(0),
            marked: false,
            echoing: false,
            fresh: Vec::new(),
            ack_at: Time::NEVER,
        }
    }

    /// First segment that is not there.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Something of this message has come for the first time.
    pub fn begin(&mut self, mut message: Coming) {
        let place = self.messages.partition_point(|other| other.first < message.first);
        // One without end ends where the next begins.
        if let Some(after) = self.messages.get(place) {
            message.end = message.end.min(after.first);
        }
        if let Some(before) = place.checked_sub(1) {
            self.messages[before].end = self.messages[before].end.min(message.first);
        }
        self.messages.insert(place, message);
    }

    /// The next message of which everything is there.
    pub fn finish(&mut self) -> Option<Coming> {
        self.messages.front().filter(|message| message.end <= self.next)?;
        self.messages.pop_front()
    }

    /// The segment's mark differs from the last one's: what waits must be acknowledged first, so that the
    /// sender knows how many were marked (RFC 8257, section 3.2).
    pub fn turns(&mut self, marked: bool) -> bool {
        self.marks == Marks::Counted && marked != self.marked && self.unacked > 0
    }

    /// A segment has come. Returns what became of it, and how soon it is to be acknowledged.
    pub fn accept(&mut self, data: &Data, marked: bool) -> (Arrival, Urgency) {
        self.marked = marked;
        if self.marks == Marks::Classic {
            self.echoing = (self.echoing && !data.reduced) || marked;
        }
        if data.number <= self.acked {
            self.echo = self.echo.max(data.sent_at);
        }
        if data.number < self.next || self.here.contains(data.number) {
            self.duplicate = Some(data.number);
            return (Arrival::Again, Urgency::Now);
        }
        if data.number > self.next {
            return (self.put_aside(data.number), Urgency::Now);
        }
        let gap = !self.here.is_empty();
        self.next += 1;
        self.unacked += 1;
        if let Some(end) = self.here.take_from(self.next) {
            self.waiting -= end - self.next;
            self.unacked += (end - self.next) as u32;
            self.next = end;
        }
        let now = gap || (marked && self.marks == Marks::Classic);
        let urgency = match data.push {
            _ if now => Urgency::Now,
            // The application reads it at once, and then what was pushed is acknowledged (Linux,
            // tcp_cleanup_rbuf).
            true => Urgency::Due,
            false => self.urgency(),
        };
        (Arrival::Fresh, urgency)
    }

    /// How soon what has come in order is to be acknowledged.
    pub fn urgency(&self) -> Urgency {
        if self.unacked >= ACK_EVERY || self.quick > 0 { Urgency::Due } else { Urgency::Later }
    }

    fn put_aside(&mut self, number: u64) -> Arrival {
        if let Placement::Bounded(bytes) = self.placement
            && (self.waiting + 1) * self.full as u64 > bytes
        {
            return Arrival::Dropped;
        }
        self.fresh.clear();
        let (start, end) = self.here.add(number, number + 1, &mut self.fresh);
        self.waiting += 1;
        let mut place = 0;
        let mut others = [(0, 0); MOST_BLOCKS];
        for &other in self.newest.iter().filter(|other| other.1 > other.0) {
            if (other.1 < start || other.0 > end) && place + 1 < MOST_BLOCKS {
                others[place] = other;
                place += 1;
            }
        }
        self.newest[0] = (start, end);
        self.newest[1..].copy_from_slice(&others[..MOST_BLOCKS - 1]);
        Arrival::Fresh
    }

    /// The ACK that tells of all this.
    pub fn acknowledge(&mut self, connection: Connection) -> Ack {
        let duplicate = self.duplicate.take();
        let most = MOST_BLOCKS - duplicate.is_some() as usize;
        let (mut blocks, mut ranges) = ([(0, 0); MOST_BLOCKS], 0);
        if self.waiting > 0 {
            for &(start, end) in self.newest.iter().filter(|block| block.1 > block.0.max(self.next)) {
                if ranges < most {
                    blocks[ranges] = ((start - self.next) as u32, (end - self.next) as u32);
                    ranges += 1;
                }
            }
        }
        let marked = match self.marks {
            Marks::Ignored => false,
            Marks::Classic => self.echoing,
            Marks::Counted => self.marked,
        };
        self.unacked = 0;
        self.acked = self.next;
        self.quick = self.quick.saturating_sub(1);
        self.ack_at = Time::NEVER;
        let ranges = ranges as u8;
        Ack { connection, next: self.next, echo: self.echo, window: self.room, marked, blocks, ranges, duplicate }
    }
}
