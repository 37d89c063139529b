//! What leaves next: whose turn it is, on which path, and whether window and pacing permit it.

use crate::arrivals::Arrivals;
use crate::congestion_control::SendLimits;
use crate::events::Event;
use crate::messages::Purpose;
use crate::peer::{Outgoing, Peer};
use crate::receiving::KEPT_FOR_OLDEST;
use crate::sent::{Load, SentPacket};
use crate::shared::Shared;
use crate::{Payload, Transmit};
use srd_wire::codec::{self, ACK_LEN, ECHO_LEN, HELLO_LEN, SACK_WORD_LEN};
use srd_wire::{AckBox, Body, Data, Nanos, Op, Probe, Psn, Time};

/// RDMA payloads are cut at multiples of this, so that aligned blocks are written whole.
const BLOCK: u32 = 128;
/// Padding that is worth an equal size within a burst, in bytes.
const MAX_PADDING: u32 = 128;
/// And this part of a message that others follow: without that a send of the system ends there, which costs the time of 8 KB.
const PADDED_PART: u32 = 64;

/// With fewer packets outstanding, and no room for more, each is answered at once.
const FEW_OUTSTANDING: u32 = 8;
/// An ACK that is due waits for the last packet of what is queued if that is no more than so many bursts.
const BURSTS_OF_AN_ANSWER: u64 = 2;
/// Base round trips without anything in flight after which delays that were measured are forgotten.
const REST_ROUNDS: u64 = 24;

impl<P: Payload> Peer<P> {
    /// Nothing more of the message is sent or read. If a part of it may have arrived, the peer is told to forget it.
    pub(crate) fn close_message(&mut self, slot: u32) {
        let message = self.messages.get(slot);
        let (id, in_parts) = (message.id, message.started && message.len > message.segment as u32);
        self.messages.give_up(slot);
        if in_parts {
            self.messages.add(Purpose::Forget, Op::Skip, P::empty(), Some(id));
        }
    }

    /// Whether data waits to be sent, for the first time or again.
    pub(crate) fn has_data(&self) -> bool {
        !self.lost.is_empty() || self.messages.has_queued()
    }

    /// Whether there may be something to send now.
    pub(crate) fn has_to_send(&self, now: Time, shared: &Shared) -> bool {
        self.has_data()
            || self.ack_pending(now, shared)
            || !self.probes.is_empty()
            || now >= self.mtu.next_event()
            || !self.standing.proven
            || !self.open(shared)
    }

    /// Gives the next packet to send now to `sink`. What that returns; `None` if there is no packet.
    pub(crate) fn poll_transmit<R>(
        &mut self,
        now: Time,
        shared: &mut Shared,
        sink: &mut impl FnMut(Transmit<P>) -> R,
    ) -> Option<R> {
        if self.standing.proven {
            self.poll_any(now, shared, sink)
        } else {
            self.poll_answer(now, shared, sink)
        }
    }

    /// The same to who may have forged his address.
    #[cold]
    #[inline(never)]
    fn poll_answer<R>(
        &mut self,
        now: Time,
        shared: &mut Shared,
        sink: &mut impl FnMut(Transmit<P>) -> R,
    ) -> Option<R> {
        if self.standing.is_withheld() {
            return None;
        }
        let mut bytes = 0;
        let result = self.poll_any(now, shared, &mut |transmit: Transmit<P>| {
            let payload = match &transmit.packet.body {
                Body::Data(data) => data.payload.len(),
                _ => 0,
            };
            bytes = codec::header_len(&transmit.packet) + payload.max(transmit.pad_to as usize);
            sink(transmit)
        });
        self.standing.charge(bytes);
        result
    }

    #[inline]
    fn poll_any<R>(
        &mut self,
        now: Time,
        shared: &mut Shared,
        sink: &mut impl FnMut(Transmit<P>) -> R,
    ) -> Option<R> {
        self.train = None;
        if self.incompatible {
            return None;
        }
        if !self.open(shared) {
            let wanted = self.messages.len() > 0 || self.arrivals.ack_at <= now;
            if !wanted || now < self.hello.at || self.liveness.dead {
                return None;
            }
            self.hello.note_sent(now, shared);
            self.arrivals.ack_at = Time::NEVER;
            return Some(sink(self.bare_transmit(now, shared)));
        }
        let ack_due = self.ack_pending(now, shared);
        if ack_due && !self.next_data_has_room_for_ack() && !self.answer_carries_ack(shared) {
            return Some(sink(self.bare_transmit(now, shared)));
        }
        // A packet sent into silence goes before the probes that ask about it, so that their answers judge it.
        if self.urgent == 0
            && let Some(transmit) = self.poll_probe(now, shared)
        {
            return Some(sink(transmit));
        }
        let data = self.poll_data(now, shared, sink);
        if data.is_some() {
            return data;
        }
        if let Some(transmit) = self.poll_probe(now, shared) {
            return Some(sink(transmit));
        }
        ack_due.then(|| sink(self.bare_transmit(now, shared)))
    }

