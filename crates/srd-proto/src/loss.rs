//! Loss and silence: when a packet counts as lost, when paths are asked, and when silence is death.
//!
//! The sources are in docs/design/loss-recovery.md. The rules:
//!
//! - One packet that overtakes on its path is enough. A rule by time after a later arrival on the path could never come first,
//!   and is left to the timer.
//! - What came without its payload, which a switch had cut off, is lost, as the receiver tells.
//! - Where many send to one receiver, packets of all paths wait in the queue before it, and what was sent 2 B and the
//!   variation before something that has arrived is lost, whatever their paths (the timers follow that queue and come late).
//! - The timer is max(3 B, srtt + 4 var), over the context and over the packet's own path, whichever is longer: the
//!   context's alone knows only the paths in use, the path's alone may be older than the queue that all share. It is
//!   also as long as a round trip over the longest paths there and back, and 5 B on a path of which nothing is known,
//!   unless the receiver has several senders or every packet waits in a queue. So paths of different length cause no
//!   retransmission. Doubling begins after the second retransmission: a packet that waits longer holds up those behind
//!   it.
//! - The tail probe comes after max(2 B, srtt + 2 var): questions on three other paths, or, if the packet is small or the
//!   questions were not answered, the packet again and questions on two. An answer does not prove loss by its own delay: it
//!   makes what was sent before it late, and late packets have the timer above.
//! - A retransmission takes the path that answered last, else the selector's choice without the path that failed. That all
//!   earlier paths should be avoided is not remembered; a path that fails twice is suspected by then.
//! - No PSN is retransmitted within a round trip of its last transmission: the timers are longer than that, and the two rules
//!   by order wait for it ([`Peer::too_recent`]). What a dead path held is exempt: that path was asked for longer.

use crate::events::{Event, LossCause};
use crate::liveness::Liveness;
use crate::paths::{Findings, NO_PSN};
use crate::peer::{Outgoing, Peer};
use crate::sent::SentPacket;
use crate::shared::Shared;
use crate::{Payload, UpperLayer};
use srd_wire::{Nanos, Op, PathId, Probe, Psn, Status, Time};

/// Other paths asked when a packet is retransmitted into silence.
const PATHS_ASKED: usize = 2;
/// Transmissions of one packet before the timer doubles, and how often it does. It stays short: it holds up the timers
/// of the packets behind.
const FREE_RETRIES: u8 = 2;
const MAX_BACKOFF: u8 = 4;
/// Transmissions before it doubles more than once where what was sent later has been answered: the network is alive, and
/// the pace limits what is retransmitted.
pub(crate) const ANSWERED_RETRIES: u8 = 12;
/// Transmissions of a packet after which its message is given up if the peer is there: what has swallowed those swallows the next one, too.
const MOST_TRANSMISSIONS: u8 = 200;
/// Packets of so many bytes of payload are retransmitted where larger ones are asked about
/// (docs/design/loss-recovery.md, "Silence").
const SMALL: u16 = 256;
/// How long after the last message paths that are down are still asked.
const PROBE_AFTERTIME: Nanos = Nanos::from_secs(1);
/// Base round trips that a packet may take on a path of which nothing is known, while others show no queue: it may be
/// four times as long as they are. [the 4 of the 4x difference that must cause no retransmission, and one for queues]
const UNKNOWN_ROUNDS: u64 = 5;
/// The shortest of the last waits in units of the base from which on all packets wait in a queue.
const QUEUED: f64 = 0.25;
/// Senders of one receiver from which on the queue that matters is the last one, which packets of all paths share; and the
/// base round trips by which paths may differ all the same, here where one is four times as long as another.
const SHARED_QUEUE: u16 = 8;
const SHARED_ROUNDS: u64 = 2;
/// Late packets looked at to find the one whose time is up first: those behind the oldest may have shorter timers.
const LOOK_AHEAD: usize = 16;

/// How long silence may last, for a packet that is asked about first and for one that is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    /// The paths of that packet and of the newest one.
    ways: (PathId, Option<PathId>),
    soon: Nanos,
    long: Nanos,
}

impl<P: Payload> Peer<P> {
    /// How long a packet may go unanswered while others are answered, as far as the context as a whole tells.
    pub(crate) fn retransmission_timeout(&self, shared: &Shared) -> Nanos {
        let config = &shared.config;
        // 3B and srtt + 4 var: docs/design/loss-recovery.md, "Late packets".
        let floor = Nanos(3 * config.base_rtt.0).max(config.min_rto);
        (self.rtt.with_variation(4.0) + self.held_up(shared)).max(floor).min(config.max_rto)
    }

