//! What is known of the segments that have been sent and not been acknowledged (RFC 6675, section 3, in
//! ranges).

use super::ranges::Ranges;
use srd_wire::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Duplicate ACKs that tell of a loss (RFC 5681).
pub const DUP_THRESHOLD: u32 = 3;

/// What is known of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nothing.
    Flying,
    /// The receiver has it.
    Sacked,
    /// It is lost, and has not been retransmitted.
    Lost,
}

/// A segment that has been sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When, the last time.
    pub at: Time,
    /// Transmissions of the connection before that one.
    pub order: u64,
    /// How often.
    pub times: u32,
    /// What became of it.
    pub fate: Fate,
    /// Of the connection when it left, for its delivery rate: segments delivered,
    pub delivered: u64,
    /// when the last of them was acknowledged,
    pub delivered_at: Time,
    /// when the newest of them had left,
    pub first_sent_at: Time,
    /// whether the flow had too little to send,
    pub short: bool,
    /// segments in flight with it, and those that had been found lost.
    pub in_flight: u32,
    pub losses: u64,
}

/// Segments between the first that is not acknowledged and the first that has not been sent.
#[derive(Clone, Default, Debug)]
pub struct Scoreboard {
    first: u64,
    segments: VecDeque<Sent>,
    sacked: Ranges,
    sacked_count: u32,
    lost_count: u32,
    /// Segments that were ever found lost, and the last of them.
    losses: u64,
    last_lost: Option<Sent>,
    /// Lost segments, among others that no longer are.
    lost: BinaryHeap<Reverse<u64>>,
    /// Segments by the time when they were sent last, among others that have been retransmitted since; empty if
    /// nobody asks.
    by_time: VecDeque<(u64, u64)>,
    /// Transmissions.
    orders: u64,
    timed: bool,
    /// Below this, RFC 6675 has found all losses that it can find.
    searched: u64,
}

impl Scoreboard {
    /// Nothing has been sent. `timed`: [`Scoreboard::oldest`] will be asked for.
    pub fn new(timed: bool) -> Scoreboard {
        Scoreboard { timed, ..Scoreboard::default() }
    }

    /// Gives memory back: nothing is outstanding.
    pub fn rest(&mut self) {
        self.by_time.clear();
        self.by_time.shrink_to_fit();
        self.segments.shrink_to_fit();
        self.lost = BinaryHeap::new();
    }

