//! Loss and silence: when a packet counts as lost, when paths are asked, and when silence is death.

use crate::paths::NO_PSN;
use crate::peer::{Outgoing, Peer, Shared};
use crate::selector::PathSet;
use crate::{Payload, PeerLoss, Upper};
use srd_wire::{Nanos, Op, PathId, Probe, Psn, Status, Time};

/// Probes into silence before a peer can count as dead: a clock that jumps is not a peer that died.
const PROBES_TO_DEATH: u32 = 8;
/// Silence that is worth telling, though it need not be death.
const SILENCE_TO_TELL: Nanos = Nanos::from_secs(3);
/// Other paths asked when a packet is sent again into silence.
const PATHS_ASKED: usize = 2;
/// Transmissions of one packet before the timer doubles, and how often it does. It stays short: it holds up the timers
/// of the packets behind.
const FREE_RETRIES: u8 = 2;
const MAX_BACKOFF: u8 = 4;
/// Packets of so many bytes of payload are sent again where larger ones are asked about. CONGESTION_CONTROL, section 6.
const SMALL: u16 = 256;
/// How long after the last message paths that are down are still asked.
const PROBE_AFTERTIME: Nanos = Nanos::from_secs(1);

impl<P: Payload> Peer<P> {
    /// How long a packet may go unanswered while others are answered.
    pub(crate) fn retransmission_timeout(&self, shared: &Shared) -> Nanos {
        let config = &shared.config;
        // 3B and srtt + 4 var: CC_FINDINGS, "Loss".
        let floor = Nanos(3 * config.base_rtt.0).max(config.min_rto);
        (self.rtt.with_variation(4.0) + config.ack_delay).max(floor).min(config.max_rto)
    }

    /// How long silence may last when nothing more is to be sent.
    fn probe_timeout(&self, shared: &Shared) -> Nanos {
        let config = &shared.config;
        // 2B and srtt + 2 var: CC_FINDINGS, "Loss".
        let floor = Nanos(2 * config.base_rtt.0).max(config.min_pto);
        (self.rtt.with_variation(2.0) + config.ack_delay).max(floor).min(config.max_rto)
    }

    /// When the oldest outstanding packet must be looked at.
    pub(crate) fn loss_deadline(&self, shared: &Shared) -> Time {
        if self.dead {
            return Time::NEVER;
        }
        let Some(packet) = self.sent.oldest().and_then(|psn| self.sent.get(psn)) else { return Time::NEVER };
        // A packet that is lost again and again waits longer each time.
        let backoff = packet.tx_count.saturating_sub(FREE_RETRIES).min(MAX_BACKOFF);
        let late = packet.sent < self.newest_delivered;
        let timeout = if late { self.retransmission_timeout(shared) } else { self.probe_timeout(shared) };
        let at = packet.sent + Nanos(timeout.0 << backoff).min(shared.config.max_rto);
        if late { at } else { at.max(self.quiet_until) }
    }

    /// Whether it is worth asking paths that are not in use at time `at`: while there is traffic, or was a moment ago.
    pub(crate) fn probing_worthwhile(&self, at: Time) -> bool {
        !self.dead && (self.busy() || at <= self.last_active + PROBE_AFTERTIME)
    }

