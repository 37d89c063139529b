//! Outgoing messages of one context: a slab, and the queues of those that have something left to send. Messages take
//! turns chunk by chunk, so that a long one does not hold up the others; but only so many are begun at a time, since
//! the receiver keeps state for each. Of those begun the one with the least left has its turn: of equal ones each is then
//! there sooner, and none later, than if all came to their end together. What the transport itself has to tell goes first.

use crate::{Payload, Token};
use srd_wire::{MsgId, Op, Psn};
use std::collections::VecDeque;

/// Bits of a message number that name its slot; the rest counts, so that a number comes again only long after
/// everything about its last bearer has left the receive window.
const SLOT_BITS: u32 = 20;

/// Why a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The upper layer wants it.
    UpperLayer(Token),
    /// It tells the peer that the message that ended at this PSN was refused; once this is acknowledged, so may the
    /// PSN be.
    Refusal { withheld: Psn },
    /// It tells the peer to forget a message.
    Forget,
}

/// An outgoing message.
pub(crate) struct OutMessage<P> {
    pub(crate) purpose: Purpose,
    pub(crate) op: Op,
    pub(crate) payload: P,
    pub(crate) len: u32,
    pub(crate) id: MsgId,
    /// Payload bytes per packet.
    pub(crate) segment: u16,
    /// Where the next new segment begins.
    pub(crate) next: u32,
    /// Packets sent and not acknowledged.
    pub(crate) outstanding: u32,
    /// Every segment has been sent once, or will not be.
    pub(crate) all_sent: bool,
    /// It has been sent in part at least.
    pub(crate) started: bool,
    /// Its outcome is known to the upper layer, or not wanted any more: retransmissions are skips.
    pub(crate) over: bool,
    queued: bool,
    live: bool,
}

impl<P> OutMessage<P> {
    /// Bytes that have not been sent once.
    fn left(&self) -> u32 {
        self.len - self.next
    }

    /// Whether it is for the process that has asked, and for no other.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.purpose, Purpose::Refusal { .. })
            || matches!(self.op, Op::ReadResponse { .. } | Op::ReadFailed { .. })
    }
}

/// Most messages that are sent in part at a time; far below the receiver's limit.
const MAX_BEGUN: usize = 256;
/// Of so many turns of begun messages one is that of the message with the most left, so that short ones without end do not stop it.
/// (One between waits at most until the longest is as short.)
const LONGEST: u32 = 4;

/// See the module.
pub(crate) struct Messages<P> {
    slab: Vec<OutMessage<P>>,
    free: Vec<u32>,
    /// Refusals and the like, one packet each.
    control: VecDeque<u32>,
    /// Not begun.
    waiting: VecDeque<u32>,
    /// Sent in part; those with the least left first.
    begun: VecDeque<u32>,
    max_begun: usize,
    /// The one whose turn it is, taken out of its queue.
    current: Option<u32>,
    /// Turns that there have been. Every second is one of the begun ones'.
    turns: u32,
    counter: u32,
    queued_bytes: u64,
    upper_len: usize,
}

impl<P: Payload> Messages<P> {
    /// `max_partial`: incomplete messages that a receiver keeps.
    pub(crate) fn new(max_partial: u32) -> Messages<P> {
        Messages {
            slab: Vec::new(),
            free: Vec::new(),
            control: VecDeque::new(),
            waiting: VecDeque::new(),
            begun: VecDeque::new(),
            max_begun: (max_partial as usize / 2).clamp(1, MAX_BEGUN),
            current: None,
            turns: 0,
            counter: 0,
            queued_bytes: 0,
            upper_len: 0,
        }
    }

    /// Live messages.
    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Live messages of the upper layer.
    pub(crate) fn upper_len(&self) -> usize {
        self.upper_len
    }

    /// Bytes that wait to be sent for the first time.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Whether messages are queued to be sent (some of them perhaps given up since).
    pub(crate) fn has_queued(&self) -> bool {
        self.current.is_some()
            || !self.control.is_empty()
            || !self.waiting.is_empty()
            || !self.begun.is_empty()
    }

    pub(crate) fn get(&mut self, slot: u32) -> &mut OutMessage<P> {
        &mut self.slab[slot as usize]
    }

    /// How much of the transport's own waits, at most.
    pub(crate) fn control_len(&self) -> u32 {
        self.control.len() as u32
    }

    /// Whether a refusal is next.
    pub(crate) fn has_refusal(&self) -> bool {
        let first = self.control.front().map(|&slot| &self.slab[slot as usize].purpose);
        first.is_some_and(|purpose| matches!(purpose, Purpose::Refusal { .. }))
    }