    /// Bytes that count as in flight.
    fn counted_bytes(&mut self, now: Time, limits: &SendLimits) -> u64 {
        if now.since(self.liveness.waiting_since) > limits.inflight_horizon {
            return self.sent.inflight_bytes(); // silence: nobody knows what has become of it
        }
        self.sent.young_bytes(Time(now.0.saturating_sub(limits.inflight_horizon.0)))
    }

    /// Whether an acknowledgement is due.
    pub(crate) fn ack_pending(&self, now: Time, shared: &Shared) -> bool {
        self.arrivals.ack_at <= now || self.arrivals.unacked >= shared.config.ack_every
    }

    /// The next probe, of a path or of a size.
    #[inline]
    fn poll_probe(&mut self, now: Time, shared: &mut Shared) -> Option<Transmit<P>> {
        let due = !self.probes.is_empty() || now >= self.mtu.next_event();
        if due { self.next_probe(now, shared) } else { None }
    }

    #[cold]
    fn next_probe(&mut self, now: Time, shared: &mut Shared) -> Option<Transmit<P>> {
        if let Some(probe) = self.probes.pop_front() {
            let entropy = self.outgoing(shared).paths.get(probe.path).entropy;
            let probe = Probe { stamp: now.stamp(), ..probe };
            return Some(self.transmit(shared, entropy, 0, None, Body::Probe(probe)));
        }
        if now >= self.mtu.next_event() && self.busy() && !self.liveness.dead && self.standing.proven {
            let patience = self.retransmission_timeout(shared);
            if let Some((number, size)) = self.mtu.poll(now, patience) {
                return Some(self.size_probe(now, number, size, shared));
            }
        }
        None
    }

    /// A probe that is padded to `size` bytes.
    fn size_probe(&mut self, now: Time, number: u32, size: u16, shared: &mut Shared) -> Transmit<P> {
        let outgoing = self.outgoing(shared);
        let path = outgoing.selector.pick(&outgoing.paths.candidates(now, None));
        let entropy = outgoing.paths.get(path).entropy;
        shared.stats.mtu_probes_sent += 1;
        let probe = Body::Probe(Probe { path, number, stamp: now.stamp() });
        let mut transmit = self.transmit(shared, entropy, 0, None, probe);
        transmit.pad_to = size.saturating_sub(codec::header_len(&transmit.packet) as u16);
        transmit
    }

    /// Bytes that the pending ACK would add.
    fn ack_bytes(&self) -> usize {
        ack_len(&self.arrivals)
    }

    /// Whether a lone small packet is next, which the ACK can ride on.
    fn next_data_has_room_for_ack(&mut self) -> bool {
        if !self.lost.is_empty() {
            return false;
        }
        let Some(slot) = self.messages.head() else { return false };
        let message = self.messages.get(slot);
        let room = codec::max_payload(&message.op, self.mtu.datagram() as usize, false);
        message.len as usize + HELLO_LEN + self.ack_bytes() <= room
    }

    /// Whether what the program has answered is about to leave as a whole, so that its last packet can carry the ACK that is due. Should
    /// it not leave, the ACK leaves alone.
    fn answer_carries_ack(&self, shared: &Shared) -> bool {
        let queued = self.messages.queued_bytes();
        shared.config.on_a_host()
            && queued > 0
            && queued <= BURSTS_OF_AN_ANSWER * shared.config.burst_bytes as u64
    }

