//! One device instance: its peers and who of them has work. Who gets a context with it is decided in `admission.rs`.

mod admission;

use crate::identity::Identities;
use crate::messages::Purpose;
use crate::peer::Peer;
use crate::replies::Replies;
use crate::shared::Shared;
use crate::timer_wheel::TimerWheel;
use crate::{Config, Event, PathReport, Payload, PeerCounters, PeerId, Stats, Token, Tracer, UpperLayer};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use srd_wire::{Body, Gid, Incarnation, InstanceAddr, KeyedHash, MsgId, Nanos, Op, Packet, Psn, Time};
use std::collections::{HashMap, VecDeque};

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

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a, P> {
    /// When it came to the network card: what the host takes to look at it is not taken for the network's.
    pub arrived: Time,
    /// When the host looks at it: not before that can a program answer.
    pub seen: Time,
    /// The host that it comes from.
    pub from: Gid,
    /// What it says.
    pub packet: &'a Packet<P>,
    /// Size of its datagram.
    pub bytes: usize,
    /// Whether it carried a congestion mark.
    pub ce: bool,
    /// Whether it is a data packet whose payload a switch has cut off ([`srd_wire::codec::decode_cut`]); `packet` has none then.
    pub cut: bool,
}

impl<'a, P> Received<'a, P> {
    /// A whole one without a mark, looked at when it came.
    pub fn new(now: Time, from: Gid, packet: &'a Packet<P>, bytes: usize) -> Received<'a, P> {
        Received { arrived: now, seen: now, from, packet, bytes, ce: false, cut: false }
    }
}

/// Packets that leave or came with the one before them. Each has the next PSN and begins where the one before it ends; in all else they
/// say the same as that.
#[derive(Clone, Copy, Debug)]
pub struct Followers {
    /// Number of the first.
    pub psn: Psn,
    /// Where in the message its payload begins.
    pub offset: u32,
    /// Bytes of payload of each.
    pub len: u16,
    /// How many they are.
    pub count: u32,
    /// Size of each datagram.
    pub bytes: usize,
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
    /// Contexts made for peers that nobody had vouched for, in the order of their making.
    strangers: VecDeque<u32>,
    /// Contexts made for peers that had not proven where they are.
    unproven: VecDeque<u32>,
    /// Where the next search for a context that may go begins.
    next_look: usize,
    /// The peer of the last packet: packets come in bursts.
    last_peer: Option<((u8, InstanceAddr), u32)>,
    /// Peers that may have something to send.
    ready: VecDeque<u32>,
    /// Those of them that have an acknowledgement due: it goes before data of others, whose windows would stand still for
    /// want of it.
    ack_queue: VecDeque<u32>,
    /// The peer whose train leaves, while nothing else happens here.
    train: Option<u32>,
    /// The peer and the message of the packet that has come last, where others may follow it; likewise.
    coming: Option<(u32, MsgId)>,
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
        let hash = KeyedHash::new(seed ^ incarnation.0);
        Endpoint {
            shared: Shared::new(config, identities, hash, ports, SmallRng::seed_from_u64(seed)),
            incarnation,
            peers: Vec::new(),
            by_addr: HashMap::with_hasher(hash),
            strangers: VecDeque::new(),
            unproven: VecDeque::new(),
            next_look: 0,
            last_peer: None,
            ready: VecDeque::new(),
            ack_queue: VecDeque::new(),
            train: None,
            coming: None,
            timers: TimerWheel::new(),
            replies: Replies::new(),
            reply_turn: 0,
            clock: Time(0),
            now: Time(0),
        }
    }