    /// First segment that is not acknowledged: SND.UNA.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// First segment that has not been sent: SND.NXT.
    pub fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Segments that have been sent and not been acknowledged in order.
    pub fn outstanding(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Segments that are thought to be in the network: what RFC 6675 calls the pipe.
    pub fn in_flight(&self) -> u32 {
        self.segments.len() as u32 - self.sacked_count - self.lost_count
    }

    /// Segments that the receiver has out of order.
    pub fn sacked(&self) -> u32 {
        self.sacked_count
    }

    /// Lost segments that are to be retransmitted.
    pub fn lost(&self) -> u32 {
        self.lost_count
    }

    /// Segments that were ever found lost.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// The last of them, once.
    pub fn take_last_lost(&mut self) -> Option<Sent> {
        self.last_lost.take()
    }

    /// A segment.
    pub fn get(&self, number: u64) -> Option<&Sent> {
        self.segments.get(number.checked_sub(self.first)? as usize)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Sent> {
        self.segments.get_mut(number.checked_sub(self.first)? as usize)
    }

    /// The segment is sent: the next new one, or one of these again. `sent` says the rest.
    pub fn send(&mut self, number: u64, mut sent: Sent) {
        sent.order = self.orders;
        (sent.fate, sent.times) = (Fate::Flying, 1);
        (sent.in_flight, sent.losses) = (self.in_flight() + 1, self.losses);
        if self.timed {
            self.by_time.push_back((number, self.orders));
        }
        self.orders += 1;
        match self.get_mut(number) {
            None => self.segments.push_back(sent),
            Some(segment) => {
                let was = segment.fate;
                sent.times = segment.times + 1;
                *segment = sent;
                self.lost_count -= (was == Fate::Lost) as u32;
            }
        }
    }

    /// The lowest lost segment.
    pub fn first_lost(&mut self) -> Option<u64> {
        if self.lost_count == 0 {
            self.lost.clear();
            return None;
        }
        while let Some(&Reverse(number)) = self.lost.peek() {
            if self.get(number).is_some_and(|sent| sent.fate == Fate::Lost) {
                return Some(number);
            }
            self.lost.pop();
        }
        None
    }

    /// The segment is lost.
    pub fn lose(&mut self, number: u64) {
        if let Some(sent) = self.get_mut(number).filter(|sent| sent.fate == Fate::Flying) {
            sent.fate = Fate::Lost;
            let sent = *sent;
            self.lost_count += 1;
            self.losses += 1;
            self.last_lost = Some(sent);
            self.lost.push(Reverse(number));
        }
    }

    /// Takes the first segment away: it is acknowledged.
    pub fn acknowledge_first(&mut self) -> Option<Sent> {
        let sent = self.segments.pop_front()?;
        self.first += 1;
        match sent.fate {
            Fate::Flying => {}
            Fate::Sacked => self.sacked_count -= 1,
            Fate::Lost => self.lost_count -= 1,
        }
        if !self.sacked.is_empty() {
            self.sacked.forget_below(self.first);
        }
        Some(sent)
    }

    /// The receiver has segments out of order; `fresh` gets those that are news.
    pub fn sack(&mut self, start: u64, end: u64, fresh: &mut Vec<(u64, u64)>) {
        let (start, end) = (start.max(self.first), end.min(self.next()));
        if start < end {
            self.sacked.add(start, end, fresh);
        }
    }

    /// One of those that were news.
    pub fn acknowledge(&mut self, number: u64) -> Option<Sent> {
        let sent = self.get_mut(number)?;
        let was = *sent;
        sent.fate = Fate::Sacked;
        self.sacked_count += 1;
        self.lost_count -= (was.fate == Fate::Lost) as u32;
        Some(was)
    }

    /// The segment in flight that was sent first, of all that are.
    pub fn oldest(&mut self) -> Option<(u64, Sent)> {
        while let Some(&(number, order)) = self.by_time.front() {
            match self.get(number).filter(|sent| sent.order == order && sent.fate == Fate::Flying) {
                Some(&sent) => return Some((number, sent)),
                None => self.by_time.pop_front(),
            };
        }
        None
    }

    /// Loses what RFC 6675 calls lost: three segments above it have come. Segments that were retransmitted
    /// cannot be found so.
    pub fn lose_by_count(&mut self) {
        let Some(edge) = self.sacked.highest(DUP_THRESHOLD as u64) else { return };
        for number in self.searched.max(self.first)..edge {
            if self.get(number).is_some_and(|sent| sent.times == 1) {
                self.lose(number);
            }
        }
        self.searched = self.searched.max(edge);
    }

    /// A timeout: loses the first segment, and all that were sent at `before` or earlier.
    pub fn lose_all(&mut self, before: Time) {
        for number in self.first..self.next() {
            if number == self.first || self.get(number).is_some_and(|sent| sent.at <= before) {
                self.lose(number);
            }
        }
    }

    /// What was called lost was late.
    pub fn find_all(&mut self) {
        let mut flying = Vec::new();
        for (sent, number) in self.segments.iter_mut().zip(self.first..) {
            if sent.fate == Fate::Lost {
                sent.fate = Fate::Flying;
            }
            if sent.fate == Fate::Flying {
                flying.push((sent.order, number));
            }
        }
        flying.sort_unstable();
        if self.timed {
            self.by_time = flying.into_iter().map(|(order, number)| (number, order)).collect();
        }
        self.lost_count = 0;
        self.lost.clear();
    }
}
