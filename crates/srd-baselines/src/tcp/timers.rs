//! Deadlines of many owners. A deadline that moves away, as most do with every ACK, costs nothing: the old
//! one wakes its owner, who says when he wants to be woken instead.

use srd_wire::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines by owner.
#[derive(Default, Debug)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// Of each owner, the earliest that is in the heap.
    armed: Vec<Time>,
}

impl Timers {
    /// The owner wants to be woken at `at`, or before.
    pub fn set(&mut self, owner: u32, at: Time) {
        let place = owner as usize;
        if self.armed.len() <= place {
            self.armed.resize(place + 1, Time::NEVER);
        }
        if at < self.armed[place] {
            self.armed[place] = at;
            self.heap.push(Reverse((at, owner)));
        }
    }

    /// The next owner to be woken at `now`. He has no deadline then.
    pub fn expire(&mut self, now: Time) -> Option<u32> {
        while let Some(&Reverse((at, owner))) = self.heap.peek().filter(|next| next.0.0 <= now) {
            self.heap.pop();
            if self.armed[owner as usize] == at {
                self.armed[owner as usize] = Time::NEVER;
                return Some(owner);
            }
        }
        None
    }

    /// When the next is to be woken.
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |next| next.0.0)
    }
}
