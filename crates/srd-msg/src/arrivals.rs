//! What comes from peers: whose it is, whether its session goes on, and whether its turn has come.

use crate::api::Failure;
use crate::endpoint::{Endpoint, Place, named};
use crate::header::{self, Body, Common, FAR_BACK, LONGEST, Message, Part};
use crate::incoming::Fetch;
use crate::kept::Breach;
use crate::peer::{Early, KnownKey, MOST_SHORT, Session, session_name};
use crate::shared::{Cx, Shared};
use srd_device::Store;
use srd_wire::{MrKey, Status};

/// Messages that a header's `back` can tell of, and so many behind them: further off is not missing but of before.
const MOST_MISSING: u32 = 1 << 16;

/// Places that the table of early messages keeps when it is empty.
const EARLY_PLACES: usize = 1024;

impl Endpoint {
    /// A message of `len` bytes from somewhere lies at `at`, until this returns. Answers whose it is, if that can be told.
    #[inline(always)]
    pub fn arrived<M: Store>(&mut self, cx: &mut Cx<'_, M>, from: &Place, at: u64, len: u32) -> Option<u32> {
        // Memory need not hold more of it than a header (`srd_device::HeaderMemory`).
        let head = cx.memory().bytes(at, (len as usize).min(LONGEST));
        if let Some((common, message, header)) = header::decode_whole(head)
            && let Some(peer) = self.whose_turn_it_is(cx.shared, from, &common, message.number)
        {
            let state = &mut self.peers[peer as usize];
            state.heard = cx.now;
            state.consumed_there = common.consumed;
            state.expected = message.number.wrapping_add(1);
            let (payload, len) = (at + header as u64, len - header as u32);
            if let Err(breach) = self.whole_message(cx, peer, &message, payload, len) {
                self.breach(cx, peer, breach);
            }
            return Some(peer);
        }
        self.arrived_otherwise(cx, from, at, len)
    }

    /// Whose message that is, if it can be told by a few comparisons that [`Endpoint::arrived_otherwise`] would take it at once and
    /// learn nothing else from it: the last peer heard of, which the program knows, goes on in its session with the next
    /// message. That is so of nearly all.
    #[inline(always)]
    fn whose_turn_it_is(&self, shared: &Shared, from: &Place, common: &Common, number: u32) -> Option<u32> {
        let peer = self.last_peer(from, if common.well_known { 0 } else { common.from })?;
        let state = &self.peers[peer as usize];
        let goes_on = state.their_session == session_name(common.from, common.session)
            && state.identity == common.from
            && state.expected == number
            && common.toward == self.identity.number.get();
        let nothing_else = state.named
            && state.greeted
            && (if from.near { state.theirs_near && !state.theirs_gaps } else { state.spoken })
            && state.early.is_empty()
            && state.assemblies.is_empty()
            && state.has_room_for_replies(shared)
            && self.withheld_works == 0
            && !self.identity.well_known;
        (goes_on && nothing_else).then_some(peer)
    }

