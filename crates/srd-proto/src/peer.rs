//! One peer context: identity and liveness, the sending half and the receiving half. The halves' rules lie in `sending` and
//! `receiving`; this file holds the state and what both share.

use crate::active_senders::{Counted, Share};
use crate::arrivals::Arrivals;
use crate::burst::Burst;
use crate::congestion_control::{CongestionController, controller};
use crate::delivery::DeliveryRate;
use crate::events::Event;
use crate::hello::{Introduction, is_compatible, own_hello};
use crate::liveness::Liveness;
use crate::loss::Patience;
use crate::messages::{Messages, OutMessage, Purpose};
use crate::pacing::Pacer;
use crate::path_mtu::PathMtu;
use crate::path_selector::{PathSelector, selector};
use crate::paths::{PathReport, PathTable};
use crate::reassembly::Reassemblies;
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;
use crate::sent::SentPackets;
use crate::shared::Shared;
use crate::standing::Standing;
use crate::train::Train;
use crate::{Config, ControllerKind, Payload, PeerCounters, PeerId, PeerLoss, Token, Transmit, UpperLayer};
use rand::Rng;
use srd_wire::{
    AckBox, Body, FEATURE_CUTS, Hello, Incarnation, InstanceAddr, Nanos, Op, Packet, PathId, Probe, Psn,
    Status, Tag, Time, first_psn,
};
use std::cell::Cell;
use std::collections::VecDeque;

/// What only a context that sends needs; made at the first message.
pub(crate) struct Outgoing {
    pub(crate) paths: PathTable,
    pub(crate) selector: Box<dyn PathSelector>,
    pub(crate) controller: Box<dyn CongestionController>,
}

/// Probes that rarely wait in greater number.
const PROBES_AT_ONCE: usize = 16;
/// A window that limits nothing.
const NO_WINDOW: u64 = 1 << 50;

/// Which way ACKs take: see [`Peer::port_of_ack`].
struct WayBack {
    /// That of what comes on path 0.
    offset: u16,
    turn: u16,
}

