//! The sending half of a context: what leaves next, what an ACK settles, what is lost, and when silence is death.

use crate::controller::AckSample;
use crate::messages::Purpose;
use crate::paths::NO_PSN;
use crate::peer::{Outgoing, Peer, Shared};
use crate::selector::PathSet;
use crate::sent::SentPacket;
use crate::{Payload, PeerLoss, Transmit, Upper};
use arrayvec::ArrayVec;
use rand::Rng;
use srd_wire::codec::{self, ACK_LEN, ECHO_LEN, HELLO_LEN, SACK_WORD_LEN};
use srd_wire::{Ack, Body, Data, Echo, MAX_ECHOES, Nanos, Op, PathId, Probe, Psn, Stamp, Status, Time};

/// Probes into silence before a peer can count as dead: a clock that jumps is not a peer that died.
const PROBES_TO_DEATH: u32 = 8;
/// Probes into silence after which the silence was the peer's and not the paths'.
const PROBES_TO_FORGIVE: u32 = 4;
/// Other paths asked when a packet is sent again into silence.
const PATHS_ASKED: usize = 2;
/// Transmissions of one packet before the timer doubles, and how often it does. It stays short: it holds up the timers
/// of the packets behind.
const FREE_RETRIES: u8 = 2;
const MAX_BACKOFF: u8 = 4;
/// How long after the last message paths that are down are still asked.
const PROBE_AFTERTIME: Nanos = Nanos::from_secs(1);
/// Round trips within which two spurious retransmissions mean that paths are not FIFO. CONGESTION_CONTROL, section 6.
const SPURIOUS_ROUNDS: u64 = 64;
/// Longest round trip believed; beyond it a host stood still, or a clock was set.
const MAX_RTT: Nanos = Nanos::from_secs(1);
/// RDMA payloads are cut at multiples of this, so that aligned blocks are written whole.
const BLOCK: u32 = 128;
/// Padding that is worth an equal size within a burst, in bytes.
const MAX_PADDING: u16 = 128;
/// Share of the receiver's socket buffer that all senders together may fill: the kernel charges a datagram with up to
/// twice its size.
const RCVBUF_SHARE: u64 = 2;

impl<P: Payload> Peer<P> {
    // ---- Timers ----

    /// How long a packet may go unanswered while others are answered.
    fn retransmission_timeout(&self, shared: &Shared) -> Nanos {
        let config = &shared.config;
        // 3B and srtt + 4 var: CC_FINDINGS, "Loss".
        let floor = Nanos(3 * config.base_rtt.0).max(config.min_rto);
        (self.rtt.with_variation(4.0) + config.ack_delay).max(floor).min(config.max_rto)
    }

    /// How long silence may last when nothing more is to be sent.
    fn probe_timeout(&self, shared: &Shared) -> Nanos {
        let config = &shared.config;
        if !self.rtt.measured() {
            return self.retransmission_timeout(shared);
        }
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
        let timeout = if late || self.messages.queued_bytes() > 0 {
            self.retransmission_timeout(shared)
        } else {
            self.probe_timeout(shared)
        };
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
            shared.stats.retrans_timeout_events += 1;
            let path_fault = packet.sent < self.newest_delivered;
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
        self.ask_other_paths(now, path, shared);
        let backoff = self.retransmission_timeout(shared).0 << self.silent_probes.min(16);
        self.quiet_until = now + Nanos(backoff).min(shared.config.max_rto);
        self.check_death(now, due, shared, self.silent_probes, upper);
    }