    /// The same of any message, asked for one thing after the other.
    #[inline(never)]
    fn arrived_otherwise<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        from: &Place,
        at: u64,
        len: u32,
    ) -> Option<u32> {
        let head = cx.memory().bytes(at, (len as usize).min(LONGEST));
        // A long structure, which stays where it is.
        let decoded = header::decode(head);
        let Some((common, body, header)) = &decoded else {
            cx.shared.counters.malformed += 1;
            return None;
        };
        let Some(peer) = self.peer_of(cx, from, if common.well_known { 0 } else { common.from }) else {
            cx.shared.counters.strangers_dropped += 1;
            return None;
        };
        if self.peers[peer as usize].is_stranger() {
            self.trust_newcomers(cx);
        }
        if self.is_claimed(from, common) && body.is_answer() {
            cx.shared.count(Breach::Unasked);
            return Some(peer);
        }
        if let Err(breach) = self.may_ask(cx, peer, body) {
            let session = session_name(common.from, common.session);
            match session == self.peers[peer as usize].their_session {
                true => self.breach(cx, peer, breach),
                false => cx.shared.count(breach),
            }
            return Some(peer);
        }
        if !self.admit(cx, peer, common, body, from) {
            return Some(peer);
        }
        if self.peers[peer as usize].identity == 0 && !self.is_claimed(from, common) {
            self.peers[peer as usize].identity = common.from;
        }
        let state = &mut self.peers[peer as usize];
        // What comes by a lane need not know of anything that went another way.
        state.spoken |= !from.near || body.is_answer();
        state.theirs_near |= from.near;
        state.heard = cx.now;
        state.consumed_there = common.consumed;
        self.release(cx, peer);
        let state = &self.peers[peer as usize];
        if !state.greeted {
            self.greet(cx, peer);
        }
        let (payload, len) = (at + *header as u64, len - *header as u32);
        let number = body.number();
        let state = &mut self.peers[peer as usize];
        if let Some(number) = number.filter(|_| from.near && state.theirs_gaps) {
            // A lane keeps the order, and what is missing was lost.
            let skipped = number.wrapping_sub(state.expected);
            state.expected = if (skipped as i32) < 0 { state.expected } else { number };
        }
        if self.has_gap(peer, number, common.back) {
            cx.shared.counters.stale += 1;
            self.refuse_session(cx, peer, session_name(common.from, common.session));
            return Some(peer);
        }
        let taken = match number {
            Some(number) => self.in_order(cx, peer, number, body, payload, len),
            None => self.out_of_order(cx, peer, body, payload, len),
        };
        if let Err(breach) = taken {
            self.breach(cx, peer, breach);
        }
        Some(peer)
    }

    /// Whether a message belongs to a session that is known.
    #[cold]
    pub fn goes_on<M: Store>(&self, cx: &mut Cx<'_, M>, from: &Place, at: u64, len: u32) -> bool {
        let head = cx.memory().bytes(at, (len as usize).min(LONGEST));
        let Some((common, ..)) = header::decode(head) else { return true };
        let peer = self.peer_with(from.gid, from.qpn, common.from);
        let session = session_name(common.from, common.session);
        peer.is_some_and(|peer| self.peers[peer as usize].judge_session(session) != Session::New)
    }

    /// Whether a message was delivered that never came here: the endpoint that had this address before has it. Its sender
    /// cannot know, if that endpoint ended before it had said anything. (Who has a key has no predecessor.)
    #[inline]
    pub fn has_gap(&self, peer: u32, number: Option<u32>, back: u16) -> bool {
        let delivered = match number {
            Some(number) => number.wrapping_sub(back as u32),
            None => back as u32,
        };
        let missing = delivered.wrapping_sub(self.peers[peer as usize].expected);
        self.identity.well_known && back != FAR_BACK && missing != 0 && missing < MOST_MISSING
    }

    /// A message that takes part in the order.
    #[inline]
    fn in_order<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        number: u32,
        body: &Body,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let state = &mut self.peers[peer as usize];
        if let Body::Message(Message { part, .. }) = body
            && let Some(&index) = state.assemblies.get(&number)
        {
            let taken = match part {
                Some(part) => Some(self.next_part(cx, index, part.offset, payload, len)),
                None => self.all_of_begun(cx, index, len),
            };
            if let Some(taken) = taken {
                return taken;
            }
        }
        let state = &mut self.peers[peer as usize];
        let ahead = number.wrapping_sub(state.expected);
        if let &Body::Void { number } = body {
            self.void(cx, peer, number);
        }
        let state = &mut self.peers[peer as usize];
        if ahead == 0 {
            state.expected = number.wrapping_add(1);
            self.in_turn(cx, peer, body, payload, len)?;
            if !self.peers[peer as usize].early.is_empty() {
                self.next_turns(cx, peer)?;
            }
            return Ok(());
        }
        self.before_its_turn(cx, peer, (number, ahead), body, payload, len)
    }

    /// A message that others must come before.
    fn before_its_turn<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        (number, ahead): (u32, u32),
        body: &Body,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        if ahead as i32 <= 0 || self.peers[peer as usize].early.contains_key(&number) {
            // Nobody waits for a message that was there already.
            cx.shared.count(Breach::Number);
            return Ok(());
        }
        if ahead > self.most_early(cx.shared) {
            return Err(Breach::Number);
        }
        let early = match body {
            Body::Message(message) if message.part.is_some() => {
                let (index, offset) = self.collect(cx, peer, message, len)?;
                self.hold(cx, index, offset, payload, len)?;
                Early::Parts(index)
            }
            body => {
                match body {
                    Body::Message(_) => self.charge(cx, peer, len)?,
                    _ => self.charge_operation(cx, peer, body, len)?,
                }
                let mut copy = None;
                if len > 0 {
                    let Some(buffer) = cx.try_buffer(len as usize) else {
                        self.discharge_early(cx.shared, peer, body, len);
                        return Err(Breach::Memory);
                    };
                    let copied = cx.memory().copy(payload, buffer.addr, len as usize);
                    debug_assert!(copied, "both are buffers of ours");
                    copy = Some(buffer);
                }
                Early::Whole { body: body.clone(), payload: copy, len }
            }
        };
        cx.shared.counters.early += 1;
        if self.peers[peer as usize].early.is_empty() {
            // What is missing may never come: its sender may have died meanwhile.
            self.owes(cx, peer);
        }
        self.peers[peer as usize].early.insert(number, early);
        Ok(())
    }

    /// Something whole does not wait for its turn any more.
    fn discharge_early(&mut self, shared: &mut Shared, peer: u32, body: &Body, len: u32) {
        match body {
            Body::Message(_) => self.discharge(shared, peer, len, false),
            body => self.discharge_operation(shared, peer, body, len),
        }
    }

    /// Something that waited for its turn never gets it. Of messages in parts the parts are left to the caller.
    pub fn drop_early<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, early: Early) {
        if let Early::Whole { body, payload, len } = early {
            self.discharge_early(cx.shared, peer, &body, len);
            payload.into_iter().for_each(|buffer| cx.give_buffer(buffer));
        }
    }

    /// The message that was missing has come: those that waited for it have their turn.
    fn next_turns<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32) -> Result<(), Breach> {
        loop {
            let state = &mut self.peers[peer as usize];
            let Some(early) = state.early.remove(&state.expected) else { break };
            state.expected = state.expected.wrapping_add(1);
            match early {
                Early::Parts(index) => self.turn_of(cx, index),
                Early::Whole { body, payload, len } => {
                    self.discharge_early(cx.shared, peer, &body, len);
                    let at = payload.as_ref().map_or(0, |buffer| buffer.addr);
                    let taken = self.in_turn(cx, peer, &body, at, len);
                    payload.into_iter().for_each(|buffer| cx.give_buffer(buffer));
                    taken?;
                }
            }
        }
        let early = &mut self.peers[peer as usize].early;
        if early.is_empty() && early.capacity() > EARLY_PLACES {
            early.shrink_to(EARLY_PLACES / 2);
        }
        if early.is_empty() {
            self.has_paid(peer);
        }
        Ok(())
    }

    /// What has come of a session that has ended, or of which no more comes by the network, and waits for what is missing:
    /// that will not come, and has failed at its sender. What has come whole has not, if the session was `welcome`.
    pub fn without_the_missing<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        mut early: Vec<(u32, Early)>,
        welcome: bool,
    ) {
        let stays = |body: &Body| match body {
            Body::Message(_) => welcome,
            body => matches!(body, Body::Notice(_)),
        };
        // They lie close together, though their numbers may have wrapped.
        let first = early.first().map_or(0, |&(number, _)| number);
        early.sort_unstable_by_key(|&(number, _)| number.wrapping_sub(first) as i32);
        for (_, early) in early {
            match early {
                Early::Parts(index) if welcome => self.turn_without_answer(cx, index),
                // It is an orphan.
                Early::Parts(_) => {}
                // Who waits for an answer has been told that there is none.
                Early::Whole { ref body, .. } if !stays(body) => self.drop_early(cx, peer, early),
                Early::Whole { mut body, payload, len } => {
                    self.discharge_early(cx.shared, peer, &body, len);
                    if let Body::Message(message) = &mut body {
                        message.receipt = false;
                    }
                    let at = payload.as_ref().map_or(0, |buffer| buffer.addr);
                    // It was within all bounds when it came, and is so still.
                    if let Err(breach) = self.in_turn(cx, peer, &body, at, len) {
                        cx.shared.count(breach);
                    }
                    payload.into_iter().for_each(|buffer| cx.give_buffer(buffer));
                }
            }
        }
    }

    /// The message with that number does not come, or not all of it.
    fn void<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, number: u32) {
        let Some(index) = self.peers[peer as usize].assemblies.get(&number).copied() else { return };
        let incoming = self.incoming.at_mut(index).expect("it is being collected");
        if incoming.arrived == incoming.eager {
            return;
        }
        self.peers[peer as usize].assemblies.remove(&number);
        self.orphan(cx, index, Failure::PeerLost(Status::RemoteAbort), true);
    }

    #[inline]
    fn in_turn<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        body: &Body,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        match body {
            Body::Message(message) if message.part.is_none() => {
                return self.whole_message(cx, peer, message, payload, len);
            }
            Body::Message(message) => {
                let (index, offset) = self.collect(cx, peer, message, len)?;
                return self.turn_with_part(cx, index, offset, payload, len);
            }
            Body::Put(put) => self.put_here(cx, peer, put, payload, len),
            Body::Atomic(atomic) => return self.atomic_here(cx, peer, atomic, payload, len),
            Body::Notice(notice) if self.takes_notices || notice.data.is_none() => {
                self.notice_here(cx, peer, notice);
            }
            Body::Notice(_) => return Err(Breach::Unasked),
            Body::Void { .. } => {}
            _ => unreachable!("only these have a number"),
        }
        Ok(())
    }

    /// Begins to collect a message that comes in several parts, `len` bytes in the first to come. Returns the message, and
    /// where in it they belong.
    fn collect<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        message: &Message,
        len: u32,
    ) -> Result<(u32, u32), Breach> {
        let part = message.part.as_deref().expect("the caller has looked");
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
        if offset as u64 + len as u64 > ahead as u64 {
            return Err(Breach::Length);
        }
        let index = self.keep(cx, peer, message, total, ahead, fetch)?;
        self.peers[peer as usize].assemblies.insert(message.number, index);
        self.incoming.at_mut(index).expect("just kept").owed = true;
        self.owes(cx, peer);
        Ok((index, offset))
    }

    /// A part of a message that is being collected.
    fn next_part<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        index: u32,
        offset: u32,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let incoming = self.incoming.at(index).expect("it is being collected");
        let beyond = offset as u64 + len as u64 > incoming.eager as u64;
        if beyond || incoming.arrived as u64 + len as u64 > incoming.eager as u64 {
            return Err(Breach::Length);
        }
        self.hold(cx, index, offset, payload, len)?;
        self.incoming_changed(cx, index);
        Ok(())
    }

    /// A message that stands for itself.
    fn out_of_order<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        body: &Body,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        match *body {
            Body::Hello { window, session, longest } => {
                self.peers[peer as usize].longest = longest.unwrap_or(0).max(MOST_SHORT);
                self.introduced(cx, peer, window, session);
            }
            Body::Answer { op, status } => {
                if let Some(op) =
                    named(&self.ops, op).filter(|&op| self.ops.at(op).is_some_and(|op| op.peer == peer))
                {
                    return self.answered(cx, op, status, payload, len);
                }
            }
            Body::Grant { op, incoming, offset, len } => {
                return self.granted(cx, peer, (op, incoming), offset, len);
            }
            Body::Granted { incoming, offset } => {
                return self.granted_bytes(cx, peer, incoming, offset, payload, len);
            }
            Body::KeyQuery { query, key } => self.tell_key(cx, peer, query, key),
            Body::KeyAnswer { found, counted, device_key, key, .. } => {
                let known = KnownKey { device_key: MrKey(device_key), counted };
                self.learn_key(cx, peer, key, found.then_some(known));
            }
            Body::Ping | Body::Stale { .. } => {}
            Body::Message(_) | Body::Put(_) | Body::Atomic(_) | Body::Notice(_) | Body::Void { .. } => {
                unreachable!("these have a number")
            }
        }
        Ok(())
    }
}
