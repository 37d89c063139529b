//! What comes from peers: whose it is, whether its session goes on, and whether its turn has come.

use crate::endpoint::{Endpoint, Place, named};
use crate::header::{self, Body, FAR_BACK, LONGEST, Message, Part};
use crate::incoming::Fetch;
use crate::peer::{Early, MOST_EARLY};
use crate::shared::Cx;
use srd_device::Store;

impl Endpoint {
    /// A message of `len` bytes from somewhere lies at `at`, until this returns. Answers whose it is, if that can be told.
    #[inline]
    pub fn arrived<M: Store>(&mut self, cx: &mut Cx<'_, M>, from: &Place, at: u64, len: u32) -> Option<u32> {
        // Memory need not hold more of it than a header (`srd_device::SketchMemory`).
        let head = cx.memory().bytes(at, (len as usize).min(LONGEST));
        let Some((common, body, header)) = header::decode(head) else {
            cx.shared.counters.malformed += 1;
            return None;
        };
        let Some(peer) = self.peer_of(cx, from, if common.well_known { 0 } else { common.from }) else {
            cx.shared.counters.strangers_dropped += 1;
            return None;
        };
        if !self.admit(cx, peer, &common, &body) {
            return Some(peer);
        }
        let state = &mut self.peers[peer as usize];
        state.spoken = true;
        state.heard = cx.now;
        state.consumed_there = common.consumed;
        let (payload, len) = (at + header as u64, len - header as u32);
        let number = body.number();
        if self.has_gap(peer, number, common.back) {
            self.refuse_session(cx, peer, common.session);
            return Some(peer);
        }
        match number {
            Some(number) => self.in_order(cx, peer, number, body, payload, len),
            None => self.out_of_order(cx, peer, &body, payload, len),
        }
        Some(peer)
    }

    /// Whether a message was delivered that never came here: the endpoint that had this address before has it. Its sender
    /// cannot know, if that endpoint ended before it had said anything.
    #[inline]
    fn has_gap(&self, peer: u32, number: Option<u32>, back: u16) -> bool {
        let delivered = match number {
            Some(number) => number.wrapping_sub(back as u32),
            None => back as u32,
        };
        let missing = delivered.wrapping_sub(self.peers[peer as usize].expected);
        back != FAR_BACK && missing != 0 && missing < MOST_EARLY
    }