    /// When the oldest held packet is sent again.
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
    pub(crate) fn on_timer<U: Upper<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        self.ask_for_life(now, shared);
        if self.outgoing.is_some() {
            if self.open(shared) {
                self.check_held(now);
                self.check_losses(now, shared, upper);
                self.check_paths(now, shared, upper);
            } else if self.messages.len() > 0 {
                self.check_death(now, self.introduce_at, shared, self.introductions, upper);
            }
        }
        self.release_if_idle(now, shared);
    }

    fn check_losses<U: Upper<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
        loop {
            let due = self.loss_deadline(shared);
            if now < due {
                return;
            }
            let Some(psn) = self.sent.oldest() else { return };
            let Some(&packet) = self.sent.get(psn) else { return };
            let Some(mut outgoing) = self.outgoing.take() else { return };
            let path_fault = packet.sent < self.newest_delivered;
            if !path_fault && self.silent_probes == 0 && packet.len > SMALL {
                self.outgoing = Some(outgoing);
                self.ask(now, packet.path, shared);
                return;
            }
            shared.stats.retrans_timeout_events += 1;
            if path_fault {
                shared.stats.lost_by_timer += 1;
                outgoing.selector.on_timeout(packet.path);
                outgoing.paths.on_timeout(now, packet.path, packet.sent);
                outgoing.controller.on_loss(now);
            }
            self.lose(psn, &mut outgoing, upper);
            self.outgoing = Some(outgoing);
            if path_fault && self.mtu.on_loss(now, packet.sent, packet.bytes) {
                self.fail_unsendable(packet.message, upper);
            }
            if !path_fault {
                self.probe_silence(now, due, psn, packet.path, shared, upper);
                return;
            }
        }
    }

    /// The packets of this message are too large for what the network has become.
    fn fail_unsendable<U: Upper<P>>(&mut self, slot: u32, upper: &mut U) {
        if !self.messages.get(slot).over
            && let Some(token) = self.messages.token(slot)
        {
            self.close_message(slot);
            upper.outcome(self.id, token, Err(Status::Unresponsive));
        }
    }

    /// Nothing sent since has been answered either: one packet is sent again to draw an answer; the rest waits.
    #[allow(clippy::too_many_arguments)]
    fn probe_silence<U: Upper<P>>(
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
        self.silent_probes += 1;
        self.ask_other_paths(now, path, PATHS_ASKED, shared);
        let backoff = self.retransmission_timeout(shared).0 << self.silent_probes.min(16);
        self.quiet_until = now + Nanos(backoff).min(shared.config.max_rto);
        self.check_death(now, due, shared, self.silent_probes, upper);
    }

    /// The first answer to silence, unless the packet is small: header-only questions, whose answers name all that has
    /// arrived. They find room where a hundred senders that are silent together would drown each other in data.
    fn ask(&mut self, now: Time, path: PathId, shared: &mut Shared) {
        shared.stats.tail_probes += 1;
        self.silent_probes += 1;
        self.ask_other_paths(now, path, PATHS_ASKED + 1, shared);
        self.quiet_until = now + self.probe_timeout(shared);
    }

    /// Header-only questions on other paths: the path that the packet takes now may be as dead as its first.
    fn ask_other_paths(&mut self, now: Time, failed: PathId, count: usize, shared: &mut Shared) {
        let Some(outgoing) = &mut self.outgoing else { return };
        for _ in 0..count {
            let path = outgoing.paths.any_usable(failed, &mut shared.rng);
            self.probes.push_back(Probe { path, number: 0, stamp: now.stamp() });
            shared.stats.path_probes_sent += 1;
        }
    }

    /// Whether the peer is dead, judged at a timer that was to fire at `due`. If it is later than any timer waits (this
    /// process stood still, or its clock jumped), that time says nothing about the peer and does not count.
    fn check_death<U: Upper<P>>(
        &mut self,
        now: Time,
        due: Time,
        shared: &mut Shared,
        probes: u32,
        upper: &mut U,
    ) {
        let stood_still = now.since(due) - shared.config.max_rto;
        self.waiting_since = (self.waiting_since.max(self.last_heard) + stood_still).min(now);
        let silence = now.since(self.waiting_since);
        if silence >= SILENCE_TO_TELL && !self.silence_told {
            self.silence_told = true;
            upper.peer_silent(self.addr, self.ever_known);
        }
        if silence < shared.config.peer_timeout || probes < PROBES_TO_DEATH {
            return;
        }
        shared.stats.unresponsive_remote_events += 1;
        let answered_before = self.ever_known;
        let status = if answered_before { Status::Unresponsive } else { Status::Unreachable };
        self.restart_sending(now, status, shared, upper);
        self.dead = true;
        for (cookie, head) in self.partials.abandon() {
            upper.abandon(cookie, &head);
        }
        upper.peer_lost(self.id, self.addr, PeerLoss::Dead { answered_before });
    }

    /// There is a reason to try again with a peer that counted as dead.
    pub(crate) fn revive(&mut self, now: Time) {
        if self.dead {
            self.dead = false;
            self.silent_probes = 0;
            self.introductions = 0;
            self.quiet_until = now;
            self.introduce_at = now;
            self.waiting_since = now;
        }
    }

    fn check_paths<U: Upper<P>>(&mut self, now: Time, shared: &mut Shared, upper: &mut U) {
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
        let mut down = PathSet::default();
        while let Some(probe) =
            outgoing.paths.poll_probe(now, patience, &mut shared.rng, &mut shared.stats, &mut down)
        {
            self.probes.push_back(probe);
        }
        for path in down.iter() {
            shared.stats.impaired_remote_conn_events += 1;
            while outgoing.paths.get(path).head != NO_PSN {
                shared.stats.lost_by_path_down += 1;
                let psn = Psn(outgoing.paths.get(path).head);
                self.lose(psn, &mut outgoing, upper);
            }
        }
        self.outgoing = Some(outgoing);
    }

    /// A packet is lost: it waits to be sent again, or, of an unreliable message, is given up.
    fn lose<U: Upper<P>>(&mut self, psn: Psn, outgoing: &mut Outgoing, upper: &mut U) {
        let packet = self.sent.lose(psn, &mut outgoing.paths);
        self.lost.push_back(psn);
        let message = self.messages.get(packet.message);
        if !message.over && matches!(message.op, Op::Send { datagram: true, .. }) {
            let token = self.messages.token(packet.message);
            self.close_message(packet.message);
            if let Some(token) = token {
                upper.outcome(self.id, token, Ok(()));
            }
        }
    }

    /// Finds lost what paths have overtaken: `reached` are the newest transmissions that arrived, by path.
    pub(crate) fn find_losses<U: Upper<P>>(
        &mut self,
        now: Time,
        reached: &[(PathId, u64)],
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        if self.reordering {
            while let Some(psn) = self.sent.oldest() {
                let Some(&packet) = self.sent.get(psn) else { break };
                if packet.sent + self.reorder_window >= self.newest_delivered {
                    break;
                }
                shared.stats.lost_by_rack += 1;
                outgoing.selector.on_loss(packet.path);
                outgoing.controller.on_loss(now);
                self.lose(psn, outgoing, upper);
            }
            return;
        }
        // On one path packets arrive in order: what was sent before the newest arrival and is not there is lost.
        for &(path, order) in reached {
            loop {
                let head = outgoing.paths.get(path).head;
                if head == NO_PSN || self.sent.get(Psn(head)).is_none_or(|packet| packet.order >= order) {
                    break;
                }
                shared.stats.lost_by_path_order += 1;
                outgoing.selector.on_loss(path);
                outgoing.controller.on_loss(now);
                self.lose(Psn(head), outgoing, upper);
            }
        }
    }
}