    /// Whether something of the transport's own waits, which neither window nor pacing may hold up.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Adds a message to its queue.
    pub(crate) fn add(&mut self, purpose: Purpose, op: Op, payload: P, id: Option<MsgId>) -> u32 {
        let len = payload.len() as u32;
        let slot = self.free.pop().unwrap_or(self.slab.len() as u32);
        self.counter = self.counter.wrapping_add(1);
        let id = id.unwrap_or(MsgId(self.counter << SLOT_BITS | slot));
        let message = OutMessage {
            purpose,
            op,
            payload,
            len,
            id,
            segment: 0,
            next: 0,
            outstanding: 0,
            all_sent: false,
            started: false,
            over: false,
            queued: true,
            live: true,
        };
        if slot as usize == self.slab.len() {
            self.slab.push(message);
            // The lists grow with the slab, so that none grows later than it.
            let room = self.slab.capacity();
            self.free.reserve(room - self.free.len());
            self.waiting.reserve(room - self.waiting.len());
        } else {
            self.slab[slot as usize] = message;
        }
        match purpose {
            Purpose::UpperLayer(_) => {
                self.upper_len += 1;
                self.waiting.push_back(slot);
            }
            // The peer's window may wait for it.
            Purpose::Refusal { .. } => self.control.push_front(slot),
            Purpose::Forget => self.control.push_back(slot),
        }
        self.queued_bytes += len as u64;
        slot
    }

    /// The message whose turn it is. Messages that are over or wholly sent leave the queues here.
    pub(crate) fn head(&mut self) -> Option<u32> {
        while let Some(&slot) = self.control.front() {
            if !self.slab[slot as usize].all_sent {
                return Some(slot);
            }
            self.control.pop_front();
            self.leave_queue(slot);
        }
        loop {
            if let Some(slot) = self.current {
                if !self.slab[slot as usize].all_sent {
                    return Some(slot);
                }
                self.current = None;
                self.leave_queue(slot);
            }
            let may_begin = !self.waiting.is_empty() && self.begun.len() < self.max_begun;
            let next = if may_begin && (self.turns.is_multiple_of(2) || self.begun.is_empty()) {
                self.waiting.pop_front()
            } else if (self.turns / 2).is_multiple_of(LONGEST) {
                self.begun.pop_back()
            } else {
                self.begun.pop_front()
            };
            self.turns = self.turns.wrapping_add(1);
            self.current = Some(next?);
        }
    }

    fn leave_queue(&mut self, slot: u32) {
        self.slab[slot as usize].queued = false;
        self.free_if_done(slot);
    }

