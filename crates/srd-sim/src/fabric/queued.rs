//! Ports that need more than one number: several classes, memory shared with other ports, packets cut to their headers.

use crate::frame::FrameId;
use crate::settings::ClassSchedule;
use std::collections::VecDeque;

/// Classes of a port.
pub(super) const CLASSES: usize = 8;

/// Bytes that a weight of one stands for in a round: a frame of the largest kind.
const QUANTUM: i64 = 9_216;

/// One port's queues.
#[derive(Default)]
pub(super) struct QueuedPort {
    queues: [VecDeque<(FrameId, u32)>; CLASSES],
    class_bytes: [u64; CLASSES],
    /// Frames cut to their headers: they go first.
    headers: VecDeque<(FrameId, u32)>,
    /// Bytes in all queues, the frame on the cable included.
    pub(super) bytes: u64,
    /// A frame is leaving.
    pub(super) busy: bool,
    /// What each class may still send in this round.
    credit: [i64; CLASSES],
    turn: usize,
}

impl QueuedPort {
    /// Bytes that wait in one class.
    pub(super) fn class_bytes(&self, class: u8) -> u64 {
        self.class_bytes[class as usize]
    }

    /// Takes a frame in.
    pub(super) fn push(&mut self, frame: FrameId, bytes: u32, class: u8, header_only: bool) {
        self.bytes += bytes as u64;
        if header_only {
            self.headers.push_back((frame, bytes));
        } else {
            self.class_bytes[class as usize] += bytes as u64;
            self.queues[class as usize].push_back((frame, bytes));
        }
    }

    /// The frame that leaves next.
    pub(super) fn pop(&mut self, schedule: ClassSchedule) -> Option<(FrameId, u32)> {
        if let Some(header) = self.headers.pop_front() {
            return Some(header);
        }
        let class = match schedule {
            ClassSchedule::None | ClassSchedule::Strict => {
                self.queues.iter().position(|queue| !queue.is_empty())?
            }
            ClassSchedule::Weighted(weights) => self.weighted(&weights)?,
        };
        let (frame, bytes) = self.queues[class].pop_front()?;
        self.class_bytes[class] -= bytes as u64;
        self.credit[class] -= bytes as i64;
        Some((frame, bytes))
    }

    /// Deficit round robin (Shreedhar and Varghese, 1995).
    fn weighted(&mut self, weights: &[u32; CLASSES]) -> Option<usize> {
        if self.queues.iter().all(VecDeque::is_empty) {
            self.credit = [0; CLASSES];
            return None;
        }
        loop {
            let class = self.turn;
            if let Some(&(_, bytes)) = self.queues[class].front() {
                if self.credit[class] >= bytes as i64 {
                    return Some(class);
                }
            } else {
                self.credit[class] = 0;
            }
            self.turn = (self.turn + 1) % CLASSES;
            if !self.queues[self.turn].is_empty() {
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
            port.push(FrameId(frame), 1000, (frame % 2) as u8, false);
        }
        port
    }

    #[test]
    fn strict_classes_wait_for_lower_numbers() {
        let mut port = filled();
        for i in 0..2000 {
            assert_eq!(port.pop(ClassSchedule::Strict).unwrap().0, FrameId(2 * i));
        }
        assert_eq!(port.pop(ClassSchedule::Strict).unwrap().0, FrameId(1));
    }

    #[test]
    fn weights_divide_the_bytes() {
        let mut port = filled();
        let mut weights = [1; CLASSES];
        weights[1] = 3;
        let first = (0..2000)
            .filter(|_| port.pop(ClassSchedule::Weighted(weights)).unwrap().0.0.is_multiple_of(2))
            .count();
        assert!(
            (490..=510).contains(&first),
            "{first} of 2000 frames of the class with a quarter of the weight"
        );
    }

    #[test]
    fn headers_go_first() {
        let mut port = filled();
        port.push(FrameId(9999), 64, 1, true);
        assert_eq!(port.pop(ClassSchedule::Strict).unwrap(), (FrameId(9999), 64));
    }
}