impl WayBack {
    /// Of an ACK whose newest packet came on this path, or of one that says something again.
    fn next(&mut self, again: bool, newest: PathId) -> u32 {
        self.turn = if again { self.turn.wrapping_add(1) } else { self.offset };
        self.turn.wrapping_add(newest.0 as u16) as u32
    }
}

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
    /// Who we are to this peer.
    pub(crate) own: Incarnation,
    /// Who it is. Known once it has shown that what we send reaches it, or that it has been given our address.
    pub(crate) remote: Option<Incarnation>,
    pub(crate) remote_tag: Tag,
    pub(crate) standing: Standing,
    /// Number of the context: 0 for a pair of incarnations, and one more each time that either has given the other up.
    pub(crate) context: u16,
    pub(crate) hello: Introduction,
    /// The peer speaks no version of ours.
    pub(crate) incompatible: bool,
    /// Largest datagram that both ends can handle.
    pub(crate) max_datagram: u16,
    /// How much of that the network carries.
    pub(crate) mtu: PathMtu,
    /// It reads what ACKs say of packets that came cut.
    pub(crate) reads_cuts: bool,
    pub(crate) liveness: Liveness,

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
    /// Packets that may leave whatever window and pacing say.
    pub(crate) urgent: u32,
    pub(crate) pacer: Pacer,
    /// The window or the pacing, not a lack of messages, ended the last turn.
    pub(crate) window_limited: bool,
    pub(crate) burst: Burst,
    /// What may leave behind the last packet.
    pub(crate) train: Option<Train>,
    /// When its deadline is worked out again although it has not stopped sending.
    pub(crate) look_again: Time,
    /// When an ACK was last learnt from ([`Peer::predicted`]).
    pub(crate) learned: Time,
    /// And how many have been predicted since then.
    pub(crate) predicted: u32,
    /// What [`Peer::patience`] was, until something changes that it depends on.
    pub(crate) patience: Cell<Option<Patience>>,
    /// Whether paths are FIFO.
    pub(crate) reordering: Reordering,
    /// Congestion marks that the peer has reported, low 16 bits.
    pub(crate) ce_count: u16,
    pub(crate) delivery_rate: DeliveryRate,
    /// What it may have of the receiver's socket buffer.
    pub(crate) share: Share,

    // Receiving.
    pub(crate) arrivals: Arrivals,
    pub(crate) reassemblies: Reassemblies,
    /// How many of [`Shared::reassemblies`] are this peer's.
    reassemblies_counted: usize,
    way_back: WayBack,
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
            remote: None,
            remote_tag: Tag::UNKNOWN,
            standing: Standing::new(shared.config.confirm_first),
            context,
            hello: Introduction::new(now),
            incompatible: false,
            max_datagram: shared.config.max_datagram,
            mtu: PathMtu::new(shared.config.max_datagram, !shared.config.probe_path_mtu, shared.seal_bytes()),
            reads_cuts: false,
            liveness: Liveness::new(now),
            messages: Messages::new(shared.config.max_partial_per_peer),
            sent: SentPackets::new(first_psn(own, context)),
            held: VecDeque::new(),
            lost: VecDeque::new(),
            probes: VecDeque::new(),
            outgoing: None,
            rtt: RttEstimator::new(),
            newest_delivered: Time(0),
            urgent: 0,
            pacer: Pacer::default(),
            window_limited: false,
            burst: Burst::default(),
            train: None,
            look_again: Time(0),
            learned: Time(0),
            predicted: 0,
            patience: Cell::new(None),
            reordering: Reordering::default(),
            ce_count: 0,
            delivery_rate: DeliveryRate::default(),
            share: Share::default(),
            arrivals: Arrivals::new(Psn(0)),
            reassemblies: Reassemblies::new(shared.hash),
            reassemblies_counted: 0,
            way_back: WayBack { offset: shared.rng.random(), turn: 0 },
            counted: Counted::new(shared.is_near(addr.gid)),
            last_active: now,
            data_sent: now,
            counters: PeerCounters::default(),
        }
    }

    /// Changes whenever another process than before is known here: an answer to what was asked before then says nothing.
    pub(crate) fn reign(&self) -> u64 {
        (self.id.generation as u64) << 1 | self.remote.is_some() as u64
    }

    /// When a peer to which nothing may be sent has been silent for too long.
    pub(crate) fn withheld_until(&self, shared: &Shared) -> Time {
        if self.liveness.dead { Time::NEVER } else { self.liveness.last_heard + shared.config.peer_timeout }
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
        let unlimited = shared.is_by_memory(&self.counted).then(|| Config {
            controller: ControllerKind::Fixed,
            fixed_window_bytes: NO_WINDOW,
            ..shared.config.clone()
        });
        let config = unlimited.as_ref().unwrap_or(&shared.config);
        self.outgoing = Some(Box::new(Outgoing {
            paths: PathTable::new(self.id, config, &mut shared.rng),
            selector: selector(config, shared.rng.random()),
            controller: controller(config, self.max_datagram as u32),
        }));
    }

    /// The peer's incarnation has become known; `shown`: it has shown that it is at its address, or has the key of the group.
    pub(crate) fn adopt(&mut self, hello: &Hello, shown: bool, shared: &mut Shared) {
        self.remote = Some(hello.incarnation);
        self.standing.ever_known = true;
        self.standing.claimed = !shown;
        self.remote_tag = hello.incarnation.tag();
        if !self.has_sent() {
            self.context = hello.context; // nothing is lost with ours
            self.sent = SentPackets::new(first_psn(self.own, self.context));
        }
        self.arrivals = Arrivals::new(first_psn(hello.incarnation, self.context));
        self.max_datagram = shared.config.max_datagram.min(hello.max_datagram);
        self.mtu.limit(self.max_datagram);
        self.share.of_buffer(hello.rcvbuf_kib as u64 * 1024, self.max_datagram);
        self.reads_cuts = hello.features & FEATURE_CUTS != 0;
        self.patience.set(None);
        if !is_compatible(hello) {
            self.incompatible = true;
            shared.stats.version_mismatch += 1;
        }
    }

    /// Ends messages of ours.
    fn end_messages<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        status: Status,
        which: impl Fn(&OutMessage<P>) -> bool,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let open: Vec<u32> = self.messages.open().collect();
        for slot in open {
            if !which(self.messages.get(slot)) {
                continue;
            }
            let token = self.messages.token(slot);
            self.close_message(slot);
            if let Some(token) = token {
                self.complete(now, token, Err(status), shared, upper);
            }
        }
    }

    /// Who claimed to be the peer was not: what has come of it goes, and what answers that. Nobody has taken anything else that we
    /// have sent, which is for whoever is there.
    #[cold]
    pub(crate) fn disclaim<U: UpperLayer<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        self.abandon_half_taken(shared, upper);
        self.end_messages(now, Status::RemoteAbort, OutMessage::is_answer, shared, upper);
        self.messages.purge();
        (self.remote, self.remote_tag, self.standing.claimed) = (None, Tag::UNKNOWN, false);
        self.hello = Introduction::new(now);
        self.max_datagram = shared.config.max_datagram;
        self.mtu = PathMtu::new(self.max_datagram, !shared.config.probe_path_mtu, shared.seal_bytes());
        self.arrivals = Arrivals::new(Psn(0));
    }

    /// Nothing more comes of messages that are half there.
    pub(crate) fn abandon_half_taken<U: UpperLayer<P> + ?Sized>(
        &mut self,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let half_taken =
            self.reassemblies.drain().filter_map(|partial| Some((partial.cookie?, partial.head)));
        half_taken.for_each(|(cookie, head)| upper.abandon(cookie, &head));
        self.count_reassemblies(shared);
    }

    /// Whether messages and their packets may flow (in sealed mode only once each side knows the other).
    pub(crate) fn open(&self, shared: &Shared) -> bool {
        !self.incompatible && (!shared.config.confirm_first || self.remote.is_some() && self.hello.confirmed)
    }

    /// As [`Introduction::is_carried`].
    pub(crate) fn carries_hello(&self, with_data: bool) -> bool {
        self.hello.is_carried(with_data, self.remote.is_some())
    }

    /// The peer introduces itself: it does not know yet that we know it.
    pub(crate) fn answer_hello(&mut self, now: Time, shared: &Shared) {
        let at = self.hello.answer(now, shared);
        self.arrivals.ack_by(at);
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
            let echo = self.remote.filter(|_| self.hello.joined).map_or(0, |remote| remote.0);
            own_hello(shared, self.own, echo, self.context)
        });
        Transmit {
            peer: self.id,
            to: self.addr,
            // A key that needs both incarnations serves only once the peer knows ours.
            peer_incarnation: self.remote.filter(|_| self.hello.confirmed),
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
        let entropy = self.port_of_ack(shared);
        let ack = if self.remote.is_some() && self.open(shared) && self.arrivals.ack_at != Time::NEVER {
            shared.stats.pure_acks_sent += 1;
            Some(self.arrivals.take_ack(now, shared.load.senders(now, shared.config.base_rtt, &self.counted)))
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
    fn port_of_ack(&mut self, shared: &Shared) -> u16 {
        let again = self.arrivals.repeats() || self.arrivals.echo_count() == 0;
        let turn = self.way_back.next(again, self.arrivals.newest_path());
        let Some(outgoing) = &self.outgoing else { return (turn % shared.config.entropy as u32) as u16 };
        let count = shared.config.paths as u32;
        let path = (0..count)
            .map(|i| PathId(((turn + i) % count) as u8))
            .find(|&path| outgoing.paths.usable().contains(path));
        outgoing.paths.get(path.unwrap_or_default()).entropy
    }

    /// A packet has come twice, so that an ACK may have been lost: from now on each path has another way back.
    pub(crate) fn change_way_back(&mut self) {
        self.way_back.offset = self.way_back.offset.wrapping_add(1);
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
        self.standing = old.standing;
        self.remote = old.remote;
        self.remote_tag = old.remote_tag;
        self.hello.confirmed = old.hello.confirmed;
        self.incompatible = old.incompatible;
        self.max_datagram = old.max_datagram;
        self.mtu = old.mtu.clone();
        self.reads_cuts = old.reads_cuts;
        self.share.of_buffer(old.share.buffer(), self.max_datagram);
        self.liveness.last_heard = old.liveness.last_heard;
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
        let answered_before = self.standing.ever_known;
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
        self.standing.vouched &= self.standing.proven;
        self.liveness.dead = true;
    }

    /// The peer speaks no version of ours: whatever is sent to it fails.
    #[cold]
    pub(crate) fn end_incompatible<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        self.end(now, Status::FeatureMismatch, PeerLoss::Incompatible, shared, upper);
        self.messages.purge();
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
        self.end_messages(now, status, |_| true, shared, upper);
        self.abandon_half_taken(shared, upper);
        // Of strangers the upper layer knows nothing.
        if self.standing.vouched {
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
            return if self.messages.open().next().is_some() { Time(0) } else { Time::NEVER };
        }
        if self.standing.is_withheld() {
            return self.withheld_until(shared);
        }
        if !self.open(shared) {
            let wanted = if self.messages.len() > 0 { Time(0) } else { self.arrivals.ack_at };
            return if self.liveness.dead { Time::NEVER } else { self.hello.at.max(wanted) };
        }
        let mut at = self.arrivals.ack_at.min(self.loss_deadline(shared)).min(self.held_deadline());
        if !self.liveness.dead
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
        if self.busy() && !self.liveness.dead && self.standing.proven {
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
        if self.liveness.dead || self.busy() || !self.reassemblies.await_more() {
            return Time::NEVER;
        }
        self.liveness.last_heard + Nanos(shared.config.peer_timeout.0 / 4)
    }

    /// Whether something waits to be sent or to be acknowledged.
    pub(crate) fn busy(&self) -> bool {
        self.messages.len() > 0 || self.sent.span() > 0
    }

    /// Whether nothing is lost with this context: it may be displaced, and the peer can remember nothing of it, or nothing was sent
    /// or taken for so long that no copy of it is on its way.
    pub(crate) fn may_go(&self, now: Time, shared: &Shared) -> bool {
        let settled = now > self.liveness.last_heard + shared.config.peer_timeout;
        self.may_be_displaced(shared) && (self.is_unused() || settled)
    }

    /// Whether it may make way for one that our program names: the program has not named this one, nothing is on its way to it,
    /// and of its messages none is half taken. The peer hears that it has ended when it speaks again. (In sealed mode there are no
    /// strangers, and nobody who remembers a context is forgotten.)
    pub(crate) fn may_be_displaced(&self, shared: &Shared) -> bool {
        let to_send = self.messages.upper_len() > 0 || (!self.liveness.dead && self.busy());
        let forgettable = self.is_unused() || !shared.config.confirm_first;
        !self.standing.named && !to_send && !self.reassemblies.await_more() && forgettable
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
