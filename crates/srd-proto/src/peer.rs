//! One peer context: identity, the sending half and the receiving half. The halves' rules lie in `sending` and
//! `receiving`; this file holds the state and what both share.

use crate::arrivals::Arrivals;
use crate::controller::{CongestionController, controller};
use crate::events::{Event, Trace};
use crate::messages::{Messages, Purpose};
use crate::pacing::Pacer;
use crate::partial::Partials;
use crate::path_mtu::PathMtu;
use crate::paths::{PathReport, PathTable};
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;
use crate::selector::{PathSelector, selector};
use crate::senders::{Counted, SenderCount};
use crate::sent::SentPackets;
use crate::{Config, Payload, PeerCounters, PeerId, PeerLoss, Stats, Token, Transmit, Upper};
use rand::Rng;
use rand::rngs::SmallRng;
use srd_wire::{
    AckBox, Body, Hello, Incarnation, InstanceAddr, Nanos, Op, Packet, PathId, Probe, Psn, Stamp, Status,
    Tag, Time, VERSION, first_psn,
};
use std::collections::VecDeque;

/// What an endpoint's peers share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) incarnation: Incarnation,
    pub(crate) ports: Vec<u16>,
    pub(crate) stats: Stats,
    pub(crate) rng: SmallRng,
    pub(crate) load: SenderCount,
    pub(crate) trace: Trace,
    /// When the packet that is being handled came to the network card.
    pub(crate) arrived: Time,
}

