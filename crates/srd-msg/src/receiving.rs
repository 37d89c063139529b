//! Messages on their way in: what the program asks for, what arrives, and how one finds the other.

use crate::api::*;
use crate::endpoint::Endpoint;
use crate::header::{Body, Message};
use crate::incoming::{Fetch, Incoming, Matched, Multi, Receive, Standing};
use crate::iov::{Iovs, length, scatter};
use crate::kept::Breach;
use crate::matching::{ANY, Place, Wanted};
use crate::peer::MESSAGE_COST;
use crate::shared::{Cx, Shared};
use srd_device::Store;
use srd_device::slab::Key;

/// An answer to an operation: it went well.
pub(crate) const ANSWER_OK: u32 = 0;

impl Wanted {
    #[inline]
    fn new(matching: Match, from: Option<PeerId>) -> Wanted {
        let peer = from.map_or(ANY, |peer| peer.0);
        match matching {
            Match::Untagged => Wanted { tag: 0, ignore: u64::MAX, peer },
            Match::Tagged { tag, ignore } => Wanted { tag, ignore, peer },
        }
    }
}

impl Matched {
    /// All of a receive that takes one message.
    fn all_of(recv: &Recv<'_>) -> Matched {
        Matched {
            iov: recv.iov.iter().copied().collect(),
            capacity: length(recv.iov),
            context: recv.context,
            report: recv.report,
            multi: None,
        }
    }
}

/// A message that has come: whose it is, what it says, how long it is, how much its receive takes, and why it has failed.
struct Whole {
    peer: u32,
    tag: Option<u64>,
    data: Option<u64>,
    total: u64,
    capacity: u64,
    failure: Option<Failure>,
}

impl Endpoint {
    // ---- what the program asks for ----

    pub fn recv<M: Store>(&mut self, cx: &mut Cx<'_, M>, recv: &Recv<'_>) -> Result<(), Refused> {
        if recv.iov.len() > IOV_LIMIT || recv.multi && recv.iov.len() != 1 {
            return Err(Refused::Invalid("iov: more elements than the limit, or not one with multi"));
        }
        if recv.from.is_some_and(|peer| peer.0 as usize >= self.peers.len()) {
            return Err(Refused::Invalid("from: no such peer"));
        }
        if recv.claim {
            let index = self.claimed.remove(&recv.context).ok_or(Refused::NotClaimed)?;
            self.attach(cx, index, Matched::all_of(recv));
            return Ok(());
        }
        let wanted = Wanted::new(recv.matching, recv.from);
        let tagged = recv.matching != Match::Untagged;
        if recv.multi {
            self.recv_many(cx, recv, wanted, tagged);
        } else if let Some(index) = self.find_unexpected(tagged, &wanted) {
            self.leave_unexpected(index);
            self.attach(cx, index, Matched::all_of(recv));
        } else {
            self.post_waiting(cx, recv, wanted, tagged);
        }
        Ok(())
    }

    /// See [`crate::Domain::recv_later`].
    #[inline]
    pub fn recv_later(&mut self, recv: &Recv<'_>) -> bool {
        if recv.from.is_some() || recv.multi || recv.claim || recv.iov.len() > IOV_LIMIT {
            return false;
        }
        let wanted = Wanted::new(recv.matching, None);
        let tagged = recv.matching != Match::Untagged;
        if self.find_unexpected(tagged, &wanted).is_some() {
            return false;
        }
        self.wait_for_message(recv, wanted, tagged);
        true
    }

    /// A buffer for many messages takes those that are there, and waits for others.
    #[inline(never)]
    fn recv_many<M: Store>(&mut self, cx: &mut Cx<'_, M>, recv: &Recv<'_>, wanted: Wanted, tagged: bool) {
        let receive = self.post_waiting(cx, recv, wanted, tagged);
        while let Some(index) = self.find_unexpected(tagged, &wanted) {
            if self.receives.at(receive).is_none_or(|receive| receive.place.is_none()) {
                break;
            }
            self.leave_unexpected(index);
            let total = self.incoming.at(index).expect("it waited").total;
            let matched = self.take_receive(receive, total);
            self.attach(cx, index, matched);
        }
    }