    fn poll_data<R>(
        &mut self,
        now: Time,
        shared: &mut Shared,
        sink: &mut impl FnMut(Transmit<P>) -> R,
    ) -> Option<R> {
        if self.liveness.dead {
            return None;
        }
        while let Some(&psn) = self.lost.front()
            && !self.sent.is_lost(psn)
        {
            self.lost.pop_front();
        }
        if self.lost.is_empty() {
            self.urgent = 0;
        }
        let control =
            self.messages.has_control() && self.messages.head().is_some() && self.messages.has_control();
        let least = if self.messages.has_refusal() { 0 } else { KEPT_FOR_OLDEST };
        let control = control && self.sent.numbers_left() > least;
        let again = self.lost.front().copied().filter(|_| !control);
        let fresh = if again.is_none() { self.messages.head() } else { None };
        if again.is_none() && !control && (fresh.is_none() || self.sent.window_full()) {
            self.window_limited = fresh.is_some();
            if fresh.is_none() {
                self.sent.note_dry();
            }
            self.pacer.open(); // not the pace is in the way
            return None;
        }
        if self.sent.span() == 0 && now >= self.data_sent + Nanos(REST_ROUNDS * shared.config.base_rtt.0) {
            self.data_sent = now;
            self.outgoing(shared).controller.on_restart_after_idle();
        }
        let limits = self.outgoing(shared).controller.send_limits();
        let window = limits.window_bytes.min(self.share.bytes);
        let packet_bytes = self.max_datagram as u64;
        let urgent = again.is_some() && self.urgent > 0;
        self.pacer.wait_at_most(now + shared.config.max_rto); // no longer than for its timer
        if !urgent && !control {
            let inflight = self.counted_bytes(now, &limits);
            if inflight > 0 && inflight + self.next_bytes(again, fresh) > window {
                self.window_limited = true;
                self.pacer.open();
                return None;
            }
            if self.pacer.blocks(now, &limits, packet_bytes) {
                self.window_limited = true;
                return None;
            }
        }
        self.pacer.open();
        self.urgent = self.urgent.saturating_sub(urgent as u32);
        if self.sent.span() == 0 {
            self.liveness.waiting_since = now;
        }
        self.last_active = now;
        self.data_sent = now;
        let mut outgoing = self.outgoing.take()?;
        // With more outstanding, ACKs come often enough without being asked for.
        let few = self.sent.span() < FEW_OUTSTANDING;
        let blocked_next = few && self.sent.inflight_bytes() + 2 * packet_bytes > window;
        // What begins a transfer of several packets, and what ends it, is answered at once. On a host a short one comes
        // as a whole.
        let long = self.messages.queued_bytes() > packet_bytes
            || fresh.is_some_and(|slot| self.messages.get(slot).len as u64 > packet_bytes);
        let begins = long
            && self.sent.span() == 0
            && (!shared.config.on_a_host()
                || self.messages.queued_bytes() > shared.config.chunk_bytes as u64);
        let last = self.messages.queued_bytes() <= packet_bytes;
        // By memory it costs nothing.
        let ends = last && (long || shared.is_by_memory(&self.counted));
        let ack_request = urgent || blocked_next || begins || ends;
        let (psn, pad_to) = match (again, fresh) {
            (Some(psn), _) => (self.send_again(now, psn, &mut outgoing, shared), 0),
            (None, Some(slot)) => self.send_fresh(now, slot, limits.burst_bytes, &mut outgoing, shared),
            (None, None) => unreachable!("checked above"),
        };
        let Some(&sent) = self.sent.get(psn) else { unreachable!("just sent") };
        self.pacer.sent(now, &limits, sent.bytes as u64, 1, &mut shared.rng);
        let path = outgoing.paths.get_mut(sent.path);
        path.bytes += sent.len as u64;
        let entropy = path.entropy;
        self.outgoing = Some(outgoing);
        let header = sent.bytes - pad_to.max(sent.len);
        let data = self.data(now, psn, &sent, ack_request);
        let bytes = self.ack_bytes();
        let ack = self.carries_ack(now, &sent, bytes, shared).then(|| {
            shared.stats.piggybacked_acks_sent += 1;
            self.arrivals.take_ack(now, shared.load.senders(now, shared.config.base_rtt, &self.counted))
        });
        let pad_to = if ack.is_some() { pad_to.saturating_sub(bytes as u16) } else { pad_to };
        if let Some(slot) = fresh.filter(|_| ack.is_none() && !ack_request && pad_to <= sent.len) {
            self.train = self.begin_train(slot, header, sent.len, &limits, shared);
        }
        Some(sink(self.data_transmit(data, sent.len, pad_to, entropy, ack, shared)))
    }

