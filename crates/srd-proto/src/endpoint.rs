//! One device instance: its peers, who of them has work, and who is who.

use crate::identity::Identities;
use crate::messages::Purpose;
use crate::peer::{Peer, Shared, introduction};
use crate::replies::{Asker, Replies};
use crate::timer_wheel::TimerWheel;
use crate::{
    Config, Event, PathReport, Payload, PeerCounters, PeerId, PeerLoss, Stats, Token, Tracer, Upper,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use srd_wire::{
    Ack, Body, Echo, Gid, Hello, Hold, Incarnation, InstanceAddr, KeyedHash, MsgId, Nanos, Op, Packet,
    PathId, Probe, Psn, Status, Tag, Time, first_psn,
};
use std::collections::{HashMap, VecDeque};

/// Contexts looked at, where the table is full, to find one that may go.
const LOOKS_FOR_ROOM: usize = 64;
/// Contexts with instances that nobody has vouched for: they are at their address, but neither does our program want them
/// nor have they known a queue key. They have to be told what they did wrong, no more.
const MAX_STRANGERS: usize = 1024;
/// Contexts with instances that have known a queue key, which may be a well-known one, and whose address may be forged. Who
/// comes when there are so many is answered first, as a stranger is.
const MAX_UNPROVEN: usize = 1024;

/// Base round trips after which a peer that sends without a pause looks at its timers.
const LOOK_AGAIN: u64 = 2;

/// A packet to be put on the wire.
#[derive(Clone, Debug)]
pub struct Transmit<P> {
    /// The context it belongs to.
    pub peer: PeerId,
    /// Where it goes.
    pub to: InstanceAddr,
    /// The peer's incarnation if it is known and knows ours (which key seals the packet).
    pub peer_incarnation: Option<Incarnation>,
    /// Path entropy: index of the source port in the sender's pool, below [`Config::entropy`].
    pub entropy: u16,
    /// For a data packet: pad the datagram's payload to this many bytes, so that the packets of one burst are equal.
    /// 0: no padding.
    pub pad_to: u16,
    /// What to send.
    pub packet: Packet<P>,
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// No such context (it has ended).
    NoPeer,
    /// As many messages wait as may.
    Full,
    /// The table of contexts is full.
    TooManyPeers,
}

/// What a context is, for reports.
#[derive(Clone, Copy, Debug)]
pub struct PeerReport {
    /// The context.
    pub id: PeerId,
    /// The peer.
    pub addr: InstanceAddr,
    /// Whether it has answered.
    pub answered: bool,
    /// Smoothed round trip; zero before the first sample.
    pub rtt: Nanos,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Bytes that wait to be sent for the first time.
    pub queued_bytes: u64,
    /// Bytes that the controller lets be in flight.
    pub window_bytes: u64,
    /// Whether it counts as dead: it has been silent for too long while something was outstanding.
    pub silent: bool,
    /// Smallest round trip of late; zero before the first sample.
    pub least_rtt: Nanos,
    /// What has gone to it and come from it.
    pub counters: PeerCounters,
}

/// See the module.
pub struct Endpoint<P: Payload> {
    shared: Shared,
    peers: Vec<Peer<P>>,
    by_addr: HashMap<(u8, InstanceAddr), u32, KeyedHash>,
    incarnation: Incarnation,
    /// Host from which this instance's own packets are welcome.
    own_host: Option<Gid>,
    /// Contexts made for peers that nobody had vouched for, in the order of their making.
    strangers: VecDeque<u32>,
    /// Contexts made for peers that had not proven where they are.
    unproven: VecDeque<PeerId>,
    /// Where the next search for a context that may go begins.
    next_look: usize,
    /// The peer of the last packet: packets come in bursts.
    last_peer: Option<((u8, InstanceAddr), u32)>,
    /// Peers that may have something to send.
    ready: VecDeque<u32>,
    /// Those of them that have an acknowledgement due: it goes before data of others, whose windows would stand still for
    /// want of it.
    owing: VecDeque<u32>,
    timers: TimerWheel,
    /// Answers to packets that belong to no context.
    replies: Replies<P>,
    reply_turn: u16,
    /// The caller's clock at the last call.
    clock: Time,
    /// Our own, which counts the steps forward of the caller's and never runs backwards.
    now: Time,
}

impl<P: Payload> Endpoint<P> {
    /// An endpoint that receives on `ports` (at least one; the first is its main one). `seed` feeds every random
    /// choice.
    pub fn new(config: Config, incarnation: Incarnation, ports: &[u16], seed: u64) -> Endpoint<P> {
        assert!(!ports.is_empty(), "an endpoint needs a receive port");
        assert!(
            (1..=256).contains(&config.paths) && config.entropy > 0,
            "1 to 256 paths, at least one source port"
        );
        let identities = Identities::new(incarnation, seed, config.confirm_first);
        Endpoint {
            shared: Shared::new(config, identities, ports, SmallRng::seed_from_u64(seed)),
            incarnation,
            peers: Vec::new(),
            by_addr: HashMap::with_hasher(KeyedHash::new(seed ^ incarnation.0)),
            own_host: None,
            strangers: VecDeque::new(),
            unproven: VecDeque::new(),
            next_look: 0,
            last_peer: None,
            ready: VecDeque::new(),
            owing: VecDeque::new(),
            timers: TimerWheel::new(),
            replies: Replies::new(),
            reply_turn: 0,
            clock: Time(0),
            now: Time(0),
        }
    }

    /// From now on `tracer` is told what the transport decides, as it decides it ([`crate::EVENTS`]); `None`: nobody is.
    pub fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.shared.trace.set(tracer);
    }

    /// Lets this instance talk to itself at `gid`. From elsewhere its own packets are refused: they have been sent back.
    pub fn allow_self(&mut self, gid: Gid) {
        self.own_host = Some(gid);
    }

    /// How many peers send to this instance now.
    pub fn senders(&self, now: Time) -> u16 {
        self.shared.load.own(self.now + now.since(self.clock), self.shared.config.base_rtt)
    }

    /// So many peers send to other instances behind the same link: each sender's share is the smaller.
    pub fn set_neighbours(&mut self, senders: u16) {
        self.shared.load.neighbours = senders;
    }

    /// Adds a receive port and returns its index.
    pub fn add_port(&mut self, port: u16) -> u8 {
        self.shared.ports.push(port);
        (self.shared.ports.len() - 1) as u8
    }

    /// The receive ports.
    pub fn ports(&self) -> &[u16] {
        &self.shared.ports
    }

    /// This instance's incarnation. In clear mode a secret: see [`Endpoint::incarnation_toward`].
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// What the instance at `to` is told to be our incarnation, at our receive port number `port`.
    pub fn incarnation_toward(&self, port: u8, to: InstanceAddr) -> Incarnation {
        match self.by_addr.get(&(port, to)) {
            Some(&slot) => self.peers[slot as usize].own,
            None => self.shared.identities.toward(port, to, 0),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// All contexts.
    pub fn peers(&self) -> impl Iterator<Item = PeerReport> {
        self.peers.iter().map(|peer| PeerReport {
            id: peer.id,
            addr: peer.addr,
            answered: peer.remote.is_some(),
            rtt: peer.rtt.smoothed(Nanos::ZERO),
            inflight_bytes: peer.sent.inflight_bytes(),
            queued_bytes: peer.messages.queued_bytes(),
            window_bytes: peer.outgoing.as_ref().map_or(0, |out| out.controller.allowance().window_bytes),
            silent: peer.dead,
            least_rtt: peer.rtt.min().unwrap_or(Nanos::ZERO),
            counters: peer.counters,
        })
    }

    /// The paths of a context.
    pub fn paths(&self, peer: PeerId) -> impl Iterator<Item = PathReport> {
        self.peers.get(peer.slot as usize).into_iter().flat_map(|peer| peer.path_reports())
    }

    /// The system reports that datagrams above `bytes` do not reach host `gid`.
    pub fn limit_datagram(&mut self, gid: Gid, bytes: u16) {
        self.peers.iter_mut().filter(|peer| peer.addr.gid == gid).for_each(|peer| peer.mtu.limit(bytes));
    }

    /// Whether nothing is in flight and nothing waits, towards any living peer.
    pub fn is_quiet(&self) -> bool {
        self.peers.iter().all(|peer| peer.dead || !peer.busy())
    }

    /// The context with `to`, seen from our port number `port`; made if there is none.
    pub fn connect(&mut self, now: Time, port: u8, to: InstanceAddr) -> Result<PeerId, SendError> {
        self.advance(now);
        let slot = match self.by_addr.get(&(port, to)) {
            Some(&slot) => slot,
            None => self.add_peer(port, to, true).ok_or(SendError::TooManyPeers)?,
        };
        let peer = &mut self.peers[slot as usize];
        (peer.named, peer.vouched, peer.proven) = (true, true, true);
        Ok(peer.id)
    }

    /// Queues a message. Its outcome comes through [`Upper::outcome`], once.
    pub fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        token: Token,
        op: Op,
        payload: P,
    ) -> Result<(), SendError> {
        let now = self.advance(now);
        self.context(peer).ok_or(SendError::NoPeer)?;
        let slot = peer.slot;
        let context = &mut self.peers[slot as usize];
        context.revive(now);
        if context.messages.upper_len() >= self.shared.config.max_messages_per_peer as usize {
            // There may be room when the peer, which may have counted as dead, has answered.
            self.make_ready(slot);
            return Err(SendError::Full);
        }
        let peer = &mut self.peers[slot as usize];
        peer.outgoing(&mut self.shared);
        // Nobody reads who does not know the memory's key.
        peer.proven |= matches!(op, Op::ReadResponse { .. });
        if !peer.busy() {
            peer.waiting_since = now;
        }
        peer.last_active = now;
        peer.revive(now);
        let bytes = payload.len() as u32;
        peer.messages.add(Purpose::Upper(token), op, payload, None);
        self.shared.trace.emit(now, peer.id, || {
            let queued = peer.messages.queued_bytes();
            Event::MessageQueued { token: token.0, bytes, queued }
        });
        self.make_ready(slot);
        Ok(())
    }

    /// Gives up the messages of `peer` whose token `which` picks: their payload is not read after this call, and no
    /// outcome is reported for them.
    pub fn cancel(&mut self, now: Time, peer: PeerId, which: &mut dyn FnMut(Token) -> bool) {
        self.advance(now);
        if self.context(peer).is_none() {
            return;
        }
        let context = &mut self.peers[peer.slot as usize];
        let open: Vec<u32> = context.messages.open().collect();
        for slot in open {
            if context.messages.token(slot).is_some_and(&mut *which) {
                context.close_message(slot);
            }
        }
        context.messages.purge();
        self.make_ready(peer.slot);
    }

    /// The token of the message that packets to `peer` call `id`; `None` if its outcome is known or nobody waits for it.
    pub fn token_of(&self, peer: PeerId, id: MsgId) -> Option<Token> {
        self.context(peer)?.messages.token_of(id)
    }

    /// A packet has arrived at our port number `port` from host `from`. `bytes` is the size of its datagram, `ce`
    /// whether it carried a congestion mark.
    #[allow(clippy::too_many_arguments)]
    pub fn handle_packet<U: Upper<P>>(
        &mut self,
        now: Time,
        port: u8,
        from: Gid,
        packet: &Packet<P>,
        bytes: usize,
        ce: bool,
        upper: &mut U,
    ) {
        self.handle_packet_from(now, now, port, from, packet, bytes, ce, upper);
    }

    /// As [`Endpoint::handle_packet`], for a packet that came to the network card at `arrived`, before `now`: what the
    /// host takes to look at it is not taken for the network's.
    #[allow(clippy::too_many_arguments)]
    pub fn handle_packet_from<U: Upper<P>>(
        &mut self,
        now: Time,
        arrived: Time,
        port: u8,
        from: Gid,
        packet: &Packet<P>,
        bytes: usize,
        ce: bool,
        upper: &mut U,
    ) {
        let late = now.since(arrived);
        let now = self.advance(now);
        self.shared.arrived = Time(now.0.saturating_sub(late.0));
        let addr = InstanceAddr { gid: from, port: packet.src_port };
        let known = self.known(port, addr);
        let own = match known {
            Some(slot) => self.peers[slot as usize].own,
            None => self.shared.identities.toward(port, addr, 0),
        };
        if packet.src_tag == own.tag() && self.own_host != Some(from) {
            self.shared.stats.reflected += 1;
            return;
        }
        if let Body::Reset { stale } = packet.body {
            return self.on_reset(known, packet, stale, upper);
        }
        // Who names us has got what we sent to his address: nobody else is told this incarnation.
        let named = packet.dst_tag == own.tag();
        if packet.dst_tag != Tag::UNKNOWN && !named && self.next_identity(known, own).tag() != packet.dst_tag
        {
            self.shared.stats.stale_incarnation += 1;
            return self.reset(port, addr, own, packet.src_tag, packet.dst_tag, self.asker(known));
        }
        let Some(slot) = self.identify(port, addr, known, own, packet, upper) else { return };
        self.peers[slot as usize].prove(named, bytes);
        if !self.is_of_context(slot, packet.hello.as_ref(), upper) {
            return;
        }
        let shared = &mut self.shared;
        let peer = &mut self.peers[slot as usize];
        // Who has a context with us acknowledges or sends something in it. (An introduction that echoes nobody is the answer to
        // a stranger, or the question to one; where contexts need keys, only who has made one can name us at all.)
        let in_context = packet.ack.is_some() || matches!(packet.body, Body::Data(_));
        match &packet.hello {
            None => peer.knows_context |= in_context,
            Some(hello) => peer.knows_context = named && in_context && hello.echo != 0,
        }
        peer.knows_us |= peer.knows_context || named && shared.config.confirm_first;
        if !peer.vouched
            && let Body::Data(data) = &packet.body
        {
            peer.vouched = upper.vouches(&data.op);
        }
        peer.last_heard = now;
        peer.revive(now);
        shared.stats.rx_pkts += 1;
        if peer.incompatible {
            peer.end(now, Status::FeatureMismatch, PeerLoss::Incompatible, shared, upper);
            self.make_ready(slot);
            return;
        }
        if !peer.open(shared) {
            if !matches!(packet.body, Body::None) {
                shared.stats.unconfirmed += 1;
            }
            peer.arrivals.ack_by(now); // answer with an introduction
            peer.introduce_at = now;
            self.make_ready(slot);
            return;
        }
        if packet.hello.is_some() {
            peer.answer_introduction(now, shared);
        }
        if ce {
            shared.stats.ce_marks += 1;
            peer.arrivals.note_ce();
        }
        if let Some(ack) = &packet.ack {
            peer.on_ack(now, ack, shared, upper);
        }
        match &packet.body {
            Body::Data(data) => {
                peer.last_active = now;
                peer.on_data(now, data, bytes, shared, upper);
            }
            Body::Probe(probe) => peer.on_probe(now, probe, shared),
            Body::None | Body::Reset { .. } => {}
        }
        self.make_ready(slot);
    }

    /// A packet from instance `from` cannot be for any context here: its sender is told so, at a limited rate. Called
    /// here for packets that name another incarnation, and by the edge for sealed packets that no key opens.
    pub fn refuse(&mut self, now: Time, port: u8, from: InstanceAddr, src_tag: Tag, dst_tag: Tag) {
        self.advance(now);
        let own = self.incarnation_toward(port, from);
        // Whoever that is: the packet has not been opened.
        self.reset(port, from, own, src_tag, dst_tag, Asker::Stranger);
    }

    fn reset(
        &mut self,
        port: u8,
        from: InstanceAddr,
        own: Incarnation,
        src_tag: Tag,
        dst_tag: Tag,
        asker: Asker,
    ) {
        if dst_tag == Tag::UNKNOWN || src_tag == Tag::UNKNOWN || !self.replies.has_room(asker) {
            return;
        }
        self.shared.stats.resets_sent += 1;
        // In sealed mode only an introduction opens without a context.
        let context = || self.by_addr.get(&(port, from)).map_or(0, |&slot| self.peers[slot as usize].context);
        let hello = self.shared.config.confirm_first.then(|| introduction(&self.shared, own, 0, context()));
        self.reply(asker, port, from, own, None, src_tag, hello, None, Body::Reset { stale: dst_tag });
    }

    /// Who has sent a packet, which has been opened if there is a key, from the address of the context in `known`.
    fn asker(&self, known: Option<u32>) -> Asker {
        if self.shared.config.confirm_first {
            return Asker::Member;
        }
        let acquainted = known.is_some_and(|slot| self.peers[slot as usize].ever_known);
        if acquainted { Asker::Acquaintance } else { Asker::Stranger }
    }

    /// The next packet to send now, if any. Call until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit<P>> {
        self.poll_transmit_with(now, |transmit| transmit)
    }

    /// As [`Endpoint::poll_transmit`], but gives the packet to `sink`: packets are large, and moving one costs as much
    /// as making it.
    #[inline]
    pub fn poll_transmit_with<R>(&mut self, now: Time, mut sink: impl FnMut(Transmit<P>) -> R) -> Option<R> {
        let now = self.advance(now);
        if let Some(reply) = self.replies.take(now) {
            self.shared.stats.tx_pkts += 1;
            return Some(sink(reply));
        }
        while let Some(slot) = self.owing.pop_front() {
            let peer = &mut self.peers[slot as usize];
            peer.owing = false;
            if peer.owes_ack(now, &self.shared)
                && let Some(result) = peer.poll_transmit(now, &mut self.shared, &mut sink)
            {
                return Some(result);
            }
        }
        while let Some(&slot) = self.ready.front() {
            let peer = &mut self.peers[slot as usize];
            if let Some(result) = peer.poll_transmit(now, &mut self.shared, &mut sink) {
                if peer.burst_left == 0 && self.ready.len() > 1 {
                    self.ready.rotate_left(1); // its burst is over: the next peer's turn
                }
                if now >= peer.look_again {
                    // Who always has something to send must look for losses, too.
                    peer.look_again = now + Nanos(LOOK_AGAIN * self.shared.config.base_rtt.0);
                    let deadline = peer.deadline(&self.shared);
                    self.timers.set(slot, deadline);
                }
                return Some(result);
            }
            self.ready.pop_front();
            peer.ready = false;
            let deadline = peer.deadline(&self.shared);
            self.timers.set(slot, deadline);
        }
        None
    }

    /// Work that is due by the clock. Call when [`Endpoint::next_timeout`] has come (earlier does no harm).
    pub fn handle_timeout<U: Upper<P>>(&mut self, now: Time, upper: &mut U) {
        let now = self.advance(now);
        while let Some(slot) = self.timers.expire(now) {
            self.shared.stats.timer_callbacks += 1;
            self.peers[slot as usize].on_timer(now, &mut self.shared, upper);
            self.make_ready(slot);
        }
    }

    /// Peers that have answered before and have now been asked in vain for `silence` or longer. Whoever learns that one of
    /// them has ended says so ([`Endpoint::peer_is_gone`]).
    pub fn silent_peers(&self, now: Time, silence: Nanos) -> impl Iterator<Item = InstanceAddr> {
        let now = self.now + now.since(self.clock);
        let silent = move |peer: &&Peer<P>| peer.silence(now).is_some_and(|so_far| so_far >= silence);
        self.peers.iter().filter(silent).map(|peer| peer.addr)
    }

    /// Nobody receives at `addr` any more, as somebody says who knows: what is under way there has failed, now and not
    /// after the time limit.
    pub fn peer_is_gone<U: Upper<P>>(&mut self, now: Time, addr: InstanceAddr, upper: &mut U) {
        let now = self.advance(now);
        let slots = (0..self.shared.ports.len() as u8).filter_map(|port| self.by_addr.get(&(port, addr)));
        for slot in slots.copied().collect::<Vec<_>>() {
            let peer = &mut self.peers[slot as usize];
            if let Some(silence) = peer.silence(now) {
                peer.die(now, silence, &mut self.shared, upper);
                self.make_ready(slot);
            }
        }
    }

    /// When [`Endpoint::handle_timeout`] and [`Endpoint::poll_transmit`] want to be called next;
    /// [`Time::NEVER`] if nothing is due. May be early, never late.
    pub fn next_timeout(&self) -> Time {
        if !self.ready.is_empty() {
            return self.clock;
        }
        self.by_clock(self.timers.next().min(self.replies.due()))
    }

    /// The same for somebody who may not send anything now.
    pub fn next_timer(&self) -> Time {
        self.by_clock(self.timers.next())
    }

    /// A moment by the caller's clock.
    fn by_clock(&self, due: Time) -> Time {
        match due {
            Time::NEVER => Time::NEVER,
            due => self.clock + due.since(self.now),
        }
    }

    /// Time never runs backwards here, whatever the caller's clock does.
    fn advance(&mut self, now: Time) -> Time {
        self.now += now.since(self.clock);
        self.clock = now;
        self.now
    }

    fn context(&self, id: PeerId) -> Option<&Peer<P>> {
        self.peers.get(id.slot as usize).filter(|peer| peer.id == id)
    }

    /// The slot of the context with `addr`, if there is one.
    #[inline]
    fn known(&mut self, port: u8, addr: InstanceAddr) -> Option<u32> {
        if let Some((key, slot)) = self.last_peer
            && key == (port, addr)
        {
            return Some(slot);
        }
        let slot = *self.by_addr.get(&(port, addr))?;
        self.last_peer = Some(((port, addr), slot));
        Some(slot)
    }

    /// The slot of a new context; none if there is no room. `vouched`: it is not a stranger's.
    fn add_peer(&mut self, port: u8, addr: InstanceAddr, vouched: bool) -> Option<u32> {
        let full = self.peers.len() >= self.shared.config.max_peers as usize;
        let crowded = !vouched && self.strangers.len() >= MAX_STRANGERS;
        let slot = if full || crowded {
            let slot = match self.oldest_stranger() {
                None if !crowded => self.find_room()?,
                stranger => stranger?,
            };
            self.evict(slot);
            slot
        } else {
            self.peers.len() as u32
        };
        let own = self.shared.identities.toward(port, addr, 0);
        let generation = self.peers.get(slot as usize).map_or(0, |old| old.id.generation.wrapping_add(1));
        let id = PeerId { slot, generation };
        let mut peer = Peer::new(id, addr, port, own, 0, self.now, &mut self.shared);
        peer.vouched = vouched;
        match self.peers.get_mut(slot as usize) {
            Some(old) => {
                (peer.ready, peer.owing) = (old.ready, old.owing);
                *old = peer;
            }
            None => self.peers.push(peer),
        }
        if !vouched {
            self.strangers.push_back(slot);
        }
        self.shared.stats.peers_created += 1;
        self.by_addr.insert((port, addr), slot);
        Some(slot)
    }

    /// The context in `slot` makes way for another.
    fn evict(&mut self, slot: u32) {
        let old = &self.peers[slot as usize];
        if !old.is_unused() {
            self.shared.identities.forget();
        }
        self.by_addr.remove(&(old.port, old.addr));
        self.last_peer = None;
        self.timers.set(slot, Time::NEVER);
        self.shared.stats.peers_evicted += 1;
    }

    /// Takes the stranger that has been here longest, and of whose messages none is half taken, off the list.
    fn oldest_stranger(&mut self) -> Option<u32> {
        for _ in 0..self.strangers.len() {
            let slot = self.strangers.pop_front()?;
            let peer = &self.peers[slot as usize];
            if peer.vouched {
                continue; // a stranger no more
            }
            if !peer.partials.await_more() {
                return Some(slot);
            }
            self.strangers.push_back(slot);
        }
        None
    }

    /// Whether no other context is made for who has not proven where he is. Those that have, or are not there any more, are
    /// taken off the list.
    fn are_unproven_many(&mut self) -> bool {
        for _ in 0..LOOKS_FOR_ROOM {
            if self.unproven.len() < MAX_UNPROVEN {
                return false;
            }
            let id = self.unproven.pop_front().expect("there are many");
            let peer = &self.peers[id.slot as usize];
            if peer.id == id && !peer.proven {
                self.unproven.push_back(id);
            }
        }
        true
    }

    /// A context of a full table that may go.
    fn find_room(&mut self) -> Option<u32> {
        (0..LOOKS_FOR_ROOM.min(self.peers.len())).find_map(|_| {
            let slot = self.next_look % self.peers.len();
            self.next_look = slot + 1;
            self.peers[slot].may_go(self.now, &self.shared).then_some(slot as u32)
        })
    }

    fn make_ready(&mut self, slot: u32) {
        let peer = &mut self.peers[slot as usize];
        if !peer.ready {
            peer.ready = true;
            self.ready.push_back(slot);
        }
        if self.ready.len() > 1 && !peer.owing && peer.owes_ack(self.now, &self.shared) {
            peer.owing = true;
            self.owing.push_back(slot);
        }
    }

    /// The slot of the context that a packet belongs to; a new one, or a new incarnation's, if the packet introduces its
    /// sender and he has shown that he is at his address, or that he was given ours.
    fn identify<U: Upper<P>>(
        &mut self,
        port: u8,
        addr: InstanceAddr,
        known: Option<u32>,
        own: Incarnation,
        packet: &Packet<P>,
        upper: &mut U,
    ) -> Option<u32> {
        let named = packet.dst_tag == own.tag();
        let peer = known.map(|slot| &self.peers[slot as usize]);
        if let Some(remote) = peer.and_then(|peer| peer.remote)
            && remote.tag() == packet.src_tag
            // Without our tag the 64 bits of his incarnation, which only we are told, speak for him.
            && (named || packet.dst_tag == Tag::UNKNOWN && packet.hello.is_some_and(|hello| hello.incarnation == remote))
        {
            return known;
        }
        let Some(hello) = packet.hello else {
            self.shared.stats.unintroduced += 1;
            if named {
                // Its sender believes that we know it: whatever it has outstanding here is lost.
                self.reset(port, addr, own, packet.src_tag, packet.dst_tag, self.asker(known));
            }
            return None;
        };
        // The first context with an address belongs to whoever is there first. Later ones do not: a packet of a dead
        // process, late on its way, could end a live context, or bring a message a second time.
        if let Some(peer) = peer.filter(|peer| peer.ever_known) {
            let (next, asker) = (self.next_identity(known, own), self.asker(known));
            let number = self.shared.identities.question(port, addr, hello.incarnation, peer.id.generation);
            let answers = |echo: &Echo| echo.tx_count == Echo::PROBE && echo.psn == Psn(number);
            // In clear mode nobody was told that incarnation before; in sealed mode all are told the same.
            let answered = !self.shared.config.confirm_first
                || packet.ack.iter().flat_map(|ack| &ack.echoes).any(answers);
            if !answered || packet.dst_tag != next.tag() {
                self.shared.stats.replaced_incarnation += 1;
                let probe = Probe { path: PathId(0), number, stamp: self.now.stamp() };
                self.answer_stranger(asker, port, addr, next, &hello, None, Body::Probe(probe));
                if let Body::Probe(probe) = &packet.body {
                    // Both sides may be in doubt about each other.
                    self.answer_stranger(asker, port, addr, next, &hello, Some(probe), Body::None);
                }
                return None;
            }
            let slot = known?;
            if self.peers[slot as usize].remote.is_some() {
                self.replace(slot, upper);
            }
            self.peers[slot as usize].adopt(&hello, &mut self.shared);
            return Some(slot);
        }
        let vouched = match &packet.body {
            Body::Data(data) => upper.vouches(&data.op),
            _ => false,
        };
        let on_trust = !named && known.is_none() && !self.shared.config.confirm_first;
        if !named && (!vouched || on_trust && self.are_unproven_many()) {
            if !matches!(packet.body, Body::None) {
                self.shared.stats.unconfirmed += 1;
            }
            let probe = match &packet.body {
                Body::Probe(probe) => Some(probe),
                _ => None,
            };
            self.answer_stranger(self.asker(known), port, addr, own, &hello, probe, Body::None);
            return None;
        }
        let slot = match known {
            Some(slot) => slot,
            // In sealed mode only those who have the key get here.
            None => match self.add_peer(port, addr, vouched || self.shared.config.confirm_first) {
                Some(slot) => slot,
                None => {
                    self.shared.stats.peer_limit_drops += 1;
                    return None;
                }
            },
        };
        if on_trust {
            self.unproven.push_back(self.peers[slot as usize].id);
        }
        self.peers[slot as usize].adopt(&hello, &mut self.shared);
        Some(slot)
    }

    /// Who we, who are `own` to the address of the context in `known`, shall be to the next process there: somebody else
    /// than to the one that is known, if one is.
    fn next_identity(&self, known: Option<u32>, own: Incarnation) -> Incarnation {
        match known.map(|slot| &self.peers[slot as usize]) {
            Some(peer) if peer.remote.is_some() => {
                self.shared.identities.toward(peer.port, peer.addr, peer.life + 1)
            }
            _ => own,
        }
    }

    /// Whether a packet of the peer in `slot` belongs to the context that goes on. Where the peer has begun another, because it
    /// has given us up, so do we.
    #[inline]
    fn is_of_context<U: Upper<P>>(&mut self, slot: u32, hello: Option<&Hello>, upper: &mut U) -> bool {
        let peer = &mut self.peers[slot as usize];
        match hello {
            None if peer.joined => return true,
            Some(hello) if hello.context == peer.context => {
                peer.joined = true;
                return true;
            }
            Some(hello) if hello.context.wrapping_sub(peer.context) < u16::MAX / 2 => {
                self.follow(slot, hello.context, upper);
                return true;
            }
            _ => {}
        }
        // It does not know yet that we have given it up.
        self.shared.stats.replaced_incarnation += 1;
        peer.knows_context = false;
        peer.revive(self.now);
        peer.answer_introduction(self.now, &self.shared);
        self.make_ready(slot);
        false
    }

    /// The peer in `slot` has begun context number `context` with us.
    #[cold]
    fn follow<U: Upper<P>>(&mut self, slot: u32, context: u16, upper: &mut U) {
        let shared = &mut self.shared;
        shared.stats.given_up_by_peers += 1;
        let peer = &mut self.peers[slot as usize];
        let mut old = peer.begin_context(self.now, context, shared);
        peer.joined = true;
        old.end(self.now, Status::RemoteAbort, PeerLoss::GivenUp, shared, upper);
        self.timers.set(slot, Time::NEVER);
    }

    /// The process at this address has restarted: the context ends, and a new one takes its slot.
    fn replace<U: Upper<P>>(&mut self, slot: u32, upper: &mut U) {
        let own = self.next_identity(Some(slot), self.peers[slot as usize].own);
        let shared = &mut self.shared;
        shared.stats.peer_restarts += 1;
        shared.stats.peers_created += 1;
        let old = &mut self.peers[slot as usize];
        if old.busy() {
            shared.stats.impaired_remote_conn_events += 1;
        }
        let id = PeerId { slot, generation: old.id.generation.wrapping_add(1) };
        let mut new = Peer::new(id, old.addr, old.port, own, 0, self.now, shared);
        new.life = old.life + 1;
        (new.ready, new.owing) = (old.ready, old.owing);
        (new.named, new.vouched, new.proven) = (old.named, old.vouched, old.proven);
        (new.ever_known, new.counters) = (old.ever_known, old.counters);
        let mut old = std::mem::replace(&mut self.peers[slot as usize], new);
        old.end(self.now, Status::RemoteAbort, PeerLoss::Restarted, shared, upper);
        self.timers.set(slot, Time::NEVER);
    }

    /// Tells an instance with which there is no context who we are, and echoes the `probe` with which it has asked: nothing
    /// has been received of the context that it names. Nothing of it is remembered here.
    #[allow(clippy::too_many_arguments)]
    fn answer_stranger(
        &mut self,
        asker: Asker,
        port: u8,
        addr: InstanceAddr,
        own: Incarnation,
        hello: &Hello,
        probe: Option<&Probe>,
        body: Body<P>,
    ) {
        if !self.replies.has_room(asker) {
            return;
        }
        let ack = probe.map(|probe| {
            let echo = Echo {
                path: probe.path,
                tx_count: Echo::PROBE,
                hold: Hold::TOO_LONG,
                psn: Psn(probe.number),
                stamp: probe.stamp,
            };
            let cum = first_psn(hello.incarnation, hello.context);
            Ack { cum, echoes: [echo].into_iter().collect(), ..Ack::default() }
        });
        let (who, tag) = (hello.incarnation, hello.incarnation.tag());
        let ours = introduction(&self.shared, own, 0, 0);
        self.reply(asker, port, addr, own, Some(who), tag, Some(ours), ack, body);
    }

    fn on_reset<U: Upper<P>>(&mut self, known: Option<u32>, packet: &Packet<P>, stale: Tag, upper: &mut U) {
        let current = |slot: &u32| {
            let peer = &self.peers[*slot as usize];
            peer.remote.is_some() && peer.remote_tag == stale && packet.dst_tag == peer.own.tag()
        };
        let Some(slot) = known.filter(current) else {
            self.shared.stats.resets_ignored += 1;
            return;
        };
        let peer = &mut self.peers[slot as usize];
        if stale == packet.src_tag {
            // It is whom we mean, but does not know us, or did not when it sent this: an instance that lives forgets
            // nobody, but may have no key for us any more. Introduce ourselves again; the context goes on.
            peer.knows_us = false;
            peer.introduce_at = self.now;
            self.make_ready(slot);
        } else {
            self.replace(slot, upper);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn reply(
        &mut self,
        asker: Asker,
        port: u8,
        to: InstanceAddr,
        own: Incarnation,
        peer_incarnation: Option<Incarnation>,
        dst_tag: Tag,
        hello: Option<Hello>,
        ack: Option<Ack>,
        body: Body<P>,
    ) {
        let packet = Packet {
            src_port: self.shared.ports[port as usize],
            dst_tag,
            src_tag: own.tag(),
            hello,
            ack: ack.map(Into::into),
            body,
        };
        let peer = PeerId { slot: u32::MAX, generation: 0 };
        // Each another way: one may be dead, and a stranger asks until an answer comes.
        self.reply_turn = self.reply_turn.wrapping_add(1);
        let entropy = self.reply_turn % self.shared.config.entropy;
        self.replies.add(asker, Transmit { peer, to, peer_incarnation, entropy, pad_to: 0, packet });
    }
}