    /// How long silence may last when nothing more is to be sent, as far as the context as a whole tells.
    fn probe_timeout(&self, shared: &Shared) -> Nanos {
        let config = &shared.config;
        // 2B and srtt + 2 var: docs/design/loss-recovery.md, "Silence".
        let floor = Nanos(2 * config.base_rtt.0).max(config.min_pto);
        (self.rtt.with_variation(2.0) + self.held_up(shared)).max(floor).min(config.max_rto)
    }

    /// How long hosts may hold a packet and its answer: the wait for another packet to answer with it, or a processor that
    /// is busy.
    fn held_up(&self, shared: &Shared) -> Nanos {
        shared.config.longest_ack_delay().max(Nanos(self.rtt.hosts_ns() as u64))
    }

    /// How long an answer may take on this very path, and on paths as long as some are. The ACK may come for the newest
    /// packet and then takes the way back of that one's path, which may be a long one.
    fn path_timeout(&self, path: PathId, shared: &Shared) -> Nanos {
        let config = &shared.config;
        let Some(outgoing) = &self.outgoing else { return Nanos::ZERO };
        let newest = self.sent.newest_path().unwrap_or(path);
        let [there, back] = [path, newest].map(|path| outgoing.paths.get(path).rtt_with_variation(4.0));
        // Where many send to one, or every packet waits in queues, what is late is rather lost than on a long way.
        let queued = config.receiver_hint && self.share.senders > 1
            || self.rtt.least_wait().as_f64() > QUEUED * config.base_rtt.as_f64();
        let unknown = (there.is_none() || back.is_none()) && !queued;
        let far = if unknown { Nanos(UNKNOWN_ROUNDS * config.base_rtt.0) } else { Nanos::ZERO };
        let known = there.unwrap_or_default().max(back.unwrap_or_default()).max(outgoing.paths.longest());
        (known.max(far) + self.held_up(shared)).min(config.max_rto)
    }

    /// How long silence may last whose first packet is on this path.
    fn patience(&self, path: PathId, shared: &Shared) -> Patience {
        let ways = (path, self.sent.newest_path());
        let work_out = || {
            let soon = self.probe_timeout(shared);
            Patience { ways, soon, long: soon.max(self.path_timeout(path, shared)) }
        };
        if let Some(known) = self.patience.get()
            && known.ways == ways
        {
            debug_assert_eq!(known, work_out());
            return known;
        }
        let known = work_out();
        self.patience.set(Some(known));
        known
    }

    /// When the outstanding packet must be looked at that is due first, and which one that is. Packets are in sending
    /// order, and those that are late come before the others.
    fn first_due(&self, shared: &Shared) -> Option<(Psn, Time)> {
        let oldest = self.sent.oldest()?;
        let head = self.sent.get(oldest)?;
        if head.sent >= self.newest_delivered {
            let Patience { soon, long, .. } = self.patience(head.path, shared);
            // To ask too early does no harm.
            let patience = if self.asks_first(head) { soon } else { long };
            return Some((oldest, self.due(head, patience, shared).max(self.liveness.may_ask_at())));
        }
        let least = self.retransmission_timeout(shared);
        let (mut psn, mut packet, mut first) = (oldest, head, (oldest, Time::NEVER));
        for _ in 0..LOOK_AHEAD {
            let due = self.due(packet, least.max(self.path_timeout(packet.path, shared)), shared);
            if due < first.1 {
                first = (psn, due);
            }
            let Some(next) = self.sent.newer(packet) else { break };
            let Some(newer) = self.sent.get(next) else { break };
            if newer.sent >= self.newest_delivered || newer.sent + least >= first.1 {
                break;
            }
            (psn, packet) = (next, newer);
        }
        Some(first)
    }

    /// Whether silence about this packet is answered by questions before it is retransmitted.
    fn asks_first(&self, packet: &SentPacket) -> bool {
        self.liveness.silent_probes == 0 && packet.len > SMALL
    }

    /// When `packet` is due with this timer. One that is lost again and again waits longer each time.
    fn due(&self, packet: &SentPacket, timeout: Nanos, shared: &Shared) -> Time {
        let doublings = packet.tx_count.saturating_sub(FREE_RETRIES);
        let answered = packet.sent < self.newest_delivered;
        let patient = packet.tx_count.saturating_sub(ANSWERED_RETRIES);
        let backoff = if answered { patient.max(doublings.min(1)) } else { doublings }.min(MAX_BACKOFF);
        packet.sent + Nanos(timeout.0 << backoff).min(shared.config.max_rto)
    }

