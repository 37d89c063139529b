//! The receiving half of a context: segments are placed as they come, messages end when all of them is there, and
//! the PSN of a refused message is withheld until its sender knows of the refusal, so that an acknowledgement always
//! means acceptance.

use crate::arrivals::Arrival;
use crate::messages::Purpose;
use crate::peer::Peer;
use crate::reassembly::Reassembly;
use crate::shared::Shared;
use crate::{Followers, Incoming, Payload, Received, UpperLayer};
use srd_wire::{Body, Data, Echo, MsgId, Nanos, Op, Packet, Probe, Psn, Status, Time};

/// ACKs sent, on different paths, when the last one seems to have been lost: a packet came that had been acknowledged
/// before, or a question. A gap is no reason: with packets on many paths there always is one
/// (docs/design/loss-recovery.md, "What is answered").
const ACKS_ON_DOUBT: u8 = 2;

/// PSNs of ours that are kept for refusing the packet that the peer's window waits for.
pub(crate) const KEPT_FOR_OLDEST: u32 = 16;
/// Incomplete messages of an instance that nobody has vouched for: they will all be refused. There may be 1,024 of those.
const MAX_PARTIAL_OF_STRANGER: usize = 4;
/// And of one that knows a key, but may not be at its address: more than a first window holds.
const MAX_PARTIAL_OF_UNPROVEN: usize = 64;
/// Refusals that such a one has not got yet. What else it sends has to come again.
const MAX_REFUSALS_OF_UNPROVEN: usize = 8;
/// Of all together, beyond which those whom our program has not named have no more than strangers. Each costs 200 bytes.
const MAX_PARTIAL_OF_ALL: usize = 16_384;