    /// Header-only questions on other paths: the path that the packet takes now may be as dead as its first.
    fn ask_other_paths(&mut self, now: Time, failed: PathId, shared: &mut Shared) {
        let Some(outgoing) = &mut self.outgoing else { return };
        for _ in 0..PATHS_ASKED {
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

    // ---- Losses ----

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

    // ---- Messages ----

    /// Nothing more of the message is sent or read. If a part of it may have arrived, the peer is told to forget it.
    pub(crate) fn close_message(&mut self, slot: u32) {
        let message = self.messages.get(slot);
        let (id, in_parts) = (message.id, message.started && message.len > message.segment as u32);
        self.messages.give_up(slot);
        if in_parts {
            self.messages.add(Purpose::Forget, Op::Skip, P::empty(), Some(id));
        }
    }

    /// The peer has refused the message of packet `refused`, which it will not acknowledge before it knows that we know.
    pub(crate) fn on_refusal<U: Upper<P>>(
        &mut self,
        refused: Psn,
        status: Status,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        shared.stats.refusals_received += 1;
        let Some(slot) = self.sent.get(refused).map(|packet| packet.message) else { return };
        if self.messages.get(slot).over {
            return;
        }
        let token = self.messages.token(slot);
        self.messages.give_up(slot); // the peer has closed it already
        if let Some(token) = token {
            upper.outcome(self.id, token, Err(status));
        }
    }

    // ---- ACKs ----

    /// An ACK has come.
    pub(crate) fn on_ack<U: Upper<P>>(&mut self, now: Time, ack: &Ack, shared: &mut Shared, upper: &mut U) {
        shared.stats.acks_received += 1;
        let ahead = ack.cum.offset_from(self.sent.una());
        if ahead < u32::MAX / 2 && ahead > self.sent.span() {
            shared.stats.bad_acks += 1;
            return;
        }
        let Some(mut outgoing) = self.outgoing.take() else {
            shared.stats.bad_acks += 1;
            return;
        };
        let inflight_bytes = self.sent.inflight_bytes();
        let mut reached: ArrayVec<(PathId, u64), MAX_ECHOES> = ArrayVec::new();
        let mut samples: ArrayVec<(PathId, Option<Nanos>), MAX_ECHOES> = ArrayVec::new();
        for echo in &ack.echoes {
            if !outgoing.paths.has(echo.path) {
                shared.stats.bad_acks += 1;
                continue;
            }
            self.on_echo(now, echo, &mut outgoing, &mut reached, &mut samples, shared);
        }
        let newly_acked = self.settle(now, ack, &mut outgoing, upper);
        self.hold_withheld(now, ack, &mut outgoing, shared);
        if newly_acked > 0 || !samples.is_empty() {
            self.note_answer(now, &mut outgoing, shared);
        }
        self.estimate_delivery(ack, shared);
        self.share_of = ack.senders;
        let mut sample = AckSample {
            now,
            rtt: None,
            min_rtt: self.rtt.min(),
            newly_acked,
            inflight_bytes,
            window_limited: self.window_limited,
            senders: ack.senders,
            delivery_rate: self.delivery_rate,
        };
        if samples.is_empty() {
            outgoing.controller.on_ack(&sample);
        }
        for &(path, rtt) in &samples {
            let usual = self.rtt.smoothed(shared.config.base_rtt) + Nanos(shared.config.base_rtt.0 / 4);
            outgoing.selector.on_ack(path, rtt.is_some_and(|rtt| rtt <= usual));
            if let Some(rtt) = rtt {
                self.rtt.add(now, rtt);
            }
            sample.rtt = rtt;
            outgoing.controller.on_ack(&sample);
            sample.newly_acked = 0;
        }
        self.find_losses(now, &reached, &mut outgoing, shared, upper);
        self.outgoing = Some(outgoing);
    }

    fn on_echo(
        &mut self,
        now: Time,
        echo: &Echo,
        outgoing: &mut Outgoing,
        reached: &mut ArrayVec<(PathId, u64), MAX_ECHOES>,
        samples: &mut ArrayVec<(PathId, Option<Nanos>), MAX_ECHOES>,
        shared: &mut Shared,
    ) {
        let elapsed = now.stamp().since(echo.stamp);
        let rtt = echo.hold.nanos().map(|hold| elapsed - hold).filter(|&rtt| rtt < MAX_RTT);
        if echo.tx_count == Echo::PROBE {
            outgoing.paths.on_probe_echo(now, echo, &mut shared.stats);
            self.mtu.on_echo(now, echo.psn.0);
            // What was sent before this probe (within the resolution of its stamp) and is not acknowledged by its
            // answer is late.
            let sent = Time((now.0 + Stamp::UNIT.0).saturating_sub(elapsed.0));
            if rtt.is_some() {
                self.newest_delivered = self.newest_delivered.max(sent);
                self.note_answer(now, outgoing, shared);
            }
            return;
        }
        samples.push((echo.path, rtt));
        let Some(&packet) = self.sent.get(echo.psn) else {
            // Settled by an earlier ACK; the path has carried it all the same.
            let sent = rtt.map_or(Time(0), |_| Time(now.0.saturating_sub(elapsed.0)));
            outgoing.paths.on_success(echo.path, sent, &mut shared.stats);
            return;
        };
        if packet.tx_count == echo.tx_count && packet.path == echo.path {
            outgoing.paths.on_success(echo.path, packet.sent, &mut shared.stats);
            self.newest_delivered = self.newest_delivered.max(packet.sent);
            reached.push((echo.path, packet.order));
            if let Some(blamed) = packet.blamed {
                outgoing.selector.on_timeout(blamed);
                outgoing.paths.on_timeout(now, blamed, packet.sent);
            }
        } else if echo.tx_count < packet.tx_count {
            self.on_spurious(now, shared);
        }
    }

    /// A packet was sent again although its first copy has arrived.
    fn on_spurious(&mut self, now: Time, shared: &mut Shared) {
        shared.stats.spurious_retrans += 1;
        let rtt = self.rtt.smoothed(shared.config.base_rtt);
        if self.spurious_at > Time(0) && now.since(self.spurious_at).0 < SPURIOUS_ROUNDS * rtt.0 {
            self.reordering = true;
            let step = Nanos(shared.config.base_rtt.0 / 4);
            self.reorder_window = (self.reorder_window + step).min(rtt);
        }
        self.spurious_at = now;
    }

    /// Settles what the ACK covers; how many packets it newly covers.
    fn settle<U: Upper<P>>(&mut self, now: Time, ack: &Ack, outgoing: &mut Outgoing, upper: &mut U) -> u32 {
        let mut newly_acked = 0;
        let ahead = ack.cum.offset_from(self.sent.una());
        if ahead < u32::MAX / 2 {
            for i in 0..ahead {
                let psn = self.sent.una().plus(i);
                newly_acked += self.settle_packet(now, psn, outgoing, upper) as u32;
            }
        }
        for (word, &bits) in ack.sack.iter().enumerate() {
            let first = ack.cum.plus(1 + 64 * word as u32);
            let offset = first.offset_from(self.sent.una());
            if offset >= self.sent.span() {
                if offset > u32::MAX / 2 {
                    continue; // an old ACK
                }
                break;
            }
            let mut new = bits & !self.sent.acked_word(first);
            while new != 0 {
                let psn = first.plus(new.trailing_zeros());
                new &= new - 1;
                newly_acked += self.settle_packet(now, psn, outgoing, upper) as u32;
            }
        }
        self.sent.advance();
        if newly_acked > 0 {
            self.acknowledged = true;
        }
        newly_acked
    }

    /// Packets that have arrived and are not acknowledged all the same: their messages are refused, and the peer waits
    /// to hear that we know. There is nothing to send again.
    fn hold_withheld(&mut self, now: Time, ack: &Ack, outgoing: &mut Outgoing, shared: &Shared) {
        for echo in &ack.echoes {
            if echo.tx_count != Echo::PROBE && self.sent.is_in_flight(echo.psn) {
                self.sent.lose(echo.psn, &mut outgoing.paths);
                self.held.push_back((now + shared.config.max_rto, echo.psn));
            }
        }
    }

    fn settle_packet<U: Upper<P>>(
        &mut self,
        now: Time,
        psn: Psn,
        outgoing: &mut Outgoing,
        upper: &mut U,
    ) -> bool {
        let Some(packet) = self.sent.acknowledge(psn, &mut outgoing.paths) else { return false };
        if packet.tx_count == 0 {
            self.newest_delivered = self.newest_delivered.max(packet.sent);
        }
        self.mtu.on_ack(packet.bytes);
        let slot = packet.message;
        let message = self.messages.get(slot);
        message.outstanding -= 1;
        if message.outstanding == 0 && message.all_sent && !message.over {
            message.over = true;
            match message.purpose {
                Purpose::Upper(token) => upper.outcome(self.id, token, Ok(())),
                Purpose::Refusal { withheld } => self.refusal_known(now, withheld),
                Purpose::Forget => {}
            }
        }
        self.messages.free_if_done(slot);
        true
    }

    fn note_answer(&mut self, now: Time, outgoing: &mut Outgoing, shared: &mut Shared) {
        if self.silent_probes >= PROBES_TO_FORGIVE {
            outgoing.paths.forgive(&mut shared.stats);
        }
        self.silent_probes = 0;
        self.quiet_until = Time(0);
        self.waiting_since = now;
    }

    fn estimate_delivery(&mut self, ack: &Ack, shared: &Shared) {
        let Some((bytes, at)) = self.delivered else {
            self.delivered = Some((ack.rcvd_bytes, ack.rx_time));
            return;
        };
        let span = ack.rx_time.since(at);
        // Shorter spans are artefacts of batching (CONGESTION_CONTROL, section 2); very long ones are old ACKs.
        if span.0 < (shared.config.base_rtt.0 / 4).max(1000) {
            return;
        }
        if span > MAX_RTT {
            return;
        }
        let rate = ack.rcvd_bytes.wrapping_sub(bytes) as f64 / span.as_f64();
        // The best rate of late; it fades over some tens of samples.
        self.delivery_rate = rate.max(self.delivery_rate * (1.0 - 1.0 / 64.0));
        self.delivered = Some((ack.rcvd_bytes, ack.rx_time));
    }

    fn find_losses<U: Upper<P>>(
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

    // ---- What leaves next ----

    /// Whether data waits to be sent, for the first time or again.
    pub(crate) fn has_data(&self) -> bool {
        !self.lost.is_empty() || self.messages.has_queued()
    }

    /// The next packet to send now.
    pub(crate) fn poll_transmit(&mut self, now: Time, shared: &mut Shared) -> Option<Transmit<P>> {
        if self.incompatible {
            return None;
        }
        if !self.open(shared) {
            let wanted = self.messages.len() > 0 || self.arrivals.ack_at <= now;
            if !wanted || now < self.introduce_at || self.dead {
                return None;
            }
            self.introductions += 1;
            let pause =
                Nanos(shared.config.min_rto.0 << self.introductions.min(16)).min(shared.config.max_rto);
            self.introduce_at = now + pause;
            self.arrivals.ack_at = Time::NEVER;
            return Some(self.bare_transmit(now, shared));
        }
        let ack_due = self.arrivals.ack_at <= now || self.arrivals.unacked >= shared.config.ack_every;
        if ack_due && !self.next_data_has_room_for_ack() {
            return Some(self.bare_transmit(now, shared));
        }
        // A packet sent into silence goes before the probes that ask about it, so that their answers judge it.
        if self.urgent > 0
            && let Some(data) = self.poll_data(now, shared)
        {
            return Some(data);
        }
        if let Some(probe) = self.probes.pop_front() {
            let entropy = self.outgoing(shared).paths.get(probe.path).entropy;
            let probe = Probe { stamp: now.stamp(), ..probe };
            return Some(self.transmit(shared, entropy, 0, None, Body::Probe(probe)));
        }
        if now >= self.mtu.next_event() && self.busy() && !self.dead {
            let patience = self.retransmission_timeout(shared);
            if let Some((number, size)) = self.mtu.poll(now, patience) {
                return Some(self.size_probe(now, number, size, shared));
            }
        }
        let data = self.poll_data(now, shared);
        if data.is_none() && ack_due {
            return Some(self.bare_transmit(now, shared));
        }
        data
    }

    /// A probe that is padded to `size` bytes.
    fn size_probe(&mut self, now: Time, number: u32, size: u16, shared: &mut Shared) -> Transmit<P> {
        let outgoing = self.outgoing(shared);
        let path = outgoing.selector.pick(now, outgoing.paths.usable(), None);
        let entropy = outgoing.paths.get(path).entropy;
        shared.stats.mtu_probes_sent += 1;
        let probe = Body::Probe(Probe { path, number, stamp: now.stamp() });
        let mut transmit = self.transmit(shared, entropy, 0, None, probe);
        transmit.pad_to = size.saturating_sub(codec::header_len(&transmit.packet) as u16);
        transmit
    }

    /// Bytes that the pending ACK would add.
    fn ack_bytes(&self) -> usize {
        ACK_LEN + self.arrivals.echo_count() * ECHO_LEN + self.arrivals.sack_words() * SACK_WORD_LEN
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

    fn window_bytes(&self, allowed: u64, shared: &Shared) -> u64 {
        if self.remote_rcvbuf == 0 {
            return allowed;
        }
        let _ = shared;
        allowed.min(self.remote_rcvbuf / RCVBUF_SHARE / (self.share_of.max(1) as u64))
    }

    fn poll_data(&mut self, now: Time, shared: &mut Shared) -> Option<Transmit<P>> {
        if self.dead {
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
        let control = control && !self.sent.window_exhausted();
        let again = self.lost.front().copied().filter(|_| !control);
        let fresh = if again.is_none() { self.messages.head() } else { None };
        if again.is_none() && !control && (fresh.is_none() || self.sent.window_full()) {
            self.window_limited = fresh.is_some();
            return None;
        }
        let allowance = self.outgoing(shared).controller.allowance();
        let window = self.window_bytes(allowance.window_bytes, shared);
        let packet_bytes = self.max_datagram as u64;
        let urgent = again.is_some() && self.urgent > 0;
        // Whatever the rate says, a packet never waits longer than for its timer.
        self.next_send = self.next_send.min(now + shared.config.max_rto);
        self.pace_gate = self.pace_gate.min(now + shared.config.max_rto);
        if !urgent && !control {
            if self.sent.in_flight() > 0 && self.sent.inflight_bytes() + packet_bytes > window {
                self.window_limited = true;
                self.pace_gate = Time(0);
                return None;
            }
            if now < self.next_send.max(self.pace_gate) {
                self.window_limited = true;
                if self.pace_gate < self.next_send {
                    // Half a burst more, so that packets leave in bursts where the rate allows bursts.
                    let half = allowance.burst_bytes.saturating_sub(packet_bytes) / 2;
                    self.pace_gate = self.next_send + Nanos((half as f64 / allowance.rate) as u64);
                }
                return None;
            }
        }
        self.pace_gate = Time(0);
        self.urgent = self.urgent.saturating_sub(urgent as u32);
        if self.sent.span() == 0 {
            self.waiting_since = now;
        }
        self.last_active = now;
        let mut outgoing = self.outgoing.take()?;
        let blocked_next = self.sent.inflight_bytes() + 2 * packet_bytes > window;
        let ack_request = urgent || blocked_next;
        let (psn, pad_to) = match (again, fresh) {
            (Some(psn), _) => (self.send_again(now, psn, &mut outgoing, shared), 0),
            (None, Some(slot)) => self.send_fresh(now, slot, allowance.burst_bytes, &mut outgoing, shared),
            (None, None) => unreachable!("checked above"),
        };
        let Some(&sent) = self.sent.get(psn) else { unreachable!("just sent") };
        if allowance.rate.is_finite() {
            let credit = Nanos((allowance.burst_bytes as f64 / allowance.rate) as u64);
            let earliest = Time(now.0.saturating_sub(credit.0));
            // +- 5 %, so that senders do not lock step: CC_FINDINGS, law.
            let bytes = (sent.bytes as f64) * shared.rng.random_range(0.95..1.05);
            self.next_send = self.next_send.max(earliest) + Nanos((bytes / allowance.rate) as u64);
        }
        let path = outgoing.paths.get_mut(sent.path);
        path.bytes += sent.len as u64;
        let entropy = path.entropy;
        self.outgoing = Some(outgoing);
        Some(self.data_transmit(now, psn, &sent, ack_request, pad_to, entropy, shared))
    }

    fn send_again(&mut self, now: Time, psn: Psn, outgoing: &mut Outgoing, shared: &mut Shared) -> Psn {
        self.lost.pop_front();
        let Some(&lost) = self.sent.get(psn) else { unreachable!("only lost packets are sent again") };
        if self.messages.get(lost.message).over {
            self.sent.drop_payload(psn);
        }
        let failed = lost.path;
        let path = outgoing
            .paths
            .proven(failed)
            .unwrap_or_else(|| outgoing.selector.pick(now, outgoing.paths.usable(), Some(failed)));
        let packet = self.sent.retransmission(now, psn, path, &mut outgoing.paths);
        shared.stats.retrans_pkts += 1;
        shared.stats.retrans_bytes += packet.len as u64;
        self.burst_left = 0;
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
        let hello = if self.introducing(true) { HELLO_LEN } else { 0 };
        let datagram = self.mtu.datagram() as usize;
        let room = codec::max_payload(&self.messages.get(slot).op, datagram - hello, false) as u32;
        let chunk = shared.config.chunk_bytes;
        let message = self.messages.get(slot);
        let starting = !message.started;
        if starting {
            message.started = true;
            message.segment = segment_size(message.len, room, chunk) as u16;
        }
        let mut len = (message.len - message.next).min(message.segment as u32);
        if let Op::Write { addr, .. } = message.op
            && starting
            && message.len > chunk
        {
            len -= (addr % BLOCK as u64) as u32; // from here on at block boundaries of the destination
        }
        let offset = message.next;
        let pad_to =
            if message.len > message.segment as u32 && message.segment as u32 - len <= MAX_PADDING as u32 {
                message.segment
            } else {
                0
            };
        message.next += len;
        message.outstanding += 1;
        message.all_sent = message.next == message.len;
        let bytes = header_bytes(&message.op) + (pad_to as u32).max(len);
        let whole = if starting { message.len.min(chunk) } else { len };
        let all_sent = message.all_sent;
        let control = !matches!(message.purpose, Purpose::Upper(_));
        self.messages.note_sent(len);

        if !control {
            if self.turn_left == 0 {
                self.turn_left = chunk;
            }
            self.turn_left = if all_sent { 0 } else { self.turn_left.saturating_sub(len) };
            if self.turn_left == 0 && !all_sent {
                self.messages.end_turn();
            }
        }

        let needed = (whole as u64).min(burst_bytes).max(bytes as u64);
        if self.burst_left < needed || !outgoing.paths.usable().contains(self.burst_path) {
            self.burst_path = outgoing.selector.pick(now, outgoing.paths.usable(), None);
            self.burst_left = burst_bytes.max(bytes as u64);
        }
        self.burst_left -= (bytes as u64).min(self.burst_left);
        let path = self.burst_path;
        let psn = self.sent.first_transmission(
            now,
            path,
            slot,
            offset,
            len as u16,
            bytes as u16,
            &mut outgoing.paths,
        );
        (psn, pad_to)
    }

    #[allow(clippy::too_many_arguments)]
    fn data_transmit(
        &mut self,
        now: Time,
        psn: Psn,
        sent: &SentPacket,
        ack_request: bool,
        pad_to: u16,
        entropy: u16,
        shared: &mut Shared,
    ) -> Transmit<P> {
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
        let data = Data {
            psn,
            stamp: now.stamp(),
            path: sent.path,
            tx_count: sent.tx_count,
            ack_request,
            msg: message.id,
            len,
            offset,
            op,
            payload,
        };
        // An ACK rides on lone packets only: within a burst it would break the equal sizes.
        let lone = message.len == sent.len as u32 || len == 0;
        let room = self.mtu.datagram() as usize;
        let fits = sent.bytes as usize + HELLO_LEN + self.ack_bytes() <= room;
        let ack = (lone && fits && self.arrivals.ack_at != Time::NEVER).then(|| {
            shared.stats.piggybacked_acks_sent += 1;
            self.arrivals.take_ack(now, shared.load.senders()).into()
        });
        shared.stats.tx_bytes += sent.len as u64;
        self.transmit(shared, entropy, pad_to, ack, Body::Data(data))
    }
}

/// Payload bytes per packet of a message: equal shares for one that crosses in a single chunk; whole blocks for a
/// longer one.
fn segment_size(len: u32, room: u32, chunk: u32) -> u32 {
    if len <= room {
        len
    } else if len <= chunk {
        len.div_ceil(len.div_ceil(room))
    } else {
        room - room % BLOCK
    }
}

/// Bytes of a data packet before its payload.
fn header_bytes(op: &Op) -> u32 {
    const LARGE: usize = 32_768;
    (LARGE - codec::max_payload(op, LARGE, false)) as u32
}
