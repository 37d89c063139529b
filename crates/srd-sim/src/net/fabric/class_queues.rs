//! Ports that need more than one number: several classes, memory shared with other ports, packets trimmed to their headers,
//! classes that are paused.

use crate::net::frame::FrameId;
use crate::net::settings::ClassSchedule;
use crate::net::topology::PortId;
use srd_baselines::units::Ps;
use std::collections::VecDeque;

/// Classes of a port.
pub(super) const CLASSES: usize = 8;

/// Bytes that a weight of one stands for in a round: a frame of the largest kind.
const QUANTUM: i64 = 9_216;

/// A frame in a queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Waiting {
    pub(super) frame: FrameId,
    pub(super) bytes: u32,
    /// The port that sent it here, [`PortId::NONE`] for frames that began here.
    pub(super) from: PortId,
    /// Class of the frame, which is that of its queue only where classes have queues of their own.
    pub(super) class: u8,
}

/// One port's queues.
#[derive(Default)]
pub(super) struct QueuedPort {
    queues: [VecDeque<Waiting>; CLASSES],
    class_bytes: [u64; CLASSES],
    /// Frames trimmed to their headers: they go first.
    headers: VecDeque<Waiting>,
    /// Bytes in all queues, the frame on the cable included.
    pub(super) bytes: u64,
    /// Those of them that are of lossless classes.
    pub(super) lossless_bytes: u64,
    /// The frame that is leaving.
    pub(super) leaving: Option<Waiting>,
    /// Queues with frames in them, a bit each.
    filled: u8,
    /// Queues that may not send, a bit each.
    pub(super) paused: u8,
    /// Classes whose frames are dropped, because they have been paused for too long.
    pub(super) given_up: u8,
    /// What each class may still send in this round.
    credit: [i64; CLASSES],
    turn: usize,
    /// What has waited, summed up over time until `area_until`, in byte picoseconds.
    area: f64,
    area_until: Ps,
}

impl QueuedPort {
    /// What has waited, summed up over time until now, in byte picoseconds.
    pub(super) fn area(&self, now: Ps) -> f64 {
        self.area + self.bytes as f64 * (now - self.area_until).0 as f64
    }

    /// What waits is about to change.
    pub(super) fn note_area(&mut self, now: Ps) {
        self.area = self.area(now);
        self.area_until = now;
    }

    /// Bytes that wait in one queue.
    pub(super) fn class_bytes(&self, queue: u8) -> u64 {
        self.class_bytes[queue as usize]
    }

    /// Takes a frame into a queue.
    pub(super) fn push(&mut self, waiting: Waiting, queue: u8, header_only: bool) {
        self.bytes += waiting.bytes as u64;
        if header_only {
            self.headers.push_back(waiting);
        } else {
            self.filled |= 1 << queue;
            self.class_bytes[queue as usize] += waiting.bytes as u64;
            self.queues[queue as usize].push_back(waiting);
        }
    }

    /// The frame that leaves next.
    pub(super) fn pop(&mut self, schedule: ClassSchedule) -> Option<Waiting> {
        if let Some(header) = self.headers.pop_front() {
            return Some(header);
        }
        if self.filled == 0 {
            self.credit = [0; CLASSES];
        }
        let ready = self.filled & !self.paused;
        if ready == 0 {
            return None;
        }
        let queue = match schedule {
            ClassSchedule::None | ClassSchedule::Strict => ready.trailing_zeros() as usize,
            ClassSchedule::Weighted(weights) => self.weighted(ready, &weights),
        };
        let waiting = self.take(queue)?;
        self.credit[queue] -= waiting.bytes as i64;
        Some(waiting)
    }

    /// The first frame of a queue.
    pub(super) fn take(&mut self, queue: usize) -> Option<Waiting> {
        let waiting = self.queues[queue].pop_front()?;
        self.class_bytes[queue] -= waiting.bytes as u64;
        if self.queues[queue].is_empty() {
            self.filled &= !(1 << queue);
        }
        Some(waiting)
    }

    /// The frames of some queues, a bit each.
    pub(super) fn frames_of(&self, queues: u8) -> impl Iterator<Item = &Waiting> {
        let meant = move |&(queue, _): &(usize, &VecDeque<Waiting>)| queues >> queue & 1 == 1;
        self.queues.iter().enumerate().filter(meant).flat_map(|(_, frames)| frames)
    }

    /// Deficit round robin (Shreedhar and Varghese, 1995) among queues that are `ready`, at least one.
    fn weighted(&mut self, ready: u8, weights: &[u32; CLASSES]) -> usize {
        loop {
            let queue = self.turn;
            match self.queues[queue].front() {
                Some(waiting) if ready >> queue & 1 == 1 && self.credit[queue] >= waiting.bytes as i64 => {
                    return queue;
                }
                Some(_) => {}
                None => self.credit[queue] = 0,
            }
            self.turn = (self.turn + 1) % CLASSES;
            if ready >> self.turn & 1 == 1 {
                self.credit[self.turn] += QUANTUM * weights[self.turn].max(1) as i64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> QueuedPort {
        let mut port = QueuedPort::default();
        for frame in 0..4000 {
            port.push(waiting(frame, 1000), (frame % 2) as u8, false);
        }
        port
    }

    fn waiting(frame: u32, bytes: u32) -> Waiting {
        Waiting { frame: FrameId(frame), bytes, from: PortId::NONE, class: 0 }
    }

    #[test]
    fn strict_classes_wait_for_lower_numbers() {
        let mut port = filled();
        for i in 0..2000 {
            assert_eq!(port.pop(ClassSchedule::Strict).unwrap().frame, FrameId(2 * i));
        }
        assert_eq!(port.pop(ClassSchedule::Strict).unwrap().frame, FrameId(1));
    }

    #[test]
    fn weights_divide_the_bytes() {
        let mut port = filled();
        let mut weights = [1; CLASSES];
        weights[1] = 3;
        let first = (0..2000)
            .filter(|_| port.pop(ClassSchedule::Weighted(weights)).unwrap().frame.0.is_multiple_of(2))
            .count();
        assert!(
            (490..=510).contains(&first),
            "{first} of 2000 frames of the class with a quarter of the weight"
        );
    }

    #[test]
    fn paused_classes_let_others_pass() {
        for schedule in [ClassSchedule::Strict, ClassSchedule::Weighted([1; CLASSES])] {
            let mut port = filled();
            port.paused = 1;
            for i in 0..2000 {
                assert_eq!(port.pop(schedule).unwrap().frame, FrameId(2 * i + 1));
            }
            assert_eq!(port.pop(schedule), None);
            port.paused = 0;
            assert_eq!(port.pop(schedule).unwrap().frame, FrameId(0));
        }
    }

    #[test]
    fn headers_go_first() {
        let mut port = filled();
        port.push(waiting(9999, 64), 1, true);
        assert_eq!(port.pop(ClassSchedule::Strict).unwrap(), waiting(9999, 64));
    }
}
