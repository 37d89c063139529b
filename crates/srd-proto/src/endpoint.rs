//! One device instance: its peers, who of them has work, and who is who.

use crate::messages::Purpose;
use crate::peer::{Candidate, Peer, Shared, introduction};
use crate::timer_wheel::TimerWheel;
use crate::{
    Config, Event, PathReport, Payload, PeerCounters, PeerId, PeerLoss, Stats, Token, Tracer, Upper,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_wire::{
    Ack, Body, Echo, Gid, Hello, Hold, Incarnation, InstanceAddr, MsgId, Nanos, Op, Packet, PathId, Probe,
    Psn, Status, Tag, Time, first_psn,
};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

/// Most resets and introductions that wait to be sent to strangers.
const MAX_REPLIES: usize = 64;
/// Contexts looked at, where the table is full, to find one that may go.
const LOOKS_FOR_ROOM: usize = 64;
/// Least time between two replies to strangers: they are answers to what anyone may send.
const REPLY_PAUSE: Nanos = Nanos::from_micros(20);

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

/// Peers by address. The keys come from the network, so that the table is keyed against collisions, from the seed.
#[derive(Clone)]
struct AddressHash(u64);

impl BuildHasher for AddressHash {
    type Hasher = AddressHasher;
    fn build_hasher(&self) -> AddressHasher {
        AddressHasher(self.0)
    }
}

/// Multiply and fold (as in wyhash), keyed by the seed.
struct AddressHasher(u64);

impl std::hash::Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.write_u64(u64::from_le_bytes(word)));
        rest.iter().for_each(|&byte| self.write_u8(byte));
    }

    fn write_u64(&mut self, word: u64) {
        let product = (self.0 ^ word) as u128 * 0xA076_1D64_78BD_642F;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(n as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n as u64);
    }
}

/// See the module.
pub struct Endpoint<P: Payload> {
    shared: Shared,
    peers: Vec<Peer<P>>,
    by_addr: HashMap<(u8, InstanceAddr), u32, AddressHash>,
    /// Host from which this instance's own packets are welcome.
    own: Option<Gid>,
    /// Where the next search for a context that may go begins.
    next_look: usize,
    /// Number of new contexts: above those of contexts that have gone, whose PSNs their peers may remember.
    first_context: u16,
    /// The peer of the last packet: packets come in bursts.
    last_peer: Option<((u8, InstanceAddr), u32)>,
    /// Peers that may have something to send.
    ready: VecDeque<u32>,
    /// Those of them that have an acknowledgement due: it goes before data of others, whose windows would stand still for
    /// want of it.
    owing: VecDeque<u32>,
    timers: TimerWheel,
    /// Answers to packets that belong to no context.
    replies: VecDeque<Transmit<P>>,
    reply_turn: u16,
    next_reply: Time,
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
        Endpoint {
            shared: Shared::new(config, incarnation, ports, SmallRng::seed_from_u64(seed)),
            peers: Vec::new(),
            by_addr: HashMap::with_hasher(AddressHash(seed ^ incarnation.0)),
            own: None,
            next_look: 0,
            first_context: 0,
            last_peer: None,
            ready: VecDeque::new(),
            owing: VecDeque::new(),
            timers: TimerWheel::new(),
            replies: VecDeque::new(),
            reply_turn: 0,
            next_reply: Time(0),
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
        self.own = Some(gid);
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

    /// This instance's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
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
        match self.by_addr.get(&(port, to)) {
            Some(&slot) => Ok(self.peers[slot as usize].id),
            None => self.add_peer(port, to).ok_or(SendError::TooManyPeers),
        }
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
            return Err(SendError::Full);
        }
        let peer = &mut self.peers[slot as usize];
        peer.outgoing(&mut self.shared);
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
        let ours = self.shared.incarnation.tag();
        let addr = InstanceAddr { gid: from, port: packet.src_port };
        if packet.src_tag == ours && self.own != Some(from) {
            self.shared.stats.reflected += 1;
            return;
        }
        if let Body::Reset { stale } = packet.body {
            return self.on_reset(port, addr, packet, stale, upper);
        }
        if packet.dst_tag != Tag::UNKNOWN && packet.dst_tag != ours {
            self.shared.stats.stale_incarnation += 1;
            return self.reset(port, addr, packet.src_tag, packet.dst_tag);
        }
        let Some(slot) = self.identify(port, addr, packet, upper) else { return };
        let shared = &mut self.shared;
        let peer = &mut self.peers[slot as usize];
        // An introduction, alone or with a probe, may be the question to a stranger, from an instance that has no
        // context with us; where contexts need keys, only an instance that has made one can name us at all.
        let out_of_context = packet.ack.is_some() || matches!(packet.body, Body::Data(_));
        if packet.dst_tag == ours && (out_of_context || shared.config.confirm_first) {
            peer.knows_us = true;
        }
        if let Some(hello) = &packet.hello
            && hello.context != peer.remote_context
        {
            if hello.context.wrapping_sub(peer.remote_context) > u16::MAX / 2 {
                shared.stats.replaced_incarnation += 1;
                return;
            }
            peer.restart_receiving(hello, upper);
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
        self.reset(port, from, src_tag, dst_tag);
    }