    /// When the first outstanding packet must be looked at.
    pub(crate) fn loss_deadline(&self, shared: &Shared) -> Time {
        if self.liveness.dead || shared.is_by_memory(&self.counted) {
            return Time::NEVER;
        }
        self.first_due(shared).map_or(Time::NEVER, |(_, due)| due)
    }

    /// Whether `packet` may be on its way although others have overtaken it: it was retransmitted less than a round trip ago, so
    /// no answer can have come yet. One that was lost very often is left to its timer, which waits longer each time: something
    /// eats it, a path that carries no packet of its size for instance.
    fn too_recent(&self, now: Time, packet: &SentPacket, outgoing: &Outgoing, shared: &Shared) -> bool {
        let rtt = || {
            let path = outgoing.paths.get(packet.path).rtt();
            path.unwrap_or(self.rtt.smoothed(shared.config.base_rtt))
        };
        packet.tx_count > ANSWERED_RETRIES || packet.tx_count > 0 && now.since(packet.sent) < rtt()
    }

    /// Whether it is worth asking paths that are not in use at time `at`: while there is traffic, or was a moment ago.
    pub(crate) fn probing_worthwhile(&self, at: Time) -> bool {
        !self.liveness.dead && (self.busy() || at <= self.last_active + PROBE_AFTERTIME)
    }

    /// When the oldest held packet is retransmitted.
    pub(crate) fn held_deadline(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// Sends held packets again that have been held for very long: the peer may have lost its mind, or the refusal.
    fn check_held(&mut self, now: Time) {
        while let Some(&(at, psn)) = self.held.front()
            && at <= now
        {
            self.held.pop_front();
            if self.sent.is_lost(psn) {
                self.lost.push_back(psn);
            }
        }
    }

    /// Does what is due by the clock.
    pub(crate) fn on_timer<U: UpperLayer<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        if self.incompatible {
            return self.end_incompatible(now, shared, upper);
        }
        if self.standing.is_withheld() {
            if now >= self.withheld_until(shared) {
                self.die(now, now.since(self.liveness.last_heard), shared, upper);
            }
            return;
        }
        self.ask_for_life(now, shared);
        if self.outgoing.is_some() {
            if self.open(shared) {
                self.check_held(now);
                self.check_losses(now, shared, upper);
                self.check_paths(now, shared, upper);
            } else if self.messages.len() > 0 {
                self.check_death(now, self.hello.at, shared, self.hello.sent, upper);
            }
        }
        self.release_if_idle(now, shared);
    }

