//! Answers to packets that belong to no context, at a limited rate: each costs its host a call of the system, and anybody
//! may ask for one. They wait in queues of their own, so that who has shown nothing takes no turn of who has the key, or is
//! where somebody has been known.

use crate::Transmit;
use srd_wire::{Nanos, Time};
use std::collections::VecDeque;

/// Most that wait in a queue. What finds no room is not answered; who means it asks again.
const MOST_WAITING: usize = 64;

/// For whom an answer is.
#[derive(Clone, Copy)]
pub(crate) enum Asker {
    /// Somebody who has the key.
    Member = 0,
    /// Who says that he is where somebody has been known.
    Acquaintance = 1,
    /// Anybody.
    Stranger = 2,
}

const QUEUES: usize = 3;

/// Least time between two answers of each queue. A hundred thousand packets a second get an answer for ten of them if
/// strangers send them, for five in the name of a peer: if that is there, and new, one of its first few tries is answered.
const PAUSE: [Nanos; QUEUES] = [Nanos::from_micros(20), Nanos::from_micros(50), Nanos::from_micros(100)];

/// See the module.
pub(crate) struct Replies<P> {
    queues: [Queue<P>; QUEUES],
    /// How many wait in all: mostly none, and that is asked for each packet.
    waiting: usize,
}

struct Queue<P> {
    waiting: VecDeque<Transmit<P>>,
    next: Time,
}

impl<P> Replies<P> {
    pub(crate) fn new() -> Replies<P> {
        Replies {
            queues: [(); QUEUES].map(|()| Queue { waiting: VecDeque::new(), next: Time(0) }),
            waiting: 0,
        }
    }

    /// Whether an answer to `asker` would be kept.
    pub(crate) fn has_room(&self, asker: Asker) -> bool {
        self.queues[asker as usize].waiting.len() < MOST_WAITING
    }

    /// Keeps an answer for which there is room.
    pub(crate) fn add(&mut self, asker: Asker, reply: Transmit<P>) {
        self.queues[asker as usize].waiting.push_back(reply);
        self.waiting += 1;
    }

    /// An answer that may leave now.
    #[inline]
    pub(crate) fn take(&mut self, now: Time) -> Option<Transmit<P>> {
        if self.waiting == 0 { None } else { self.take_waiting(now) }
    }

    #[cold]
    fn take_waiting(&mut self, now: Time) -> Option<Transmit<P>> {
        let reply = self.queues.iter_mut().zip(PAUSE).find_map(|(queue, pause)| {
            if queue.waiting.is_empty() || now < queue.next {
                return None;
            }
            queue.next = now + pause;
            queue.waiting.pop_front()
        });
        self.waiting -= reply.is_some() as usize;
        reply
    }

    /// When [`Replies::take`] has something.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        if self.waiting == 0 {
            return Time::NEVER;
        }
        let waits = self.queues.iter().filter(|queue| !queue.waiting.is_empty());
        waits.map(|queue| queue.next).min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerId;
    use srd_wire::*;

    fn answer() -> Transmit<Vec<u8>> {
        let to = InstanceAddr { gid: Gid::from(std::net::IpAddr::from([10, 0, 0, 1])), port: 1 };
        let (dst_tag, src_tag, body) = (Tag(1), Tag(2), Body::None);
        let packet = Packet { src_port: 1, dst_tag, src_tag, hello: None, ack: None, body };
        let peer = PeerId { slot: 0, generation: 0 };
        Transmit { peer, to, peer_incarnation: None, entropy: 0, pad_to: 0, packet }
    }

    #[test]
    fn each_queue_has_its_rate_and_what_has_left_is_not_counted() {
        let mut replies = Replies::new();
        let askers = [Asker::Stranger, Asker::Stranger, Asker::Acquaintance, Asker::Member];
        askers.into_iter().for_each(|asker| replies.add(asker, answer()));
        let now = Time(1);
        let at_once = std::iter::from_fn(|| replies.take(now)).count();
        assert_eq!((at_once, replies.waiting, replies.due()), (3, 1, now + PAUSE[2]));
        assert!(replies.take(now + PAUSE[2]).is_some());
        assert_eq!((replies.waiting, replies.due()), (0, Time::NEVER));
    }
}