impl Shared {
    pub(crate) fn new(config: Config, incarnation: Incarnation, ports: &[u16], rng: SmallRng) -> Shared {
        Shared {
            config,
            incarnation,
            ports: ports.to_vec(),
            stats: Stats::default(),
            rng,
            load: SenderCount::default(),
            arrived: Time(0),
            trace: Trace::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(config: Config) -> Shared {
        use rand::SeedableRng;
        Shared::new(config, Incarnation(1), &[1], SmallRng::seed_from_u64(1))
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

/// Our introduction to a peer of whose incarnation we know `echo` (0: nothing), in our context number `context`.
pub(crate) fn introduction(shared: &Shared, echo: u64, context: u16) -> Hello {
    Hello {
        incarnation: shared.incarnation,
        echo,
        version_min: VERSION,
        version_max: VERSION,
        features: 0,
        context,
        max_datagram: shared.config.max_datagram,
        rcvbuf_kib: (shared.config.rcvbuf_bytes / 1024) as u32,
    }
}

/// An incarnation that introduces itself where there has been a context before: the peer has restarted, or a packet of
/// a dead process has been long on its way. It is asked, and the context is its own once it returns the number of the
/// question: that a dead process cannot have known.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) hello: Hello,
    /// Number of the question.
    pub(crate) number: u32,
    /// When it is asked again, should it still be unknown.
    pub(crate) ask_at: Time,
}

/// Share of the receiver's socket buffer that all senders together may fill: the kernel charges a datagram with up to
/// twice its size.
const RCVBUF_SHARE: u64 = 2;

/// Probes that rarely wait in greater number.
const PROBES_AT_ONCE: usize = 16;

/// See the module.
pub(crate) struct Peer<P: Payload> {
    pub(crate) id: PeerId,
    pub(crate) addr: InstanceAddr,
    pub(crate) port: u8,
    /// Whether it is in the endpoint's queue of peers with something to send.
    pub(crate) ready: bool,
    /// In the queue of those that have an acknowledgement due.
    pub(crate) owing: bool,

    // Identity.
    pub(crate) remote: Option<Incarnation>,
    pub(crate) remote_tag: Tag,
    /// An instance has been known at this address, in this context or an earlier one.
    pub(crate) ever_known: bool,
    /// Who has introduced itself at this address, and must yet show that it lives.
    pub(crate) candidate: Option<Candidate>,
    /// Number of the peer's context with us.
    pub(crate) remote_context: u16,
    /// Number of our context with this address.
    pub(crate) context: u16,
    /// The peer has shown that it has a context with us.
    pub(crate) knows_us: bool,
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
    /// When an introduction may be sent again, and how often it was.
    pub(crate) introduce_at: Time,
    pub(crate) introductions: u32,
    /// No introduction is answered for its own sake before this.
    answer_introduction_at: Time,
    /// Last packet from it.
    pub(crate) last_heard: Time,

    // Sending.
    pub(crate) messages: Messages<P>,
    pub(crate) sent: SentPackets,
    pub(crate) lost: VecDeque<Psn>,
    /// Packets that have arrived and are not acknowledged (of refused messages), and when they are sent again.
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
    pub(crate) partials: Partials,
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
    /// Context number `context` with the instance at `addr`.
    pub(crate) fn new(
        id: PeerId,
        addr: InstanceAddr,
        port: u8,
        context: u16,
        now: Time,
        shared: &mut Shared,
    ) -> Peer<P> {
        Peer {
            id,
            addr,
            port,
            ready: false,
            owing: false,
            remote: None,
            remote_tag: Tag::UNKNOWN,
            ever_known: false,
            candidate: None,
            remote_context: 0,
            context,
            knows_us: false,
            acknowledged: false,
            incompatible: false,
            max_datagram: shared.config.max_datagram,
            mtu: PathMtu::new(shared.config.max_datagram, !shared.config.probe_path_mtu, shared.seal_bytes()),
            remote_rcvbuf: 0,
            introduce_at: now,
            introductions: 0,
            answer_introduction_at: Time(0),
            last_heard: now,
            messages: Messages::new(shared.config.max_partial_per_peer),
            sent: SentPackets::new(first_psn(shared.incarnation, context)),
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
            partials: Partials::default(),
            ack_offset: shared.rng.random(),
            ack_turn: 0,
            counted: Counted::default(),
            last_active: now,
            data_sent: now,
            counters: PeerCounters::default(),
        }
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
        self.remote_context = hello.context;
        self.arrivals = Arrivals::new(first_psn(hello.incarnation, hello.context));
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
            self.share_bytes = self.remote_rcvbuf / RCVBUF_SHARE / senders.max(1) as u64;
        }
    }

    /// The peer has begun a new context with us: what was half received of the old one is gone.
    pub(crate) fn restart_receiving<U: Upper<P>>(&mut self, hello: &Hello, upper: &mut U) {
        for partial in self.partials.drain() {
            if let Some(cookie) = partial.cookie {
                upper.abandon(cookie, &partial.head);
            }
        }
        self.remote_context = hello.context;
        self.arrivals = Arrivals::new(first_psn(hello.incarnation, hello.context));
    }

    /// Whether messages and their packets may flow (in sealed mode only once each side knows the other).
    pub(crate) fn open(&self, shared: &Shared) -> bool {
        !self.incompatible && (!shared.config.confirm_first || self.remote.is_some() && self.knows_us)
    }

    /// Whether packets carry an introduction. With data it goes on until something of this context has been
    /// acknowledged: the peer must have seen the context's number.
    pub(crate) fn introducing(&self, with_data: bool) -> bool {
        !self.knows_us || self.remote.is_none() || (with_data && !self.acknowledged)
    }

    /// The peer introduces itself: it does not know yet that we know it. All that it sends in its first round trip says so;
    /// answers that are nothing else keep a distance.
    pub(crate) fn answer_introduction(&mut self, now: Time, shared: &Shared) {
        if now >= self.answer_introduction_at {
            self.answer_introduction_at = now + shared.config.ack_delay;
            self.arrivals.ack_by(now);
        } else {
            self.arrivals.ack_by(self.answer_introduction_at);
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
        let hello = self
            .introducing(matches!(body, Body::Data(_)))
            .then(|| introduction(shared, self.remote.map_or(0, |remote| remote.0), self.context));
        Transmit {
            peer: self.id,
            to: self.addr,
            // A key that needs both incarnations serves only once the peer knows ours.
            peer_incarnation: self.remote.filter(|_| self.knows_us),
            entropy,
            pad_to,
            packet: Packet {
                src_port: shared.ports[self.port as usize],
                dst_tag: self.remote_tag,
                src_tag: shared.incarnation.tag(),
                hello,
                ack,
                body,
            },
        }
    }

    /// An introduction or an ACK on its own.
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
    /// own (CONGESTION_CONTROL, section 7): its round trips are alike, and a path whose way back is dead looks like a bad
    /// path, which the peer's selector leaves. What is said again, or says nothing of a path, takes another way each time.
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
    pub(crate) fn complete<U: Upper<P>>(
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

    /// Ends every message with `status` and begins a new sending half under the next context number, so that nothing
    /// of the old one has to be settled with the peer, should it ever answer. The receiving half stays: what was
    /// accepted from the peer must not be accepted again, and what is withheld is refused again.
    pub(crate) fn restart_sending<U: Upper<P>>(
        &mut self,
        now: Time,
        status: Status,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let context = self.context.wrapping_add(1);
        let new = Peer::new(self.id, self.addr, self.port, context, now, shared);
        let old = std::mem::replace(self, new);
        for token in old.messages.open().filter_map(|slot| old.messages.token(slot)) {
            self.complete(now, token, Err(status), shared, upper);
        }
        for refusal in old.messages.refusals() {
            self.messages.add(refusal.purpose, refusal.op, P::empty(), None);
        }
        if old.sent.span() > 0 {
            // The peer may hold a part of a message, and with it a receive buffer. It forgets that when it hears of the
            // new context, so there must be something to hear.
            self.messages.add(Purpose::Forget, Op::Skip, P::empty(), None);
        }
        (self.ready, self.owing) = (old.ready, old.owing);
        self.remote = old.remote;
        self.remote_tag = old.remote_tag;
        self.remote_context = old.remote_context;
        self.ever_known = old.ever_known;
        self.candidate = old.candidate;
        self.knows_us = old.knows_us;
        self.incompatible = old.incompatible;
        self.max_datagram = old.max_datagram;
        self.mtu = old.mtu;
        self.remote_rcvbuf = old.remote_rcvbuf;
        self.note_senders(1);
        self.last_heard = old.last_heard;
        self.last_active = old.last_active;
        self.arrivals = old.arrivals;
        self.partials = old.partials;
        self.counted = old.counted;
        self.counters = old.counters;
    }

    /// Ends the context for good: its messages end with `status`, what was coming in is abandoned.
    pub(crate) fn end<U: Upper<P>>(
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
            self.messages.give_up(slot);
            if let Some(token) = token {
                self.complete(now, token, Err(status), shared, upper);
            }
        }
        for partial in self.partials.drain() {
            if let Some(cookie) = partial.cookie {
                upper.abandon(cookie, &partial.head);
            }
        }
        upper.peer_lost(self.id, self.addr, why);
    }

    /// When this peer wants attention next.
    pub(crate) fn deadline(&self, shared: &Shared) -> Time {
        if self.incompatible {
            return Time::NEVER;
        }
        if !self.open(shared) {
            let wanted = !self.dead && (self.messages.len() > 0 || self.arrivals.ack_at != Time::NEVER);
            return if wanted { self.introduce_at } else { Time::NEVER };
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
        if self.busy() && !self.dead {
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
        if self.dead || self.busy() || !self.partials.await_more() {
            return Time::NEVER;
        }
        self.last_heard + Nanos(shared.config.peer_timeout.0 / 4)
    }

    /// Whether something waits to be sent or to be acknowledged.
    pub(crate) fn busy(&self) -> bool {
        self.messages.len() > 0 || self.sent.span() > 0
    }

    /// Whether nothing is lost with this context: nobody has ever shown that he is at its address and knows us, nothing
    /// is to be sent there or never will be, and nothing was taken from there, or so long ago that no copy of it is on
    /// its way.
    pub(crate) fn may_go(&self, now: Time, shared: &Shared) -> bool {
        let to_send = self.messages.upper_len() > 0 || (!self.dead && self.busy());
        let settled = now > self.last_heard + shared.config.peer_timeout;
        let taken = !self.arrivals.is_untouched() && !settled;
        !self.knows_us && !to_send && !taken && !self.partials.await_more()
    }

    /// Whether the peer may have seen a PSN of this context or an earlier one.
    pub(crate) fn has_sent(&self) -> bool {
        self.outgoing.is_some() || self.context > 0
    }

    fn holds_spare_memory(&self) -> bool {
        !self.busy() && self.partials.is_empty() && self.lost.capacity() > 0
    }

    /// Gives back what an idle context does not need.
    pub(crate) fn release_if_idle(&mut self, now: Time, shared: &Shared) {
        if self.holds_spare_memory() && now >= self.last_active + shared.config.idle_release {
            self.messages.release();
            self.sent.release();
            self.partials.release();
            self.lost = VecDeque::new();
        }
    }

    /// What its paths have carried.
    pub(crate) fn path_reports(&self) -> impl Iterator<Item = PathReport> {
        self.outgoing.iter().flat_map(|outgoing| outgoing.paths.reports())
    }
}