    /// A message that takes part in the order.
    #[inline]
    fn in_order<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        number: u32,
        body: Body,
        payload: u64,
        len: u32,
    ) {
        let state = &mut self.peers[peer as usize];
        if let Body::Message(Message { part: Some(part), .. }) = &body {
            let offset = part.offset;
            if let Some(&index) = state.assemblies.get(&number) {
                self.next_part(cx, index, offset, payload, len);
                return;
            }
        }
        let ahead = number.wrapping_sub(state.expected);
        if ahead == 0 {
            state.expected = number.wrapping_add(1);
            self.in_turn(cx, peer, &body, payload, len);
            if !self.peers[peer as usize].early.is_empty() {
                self.next_turns(cx, peer);
            }
            return;
        }
        if ahead >= MOST_EARLY {
            cx.shared.counters.malformed += 1;
            return;
        }
        cx.shared.counters.early += 1;
        let early = match body {
            Body::Message(ref message) if message.part.is_some() => {
                Early::Parts(self.first_part(cx, peer, message, payload, len))
            }
            body => {
                let buffer = (len > 0).then(|| {
                    let buffer = cx.take_buffer(len as usize);
                    cx.memory().copy(payload, buffer.addr, len as usize);
                    buffer
                });
                Early::Whole { body: Box::new(body), payload: buffer, len }
            }
        };
        let place = ahead as usize - 1;
        let waiting = &mut self.peers[peer as usize].early;
        if waiting.len() <= place {
            waiting.resize_with(place + 1, || None);
        }
        waiting[place] = Some(early);
    }

    /// The message that was missing has come: those that waited for it have their turn.
    fn next_turns<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) {
        // The first place is that of the message after the one whose turn it was.
        while let Some(place) = self.peers[peer as usize].early.pop_front() {
            let Some(early) = place else { return };
            let state = &mut self.peers[peer as usize];
            state.expected = state.expected.wrapping_add(1);
            match early {
                Early::Parts(index) => self.turn_of(cx, index),
                Early::Whole { body, payload, len } => {
                    let at = payload.as_ref().map_or(0, |buffer| buffer.addr);
                    self.in_turn(cx, peer, &body, at, len);
                    if let Some(buffer) = payload {
                        cx.give_buffer(buffer);
                    }
                }
            }
        }
    }

    #[inline]
    fn in_turn<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, body: &Body, payload: u64, len: u32) {
        match body {
            Body::Message(message) if message.part.is_none() => {
                self.whole_message(cx, peer, message, payload, len);
            }
            Body::Message(message) => {
                let index = self.first_part(cx, peer, message, payload, len);
                self.turn_of(cx, index);
            }
            Body::Put(put) => self.put_here(cx, peer, put, payload, len),
            Body::Atomic(atomic) => self.atomic_here(cx, peer, atomic, payload, len),
            &Body::Notice { data, len, .. } => self.notice_here(cx, peer, data, len),
            _ => unreachable!("only these have a number"),
        }
    }

    /// The first part of a message that comes in several.
    fn first_part<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        message: &Message,
        payload: u64,
        len: u32,
    ) -> u32 {
        let part = message.part.as_ref().expect("the caller has looked");
        let fetch = match &part.rendezvous {
            None => Fetch::Nothing,
            Some(sources) if sources.is_empty() => Fetch::Grant { granted: part.ahead as u64, done: 0 },
            Some(sources) => Fetch::Read {
                sources: sources.clone(),
                next: part.ahead as u64,
                done: 0,
                reads: 0,
                refused: false,
            },
        };
        let &Part { total, offset, ahead, .. } = part;
        let index = self.keep(peer, message, total, ahead, fetch);
        self.peers[peer as usize].assemblies.insert(message.number, index);
        self.incoming.at_mut(index).expect("just kept").owed = true;
        self.owes(cx, peer);
        self.next_part(cx, index, offset, payload, len);
        index
    }

    /// A part of a message that is being collected.
    fn next_part<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, offset: u32, payload: u64, len: u32) {
        let incoming = self.incoming.at(index).expect("it is being collected");
        let beyond = offset.checked_add(len).is_none_or(|end| end > incoming.ahead);
        if beyond || incoming.arrived + len > incoming.ahead {
            cx.shared.counters.malformed += 1;
            return;
        }
        self.hold(cx, index, offset, payload, len);
        self.incoming_changed(cx, index);
    }

    /// A message that stands for itself.
    fn out_of_order<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, body: &Body, payload: u64, len: u32) {
        match *body {
            Body::Hello { window } => self.introduced(cx, peer, window),
            Body::Answer { op, status } => {
                if let Some(op) =
                    named(&self.ops, op).filter(|&op| self.ops.at(op).is_some_and(|op| op.peer == peer))
                {
                    self.answered(cx, op, status, payload, len);
                }
            }
            Body::Grant { op, incoming, offset, len } => self.granted(cx, peer, (op, incoming), offset, len),
            Body::Granted { incoming, offset } => {
                self.granted_bytes(cx, peer, incoming, offset, payload, len)
            }
            Body::KeyQuery { query, key } => self.tell_key(cx, peer, query, key),
            Body::KeyAnswer { found, device_key, key, .. } => {
                self.learn_key(cx, peer, key, found.then_some(device_key));
            }
            Body::Ping | Body::Stale { .. } => {}
            Body::Message(_) | Body::Put(_) | Body::Atomic(_) | Body::Notice { .. } => {
                unreachable!("these have a number")
            }
        }
    }
}