    /// The message whose turn it was has had it.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        if !self.begun.is_empty() || !self.waiting.is_empty() {
            self.put_back();
        }
    }

    fn put_back(&mut self) {
        if let Some(slot) = self.current.take() {
            let left = |slot: u32| self.slab[slot as usize].left();
            let place = self.begun.partition_point(|&other| left(other) < left(slot));
            self.begun.insert(place, slot);
        }
    }

    /// The next `count` packets with `len` bytes each of the message leave for the first time. Where in the message they begin.
    #[inline]
    pub(crate) fn take_segments(&mut self, slot: u32, len: u32, count: u32) -> u32 {
        let message = &mut self.slab[slot as usize];
        let offset = message.next;
        message.next += len * count;
        message.outstanding += count;
        message.all_sent = message.next == message.len;
        self.queued_bytes -= len as u64 * count as u64;
        offset
    }

    /// Nothing more of the message is sent or read; its outstanding packets end as skips.
    pub(crate) fn give_up(&mut self, slot: u32) {
        let message = &mut self.slab[slot as usize];
        if !message.all_sent {
            self.queued_bytes -= message.left() as u64;
        }
        message.over = true;
        message.all_sent = true;
        message.payload = P::empty();
        self.free_if_done(slot);
    }

    /// Takes messages that were given up out of the queues.
    pub(crate) fn purge(&mut self) {
        for queue in [&mut self.waiting, &mut self.begun] {
            let slab = &mut self.slab;
            queue.retain(|&slot| {
                let message = &mut slab[slot as usize];
                message.queued = !message.over;
                message.queued
            });
        }
        for slot in 0..self.slab.len() as u32 {
            self.free_if_done(slot);
        }
    }

    /// Frees the slot if nothing refers to it any more.
    pub(crate) fn free_if_done(&mut self, slot: u32) {
        let message = &mut self.slab[slot as usize];
        if message.live && message.over && message.all_sent && message.outstanding == 0 && !message.queued {
            message.live = false;
            message.payload = P::empty();
            self.upper_len -= matches!(message.purpose, Purpose::UpperLayer(_)) as usize;
            self.free.push(slot);
        }
    }

    /// Slots of all live messages that are not over.
    pub(crate) fn open(&self) -> impl Iterator<Item = u32> {
        (0..self.slab.len() as u32).filter(|&slot| {
            let message = &self.slab[slot as usize];
            message.live && !message.over
        })
    }

    /// Changes the payload of messages of the upper layer that were sent whole to what `copy` gives for their token.
    pub(crate) fn replace_sent(&mut self, copy: &mut dyn FnMut(Token) -> Option<P>) {
        for message in
            self.slab.iter_mut().filter(|message| message.live && !message.over && message.all_sent)
        {
            if let Purpose::UpperLayer(token) = message.purpose
                && let Some(payload) = copy(token)
            {
                message.payload = payload;
            }
        }
    }

    /// The token of a message of the upper layer.
    pub(crate) fn token(&self, slot: u32) -> Option<Token> {
        match self.slab[slot as usize].purpose {
            Purpose::UpperLayer(token) => Some(token),
            _ => None,
        }
    }

    /// The token of a message of the upper layer that is not over.
    pub(crate) fn token_of(&self, id: MsgId) -> Option<Token> {
        let slot = id.0 & ((1 << SLOT_BITS) - 1);
        let message = self.slab.get(slot as usize)?;
        (message.id == id && message.live && !message.over).then(|| self.token(slot)).flatten()
    }

    /// Gives memory back; only when there are no messages.
    pub(crate) fn release(&mut self) {
        if self.len() == 0 && self.slab.capacity() > 16 {
            self.slab = Vec::new();
            self.free = Vec::new();
            self.control = VecDeque::new();
            self.waiting = VecDeque::new();
            self.begun = VecDeque::new();
            self.current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::{Qkey, Qpn, Route};

    const CHUNK: u32 = 1000;

    /// So many bytes that nobody looks at.
    #[derive(Clone)]
    struct Length(usize);

    impl Payload for Length {
        fn empty() -> Length {
            Length(0)
        }

        fn len(&self) -> usize {
            self.0
        }

        fn slice(&self, _: usize, len: usize) -> Length {
            Length(len)
        }
    }

    /// Messages of these lengths, in chunks; each turn is a chunk. Whose the turns are, by their place in the list.
    fn turns(lengths: &[u32]) -> Vec<usize> {
        let mut messages = Messages::new(1000);
        let route = Route { dst_qpn: Qpn(1), src_qpn: Qpn(2), qkey: Qkey(3) };
        let add = |&chunks: &u32| {
            let op = Op::Send { route, imm: None, datagram: false };
            messages.add(Purpose::UpperLayer(Token(0)), op, Length((chunks * CHUNK) as usize), None)
        };
        let slots: Vec<u32> = lengths.iter().map(add).collect();
        let mut order = Vec::new();
        while let Some(slot) = messages.head() {
            messages.take_segments(slot, CHUNK, 1);
            if !messages.get(slot).all_sent {
                messages.end_turn();
            }
            order.push(slots.iter().position(|&other| other == slot).unwrap());
        }
        order
    }

    fn end_of(order: &[usize], message: usize) -> usize {
        order.iter().rposition(|&of| of == message).unwrap() + 1
    }

    #[test]
    fn equal_messages_end_one_by_one() {
        let order = turns(&[100; 3]);
        assert_eq!(order.len(), 300);
        let ends = [0, 1, 2].map(|message| end_of(&order, message));
        assert!(ends[0] < 150 && ends[1] < 260 && ends[2] == 300, "{ends:?}");
    }

    #[test]
    fn a_long_message_does_not_hold_up_a_short_one() {
        let order = turns(&[1000, 1, 10]);
        assert!(end_of(&order, 1) <= 3 && end_of(&order, 2) <= 20, "{:?}", &order[..20]);
    }

    #[test]
    fn short_ones_without_end_do_not_stop_a_long_one() {
        let mut lengths = vec![3; 1000];
        lengths[0] = 300;
        let order = turns(&lengths);
        let of_long = order[..1200].iter().filter(|&&of| of == 0).count();
        assert!(of_long >= 1200 / 2 / LONGEST as usize - 10, "{of_long}");
    }
}