    /// Bytes of the datagram that is next, or a little more: a short message fits into a window that has no room for a full packet.
    fn next_bytes(&mut self, again: Option<Psn>, fresh: Option<u32>) -> u64 {
        let full = self.max_datagram as u64;
        if let Some(sent) = again.and_then(|psn| self.sent.get(psn)) {
            return sent.bytes as u64;
        }
        fresh.map_or(full, |slot| {
            let message = self.messages.get(slot);
            let room = codec::max_payload(&message.op, self.mtu.datagram() as usize, false) as u64;
            let left = (message.len - message.next) as u64;
            full.saturating_sub(room.saturating_sub(left))
        })
    }

    fn send_again(&mut self, now: Time, psn: Psn, outgoing: &mut Outgoing, shared: &mut Shared) -> Psn {
        self.lost.pop_front();
        let Some(&lost) = self.sent.get(psn) else { unreachable!("only lost packets are retransmitted") };
        if self.messages.get(lost.message).over {
            self.sent.drop_payload(psn);
        }
        let failed = lost.path;
        let path = outgoing
            .paths
            .proven(failed)
            .unwrap_or_else(|| outgoing.selector.pick(&outgoing.paths.candidates(now, Some(failed))));
        let packet = self.sent.retransmission(now, psn, path, &mut outgoing.paths);
        let inflight = self.sent.inflight_bytes();
        shared.trace.emit(now, self.id, || Event::PacketResent {
            psn,
            path,
            lost_on: failed,
            tx_count: packet.tx_count,
            bytes: packet.bytes,
            inflight,
        });
        shared.stats.retrans_pkts += 1;
        self.counters.retrans_pkts += 1;
        shared.stats.retrans_bytes += packet.len as u64;
        self.burst.end();
        psn
    }

    fn send_fresh(
        &mut self,
        now: Time,
        slot: u32,
        burst_bytes: u64,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
    ) -> (Psn, u16) {
        let chunk = shared.config.chunk_bytes;
        let with_hello = self.carries_hello(true);
        let queued = self.messages.queued_bytes();
        let message = self.messages.get(slot);
        let starting = !message.started;
        if starting {
            let hello = if with_hello { HELLO_LEN } else { 0 };
            let room = codec::max_payload(&message.op, self.mtu.datagram() as usize - hello, false) as u32;
            message.started = true;
            let ack = if self.arrivals.ack_at == Time::NEVER { 0 } else { ack_len(&self.arrivals) as u32 };
            message.segment = segment_size(message.len, room, chunk, ack, shared.config.on_a_host()) as u16;
        }
        let mut len = (message.len - message.next).min(message.segment as u32);
        if let Op::Write { addr, .. } = message.op
            && starting
            && message.len > chunk
        {
            len -= (addr % BLOCK as u64) as u32; // from here on at block boundaries of the destination
        }
        // The next message's packets can join this one's where its last is as long as they are.
        let joins = shared.config.on_a_host() && message.len > chunk && queued > len as u64;
        let most = if joins { message.len / PADDED_PART } else { MAX_PADDING };
        let padded = message.len > message.segment as u32 && message.segment as u32 - len <= most;
        let pad_to = if padded { message.segment } else { 0 };
        let bytes = header_bytes(&message.op) + (pad_to as u32).max(len);
        let whole = if starting { message.len.min(chunk) } else { len };
        let all_sent = message.next + len == message.len;
        let control = !matches!(message.purpose, Purpose::UpperLayer(_));
        let offset = self.messages.take_segments(slot, len, 1);

        let needed = (whole as u64).min(burst_bytes).max(bytes as u64);
        if self.burst.left < needed || !outgoing.paths.usable().contains(self.burst.path) {
            self.burst.path = outgoing.selector.pick(&outgoing.paths.candidates(now, None));
            self.trace_choice(now, outgoing, shared);
            self.burst.left = burst_bytes.max(bytes as u64);
        }
        if control {
            self.burst.take(1, bytes as u64);
        } else if self.burst.ends_turn(1, bytes as u64, len, all_sent, shared.config.turn()) {
            self.messages.end_turn();
        }
        let path = self.burst.path;
        let load = Load { message: slot, offset, len: len as u16, bytes: bytes as u16 };
        let psn = self.sent.first_transmissions(now, path, load, 1, &mut outgoing.paths);
        if shared.trace.is_on() {
            self.trace_fresh(now, psn, slot, starting, shared);
        }
        (psn, pad_to)
    }