    /// From now on `tracer` is told what the transport decides, as it decides it ([`crate::EVENTS`]); `None`: nobody is.
    pub fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.train = None;
        self.shared.trace.set(tracer);
    }

    /// Lets this instance talk to itself at `gid`. From elsewhere its own packets are refused: they have been sent back.
    pub fn allow_self(&mut self, gid: Gid) {
        self.shared.own_host = Some(gid);
    }

    /// How many peers send to this instance now over its link.
    pub fn senders(&self, now: Time) -> u16 {
        self.shared.load.on_link(self.now + now.since(self.clock), self.shared.config.base_rtt)
    }

    /// Those of them of which more is awaited, for whoever can tell others only a while later: a single packet is over then.
    pub fn awaited_senders(&self, now: Time) -> u16 {
        self.shared.load.awaited(self.now + now.since(self.clock), self.shared.config.base_rtt)
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
            window_bytes: peer.outgoing.as_ref().map_or(0, |out| out.controller.send_limits().window_bytes),
            silent: peer.liveness.dead,
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
        self.train = None;
        self.peers.iter_mut().filter(|peer| peer.addr.gid == gid).for_each(|peer| peer.mtu.limit(bytes));
    }

    /// Whether nothing is in flight and nothing waits, towards any living peer.
    pub fn is_quiet(&self) -> bool {
        self.peers.iter().all(|peer| peer.liveness.dead || !peer.busy())
    }

    /// The context with `to`, seen from our port number `port`; made if there is none.
    pub fn connect(&mut self, now: Time, port: u8, to: InstanceAddr) -> Result<PeerId, SendError> {
        self.advance(now);
        let slot = match self.by_addr.get(&(port, to)) {
            Some(&slot) => slot,
            None => self.add_peer(port, to, true, None).ok_or(SendError::TooManyPeers)?,
        };
        let peer = &mut self.peers[slot as usize];
        peer.standing.name();
        Ok(peer.id)
    }

    /// The context of whoever has sent from `to` to our port number `port`, for an answer: unlike [`Endpoint::connect`] this does
    /// not say that our program wants to talk to him, who may have forged his address.
    pub fn context_of(&self, port: u8, to: InstanceAddr) -> Option<PeerId> {
        self.by_addr.get(&(port, to)).map(|&slot| self.peers[slot as usize].id)
    }

    /// How many messages are under way to a peer of whom nobody knows whether it is where it says; `None` if that is known.
    pub fn unproven(&self, peer: PeerId) -> Option<usize> {
        let peer = self.context(peer)?;
        (!peer.standing.proven).then(|| peer.messages.upper_len())
    }

    /// Queues a message. Its outcome comes through [`UpperLayer::outcome`], once.
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
        peer.standing.proven |= matches!(op, Op::ReadResponse { .. });
        if !peer.busy() {
            peer.liveness.waiting_since = now;
        }
        peer.last_active = now;
        peer.revive(now);
        let bytes = payload.len() as u32;
        peer.messages.add(Purpose::UpperLayer(token), op, payload, None);
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

    /// The memory of messages to `peer` goes: those that have left whole and wait for their acknowledgement only are sent again, where
    /// they must be, from what `copy` gives for their token, if it gives something.
    pub fn keep(&mut self, peer: PeerId, copy: &mut dyn FnMut(Token) -> Option<P>) {
        if self.context(peer).is_some() {
            self.peers[peer.slot as usize].messages.replace_sent(copy);
        }
    }

    /// The token of the message that packets to `peer` call `id`; `None` if its outcome is known or nobody waits for it.
    pub fn token_of(&self, peer: PeerId, id: MsgId) -> Option<Token> {
        self.context(peer)?.messages.token_of(id)
    }

    /// A packet has arrived at our port number `port`, and is looked at now. Whether others may follow it
    /// ([`Endpoint::handle_followers`]).
    pub fn handle_packet<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        port: u8,
        received: Received<'_, P>,
        upper: &mut U,
    ) -> bool {
        let late = now.since(received.arrived);
        let now = self.advance(now);
        self.shared.arrived = Time(now.0.saturating_sub(late.0));
        self.shared.seen = received.seen.max(now);
        let Some((slot, named)) = self.admit(port, &received, upper) else { return false };
        let (shared, peer) = (&mut self.shared, &mut self.peers[slot as usize]);
        peer.hear(now, named, received.packet, shared, upper);
        shared.stats.rx_pkts += 1;
        if peer.incompatible {
            peer.end_incompatible(now, shared, upper);
        } else if peer.open(shared) {
            peer.take(now, &received, shared, upper);
            self.coming = peer.followed(&received).map(|message| (slot, message));
        } else {
            if !matches!(received.packet.body, Body::None) {
                shared.stats.unconfirmed += 1;
            }
            peer.arrivals.ack_by(now); // answer with a hello
            peer.hello.at = now;
        }
        self.make_ready(slot);
        self.coming.is_some()
    }

    /// Packets have come with the one that [`Endpoint::handle_packet`] said others may follow; `payload` gives that of each. How many have
    /// been taken: the others must be handled as any other packet.
    #[inline]
    pub fn handle_followers<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        followers: &Followers,
        payload: impl Fn(u32) -> P,
        upper: &mut U,
    ) -> u32 {
        let Some((slot, message)) = self.coming.filter(|_| now == self.clock) else { return 0 };
        let peer = &mut self.peers[slot as usize];
        let taken = peer.take_followers(message, followers, payload, &mut self.shared, upper);
        if taken > 0 {
            self.make_ready(slot);
        }
        taken
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
        while let Some(slot) = self.ack_queue.pop_front() {
            let peer = &mut self.peers[slot as usize];
            peer.in_ack_queue = false;
            if peer.ack_pending(now, &self.shared)
                && let Some(result) = peer.poll_transmit(now, &mut self.shared, &mut sink)
            {
                return Some(result);
            }
        }
        while let Some(&slot) = self.ready.front() {
            let peer = &mut self.peers[slot as usize];
            if let Some(result) = peer.poll_transmit(now, &mut self.shared, &mut sink) {
                if now >= peer.look_again {
                    // Who always has something to send must look for losses, too.
                    peer.look_again = now + Nanos(LOOK_AGAIN * self.shared.config.base_rtt.0);
                    let deadline = peer.deadline(&self.shared);
                    self.timers.set(slot, deadline);
                }
                self.train = peer.train.is_some().then_some(slot);
                self.end_burst(slot);
                return Some(result);
            }
            self.ready.pop_front();
            peer.ready = false;
            let deadline = peer.deadline(&self.shared);
            self.timers.set(slot, deadline);
        }
        None
    }

    /// Packets that go where the one that [`Endpoint::poll_transmit_with`] has just given out goes, and say the same but for PSN, offset
    /// and payload: at most `most`, given to `sink` with the payload of all that it is given. What is not asked for in this way is given
    /// out whole, one by one.
    #[inline]
    pub fn poll_followers(&mut self, now: Time, most: usize, mut sink: impl FnMut(Followers, &P)) {
        if let Some(slot) = self.train.filter(|_| now == self.clock) {
            self.peers[slot as usize].poll_followers(self.now, most, &mut self.shared, &mut sink);
            self.end_burst(slot);
        }
    }

    /// After a packet of the peer at the head: if its burst is over, it is the next one's turn.
    #[inline]
    fn end_burst(&mut self, slot: u32) {
        if self.peers[slot as usize].burst.is_over() && self.ready.len() > 1 {
            self.train = None;
            self.ready.rotate_left(1);
        }
    }

    /// Work that is due by the clock. Call when [`Endpoint::next_timeout`] has come (earlier does no harm).
    pub fn handle_timeout<U: UpperLayer<P>>(&mut self, now: Time, upper: &mut U) {
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

    /// Towards whom a message has failed since the last call of this because its packets did not get through, though others did: a part of the
    /// way takes shorter ones than before, and nobody says so.
    pub fn take_unsendable(&mut self) -> Option<InstanceAddr> {
        self.shared.unsendable.take()
    }

    /// Nobody receives at `addr` any more, as somebody says who knows: what is under way there has failed, now and not
    /// after the time limit.
    pub fn peer_is_gone<U: UpperLayer<P>>(&mut self, now: Time, addr: InstanceAddr, upper: &mut U) {
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
    #[inline]
    pub fn next_timer(&self) -> Time {
        self.by_clock(self.timers.next())
    }

    /// Whether anybody may have something to send now. Who has not may still wait for
    /// [`Endpoint::poll_transmit`], to see when he wants attention next: that can be left for later.
    #[inline]
    pub fn has_to_send(&self, now: Time) -> bool {
        let now = self.now + now.since(self.clock);
        let has_to_send = |&slot: &u32| self.peers[slot as usize].has_to_send(now, &self.shared);
        self.replies.due() <= now || self.ready.len() > 1 || self.ready.front().is_some_and(has_to_send)
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
        (self.train, self.coming) = (None, None);
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

    fn make_ready(&mut self, slot: u32) {
        let peer = &mut self.peers[slot as usize];
        if !peer.ready {
            peer.ready = true;
            self.ready.push_back(slot);
        }
        if self.ready.len() > 1 && !peer.in_ack_queue && peer.ack_pending(self.now, &self.shared) {
            peer.in_ack_queue = true;
            self.ack_queue.push_back(slot);
        }
    }
}
