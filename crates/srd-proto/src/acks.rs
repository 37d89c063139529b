//! What an ACK settles, and what it teaches of round trips, paths and rates.

use crate::controller::AckSample;
use crate::messages::Purpose;
use crate::peer::{Outgoing, Peer, Shared};
use crate::{Payload, Upper};
use arrayvec::ArrayVec;
use srd_wire::{Ack, Echo, MAX_ECHOES, Nanos, PathId, Psn, Stamp, Status, Time};

/// Probes into silence after which the silence was the peer's and not the paths'.
const PROBES_TO_FORGIVE: u32 = 4;
/// Round trips within which two spurious retransmissions mean that paths are not FIFO. CONGESTION_CONTROL, section 6.
const SPURIOUS_ROUNDS: u64 = 64;
/// Longest round trip believed; beyond it a host stood still, or a clock was set.
const MAX_RTT: Nanos = Nanos::from_secs(1);

/// What an echo tells of a path.
struct Sample {
    path: PathId,
    /// The network's part of the round trip.
    rtt: Option<Nanos>,
    /// The hosts'.
    host: Nanos,
}

impl<P: Payload> Peer<P> {
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
        let mut samples: ArrayVec<Sample, MAX_ECHOES> = ArrayVec::new();
        for echo in &ack.echoes {
            if !outgoing.paths.has(echo.path) {
                shared.stats.bad_acks += 1;
                continue;
            }
            self.on_echo(now, echo, &mut outgoing, &mut reached, &mut samples, shared);
        }
        let mut newly_acked = self.settle(now, ack, &mut outgoing, upper);
        self.hold_withheld(now, ack, &mut outgoing, shared);
        if newly_acked > 0 || !samples.is_empty() {
            self.note_answer(now, &mut outgoing, shared);
        }
        self.estimate_delivery(ack, shared);
        self.note_senders(ack.senders);
        let mut sample = AckSample {
            now,
            rtt: None,
            host: Nanos::ZERO,
            local: now.since(shared.arrived),
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
        let mut left = samples.len() as u32;
        for &Sample { path, rtt, host } in &samples {
            let usual = self.rtt.smoothed(shared.config.base_rtt) + Nanos(shared.config.base_rtt.0 / 4);
            outgoing.selector.on_ack(path, rtt.is_some_and(|rtt| rtt <= usual));
            if let Some(rtt) = rtt {
                self.rtt.add(now, rtt);
            }
            (sample.rtt, sample.host) = (rtt, host);
            // What the ACK covers, divided among what it says of paths.
            sample.newly_acked = newly_acked / left + (newly_acked % left != 0) as u32;
            newly_acked -= sample.newly_acked;
            left -= 1;
            outgoing.controller.on_ack(&sample);
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
        samples: &mut ArrayVec<Sample, MAX_ECHOES>,
        shared: &mut Shared,
    ) {
        let elapsed = shared.arrived.stamp().since(echo.stamp);
        let hold = echo.hold.nanos();
        let rtt = hold.map(|hold| elapsed - hold).filter(|&rtt| rtt < MAX_RTT);
        let host = hold.unwrap_or_default() + now.since(shared.arrived);
        if echo.tx_count == Echo::PROBE {
            outgoing.paths.on_probe_echo(now, echo, &mut shared.stats);
            self.mtu.on_echo(now, echo.psn.0);
            // What was sent before this probe (within the resolution of its stamp) and is not acknowledged by its
            // answer is late.
            let sent = Time((shared.arrived.0 + Stamp::UNIT.0).saturating_sub(elapsed.0));
            if rtt.is_some() {
                self.newest_delivered = self.newest_delivered.max(sent);
                self.note_answer(now, outgoing, shared);
            }
            return;
        }
        samples.push(Sample { path: echo.path, rtt, host });
        let Some(&packet) = self.sent.get(echo.psn) else {
            // Settled by an earlier ACK; the path has carried it all the same.
            let sent = rtt.map_or(Time(0), |_| Time(shared.arrived.0.saturating_sub(elapsed.0)));
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
        self.silence_told = false;
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
}
