//! Deferred work: what waits for the transport: what a call from the transport has left behind (it cannot be called back in the
//! middle of its own call), and what waits for a time.

use crate::api::CqId;
use crate::slab::Key;
use crate::staged::DeviceEnd;
use srd_proto::PeerId;
use srd_wire::{Status, Time};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// A piece of work. Whoever does it looks first whether its object is still there: nothing is ever taken out of the
/// queues, so that ending a work request costs nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deferred {
    /// Hand a work request to the transport.
    Start(Key),
    /// Send the answer to a read.
    ReadResponse(Key),
    /// Tell a requester that its read will not be answered (in full).
    FailRead { peer: PeerId, read: u32, status: Status },
    /// See whether a peer that owes us read data is alive.
    Watch(PeerId),
    /// Fire the notification of a completion queue whose alarm was set for this time.
    Alarm(CqId),
    /// Let completions come that are late on purpose.
    Late,
    /// The device ends on purpose.
    End(DeviceEnd),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DeferredQueues {
    ready: VecDeque<Deferred>,
    later: BinaryHeap<Later>,
    serial: u64,
}

#[derive(Debug)]
struct Later {
    due: Time,
    serial: u64,
    work: Deferred,
}

impl DeferredQueues {
    /// To be done as soon as the transport can be called.
    pub fn push_ready(&mut self, work: Deferred) {
        self.ready.push_back(work);
    }

    pub fn pop_ready(&mut self) -> Option<Deferred> {
        self.ready.pop_front()
    }

    /// To be done at `due`. Costs the logarithm of what waits.
    pub fn push_later(&mut self, due: Time, work: Deferred) {
        self.serial += 1;
        self.later.push(Later { due, serial: self.serial, work });
    }

    pub fn pop_due(&mut self, now: Time) -> Option<Deferred> {
        if self.next_due() > now {
            return None;
        }
        self.later.pop().map(|later| later.work)
    }

    /// When the next work is due; [`Time::NEVER`] if none waits.
    #[inline]
    pub fn next_due(&self) -> Time {
        self.later.peek().map_or(Time::NEVER, |later| later.due)
    }
}

/// The earliest is the greatest, as `BinaryHeap` wants it; what is due at the same time keeps its order.
impl Ord for Later {
    fn cmp(&self, other: &Later) -> Ordering {
        (other.due, other.serial).cmp(&(self.due, self.serial))
    }
}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Later) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Later {
    fn eq(&self, other: &Later) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Later {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_in_order_of_time_then_of_arrival() {
        let key = |index| Deferred::Start(Key { index, generation: 0 });
        let mut queues = DeferredQueues::default();
        for (due, index) in [(20, 1), (10, 2), (20, 3), (10, 4)] {
            queues.push_later(Time(due), key(index));
        }
        assert_eq!(queues.next_due(), Time(10));
        assert_eq!(queues.pop_due(Time(9)), None);
        let order: Vec<_> = std::iter::from_fn(|| queues.pop_due(Time(20))).collect();
        assert_eq!(order, [key(2), key(4), key(1), key(3)]);
        assert_eq!(queues.next_due(), Time::NEVER);
    }
}
