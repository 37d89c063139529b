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

/// Time for each answer of a queue, on average. A hundred thousand packets a second get an answer for ten of them if
/// strangers send them, for five in the name of a peer: if that is there, and new, one of its first few tries is answered.
const PAUSE: [Nanos; QUEUES] = [Nanos::from_micros(20), Nanos::from_micros(50), Nanos::from_micros(100)];

/// Answers that may leave at once after a rest: many may begin to send to one at the same moment, and each asks on three paths.
const BURST: u64 = 256;

/// See the module.
pub(crate) struct Replies<P> {
    queues: [Queue<P>; QUEUES],
    /// How many wait in all: mostly none, and that is asked for each packet.
    waiting: usize,
}

struct Queue<P> {
    waiting: VecDeque<Transmit<P>>,
    /// When the time for all answers so far is over.
    paid: Time,
}

impl<P> Replies<P> {
    pub(crate) fn new() -> Replies<P> {
        Replies {
            queues: [(); QUEUES].map(|()| Queue { waiting: VecDeque::new(), paid: Time(0) }),
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
            if queue.waiting.is_empty() || now < queue.due(pause) {
                return None;
            }
            queue.paid = queue.paid.max(now) + pause;
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
        let waits = self.queues.iter().zip(PAUSE).filter(|(queue, _)| !queue.waiting.is_empty());
        waits.map(|(queue, pause)| queue.due(pause)).min().unwrap_or(Time::NEVER)
    }
}

impl<P> Queue<P> {
    /// When the next answer may leave.
    fn due(&self, pause: Nanos) -> Time {
        Time(self.paid.0.saturating_sub((BURST - 1) * pause.0))
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
    fn each_queue_has_its_rate_and_after_a_rest_a_burst() {
        let mut replies = Replies::new();
        let at = |ms: u64| Time(1_000_000_000 + ms * 1_000_000);
        let leave = |replies: &mut Replies<_>, asker, now| {
            (0..1000)
                .take_while(|_| {
                    replies.add(asker, answer());
                    replies.take(now).is_some()
                })
                .count() as u64
        };
        for (asker, a_millisecond) in [(Asker::Stranger, 10), (Asker::Acquaintance, 20), (Asker::Member, 50)]
        {
            assert_eq!(leave(&mut replies, asker, at(0)), BURST);
            assert_eq!(leave(&mut replies, asker, at(1)), a_millisecond);
            let due = replies.due();
            assert!(due > at(1) && due <= at(1) + PAUSE[asker as usize]);
            assert_eq!(
                leave(&mut replies, asker, at(1000)),
                BURST,
                "nothing of a long rest is kept beyond that"
            );
            while replies.take(at(2000)).is_some() {}
        }
        assert_eq!((replies.waiting, replies.due()), (0, Time::NEVER));
    }
}
