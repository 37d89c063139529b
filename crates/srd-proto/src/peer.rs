//! One peer context: identity, the sending half and the receiving half. The halves' rules lie in `sending` and
//! `receiving`; this file holds the state and what both share.

use crate::active_senders::{ActiveSenders, Counted};
use crate::arrivals::Arrivals;
use crate::controller::{CongestionController, controller};
use crate::events::{Event, Trace};
use crate::identity::Identities;
use crate::messages::{Messages, Purpose};
use crate::pacing::Pacer;
use crate::path_mtu::PathMtu;
use crate::paths::{PathReport, PathTable};
use crate::reassembly::Reassemblies;
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;
use crate::selector::{PathSelector, selector};
use crate::sent::SentPackets;
use crate::{Config, Payload, PeerCounters, PeerId, PeerLoss, Stats, Token, Transmit, UpperLayer};
use rand::Rng;
use rand::rngs::SmallRng;
use srd_wire::{
    AckBox, Body, Hello, Incarnation, InstanceAddr, KeyedHash, Nanos, Op, Packet, PathId, Probe, Psn, Stamp, Status,
    Tag, Time, VERSION, first_psn,
};
use std::collections::VecDeque;

/// What an endpoint's peers share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) identities: Identities,
    /// Of tables whose keys peers choose.
    pub(crate) hash: KeyedHash,
    pub(crate) ports: Vec<u16>,
    pub(crate) stats: Stats,
    pub(crate) rng: SmallRng,
    pub(crate) load: ActiveSenders,
    pub(crate) trace: Trace,
    /// When the packet that is being handled came to the network card.
    pub(crate) arrived: Time,
    /// Messages of more than one packet that are remembered, of all peers.
    pub(crate) reassemblies: usize,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        identities: Identities,
        hash: KeyedHash,
        ports: &[u16],
        rng: SmallRng,
    ) -> Shared {
        Shared {
            config,
            identities,
            hash,
            ports: ports.to_vec(),
            stats: Stats::default(),
            rng,
            load: ActiveSenders::default(),
            arrived: Time(0),
            reassemblies: 0,
            trace: Trace::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(config: Config) -> Shared {
        use rand::SeedableRng;
        let identities = Identities::new(Incarnation(1), 1, false);
        Shared::new(config, identities, KeyedHash::new(1), &[1], SmallRng::seed_from_u64(1))
    }

    /// Bytes by which sealing makes a packet longer, at most.
    fn seal_bytes(&self) -> u16 {
        if self.config.confirm_first { srd_wire::seal::overhead(true) as u16 } else { 0 }
    }
}

/// What only a context that sends needs; made at the first message.
pub(crate) struct Outgoing {
    pub(crate) paths: PathTable,
    pub(crate) selector: Box<dyn PathSelector>,
    pub(crate) controller: Box<dyn CongestionController>,
}

/// Introduces us as `own` to a peer of whose incarnation, in context number `context`, we know `echo` (0: nothing).
pub(crate) fn own_hello(shared: &Shared, own: Incarnation, echo: u64, context: u16) -> Hello {
    Hello {
        incarnation: own,
        echo,
        version_min: VERSION,
        version_max: VERSION,
        features: 0,
        context,
        max_datagram: shared.config.max_datagram,
        rcvbuf_kib: (shared.config.rcvbuf_bytes / 1024) as u32,
    }
}

/// Share of the receiver's socket buffer that all senders together may fill: the kernel charges a datagram with up to
/// twice its size.
const RCVBUF_SHARE: u64 = 2;

/// Probes that rarely wait in greater number.
const PROBES_AT_ONCE: usize = 16;

/// Bytes that may answer each of who may have forged his address (RFC 9000, section 8.1).
const ANSWER_FACTOR: u32 = 3;
/// Nothing leaves to him while less is left: a hello with an acknowledgement and a refusal.
const LONGEST_ANSWER: u32 = 144;

/// See the module.
pub(crate) struct Peer<P: Payload> {
    pub(crate) id: PeerId,
    pub(crate) addr: InstanceAddr,
    pub(crate) port: u8,
    /// Whether it is in the endpoint's queue of peers with something to send.
    pub(crate) ready: bool,
    /// In the queue of those that have an acknowledgement due.
    pub(crate) in_ack_queue: bool,

    // Identity.
    /// Who we are to this peer, and how many others there have been at its address since we know it.
    pub(crate) own: Incarnation,
    pub(crate) life: u32,
    /// Who it is. Known once it has shown that what we send reaches it, or that it has been given our address.
    pub(crate) remote: Option<Incarnation>,
    pub(crate) remote_tag: Tag,
    /// An instance has been known at this address, in this context or an earlier one.
    pub(crate) ever_known: bool,
    /// Our program wants to talk to this address.
    pub(crate) named: bool,
    /// It is at its address, or our program wants it, or it has known the key of memory of ours. Until then it is sent no more
    /// than [`ANSWER_FACTOR`] bytes for each of its own; of those, this many are left.
    pub(crate) proven: bool,
    pub(crate) credit: u32,
    /// Our program wants it, or the peer has known a queue key of ours.
    pub(crate) vouched: bool,
    /// Number of the context: 0 for a pair of incarnations, and one more each time that either has given the other up.
    pub(crate) context: u16,
    /// The peer has shown that it is in this context.
    pub(crate) joined: bool,
    /// It has shown that it knows our incarnation, and that it knows that we are in this context.
    pub(crate) hello_confirmed: bool,
    pub(crate) context_confirmed: bool,
    /// It has acknowledged something of ours.
    pub(crate) acknowledged: bool,
    /// The peer speaks no version of ours.
    pub(crate) incompatible: bool,
    /// Largest datagram that both ends can handle.
    pub(crate) max_datagram: u16,
    /// How much of that the network carries.
    pub(crate) mtu: PathMtu,
    /// Its receive buffer in bytes; 0 until it has said so.
    pub(crate) remote_rcvbuf: u64,
    /// When a hello may be sent again, and how many were sent.
    pub(crate) hello_at: Time,
    pub(crate) hellos_sent: u32,
    /// No introduction is answered for its own sake before this.
    answer_hello_at: Time,
    /// Last packet from it.
    pub(crate) last_heard: Time,

    // Sending.
    pub(crate) messages: Messages<P>,
    pub(crate) sent: SentPackets,
    pub(crate) lost: VecDeque<Psn>,
    /// Packets that have arrived and are not acknowledged (of refused messages), and when they are retransmitted.
    pub(crate) held: VecDeque<(Time, Psn)>,
    /// Path probes that are to leave.
    pub(crate) probes: VecDeque<Probe>,
    pub(crate) outgoing: Option<Box<Outgoing>>,
    pub(crate) rtt: RttEstimator,
    /// Sending time of the newest transmission known to have arrived.
    pub(crate) newest_delivered: Time,
    /// Probes sent into silence since the last answer.
    pub(crate) silent_probes: u32,
    /// The upper layer has been told of this silence.
    pub(crate) silence_told: bool,
    /// No further probe before this.
    pub(crate) quiet_until: Time,
    /// Nor are paths asked about silence before this, whatever has been heard: late answers to earlier questions would
    /// draw new ones without end.
    pub(crate) next_ask: Time,
    /// Since when something has been outstanding without an answer.
    pub(crate) waiting_since: Time,
    /// Packets that may leave whatever window and pacing say.
    pub(crate) urgent: u32,
    /// Stopped: the peer counts as dead; sending resumes with the next message or packet from it.
    pub(crate) dead: bool,
    pub(crate) pacer: Pacer,
    /// The window or the pacing, not a lack of messages, ended the last turn.
    pub(crate) window_limited: bool,
    pub(crate) burst_path: PathId,
    pub(crate) burst_left: u64,
    /// When its deadline is worked out again although it has not stopped sending.
    pub(crate) look_again: Time,
    /// Bytes that the message at the head may still send before the next one has its turn.
    pub(crate) turn_left: u32,
    /// Whether paths are FIFO.
    pub(crate) reordering: Reordering,
    /// Congestion marks that the peer has reported, low 16 bits.
    pub(crate) ce_count: u16,
    /// Receiver's byte count and clock at the last delivery sample, and the best rate of late (bytes per ns).
    pub(crate) delivered: Option<(u32, Stamp)>,
    pub(crate) delivery_rate: f64,
    /// Senders that the receiver serves, as it said last.
    pub(crate) receiver_senders: u16,
    /// Bytes that may be in flight for the receiver's sake: our share of its socket buffer.
    pub(crate) share_bytes: u64,

    // Receiving.
    pub(crate) arrivals: Arrivals,
    pub(crate) reassemblies: Reassemblies,
    /// How many of [`Shared::reassemblies`] are this peer's.
    reassemblies_counted: usize,
    /// Way back of what comes on path 0; see [`Peer::way_back`].
    ack_offset: u16,
    ack_turn: u16,
    pub(crate) counted: Counted,

    /// Last time anything was sent or received.
    pub(crate) last_active: Time,
    /// When data was sent last.
    pub(crate) data_sent: Time,
    pub(crate) counters: PeerCounters,
}

impl<P: Payload> Peer<P> {
    /// Context number `context` of us, as `own`, with the instance at `addr`.
    pub(crate) fn new(
        id: PeerId,
        addr: InstanceAddr,
        port: u8,
        own: Incarnation,
        context: u16,
        now: Time,
        shared: &mut Shared,
    ) -> Peer<P> {
        Peer {
            id,
            addr,
            port,
            ready: false,
            in_ack_queue: false,
            own,
            life: 0,
            remote: None,
            remote_tag: Tag::UNKNOWN,
            ever_known: false,
            named: false,
            proven: shared.config.confirm_first,
            credit: 0,
            vouched: false,
            context,
            joined: false,
            hello_confirmed: false,
            context_confirmed: false,
            acknowledged: false,
            incompatible: false,
            max_datagram: shared.config.max_datagram,
            mtu: PathMtu::new(shared.config.max_datagram, !shared.config.probe_path_mtu, shared.seal_bytes()),
            remote_rcvbuf: 0,
            hello_at: now,
            hellos_sent: 0,
            answer_hello_at: Time(0),
            last_heard: now,
            messages: Messages::new(shared.config.max_partial_per_peer),
            sent: SentPackets::new(first_psn(own, context)),
            held: VecDeque::new(),
            lost: VecDeque::new(),
            probes: VecDeque::new(),
            outgoing: None,
            rtt: RttEstimator::new(),
            newest_delivered: Time(0),
            silent_probes: 0,
            silence_told: false,
            quiet_until: Time(0),
            next_ask: Time(0),
            waiting_since: now,
            urgent: 0,
            dead: false,
            pacer: Pacer::default(),
            window_limited: false,
            burst_path: PathId(0),
            burst_left: 0,
            look_again: Time(0),
            turn_left: 0,
            reordering: Reordering::default(),
            ce_count: 0,
            delivered: None,
            delivery_rate: 0.0,
            receiver_senders: 0,
            share_bytes: u64::MAX,
            arrivals: Arrivals::new(Psn(0)),
            reassemblies: Reassemblies::new(shared.hash),
            reassemblies_counted: 0,
            ack_offset: shared.rng.random(),
            ack_turn: 0,
            counted: Counted::default(),
            last_active: now,
            data_sent: now,
            counters: PeerCounters::default(),
        }
    }

    /// A packet of `bytes` has come from the peer. `named`: it names us, whom only its address has been told.
    #[inline]
    pub(crate) fn prove(&mut self, named: bool, bytes: usize) {
        if !self.proven {
            self.proven = named;
            let more = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(ANSWER_FACTOR);
            self.credit = self.credit.saturating_add(more);
        }
    }

    /// Whether nothing more is sent before something else comes.
    #[inline]
    pub(crate) fn is_withheld(&self) -> bool {
        !self.proven && self.credit < LONGEST_ANSWER
    }

    /// When a peer to which nothing may be sent has been silent for too long.
    pub(crate) fn withheld_until(&self, shared: &Shared) -> Time {
        if self.dead { Time::NEVER } else { self.last_heard + shared.config.peer_timeout }
    }

    /// The sending half, made when first needed.
    #[inline]
    pub(crate) fn outgoing(&mut self, shared: &mut Shared) -> &mut Outgoing {
        if self.outgoing.is_none() {
            self.make_outgoing(shared);
        }
        self.outgoing.as_mut().expect("made just now")
    }

    #[cold]
    fn make_outgoing(&mut self, shared: &mut Shared) {
        if self.probes.capacity() == 0 {
            self.probes.reserve(PROBES_AT_ONCE);
        }
        self.outgoing = Some(Box::new(Outgoing {
            paths: PathTable::new(self.id, &shared.config, &mut shared.rng),
            selector: selector(&shared.config, shared.rng.random()),
            controller: controller(&shared.config, self.max_datagram as u32),
        }));
    }

    /// The peer's incarnation has become known.
    pub(crate) fn adopt(&mut self, hello: &Hello, shared: &mut Shared) {
        self.remote = Some(hello.incarnation);
        self.ever_known = true;
        self.remote_tag = hello.incarnation.tag();
        if !self.has_sent() {
            self.context = hello.context; // nothing is lost with ours
            self.sent = SentPackets::new(first_psn(self.own, self.context));
        }
        self.arrivals = Arrivals::new(first_psn(hello.incarnation, self.context));
        self.max_datagram = shared.config.max_datagram.min(hello.max_datagram);
        self.mtu.limit(self.max_datagram);
        self.remote_rcvbuf = hello.rcvbuf_kib as u64 * 1024;
        self.note_senders(1);
        if hello.version_min > VERSION || hello.version_max < VERSION {
            self.incompatible = true;
            shared.stats.version_mismatch += 1;
        }
    }

    /// The receiver serves so many senders.
    pub(crate) fn note_senders(&mut self, senders: u16) {
        self.receiver_senders = senders;
        if self.remote_rcvbuf > 0 {
            let share = self.remote_rcvbuf / RCVBUF_SHARE / senders.max(1) as u64;
            self.share_bytes = share.max(self.max_datagram as u64);
        }
    }

    /// Whether messages and their packets may flow (in sealed mode only once each side knows the other).
    pub(crate) fn open(&self, shared: &Shared) -> bool {
        !self.incompatible && (!shared.config.confirm_first || self.remote.is_some() && self.hello_confirmed)
    }

    /// Whether packets carry a hello. With data it goes on until something of this context has been
    /// acknowledged: the peer must have seen the context's number.
    pub(crate) fn carries_hello(&self, with_data: bool) -> bool {
        // Segments are cut for one or the other: what was acknowledged once needs no introduction ever after.
        if with_data {
            !self.acknowledged
        } else {
            !self.hello_confirmed || !self.context_confirmed || self.remote.is_none()
        }
    }

    /// The peer introduces itself: it does not know yet that we know it. All that it sends in its first round trip says so;
    /// answers that are nothing else keep a distance.
    pub(crate) fn answer_hello(&mut self, now: Time, shared: &Shared) {
        if now >= self.answer_hello_at {
            self.answer_hello_at = now + shared.config.ack_delay;
            self.arrivals.ack_by(now);
        } else {
            self.arrivals.ack_by(self.answer_hello_at);
        }
    }

    /// A packet for the wire.
    #[inline(always)]
    pub(crate) fn transmit(
        &mut self,
        shared: &mut Shared,
        entropy: u16,
        pad_to: u16,
        ack: Option<AckBox>,
        body: Body<P>,
    ) -> Transmit<P> {
        shared.stats.tx_pkts += 1;
        self.counters.tx_pkts += 1;
        let hello = self.carries_hello(matches!(body, Body::Data(_))).then(|| {
            let echo = self.remote.filter(|_| self.joined).map_or(0, |remote| remote.0);
            own_hello(shared, self.own, echo, self.context)
        });
        Transmit {
            peer: self.id,
            to: self.addr,
            // A key that needs both incarnations serves only once the peer knows ours.
            peer_incarnation: self.remote.filter(|_| self.hello_confirmed),
            entropy,
            pad_to,
            packet: Packet {
                src_port: shared.ports[self.port as usize],
                dst_tag: self.remote_tag,
                src_tag: self.own.tag(),
                hello,
                ack,
                body,
            },
        }
    }

    /// A hello or an ACK on its own.
    pub(crate) fn bare_transmit(&mut self, now: Time, shared: &mut Shared) -> Transmit<P> {
        let entropy = self.way_back(shared);
        let ack = if self.remote.is_some() && self.open(shared) && self.arrivals.ack_at != Time::NEVER {
            shared.stats.pure_acks_sent += 1;
            Some(self.arrivals.take_ack(now, shared.load.senders(now, shared.config.base_rtt)).into())
        } else {
            self.arrivals.clear_due(); // this packet is the answer
            None
        };
        self.transmit(shared, entropy, 0, ack, Body::None)
    }

    /// The source port of an ACK. The newest packet's path decides, so that each path of the peer's has a way back of its
    /// own (docs/design/path-selection.md, "The way of ACKs"): its round trips are alike, and a path whose way back is dead
    /// looks like a bad path, which the peer's selector leaves. What is said again, or says nothing of a path, takes another
    /// way each time.
    fn way_back(&mut self, shared: &Shared) -> u16 {
        let again = self.arrivals.repeats() || self.arrivals.echo_count() == 0;
        self.ack_turn = if again { self.ack_turn.wrapping_add(1) } else { self.ack_offset };
        let turn = self.ack_turn.wrapping_add(self.arrivals.newest_path().0 as u16) as u32;
        let Some(outgoing) = &self.outgoing else { return (turn % shared.config.entropy as u32) as u16 };
        let count = shared.config.paths as u32;
        let path = (0..count)
            .map(|i| PathId(((turn + i) % count) as u8))
            .find(|&path| outgoing.paths.usable().contains(path));
        outgoing.paths.get(path.unwrap_or_default()).entropy
    }

    /// A packet has come twice, so that an ACK may have been lost: from now on each path has another way back.
    pub(crate) fn change_way_back(&mut self) {
        self.ack_offset = self.ack_offset.wrapping_add(1);
    }

    /// Tells the upper layer what became of a message.
    pub(crate) fn complete<U: UpperLayer<P>>(
        &self,
        now: Time,
        token: Token,
        outcome: Result<(), Status>,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let status = outcome.err().unwrap_or(Status::Ok);
        shared.trace.emit(now, self.id, || Event::MessageCompleted { token: token.0, status });
        upper.outcome(self.id, token, outcome);
    }

    /// Begins context number `context` with the same instance and returns the old one, of which nothing is accepted any
    /// more in either direction: it is to be ended.
    pub(crate) fn begin_context(&mut self, now: Time, context: u16, shared: &mut Shared) -> Peer<P> {
        let id = PeerId { generation: self.id.generation.wrapping_add(1), ..self.id };
        let new = Peer::new(id, self.addr, self.port, self.own, context, now, shared);
        let old = std::mem::replace(self, new);
        (self.ready, self.in_ack_queue) = (old.ready, old.in_ack_queue);
        (self.named, self.vouched, self.life) = (old.named, old.vouched, old.life);
        (self.proven, self.credit) = (old.proven, old.credit);
        self.remote = old.remote;
        self.remote_tag = old.remote_tag;
        self.ever_known = old.ever_known;
        self.hello_confirmed = old.hello_confirmed;
        self.incompatible = old.incompatible;
        self.max_datagram = old.max_datagram;
        self.mtu = old.mtu.clone();
        self.remote_rcvbuf = old.remote_rcvbuf;
        self.note_senders(1);
        self.last_heard = old.last_heard;
        self.last_active = old.last_active;
        self.counted = old.counted;
        self.counters = old.counters;
        if let Some(remote) = self.remote {
            self.arrivals = Arrivals::new(first_psn(remote, context));
        }
        old
    }

    /// The peer is given up. Who has been known begins another context with it, and hears of that as soon as anything comes
    /// from it: so nothing is accepted in either direction of what has ended in the other. Who never was has nothing
    /// to be told: what is outstanding ends as skips, should it ever answer.
    pub(crate) fn give_up<U: UpperLayer<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        let answered_before = self.ever_known;
        let status = if answered_before { Status::Unresponsive } else { Status::Unreachable };
        let why = PeerLoss::Dead { answered_before };
        if self.remote.is_some() {
            let mut old = self.begin_context(now, self.context.wrapping_add(1), shared);
            self.messages.add(Purpose::Forget, Op::Skip, P::empty(), None);
            old.end(now, status, why, shared, upper);
        } else {
            self.end(now, status, why, shared, upper);
            self.messages.purge();
        }
        // Whoever showed a key may never have been there.
        self.vouched &= self.proven;
        self.dead = true;
    }

    /// Ends what is under way: messages with `status`, what was coming in is abandoned.
    pub(crate) fn end<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        status: Status,
        why: PeerLoss,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let open: Vec<u32> = self.messages.open().collect();
        for slot in open {
            let token = self.messages.token(slot);
            self.close_message(slot);
            if let Some(token) = token {
                self.complete(now, token, Err(status), shared, upper);
            }
        }
        for partial in self.reassemblies.drain() {
            if let Some(cookie) = partial.cookie {
                upper.abandon(cookie, &partial.head);
            }
        }
        self.count_reassemblies(shared);
        // Of strangers the upper layer knows nothing.
        if self.vouched {
            upper.peer_lost(self.id, self.port, self.addr, why);
        }
    }

    /// More or fewer messages are remembered.
    #[inline]
    pub(crate) fn count_reassemblies(&mut self, shared: &mut Shared) {
        let remembered = self.reassemblies.remembered();
        shared.reassemblies = shared.reassemblies - self.reassemblies_counted + remembered;
        self.reassemblies_counted = remembered;
    }

    /// When this peer wants attention next.
    pub(crate) fn deadline(&self, shared: &Shared) -> Time {
        if self.incompatible {
            return Time::NEVER;
        }
        if self.is_withheld() {
            return self.withheld_until(shared);
        }
        if !self.open(shared) {
            let wanted = !self.dead && (self.messages.len() > 0 || self.arrivals.ack_at != Time::NEVER);
            return if wanted { self.hello_at } else { Time::NEVER };
        }
        let mut at = self.arrivals.ack_at.min(self.loss_deadline(shared)).min(self.held_deadline());
        if !self.dead
            && self.has_data()
            && let Some(gate) = self.pacer.gate()
        {
            at = at.min(gate);
        }
        if let Some(outgoing) = &self.outgoing
            && self.probing_worthwhile(outgoing.paths.next_event())
        {
            at = at.min(outgoing.paths.next_event());
        }
        if self.busy() && !self.dead && self.proven {
            at = at.min(self.mtu.next_event());
        }
        at = at.min(self.sign_of_life_at(shared));
        if self.holds_spare_memory() {
            at = at.min(self.last_active + shared.config.idle_release);
        }
        at
    }

    /// When the peer is asked for a sign of life: if more of its messages is awaited, and nothing of ours on its way
    /// that would show that it is gone.
    pub(crate) fn sign_of_life_at(&self, shared: &Shared) -> Time {
        if self.dead || self.busy() || !self.reassemblies.await_more() {
            return Time::NEVER;
        }
        self.last_heard + Nanos(shared.config.peer_timeout.0 / 4)
    }

    /// Whether something waits to be sent or to be acknowledged.
    pub(crate) fn busy(&self) -> bool {
        self.messages.len() > 0 || self.sent.span() > 0
    }

    /// Whether nothing is lost with this context: our program does not want it, nothing waits, and nothing was sent or taken,
    /// or so long ago that no copy of it is on its way. (In sealed mode there are no strangers, and nobody who remembers a
    /// context is forgotten.)
    pub(crate) fn may_go(&self, now: Time, shared: &Shared) -> bool {
        let to_send = self.messages.upper_len() > 0 || (!self.dead && self.busy());
        let settled = now > self.last_heard + shared.config.peer_timeout && !shared.config.confirm_first;
        !self.named && !to_send && !self.reassemblies.await_more() && (self.is_unused() || settled)
    }

    /// Whether the peer can remember nothing of this context.
    pub(crate) fn is_unused(&self) -> bool {
        !self.has_sent() && self.arrivals.is_untouched()
    }

    /// Whether the peer may have seen a PSN of this context or an earlier one.
    pub(crate) fn has_sent(&self) -> bool {
        self.outgoing.is_some() || self.context > 0
    }

    fn holds_spare_memory(&self) -> bool {
        !self.busy() && self.reassemblies.is_empty() && self.lost.capacity() > 0
    }

    /// Gives back what an idle context does not need.
    pub(crate) fn release_if_idle(&mut self, now: Time, shared: &Shared) {
        if self.holds_spare_memory() && now >= self.last_active + shared.config.idle_release {
            self.messages.release();
            self.sent.release();
            self.reassemblies.release();
            self.lost = VecDeque::new();
        }
    }

    /// What its paths have carried.
    pub(crate) fn path_reports(&self) -> impl Iterator<Item = PathReport> {
        self.outgoing.iter().flat_map(|outgoing| outgoing.paths.reports())
    }
}