impl<P: Payload> Peer<P> {
    /// A packet of this context has arrived: what it shows of who has sent it. `named`: it names us.
    #[inline]
    pub(crate) fn hear<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        named: bool,
        packet: &Packet<P>,
        shared: &Shared,
        upper: &mut U,
    ) {
        // Who has a context with us acknowledges or sends something in it. (A hello that echoes nobody is the answer to
        // a stranger, or the question to one; where contexts need keys, only who has made one can name us at all.)
        let in_context = packet.ack.is_some() || matches!(packet.body, Body::Data(_));
        match &packet.hello {
            None => self.hello.context_confirmed |= in_context,
            Some(hello) => self.hello.context_confirmed = named && in_context && hello.echo != 0,
        }
        self.hello.confirmed |= self.hello.context_confirmed || named && shared.config.confirm_first;
        if !self.standing.vouched
            && let Body::Data(data) = &packet.body
        {
            self.standing.vouched = upper.vouches(&data.op, self.addr);
        }
        self.liveness.last_heard = now;
        self.revive(now);
    }

    /// And what it brings, where both sides know each other.
    #[inline]
    pub(crate) fn take<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        received: &Received<'_, P>,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let packet = received.packet;
        if packet.hello.is_some() {
            self.answer_hello(now, shared);
        }
        if received.ce && !received.cut && !self.is_copy(&packet.body) {
            shared.stats.ce_marks += 1;
            self.arrivals.note_ce();
        }
        if let Some(ack) = &packet.ack {
            self.on_ack(now, ack, shared, upper);
        }
        match &packet.body {
            Body::Data(data) => {
                self.last_active = now;
                if received.cut && self.arrivals.classify(data.psn) == Arrival::New {
                    self.on_cut(now, data, shared);
                } else {
                    self.on_data(now, data, received.bytes, shared, upper);
                }
            }
            Body::Probe(probe) => self.on_probe(now, probe, shared),
            Body::None | Body::Reset { .. } => {}
        }
    }

    /// The headers of a data packet have come that has not come before, without the payload: its sender is told.
    #[cold]
    fn on_cut(&mut self, now: Time, data: &Data<P>, shared: &mut Shared) {
        shared.stats.cut_pkts += 1;
        if !shared.is_by_memory(&self.counted) {
            shared.load.count(now, shared.config.base_rtt, &mut self.counted, true);
        }
        if self.reads_cuts {
            self.arrivals.note_cut(shared.arrived, data.path, data.tx_count, data.psn, data.stamp);
            self.arrivals.unacked += 1;
            let delay = if data.ack_request { Nanos::ZERO } else { shared.config.ack_delay };
            self.arrivals.ack_by(now + delay);
        }
    }

    /// Whether it is data that has come before: a copy says nothing new, whoever has made it.
    fn is_copy(&self, body: &Body<P>) -> bool {
        matches!(body, Body::Data(data) if self.arrivals.classify(data.psn) != Arrival::New)
    }

    /// A data packet has arrived.
    fn on_data<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        data: &Data<P>,
        bytes: usize,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        match self.arrivals.classify(data.psn) {
            Arrival::New => {}
            Arrival::Duplicate => {
                shared.stats.duplicates += 1;
                self.arrivals.note(shared.arrived, data.path, data.tx_count, data.psn, data.stamp);
                self.arrivals.repeat_acks = ACKS_ON_DOUBT;
                self.arrivals.ack_by(now);
                self.change_way_back();
                return;
            }
            Arrival::OutOfWindow => {
                shared.stats.out_of_window += 1;
                return;
            }
        }
        let psn = data.psn;
        let accepted = match data.op {
            Op::Refuse { refused, status } => {
                self.on_refusal(now, refused, status, shared, upper);
                true
            }
            Op::Skip => {
                self.on_skip(data, shared, upper);
                true
            }
            _ => self.on_segment(data, shared, upper),
        };
        self.count_reassemblies(shared);
        self.arrivals.note_more(psn, data.more);
        let awaited = self.reassemblies.await_more() || self.arrivals.more();
        // Who sends by memory shares nothing with the others.
        if !shared.is_by_memory(&self.counted) {
            shared.load.count(now, shared.config.base_rtt, &mut self.counted, awaited);
        }
        if !accepted {
            return; // it comes again
        }
        self.arrivals.note(shared.arrived, data.path, data.tx_count, psn, data.stamp);
        self.arrivals.unacked += 1;
        // The program learns of it, and may answer.
        let told = matches!(data.op, Op::Send { .. } | Op::Write { imm: Some(_), .. });
        let delay = match (data.ack_request, told) {
            (false, _) if awaited => shared.config.longest_ack_delay(),
            (false, _) => shared.config.ack_delay,
            (true, true) => shared.config.answer_delay,
            (true, false) => Nanos::ZERO,
        };
        if told && shared.config.on_a_host() {
            self.arrivals.answer_by(shared.seen, delay, awaited);
        } else {
            self.arrivals.ack_by(now + delay);
        }
        if !self.arrivals.is_withheld(psn) {
            self.arrivals.accept(psn, bytes);
            self.reassemblies.forget_passed(self.arrivals.cum());
        }
    }

    /// The message whose packets may follow `packet`, which has just been taken, as [`Peer::take_followers`] wants them.
    #[inline]
    pub(crate) fn followed(&mut self, received: &Received<'_, P>) -> Option<MsgId> {
        let Packet { hello: None, ack: None, body: Body::Data(data), .. } = received.packet else {
            return None;
        };
        let in_parts = data.offset as usize + data.payload.len() < data.len as usize;
        let in_order = self.standing.proven && self.arrivals.is_next(data.psn.plus(1));
        (in_parts && !received.ce && !received.cut && in_order).then_some(data.msg)
    }

    /// Takes packets of message `id` that came with the one before them, if they are next, but for the message's last: no other timer,
    /// count or answer follows from them. How many were taken.
    #[inline]
    pub(crate) fn take_followers<U: UpperLayer<P>>(
        &mut self,
        id: MsgId,
        followers: &Followers,
        payload: impl Fn(u32) -> P,
        shared: &mut Shared,
        upper: &mut U,
    ) -> u32 {
        let &Followers { psn, offset, len, count, bytes } = followers;
        if !self.arrivals.is_next(psn) || len == 0 {
            return 0;
        }
        let Some(partial) = self.reassemblies.get_mut(id) else { return 0 };
        let Some(cookie) = partial.cookie else { return 0 };
        let Incoming { len: message_len, .. } = partial.head;
        let len = u32::from(len);
        // The last is not among them, and each has its place: the one before may have given the message another length than this one.
        let missing = message_len - partial.placed;
        let count = count.min(missing.saturating_sub(1) / len).min(message_len.saturating_sub(offset) / len);
        for i in 0..count {
            upper.place(cookie, &partial.head, offset + i * len, &payload(i));
        }
        if count == 0 {
            return 0;
        }
        let placed = count * len;
        partial.placed += placed;
        shared.stats.rx_pkts += u64::from(count);
        shared.stats.rx_bytes += u64::from(placed);
        self.counters.rx_bytes += u64::from(placed);
        self.arrivals.take_followers(count, bytes);
        self.reassemblies.forget_passed(self.arrivals.cum());
        count
    }

    fn head_of(&self, op: Op, len: u32) -> Incoming {
        let (peer, from, claimed) = (self.id, self.addr, self.standing.claimed);
        Incoming { peer, from, claimed, port: self.port, op, len }
    }

    /// Takes a segment of a message. Whether its PSN is used up.
    fn on_segment<U: UpperLayer<P>>(&mut self, data: &Data<P>, shared: &mut Shared, upper: &mut U) -> bool {
        let here = data.payload.len() as u32;
        let head = self.head_of(data.op, data.len);
        if data.offset == 0 && here == data.len {
            // The whole message in one packet.
            if !self.may_refuse(data.psn) {
                shared.stats.partial_limit_drops += 1;
                return false;
            }
            match upper.begin(&head, None) {
                Ok(cookie) => {
                    if here > 0 {
                        upper.place(cookie, &head, 0, &data.payload);
                    }
                    shared.stats.rx_bytes += here as u64;
                    self.counters.rx_bytes += here as u64;
                    if let Err(status) = upper.finish(cookie, &head) {
                        self.refuse(data, status, shared);
                    }
                }
                Err(status) => self.refuse(data, status, shared),
            }
            return true;
        }
        let may_refuse = self.may_refuse(data.psn);
        let Some(partial) = self.reassemblies.get_mut(data.msg) else {
            return self.first_segment(data, head, shared, upper);
        };
        let Some(cookie) = partial.cookie else { return true };
        if partial.head.len != data.len || partial.head.op != data.op || here > data.len - partial.placed {
            shared.stats.inconsistent += 1;
            return true;
        }
        let last = partial.placed + here == data.len;
        if last && !may_refuse {
            shared.stats.partial_limit_drops += 1;
            return false;
        }
        upper.place(cookie, &head, data.offset, &data.payload);
        shared.stats.rx_bytes += here as u64;
        self.counters.rx_bytes += here as u64;
        partial.placed += here;
        if last {
            self.reassemblies.remove(data.msg);
            if let Err(status) = upper.finish(cookie, &head) {
                self.refuse(data, status, shared);
            }
        }
        true
    }

    fn first_segment<U: UpperLayer<P>>(
        &mut self,
        data: &Data<P>,
        head: Incoming,
        shared: &mut Shared,
        upper: &mut U,
    ) -> bool {
        let most =
            self.lesser_limit(shared).unwrap_or(usize::MAX).min(shared.config.max_partial_per_peer as usize);
        if self.reassemblies.len() >= most || !self.may_refuse(data.psn) {
            shared.stats.partial_limit_drops += 1;
            return false;
        }
        match upper.begin(&head, self.standing.stranger()) {
            Ok(cookie) => {
                upper.place(cookie, &head, data.offset, &data.payload);
                let placed = data.payload.len() as u32;
                shared.stats.rx_bytes += placed as u64;
                self.counters.rx_bytes += placed as u64;
                self.reassemblies.insert(data.msg, Reassembly { cookie: Some(cookie), head, placed });
            }
            Err(status) => {
                self.close_partial(data.msg, head, shared);
                self.refuse(data, status, shared);
            }
        }
        true
    }

    /// Whether the message of this packet could be refused. The refusal takes a PSN of ours; where none is left, because the peer
    /// withholds the oldest, the packet must come again. The last ones are for the packet that the peer's window waits for: each
    /// such refusal takes one number here and frees one there, so that two that refuse each other's messages never wait for ever.
    fn may_refuse(&self, psn: Psn) -> bool {
        let refusals = self.messages.len() - self.messages.upper_len();
        if !self.standing.proven && refusals >= MAX_REFUSALS_OF_UNPROVEN {
            return false;
        }
        let left = self.sent.numbers_left().saturating_sub(self.messages.control_len());
        let kept = if psn == self.arrivals.cum() { 0 } else { KEPT_FOR_OLDEST };
        self.arrivals.may_withhold() && left > kept
    }

    fn refuse(&mut self, data: &Data<P>, status: Status, shared: &mut Shared) {
        shared.stats.refused_messages += 1;
        self.arrivals.withhold(data.psn);
        let op = Op::Refuse { refused: data.psn, status };
        self.messages.add(Purpose::Refusal { withheld: data.psn }, op, P::empty(), None);
    }

    /// The sender has given the message up.
    fn on_skip<U: UpperLayer<P>>(&mut self, data: &Data<P>, shared: &Shared, upper: &mut U) {
        let head = self.head_of(Op::Skip, 0);
        let old = self.close_partial(data.msg, head, shared);
        if let Some(Reassembly { cookie: Some(cookie), head, .. }) = old {
            upper.abandon(cookie, &head);
        }
    }

    /// Nothing more of a message is taken. How many of those are remembered is bounded by the window, or by
    /// [`Peer::lesser_limit`]: a late segment of a message that has been forgotten is refused once more, or waits like a first one.
    fn close_partial(&mut self, id: MsgId, head: Incoming, shared: &Shared) -> Option<Reassembly> {
        let old = self.reassemblies.close(id, head, self.arrivals.cum());
        if let Some(most) = self.lesser_limit(shared) {
            self.reassemblies.forget_closed(most);
        }
        old
    }

    /// How many incomplete messages, and how many that are closed, are remembered of whom anybody may pretend to be, or of whom
    /// our program has not named while very many are remembered.
    fn lesser_limit(&self, shared: &Shared) -> Option<usize> {
        match (self.standing.vouched, self.standing.proven) {
            _ if self.standing.named => None,
            (false, _) => Some(MAX_PARTIAL_OF_STRANGER),
            _ if shared.reassemblies >= MAX_PARTIAL_OF_ALL => Some(MAX_PARTIAL_OF_STRANGER),
            (true, false) => Some(MAX_PARTIAL_OF_UNPROVEN),
            (true, true) => None,
        }
    }

    /// More of a message is awaited, and its sender is silent: it is sent something to acknowledge, so that its death is
    /// found as that of any peer.
    pub(crate) fn ask_for_life(&mut self, now: Time, shared: &mut Shared) {
        if now >= self.sign_of_life_at(shared) {
            self.outgoing(shared);
            self.messages.add(Purpose::Forget, Op::Skip, P::empty(), None);
        }
    }

    /// A question on one path has arrived.
    fn on_probe(&mut self, now: Time, probe: &Probe, shared: &mut Shared) {
        // Who asks has something outstanding, though nothing of it may have come through.
        let awaited = self.reassemblies.await_more() || self.arrivals.more();
        shared.load.count(now, shared.config.base_rtt, &mut self.counted, awaited);
        self.arrivals.note(shared.arrived, probe.path, Echo::PROBE, Psn(probe.number), probe.stamp);
        self.arrivals.repeat_acks = ACKS_ON_DOUBT;
        self.arrivals.ack_by(now);
    }

    /// The refusal of the message that ended at `psn` is known to its sender: `psn` may be acknowledged.
    pub(crate) fn refusal_known(&mut self, now: Time, psn: Psn) {
        self.arrivals.release_withheld(now, psn);
        self.reassemblies.forget_passed(self.arrivals.cum());
    }
}