    fn check_losses<U: UpperLayer<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        while let Some((psn, due)) = self.first_due(shared).filter(|_| !self.liveness.dead)
            && due <= now
        {
            let Some(&packet) = self.sent.get(psn) else { return };
            let Some(mut outgoing) = self.outgoing.take() else { return };
            let (outstanding, inflight) = (self.sent.span(), self.sent.inflight_bytes());
            shared.trace.emit(now, self.id, || Event::TimerFired { outstanding, inflight });
            let path_fault = packet.sent < self.newest_delivered;
            if !path_fault && self.asks_first(&packet) {
                self.outgoing = Some(outgoing);
                self.ask(now, packet.path, shared);
                return;
            }
            shared.stats.retrans_timeout_events += 1;
            if path_fault {
                shared.stats.lost_by_timer += 1;
                outgoing.selector.on_timeout(now, packet.path);
                outgoing.paths.on_timeout(now, packet.path, packet.sent, shared);
                outgoing.controller.on_loss(now);
                self.trace_controller(now, &outgoing, shared);
            }
            let cause = if path_fault { LossCause::Timer } else { LossCause::Silence };
            self.lose(now, psn, cause, &mut outgoing, shared, upper);
            self.outgoing = Some(outgoing);
            let too_large = path_fault && self.mtu.on_loss(now, packet.sent, packet.bytes);
            let heard = self.liveness.last_heard > packet.sent;
            if too_large || heard && packet.tx_count >= MOST_TRANSMISSIONS {
                self.fail_unsendable(now, packet.message, shared, upper);
            }
            if !path_fault {
                self.probe_silence(now, due, psn, packet.path, shared, upper);
                return;
            }
        }
    }

    /// The packets of this message do not get through, though others do: they are too large for what the network has become.
    fn fail_unsendable<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        slot: u32,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        if !self.messages.get(slot).over
            && let Some(token) = self.messages.token(slot)
        {
            self.close_message(slot);
            shared.unsendable = Some(self.addr);
            self.complete(now, token, Err(Status::Unresponsive), shared, upper);
        }
    }

    /// Nothing sent since has been answered either: one packet is retransmitted to draw an answer; the rest waits.
    #[allow(clippy::too_many_arguments)]
    fn probe_silence<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        due: Time,
        psn: Psn,
        path: PathId,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        shared.stats.tail_probes += 1;
        self.sent.blame(psn, path);
        if self.lost.back() == Some(&psn) {
            self.lost.pop_back();
        }
        self.lost.push_front(psn);
        self.urgent += 1;
        self.liveness.silent_probes += 1;
        let probes = self.liveness.silent_probes;
        shared.trace.emit(now, self.id, || Event::TailProbe { psn, path, probes });
        self.ask_other_paths(now, path, PATHS_ASKED, shared);
        let backoff = self.retransmission_timeout(shared).0 << self.liveness.silent_probes.min(16);
        self.liveness.quiet_until = now + Nanos(backoff).min(shared.config.max_rto);
        self.check_death(now, due, shared, self.liveness.silent_probes, upper);
    }

    /// The first answer to silence, unless the packet is small: header-only questions, whose answers name all that has
    /// arrived. They find room where a hundred senders that are silent together would drown each other in data.
    fn ask(&mut self, now: Time, path: PathId, shared: &mut Shared) {
        shared.stats.tail_probes += 1;
        self.ask_other_paths(now, path, PATHS_ASKED + 1, shared);
        self.liveness.asked(now + self.probe_timeout(shared));
    }

    /// Header-only questions on other paths: the path that the packet takes now may be as dead as its first.
    fn ask_other_paths(&mut self, now: Time, failed: PathId, count: usize, shared: &mut Shared) {
        let Some(outgoing) = &mut self.outgoing else { return };
        for _ in 0..count {
            let path = outgoing.paths.any_usable(failed, &mut shared.rng);
            self.probes.push_back(Probe { path, number: 0, stamp: now.stamp() });
            shared.stats.path_probes_sent += 1;
            shared.trace.emit(now, self.id, || Event::PathProbed { path, number: 0 });
        }
    }

    /// Whether the peer is dead, judged at a timer that was to fire at `due`.
    fn check_death<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        due: Time,
        shared: &mut Shared,
        probes: u32,
        upper: &mut U,
    ) {
        let silence = self.liveness.silence_at_timer(now, due, shared.config.max_rto);
        // A stranger who has been told what he did wrong, and goes, is nobody's concern.
        if self.standing.vouched && self.standing.proven && self.liveness.tell(silence) {
            upper.peer_silent(self.addr, self.standing.ever_known);
        }
        if Liveness::is_death(silence, probes, shared.config.peer_timeout) {
            self.die(now, silence, shared, upper);
        }
    }

    /// For how long it has been asked in vain, if it has answered before.
    pub(crate) fn silence(&self, now: Time) -> Option<Nanos> {
        let asked = self.standing.ever_known && !self.liveness.dead && self.busy();
        (asked && self.liveness.silent_probes + self.hello.sent > 0).then(|| self.liveness.silence(now))
    }

    /// It is dead: its silence says so, or its host.
    pub(crate) fn die<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        silence: Nanos,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        shared.stats.unresponsive_remote_events += (self.standing.vouched && self.standing.proven) as u64;
        shared.trace.emit(now, self.id, || Event::PeerDied { silence });
        self.give_up(now, shared, upper);
    }

    /// There is a reason to try again with a peer that counted as dead.
    pub(crate) fn revive(&mut self, now: Time) {
        if self.liveness.revive(now) {
            (self.hello.at, self.hello.sent) = (now, 0);
        }
    }

    fn check_paths<U: UpperLayer<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        if self.outgoing.as_ref().is_none_or(|outgoing| outgoing.paths.next_event() > now) {
            return;
        }
        // The question must be that of `deadline`, or a clock that has jumped leaves a deadline that nothing meets.
        if !self
            .outgoing
            .as_ref()
            .is_some_and(|outgoing| self.probing_worthwhile(outgoing.paths.next_event()))
        {
            return;
        }
        let patience = self.probe_timeout(shared);
        let Some(mut outgoing) = self.outgoing.take() else { return };
        let mut findings = Findings::default();
        while let Some(probe) = outgoing.paths.poll_probe(now, patience, shared, &mut findings) {
            self.probes.push_back(probe);
        }
        if !findings.down.is_empty() {
            self.leave_paths(now, patience, &findings, &mut outgoing, shared, upper);
        }
        findings.rerolled.iter().for_each(|path| outgoing.selector.on_reroll(path));
        self.outgoing = Some(outgoing);
        self.patience.set(None);
    }

    /// Paths have gone down: what they held is lost, unless it is not the paths at all. (The controller has been told of
    /// each packet whose timer made a path suspect.)
    fn leave_paths<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        patience: Nanos,
        findings: &Findings,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        shared.stats.impaired_remote_conn_events += findings.down.len() as u64;
        if outgoing.paths.undo_collapse(now, patience, shared) {
            return;
        }
        for path in findings.down.iter() {
            outgoing.selector.on_path_down(now, path);
            while outgoing.paths.get(path).head != NO_PSN {
                shared.stats.lost_by_path_down += 1;
                let psn = Psn(outgoing.paths.get(path).head);
                self.lose(now, psn, LossCause::PathDown, outgoing, shared, upper);
            }
        }
    }

    /// A packet is lost: it waits to be retransmitted, or, of an unreliable message, is given up.
    pub(crate) fn lose<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        psn: Psn,
        cause: LossCause,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let packet = self.sent.lose(psn, &mut outgoing.paths);
        self.lost.push_back(psn);
        shared.trace.emit(now, self.id, || {
            let age = now.since(packet.sent);
            Event::PacketLost { psn, path: packet.path, tx_count: packet.tx_count, cause, age }
        });
        let message = self.messages.get(packet.message);
        if !message.over && matches!(message.op, Op::Send { datagram: true, .. }) {
            let token = self.messages.token(packet.message);
            self.close_message(packet.message);
            if let Some(token) = token {
                self.complete(now, token, Ok(()), shared, upper);
            }
        }
    }

    /// How much later than a lost packet another one was sent that has arrived, where paths are not FIFO.
    pub(crate) fn reorder_window(&mut self, now: Time, outgoing: &Outgoing, shared: &Shared) -> Nanos {
        let (base, variation) = (shared.config.base_rtt, self.rtt.variation());
        self.reordering.window(now, base, variation, || outgoing.paths.rtt_span())
    }

    /// Finds lost what has been overtaken: `reached` are transmissions that arrived, by path.
    pub(crate) fn find_losses<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        reached: &[(PathId, u64)],
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        if self.reordering.is_active() {
            if !self.reordering.settle(now, self.rtt.smoothed(shared.config.base_rtt)) {
                return self.find_late(now, outgoing, shared, upper);
            }
            let rule = Event::LossRule { rule: "path_order", window: Nanos::ZERO };
            shared.trace.emit(now, self.id, || rule);
        }
        let config = &shared.config;
        if config.receiver_hint && self.share.senders >= SHARED_QUEUE && !config.learn_base_rtt {
            let window = Nanos(SHARED_ROUNDS * config.base_rtt.0) + self.rtt.variation();
            self.lose_older(now, window, outgoing, shared, upper);
        }
        // On one path packets arrive in order: what was sent before the newest arrival and is not there is lost.
        for &(path, order) in reached {
            loop {
                let head = outgoing.paths.get(path).head;
                let Some(&packet) = self.sent.get(Psn(head)).filter(|_| head != NO_PSN) else { break };
                if packet.order >= order || self.too_recent(now, &packet, outgoing, shared) {
                    break;
                }
                shared.stats.lost_by_path_order += 1;
                outgoing.selector.on_loss(now, path);
                outgoing.controller.on_loss(now);
                self.lose(now, Psn(head), LossCause::PathOrder, outgoing, shared, upper);
            }
        }
    }

    /// Finds lost what was sent more than a reordering window before something that has arrived.
    fn find_late<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let window = self.reorder_window(now, outgoing, shared);
        self.lose_older(now, window, outgoing, shared, upper);
    }

    /// What was sent more than `window` before something that has arrived is lost.
    fn lose_older<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        window: Nanos,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        while let Some(psn) = self.sent.oldest() {
            let Some(&packet) = self.sent.get(psn) else { break };
            if packet.sent + window >= self.newest_delivered
                || self.too_recent(now, &packet, outgoing, shared)
            {
                break;
            }
            shared.stats.lost_by_rack += 1;
            outgoing.selector.on_loss(now, packet.path);
            outgoing.controller.on_loss(now);
            self.lose(now, psn, LossCause::Reordering, outgoing, shared, upper);
        }
    }
}