    #[cold]
    fn trace_fresh(&mut self, now: Time, psn: Psn, slot: u32, starting: bool, shared: &mut Shared) {
        let message = self.messages.get(slot);
        let (id, len) = (message.id, message.len);
        let token = self.messages.token(slot).map(|token| token.0);
        let SentPacket { path, offset, bytes, .. } = *self.sent.record(psn);
        let inflight = self.sent.inflight_bytes();
        if starting {
            let event = Event::MessageStarted { message: id, token, bytes: len };
            shared.trace.emit(now, self.id, || event);
        }
        let event = Event::PacketSent { psn, path, message: id, offset, bytes, inflight };
        shared.trace.emit(now, self.id, || event);
    }

    fn trace_choice(&self, now: Time, outgoing: &Outgoing, shared: &mut Shared) {
        shared.trace.emit(now, self.id, || {
            let choice = outgoing.selector.last_choice();
            Event::PathChosen {
                path: self.burst.path,
                rule: choice.rule,
                other: choice.other,
                score: choice.score as f64,
                other_score: choice.other_score as f64,
                usable: outgoing.paths.usable().len(),
            }
        });
    }

    /// What a data packet says of its part of a message.
    #[inline(always)] // the packet is built where it is used, not moved there
    pub(crate) fn data(&mut self, now: Time, psn: Psn, sent: &SentPacket, ack_request: bool) -> Data<P> {
        let more = self.messages.queued_bytes() > 0;
        let message = self.messages.get(sent.message);
        let (op, len, offset, payload) = if message.over {
            (Op::Skip, 0, 0, P::empty())
        } else {
            (
                message.op,
                message.len,
                sent.offset,
                message.payload.slice(sent.offset as usize, sent.len as usize),
            )
        };
        Data {
            psn,
            stamp: now.stamp(),
            path: sent.path,
            tx_count: sent.tx_count,
            ack_request,
            more,
            msg: message.id,
            len,
            offset,
            op,
            payload,
        }
    }

    /// Whether the pending ACK, of `bytes`, rides on this packet: on lone packets, and on the last of several if that stays no
    /// longer than the others, as it would break the equal sizes within a burst. So it would with lone packets in a row where
    /// the datapath joins them.
    #[inline(always)]
    fn carries_ack(&mut self, now: Time, sent: &SentPacket, bytes: usize, shared: &Shared) -> bool {
        let message = self.messages.get(sent.message);
        let len = if message.over { 0 } else { message.len };
        let lone = message.len == sent.len as u32 || len == 0;
        let last = sent.offset + sent.len as u32 == len;
        let segment = message.segment as usize;
        let fits = if lone {
            let in_a_row = self.messages.queued_bytes() > 0 && shared.config.on_a_host();
            let must = || self.ack_pending(now, shared) && !self.answer_carries_ack(shared);
            (!in_a_row || must()) && sent.bytes as usize + HELLO_LEN + bytes <= self.mtu.datagram() as usize
        } else {
            last && sent.len as usize + bytes <= segment
        };
        fits && self.arrivals.ack_at != Time::NEVER
    }

    /// The packet of `data`, counted.
    #[inline(always)]
    pub(crate) fn data_transmit(
        &mut self,
        data: Data<P>,
        len: u16,
        pad_to: u16,
        entropy: u16,
        ack: Option<AckBox>,
        shared: &mut Shared,
    ) -> Transmit<P> {
        shared.stats.tx_bytes += len as u64;
        self.counters.tx_bytes += len as u64;
        self.transmit(shared, entropy, pad_to, ack, Body::Data(data))
    }
}

/// Bytes that the pending ACK adds to a packet.
fn ack_len(arrivals: &Arrivals) -> usize {
    ACK_LEN + arrivals.echo_count() * ECHO_LEN + arrivals.sack_words() * SACK_WORD_LEN
}

/// Payload bytes per packet of a message: equal shares for one that crosses in a single chunk, the last of them smaller by
/// `ack` bytes if that takes no packet more; whole blocks for a longer one, as many as fit, or in `equal` shares.
fn segment_size(len: u32, room: u32, chunk: u32, ack: u32, equal: bool) -> u32 {
    if len <= room {
        len
    } else if len <= chunk {
        let packets = len.div_ceil(room);
        let shared = if len + ack <= packets * room { len + ack } else { len };
        shared.div_ceil(packets)
    } else {
        let most = room - room % BLOCK;
        if equal { len.div_ceil(len.div_ceil(most)).next_multiple_of(BLOCK) } else { most }
    }
}

/// Bytes of a data packet before its payload.
fn header_bytes(op: &Op) -> u32 {
    const LARGE: usize = 32_768;
    (LARGE - codec::max_payload(op, LARGE, false)) as u32
}