    fn reset(&mut self, port: u8, from: InstanceAddr, src_tag: Tag, dst_tag: Tag) {
        if dst_tag == Tag::UNKNOWN || src_tag == Tag::UNKNOWN {
            return;
        }
        self.shared.stats.resets_sent += 1;
        // In sealed mode only an introduction opens without a context.
        let hello = self.shared.config.confirm_first.then(|| self.introduction(port, from, 0));
        self.reply(port, from, None, src_tag, hello, None, Body::Reset { stale: dst_tag });
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
        if now >= self.next_reply
            && let Some(reply) = self.replies.pop_front()
        {
            self.next_reply = now + REPLY_PAUSE;
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

    /// When [`Endpoint::handle_timeout`] and [`Endpoint::poll_transmit`] want to be called next;
    /// [`Time::NEVER`] if nothing is due. May be early, never late.
    pub fn next_timeout(&self) -> Time {
        if !self.ready.is_empty() {
            return self.clock;
        }
        let replies = if self.replies.is_empty() { Time::NEVER } else { self.next_reply };
        self.by_clock(self.timers.next().min(replies))
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

    fn add_peer(&mut self, port: u8, addr: InstanceAddr) -> Option<PeerId> {
        if self.peers.len() < self.shared.config.max_peers as usize {
            let id = PeerId { slot: self.peers.len() as u32, generation: 0 };
            self.peers.push(Peer::new(id, addr, port, self.first_context, self.now, &mut self.shared));
            self.shared.stats.peers_created += 1;
            self.by_addr.insert((port, addr), id.slot);
            return Some(id);
        }
        let slot = self.find_room()?;
        let old = &self.peers[slot as usize];
        let id = PeerId { slot, generation: old.id.generation.wrapping_add(1) };
        let (ready, owing) = (old.ready, old.owing);
        if old.has_sent() {
            self.first_context = self.first_context.max(old.context.wrapping_add(1));
        }
        self.by_addr.remove(&(old.port, old.addr));
        self.last_peer = None;
        let mut peer = Peer::new(id, addr, port, self.first_context, self.now, &mut self.shared);
        (peer.ready, peer.owing) = (ready, owing);
        self.peers[slot as usize] = peer;
        self.timers.set(slot, Time::NEVER);
        self.shared.stats.peers_created += 1;
        self.shared.stats.peers_evicted += 1;
        self.by_addr.insert((port, addr), slot);
        Some(id)
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

    /// The context that a packet belongs to; a new one, or a new incarnation's, if the packet introduces it.
    fn identify<U: Upper<P>>(
        &mut self,
        port: u8,
        addr: InstanceAddr,
        packet: &Packet<P>,
        upper: &mut U,
    ) -> Option<u32> {
        let known = match self.last_peer {
            Some((key, slot)) if key == (port, addr) => Some(slot),
            _ => self.by_addr.get(&(port, addr)).copied(),
        };
        if let Some(slot) = known {
            self.last_peer = Some(((port, addr), slot));
            let peer = &self.peers[slot as usize];
            if peer.remote.is_some() && peer.remote_tag == packet.src_tag {
                return Some(slot);
            }
        }
        let candidate = known
            .and_then(|slot| self.peers[slot as usize].candidate)
            .filter(|candidate| candidate.hello.incarnation.tag() == packet.src_tag);
        let Some(hello) = packet.hello.or(candidate.map(|candidate| candidate.hello)) else {
            self.shared.stats.unintroduced += 1;
            // Its sender believes that we know it: whatever it has outstanding here is lost.
            self.reset(port, addr, packet.src_tag, packet.dst_tag);
            return None;
        };
        let slot = match known {
            Some(slot) => slot,
            None => match self.add_peer(port, addr) {
                Some(id) => id.slot,
                None => {
                    self.shared.stats.peer_limit_drops += 1;
                    return None;
                }
            },
        };
        let peer = &self.peers[slot as usize];
        // The first context with an address belongs to whoever introduces itself first. Later ones do not: a packet of a
        // dead process, late on its way, could end a live context, or bring a message a second time.
        if peer.ever_known {
            let answers = |number: u32| {
                let echoes = packet.ack.iter().flat_map(|ack| &ack.echoes);
                echoes.into_iter().any(|echo| echo.tx_count == Echo::PROBE && echo.psn == Psn(number))
            };
            if !candidate.is_some_and(|candidate| answers(candidate.number)) {
                self.shared.stats.replaced_incarnation += 1;
                self.ask_candidate(slot, candidate, hello);
                if let Body::Probe(probe) = &packet.body {
                    self.answer_question(slot, &hello, probe); // both sides may be in doubt about each other
                }
                return None;
            }
        }
        if peer.remote.is_some() {
            self.replace(slot, upper);
        }
        self.peers[slot as usize].adopt(&hello, &mut self.shared);
        Some(slot)
    }

    /// The process at this address has restarted: the context ends, and a new one takes its slot.
    fn replace<U: Upper<P>>(&mut self, slot: u32, upper: &mut U) {
        let shared = &mut self.shared;
        shared.stats.peer_restarts += 1;
        shared.stats.peers_created += 1;
        let old = &mut self.peers[slot as usize];
        if old.busy() {
            shared.stats.impaired_remote_conn_events += 1;
        }
        let id = PeerId { slot, generation: old.id.generation.wrapping_add(1) };
        let context = old.context.wrapping_add(1);
        let mut new = Peer::new(id, old.addr, old.port, context, self.now, shared);
        (new.ready, new.owing) = (old.ready, old.owing);
        new.ever_known = old.ever_known;
        let mut old = std::mem::replace(&mut self.peers[slot as usize], new);
        old.end(self.now, Status::RemoteAbort, PeerLoss::Restarted, shared, upper);
        self.timers.set(slot, Time::NEVER);
    }

    /// Asks the process that has introduced itself at the address of the context in `slot` for a sign of life.
    fn ask_candidate(&mut self, slot: u32, candidate: Option<Candidate>, hello: Hello) {
        if candidate.is_some_and(|candidate| self.now < candidate.ask_at) {
            return;
        }
        let number = candidate.map_or_else(|| self.shared.rng.random(), |candidate| candidate.number);
        let ask_at = self.now + self.shared.config.min_rto;
        let peer = &mut self.peers[slot as usize];
        peer.candidate = Some(Candidate { hello, number, ask_at });
        let (port, addr) = (peer.port, peer.addr);
        let ours = self.introduction(port, addr, hello.incarnation.0);
        let probe = Probe { path: PathId(0), number, stamp: self.now.stamp() };
        self.reply(
            port,
            addr,
            Some(hello.incarnation),
            hello.incarnation.tag(),
            Some(ours),
            None,
            Body::Probe(probe),
        );
    }

    /// Answers the question of an instance that is not the peer of the context in `slot`: nothing has been received of
    /// the context that it names.
    fn answer_question(&mut self, slot: u32, hello: &Hello, probe: &Probe) {
        let peer = &self.peers[slot as usize];
        let (port, addr) = (peer.port, peer.addr);
        let echo = Echo {
            path: probe.path,
            tx_count: Echo::PROBE,
            hold: Hold::TOO_LONG,
            psn: Psn(probe.number),
            stamp: probe.stamp,
        };
        let cum = first_psn(hello.incarnation, hello.context);
        let ack = Ack { cum, echoes: [echo].into_iter().collect(), ..Ack::default() };
        let ours = self.introduction(port, addr, hello.incarnation.0);
        let (incarnation, tag) = (hello.incarnation, hello.incarnation.tag());
        self.reply(port, addr, Some(incarnation), tag, Some(ours), Some(ack), Body::None);
    }

    fn on_reset<U: Upper<P>>(
        &mut self,
        port: u8,
        addr: InstanceAddr,
        packet: &Packet<P>,
        stale: Tag,
        upper: &mut U,
    ) {
        let ours = self.shared.incarnation.tag();
        let slot = self.by_addr.get(&(port, addr)).copied();
        let current = slot.is_some_and(|slot| {
            let peer = &self.peers[slot as usize];
            peer.remote.is_some() && peer.remote_tag == stale
        });
        let Some(slot) = slot.filter(|_| current && packet.dst_tag == ours) else {
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

    /// An introduction to an instance with which there may be a context.
    fn introduction(&self, port: u8, to: InstanceAddr, echo: u64) -> Hello {
        let known = self.by_addr.get(&(port, to));
        let context = known.map_or(self.first_context, |&slot| self.peers[slot as usize].context);
        introduction(&self.shared, echo, context)
    }

    #[allow(clippy::too_many_arguments)]
    fn reply(
        &mut self,
        port: u8,
        to: InstanceAddr,
        peer_incarnation: Option<Incarnation>,
        dst_tag: Tag,
        hello: Option<Hello>,
        ack: Option<Ack>,
        body: Body<P>,
    ) {
        if self.replies.len() >= MAX_REPLIES {
            return;
        }
        let packet = Packet {
            src_port: self.shared.ports[port as usize],
            dst_tag,
            src_tag: self.shared.incarnation.tag(),
            hello,
            ack: ack.map(Into::into),
            body,
        };
        let peer = PeerId { slot: u32::MAX, generation: 0 };
        // Each another way: one may be dead, and a stranger asks until an answer comes.
        self.reply_turn = self.reply_turn.wrapping_add(1);
        let entropy = self.reply_turn % self.shared.config.entropy;
        self.replies.push_back(Transmit { peer, to, peer_incarnation, entropy, pad_to: 0, packet });
    }
}
