//! Incoming messages of more than one packet: how much of each is there, and which are to be forgotten.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use crate::{Cookie, Incoming};
use srd_wire::{KeyedHash, MsgId, Psn, WINDOW_PACKETS};
use std::collections::{HashMap, VecDeque};

/// A message of which something has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reassembly {
    /// The upper layer's name for it; `None` if it has ended here.
    pub(crate) cookie: Option<Cookie>,
    pub(crate) head: Incoming,
    /// Bytes placed.
    pub(crate) placed: u32,
}

/// See the module.
pub(crate) struct Reassemblies {
    /// By numbers that peers choose.
    messages: HashMap<MsgId, Reassembly, KeyedHash>,
    /// Messages given up, and the PSN from which on nothing of them can come any more.
    closed: VecDeque<(Psn, MsgId)>,
}

impl Reassemblies {
    pub(crate) fn new(hash: KeyedHash) -> Reassemblies {
        Reassemblies { messages: HashMap::with_hasher(hash), closed: VecDeque::new() }
    }

    /// Messages that are half there. Those given up do not count: they go when the window has passed them.
    pub(crate) fn len(&self) -> usize {
        self.messages.len() - self.closed.len()
    }

    /// Messages that are half there, and those given up.
    pub(crate) fn remembered(&self) -> usize {
        self.messages.len()
    }

    /// Whether more is awaited of a message.
    pub(crate) fn await_more(&self) -> bool {
        self.messages.len() > self.closed.len()
    }

    /// Whether nothing at all is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn get_mut(&mut self, id: MsgId) -> Option<&mut Reassembly> {
        if self.messages.is_empty() { None } else { self.messages.get_mut(&id) }
    }

    pub(crate) fn insert(&mut self, id: MsgId, partial: Reassembly) {
        self.messages.insert(id, partial);
    }

    pub(crate) fn remove(&mut self, id: MsgId) -> Option<Reassembly> {
        self.messages.remove(&id)
    }

    /// From now on segments of `id` are dropped, until the window has passed all that its sender can have sent.
    pub(crate) fn close(&mut self, id: MsgId, head: Incoming, cum: Psn) -> Option<Reassembly> {
        let old = self.messages.insert(id, Reassembly { cookie: None, head, placed: 0 });
        if old.is_none_or(|old| old.cookie.is_some()) {
            self.closed.push_back((cum.plus(2 * WINDOW_PACKETS), id));
        }
        old
    }

    /// Forgets closed messages that the window has passed.
    pub(crate) fn forget_passed(&mut self, cum: Psn) {
        while let Some(&(limit, id)) = self.closed.front() {
            if cum.before(limit) {
                break;
            }
            self.closed.pop_front();
            self.messages.remove(&id);
        }
    }

    /// Forgets closed messages but for the last `most`.
    pub(crate) fn forget_closed(&mut self, most: usize) {
        while self.closed.len() > most
            && let Some((_, id)) = self.closed.pop_front()
        {
            self.messages.remove(&id);
        }
    }

    /// Takes all messages out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Reassembly> {
        self.closed.clear();
        self.messages.drain().map(|(_, partial)| partial)
    }

    /// Gives memory back; only when empty.
    pub(crate) fn release(&mut self) {
        if self.messages.is_empty() && self.messages.capacity() > 0 {
            *self = Reassemblies::new(*self.messages.hasher());
        }
    }
}
