//! Outgoing messages of one context: a slab, and the queue of those that have something left to send. Messages take
//! turns chunk by chunk, so that a long one does not hold up the others.

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
    Upper(Token),
    /// It tells the peer that the message that ended at this PSN was refused; once this is acknowledged, so may the
    /// PSN be.
    Refusal {
        withheld: Psn,
    },
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

/// See the module.
pub(crate) struct Messages<P> {
    slab: Vec<OutMessage<P>>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    counter: u32,
    queued_bytes: u64,
}

impl<P: Payload> Messages<P> {
    pub(crate) fn new() -> Messages<P> {
        Messages { slab: Vec::new(), free: Vec::new(), queue: VecDeque::new(), counter: 0, queued_bytes: 0 }
    }

    /// Live messages.
    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Bytes that wait to be sent for the first time.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Whether messages are queued to be sent (some of them perhaps given up since).
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn get(&mut self, slot: u32) -> &mut OutMessage<P> {
        &mut self.slab[slot as usize]
    }

    /// Adds a message at the end of the queue, or at its head.
    pub(crate) fn add(&mut self, purpose: Purpose, op: Op, payload: P, id: Option<MsgId>, first: bool) -> u32 {
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
        } else {
            self.slab[slot as usize] = message;
        }
        if first {
            self.queue.push_front(slot);
        } else {
            self.queue.push_back(slot);
        }
        self.queued_bytes += len as u64;
        slot
    }

    /// The slot of the live message that bears `id`.
    pub(crate) fn find(&self, id: MsgId) -> Option<u32> {
        let slot = id.0 & ((1 << SLOT_BITS) - 1);
        self.slab.get(slot as usize).filter(|message| message.live && message.id == id).map(|_| slot)
    }

    /// The message whose turn it is. Messages that are over or wholly sent leave the queue here.
    pub(crate) fn head(&mut self) -> Option<u32> {
        while let Some(&slot) = self.queue.front() {
            let message = &mut self.slab[slot as usize];
            if !message.all_sent {
                return Some(slot);
            }
            message.queued = false;
            self.queue.pop_front();
            self.free_if_done(slot);
        }
        None
    }

    /// The message at the head has had its turn.
    pub(crate) fn rotate(&mut self) {
        if let Some(slot) = self.queue.pop_front() {
            self.queue.push_back(slot);
        }
    }

    /// `bytes` of the message have been sent for the first time.
    pub(crate) fn note_sent(&mut self, bytes: u32) {
        self.queued_bytes -= bytes as u64;
    }

    /// Nothing more of the message is sent or read; its outstanding packets end as skips.
    pub(crate) fn give_up(&mut self, slot: u32) {
        let message = &mut self.slab[slot as usize];
        if !message.all_sent {
            self.queued_bytes -= (message.len - message.next) as u64;
        }
        message.over = true;
        message.all_sent = true;
        message.payload = P::empty();
        self.free_if_done(slot);
    }

    /// Frees the slot if nothing refers to it any more.
    pub(crate) fn free_if_done(&mut self, slot: u32) {
        let message = &mut self.slab[slot as usize];
        if message.live && message.over && message.all_sent && message.outstanding == 0 && !message.queued {
            message.live = false;
            message.payload = P::empty();
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

    /// The token of a message of the upper layer.
    pub(crate) fn token(&self, slot: u32) -> Option<Token> {
        match self.slab[slot as usize].purpose {
            Purpose::Upper(token) => Some(token),
            _ => None,
        }
    }

    /// Gives memory back; only when there are no messages.
    pub(crate) fn release(&mut self) {
        if self.len() == 0 && self.slab.capacity() > 16 {
            self.slab = Vec::new();
            self.free = Vec::new();
            self.queue = VecDeque::new();
        }
    }
}