    /// The receive waits for messages, perhaps of one peer.
    fn post_waiting<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        recv: &Recv<'_>,
        wanted: Wanted,
        tagged: bool,
    ) -> u32 {
        let index = self.wait_for_message(recv, wanted, tagged);
        if wanted.peer != ANY {
            self.awaits(cx, wanted.peer);
        }
        index
    }

    #[inline(always)]
    fn wait_for_message(&mut self, recv: &Recv<'_>, wanted: Wanted, tagged: bool) -> u32 {
        let receive = Receive {
            wanted,
            tagged,
            place: None,
            iov: recv.iov.iter().copied().collect(),
            context: recv.context,
            report: recv.report,
            multi: recv.multi.then(Multi::default),
        };
        let index = self.receives.insert(receive).index;
        let matcher = if tagged { &mut self.tagged } else { &mut self.untagged };
        let place = matcher.posted.add(&wanted, index);
        self.receives.at_mut(index).expect("just inserted").place = Some(place);
        index
    }

    /// The message that nobody has asked for and that this receive would take.
    #[inline]
    fn find_unexpected(&mut self, tagged: bool, wanted: &Wanted) -> Option<u32> {
        let Endpoint { tagged: with_tags, untagged, incoming, .. } = self;
        let matcher = if tagged { with_tags } else { untagged };
        matcher.unexpected.find(wanted, |index, table, node| {
            if let Some(Incoming { standing: Standing::Unexpected(waiting), .. }) = incoming.at_mut(index) {
                waiting.moved(table, node);
            }
        })
    }

    /// A message does not wait for a receive any more.
    pub fn leave_unexpected(&mut self, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("it waits");
        let tagged = incoming.tag.is_some();
        let standing = std::mem::replace(&mut incoming.standing, Standing::Discarded);
        if let Standing::Unexpected(waiting) = standing {
            let matcher = if tagged { &mut self.tagged } else { &mut self.untagged };
            matcher.unexpected.remove(&waiting);
        }
    }

    pub fn peek<M: Store>(&mut self, cx: &mut Cx<'_, M>, peek: &Peek) -> Result<(), Refused> {
        if peek.from.is_some_and(|peer| peer.0 as usize >= self.peers.len()) {
            return Err(Refused::Invalid("from: no such peer"));
        }
        let tagged = peek.matching != Match::Untagged;
        let wanted = Wanted::new(peek.matching, peek.from);
        let done = self.done(Kind::Peek { tagged }, peek.context, true);
        let Some(index) = self.find_unexpected(tagged, &wanted) else {
            let tag = if tagged { wanted.tag } else { 0 };
            cx.shared.done.push(Done { tag, error: Some(Failure::NoMessage), ..done });
            return Ok(());
        };
        let done = self.describe(done, index);
        if peek.claim {
            if self.claimed.contains_key(&peek.context) {
                return Err(Refused::Invalid("context: a message is claimed under it already"));
            }
            self.leave_unexpected(index);
            self.incoming.at_mut(index).expect("it waited").standing = Standing::Claimed;
            self.claimed.insert(peek.context, index);
        } else if peek.discard {
            self.leave_unexpected(index);
            self.discard(cx, index);
        }
        cx.shared.done.push(done);
        Ok(())
    }

    pub fn discard_claimed<M: Store>(&mut self, cx: &mut Cx<'_, M>, context: u64) -> Result<(), Refused> {
        let index = self.claimed.remove(&context).ok_or(Refused::NotClaimed)?;
        let tagged = self.incoming.at(index).expect("what is claimed is there").tag.is_some();
        let done = self.describe(self.done(Kind::Recv { tagged }, context, true), index);
        self.discard(cx, index);
        cx.shared.done.push(done);
        Ok(())
    }

    pub fn cancel(&mut self, shared: &mut Shared, context: u64) -> bool {
        let waiting = |receive: &Receive| receive.context == context && receive.place.is_some();
        let Some((key, _)) = self.receives.iter().find(|(_, receive)| waiting(receive)) else { return false };
        self.give_up(shared, key, Failure::Canceled);
        true
    }

    /// Receives that only a peer that has gone could have matched fail.
    #[cold]
    pub fn fail_directed(&mut self, shared: &mut Shared, peer: u32, failure: Failure) {
        if self.peers[peer as usize].awaited == 0 {
            return;
        }
        let directed = |receive: &Receive| receive.wanted.peer == peer && receive.place.is_some();
        let all = self.receives.iter().filter(|(_, receive)| directed(receive));
        for key in all.map(|(key, _)| key).collect::<Vec<_>>() {
            self.give_up(shared, key, failure);
        }
    }

    /// A receive that waits fails.
    fn give_up(&mut self, shared: &mut Shared, key: Key, failure: Failure) {
        self.stop_waiting(key.index);
        let receive = self.receives.at_mut(key.index).expect("it waited");
        let kind = Kind::Recv { tagged: receive.tagged };
        let tag = if receive.tagged { receive.wanted.tag } else { 0 };
        if let Some(multi) = receive.multi.as_mut().filter(|multi| multi.active > 0) {
            // The last of the messages that it has taken gives it back.
            multi.full = true;
            return;
        }
        let (context, buffer_released) = (receive.context, receive.multi.is_some());
        self.receives.remove(key);
        let done = self.done(kind, context, true);
        shared.done.push(Done { tag, buffer_released, error: Some(failure), ..done });
    }

    /// A receive takes no further message.
    fn stop_waiting(&mut self, index: u32) {
        let receive = self.receives.at_mut(index).expect("it waits");
        if let Some(place) = receive.place.take() {
            let (wanted, tagged) = (receive.wanted, receive.tagged);
            self.leave_posted(&wanted, tagged, place);
        }
    }

    #[inline]
    fn leave_posted(&mut self, wanted: &Wanted, tagged: bool, place: Place) {
        if wanted.peer != ANY {
            self.peers[wanted.peer as usize].awaited -= 1;
        }
        let matcher = if tagged { &mut self.tagged } else { &mut self.untagged };
        matcher.posted.remove(wanted, place);
    }

    /// A message of `total` bytes takes a waiting receive, or its part of one that takes many.
    pub fn take_receive(&mut self, index: u32, total: u64) -> Matched {
        let min = self.min_multi_recv;
        let receive = self.receives.at_mut(index).expect("it waits");
        let Some(multi) = &mut receive.multi else {
            self.stop_waiting(index);
            let key = self.receives.key_at(index).expect("it waited");
            let receive = self.receives.remove(key).expect("its key was found");
            return Matched {
                capacity: length(&receive.iov),
                iov: receive.iov,
                context: receive.context,
                report: receive.report,
                multi: None,
            };
        };
        let left = receive.iov[0].len - multi.used;
        let take = total.min(left);
        let iov = Iovs::from_iter([Iov { addr: receive.iov[0].addr + multi.used, len: take }]);
        multi.used += take;
        multi.active += 1;
        multi.full = left - take < min.max(1);
        let full = multi.full;
        let (context, report) = (receive.context, receive.report);
        if full {
            self.stop_waiting(index);
        }
        Matched { iov, capacity: take, context, report, multi: Some(index) }
    }

    // ---- what arrives ----

    /// A whole message whose turn it is.
    #[inline(never)]
    pub fn whole_message<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        message: &Message,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let tagged = message.tag.is_some();
        let matcher = if tagged { &self.tagged } else { &self.untagged };
        let Some(index) = matcher.posted.find(message.tag.unwrap_or(0), peer) else {
            return self.unexpected(cx, peer, message, payload, len);
        };
        cx.shared.counters.expected += 1;
        // Where it stands: most receives take one message, and need not be moved for that.
        let receive = self.receives.at_mut(index).expect("it waits");
        if receive.multi.is_some() {
            self.take_with_many(cx, peer, message, payload, len, index);
            return Ok(());
        }
        let arrived = scatter(cx.memory(), payload, len as u64, &receive.iov, 0);
        let failure = (!arrived).then_some(Failure::MemoryGone);
        let (context, report, capacity) = (receive.context, receive.report, length(&receive.iov));
        let (wanted, place) = (receive.wanted, receive.place.take().expect("it waits"));
        self.leave_posted(&wanted, tagged, place);
        let key = self.receives.key_at(index).expect("it waited");
        self.receives.remove(key);
        self.answer_whole(cx, peer, message, len);
        let total = len as u64;
        let whole = Whole { peer, tag: message.tag, data: message.data, total, capacity, failure };
        cx.shared.done.push(self.received_done(whole, context, report));
        Ok(())
    }

    /// The same where no receive waits for it.
    #[inline(never)]
    fn unexpected<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        message: &Message,
        payload: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let index = self.keep(cx, peer, message, len as u64, len, Fetch::Nothing)?;
        self.hold(cx, index, 0, payload, len)?;
        self.wait_for_receive(cx, index);
        Ok(())
    }

    /// The same with a receive that takes many.
    #[inline(never)]
    fn take_with_many<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        message: &Message,
        payload: u64,
        len: u32,
        receive: u32,
    ) {
        let matched = self.take_receive(receive, len as u64);
        let arrived = scatter(cx.memory(), payload, len as u64, &matched.iov, 0);
        let failure = (!arrived).then_some(Failure::MemoryGone);
        self.answer_whole(cx, peer, message, len);
        let (tag, data) = (message.tag, message.data);
        self.received(cx, peer, tag, data, len as u64, matched, failure);
    }

    /// A whole message is where it belongs.
    #[inline]
    fn answer_whole<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, message: &Message, len: u32) {
        self.consumed(cx, peer, len);
        if message.receipt {
            self.tell(cx, peer, &Body::Answer { op: message.op, status: ANSWER_OK });
        }
    }

    /// What the program hears of a message that was received, or has failed.
    #[inline]
    fn received_done(&self, whole: Whole, context: u64, report: bool) -> Done {
        let Whole { peer, tag, data, total, capacity, failure } = whole;
        let over = total.saturating_sub(capacity);
        let truncated = (over > 0).then_some(Failure::Truncated { over });
        let from = &self.peers[peer as usize];
        Done {
            len: total.min(capacity),
            tag: tag.unwrap_or(0),
            data,
            source: from.label,
            from: Some(from.addr),
            error: failure.or(truncated),
            ..self.done(Kind::Recv { tagged: tag.is_some() }, context, report)
        }
    }

    /// A message is in its receiver's buffer, or has failed.
    #[allow(clippy::too_many_arguments)]
    fn received<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        tag: Option<u64>,
        data: Option<u64>,
        total: u64,
        matched: Matched,
        failure: Option<Failure>,
    ) {
        let whole = Whole { peer, tag, data, total, capacity: matched.capacity, failure };
        let mut done = self.received_done(whole, matched.context, matched.report);
        if let Some(index) = matched.multi {
            done.buf = matched.iov.first().map_or(0, |piece| piece.addr);
            let receive = self.receives.at_mut(index).expect("it is active");
            let multi = receive.multi.as_mut().expect("it takes many");
            multi.active -= 1;
            if multi.full && multi.active == 0 {
                done.buffer_released = true;
                let key = self.receives.key_at(index).expect("it is there");
                self.receives.remove(key);
            }
        }
        cx.shared.done.push(done);
    }

    /// Takes a message into the book, if its peer may have it there.
    pub fn keep<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        message: &Message,
        total: u64,
        ahead: u32,
        fetch: Fetch,
    ) -> Result<u32, Breach> {
        self.charge(cx, peer, ahead)?;
        let incoming = Incoming {
            peer,
            number: message.number,
            op: message.op,
            tag: message.tag,
            data: message.data,
            receipt: message.receipt,
            total,
            eager: ahead,
            arrived: 0,
            held: None,
            standing: Standing::Early,
            fetch,
            diverted: None,
            failure: None,
            owed: false,
            orphan: false,
        };
        Ok(self.incoming.insert(incoming).index)
    }

    /// Bytes of a message have come: into its receive, or where they can wait for one.
    pub fn hold<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        index: u32,
        offset: u32,
        from: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        match &incoming.standing {
            Standing::Matched(matched) => {
                if !scatter(cx.memory(), from, len as u64, &matched.iov, offset as u64) {
                    incoming.failure.get_or_insert(Failure::MemoryGone);
                }
            }
            Standing::Discarded => {}
            _ if incoming.eager == 0 => {}
            _ => {
                let ahead = incoming.eager as usize;
                if incoming.held.is_none() {
                    incoming.held = Some(cx.try_buffer(ahead).ok_or(Breach::Memory)?);
                }
                let held = incoming.held.as_ref().expect("taken a moment ago");
                let copied = cx.memory().copy(from, held.addr + offset as u64, len as usize);
                debug_assert!(copied, "both are buffers of ours");
            }
        }
        incoming.arrived += len;
        Ok(())
    }

    /// The turn of a message that was kept has come.
    pub fn turn_of<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        if let Some(matched) = self.receive_for(cx, index) {
            self.attach(cx, index, matched);
        }
    }

    /// The same of a message of which a part comes at this moment, and nothing has come before: where a receive waits for it
    /// that part goes there at once.
    pub fn turn_with_part<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        index: u32,
        offset: u32,
        from: u64,
        len: u32,
    ) -> Result<(), Breach> {
        let Some(matched) = self.receive_for(cx, index) else {
            return self.hold(cx, index, offset, from, len);
        };
        self.incoming.at_mut(index).expect("its turn has come").standing = Standing::Matched(matched);
        self.hold(cx, index, offset, from, len)?;
        self.fetch(cx, index);
        self.incoming_changed(cx, index);
        Ok(())
    }

    /// The receive that a message takes whose turn has come. If there is none it waits for one.
    fn receive_for<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) -> Option<Matched> {
        let incoming = self.incoming.at(index).expect("it waited for its turn");
        let (peer, tag, total) = (incoming.peer, incoming.tag, incoming.total);
        let matcher = if tag.is_some() { &self.tagged } else { &self.untagged };
        let Some(receive) = matcher.posted.find(tag.unwrap_or(0), peer) else {
            self.wait_for_receive(cx, index);
            return None;
        };
        cx.shared.counters.expected += 1;
        Some(self.take_receive(receive, total))
    }

    /// The same where the peer is not to be answered any more.
    pub fn turn_without_answer<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("it waited for its turn");
        let whole = matches!(incoming.fetch, Fetch::Nothing) && incoming.arrived == incoming.eager;
        if whole {
            self.leave(index);
            self.turn_of(cx, index);
        }
    }

    fn wait_for_receive<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        cx.shared.counters.unexpected += 1;
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        let matcher = if incoming.tag.is_some() { &mut self.tagged } else { &mut self.untagged };
        let waiting = matcher.unexpected.add(incoming.tag.unwrap_or(0), incoming.peer, index);
        incoming.standing = Standing::Unexpected(waiting);
    }

    /// A message that was kept has found its receive.
    fn attach<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32, matched: Matched) {
        let incoming = self.incoming.at_mut(index).expect("it waited");
        if let Some(held) = incoming.held.take() {
            // Not all of it need have come; what has not overwrites this later.
            if !scatter(cx.memory(), held.addr, incoming.eager as u64, &matched.iov, 0) {
                incoming.failure.get_or_insert(Failure::MemoryGone);
            }
            cx.give_buffer(held);
        }
        incoming.standing = Standing::Matched(matched);
        self.fetch(cx, index);
        self.incoming_changed(cx, index);
    }

    /// Nobody will get the message.
    fn discard<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        incoming.standing = Standing::Discarded;
        if let Some(held) = incoming.held.take() {
            cx.give_buffer(held);
        }
        self.incoming_changed(cx, index);
    }

    /// Completes a message if all of it is there that will be.
    pub fn incoming_changed<M: Store>(&mut self, cx: &mut Cx<'_, M>, index: u32) {
        let incoming = self.incoming.at_mut(index).expect("the caller has it");
        let capacity = match &incoming.standing {
            Standing::Matched(matched) => matched.capacity,
            Standing::Discarded => 0,
            Standing::Early | Standing::Unexpected(_) | Standing::Claimed => return,
        };
        let wanted = incoming.total.min(capacity).saturating_sub(incoming.eager as u64);
        let (fetched, idle) = match &incoming.fetch {
            Fetch::Nothing => (0, true),
            Fetch::Read { done, reads, .. } => (*done, *reads == 0),
            Fetch::Grant { done, .. } => (*done, true),
        };
        let complete = incoming.arrived == incoming.eager && fetched >= wanted;
        let failed = incoming.failure.is_some() && (incoming.orphan || incoming.arrived == incoming.eager);
        if !idle || !(complete || failed) {
            return;
        }
        let key = self.incoming.key_at(index).expect("it is there");
        let incoming = self.incoming.remove(key).expect("its key was found");
        let peer = incoming.peer;
        if let Some(inbound) = incoming.diverted {
            // Its receive is not to be touched any more.
            cx.device().divert_back(inbound);
        }
        self.discharge(cx.shared, peer, incoming.eager, incoming.orphan);
        if incoming.orphan {
            self.less_is_left(cx, peer);
        } else {
            self.peers[peer as usize].assemblies.remove(&incoming.number);
            self.consumed(cx, peer, incoming.eager);
            if incoming.receipt || !matches!(incoming.fetch, Fetch::Nothing) {
                self.tell(cx, peer, &Body::Answer { op: incoming.op, status: ANSWER_OK });
            }
            if incoming.owed {
                self.has_paid(peer);
            }
        }
        if let Standing::Matched(matched) = incoming.standing {
            let Incoming { tag, data, total, failure, .. } = incoming;
            self.received(cx, peer, tag, data, total, matched, failure);
        }
    }

    /// Bytes that a peer sent are out of the way: it may send as many again.
    pub fn consumed<M: Store>(&mut self, cx: &mut Cx<'_, M>, peer: u32, bytes: u32) {
        let state = &mut self.peers[peer as usize];
        if state.their_session == 0 {
            return; // nobody is to be told
        }
        state.consumed = state.consumed.wrapping_add(bytes).wrapping_add(MESSAGE_COST);
        // A message that goes there anyway says so too; this one leaves before its window is used up.
        if state.consumed.wrapping_sub(state.advertised) > state.window_told / 4 {
            self.say_hello(cx, peer);
        }
    }

    fn describe(&self, done: Done, index: u32) -> Done {
        let incoming = self.incoming.at(index).expect("the caller has it");
        let peer = &self.peers[incoming.peer as usize];
        Done {
            len: incoming.total,
            tag: incoming.tag.unwrap_or(0),
            data: incoming.data,
            source: peer.label,
            from: Some(peer.addr),
            ..done
        }
    }
}
