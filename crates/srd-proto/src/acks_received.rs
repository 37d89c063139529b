//! What an ACK settles, and what it teaches of round trips, paths and rates.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use crate::congestion_control::AckSample;
use crate::events::{Event, LossCause};
use crate::loss::ANSWERED_RETRIES;
use crate::messages::Purpose;
use crate::path_selector::AckedPath;
use crate::peer::{Outgoing, Peer};
use crate::shared::Shared;
use crate::{Payload, UpperLayer};
use arrayvec::ArrayVec;
use srd_wire::{Ack, Echo, MAX_ECHOES, Nanos, PathId, Psn, Stamp, Status, Time};

/// Shortest interval in which a rate is measured: the resolution of hosts' timers (docs/design/congestion-control.md,
/// "Samples of the delivered rate").
const MIN_INTERVAL: Nanos = Nanos::from_micros(1);
/// Longest round trip believed; beyond it a host stood still, or a clock was set.
const MAX_RTT: Nanos = Nanos::from_secs(1);

/// Round trips below this part of the base one are of a network without queues, and in such a time one ACK is learnt from.
const PREDICTED_PART: u64 = 2;

/// What an echo tells of a path.
struct Sample {
    echo: Echo,
    /// The network's part of the round trip.
    rtt: Option<Nanos>,
    /// The hosts'.
    host: Nanos,
}

/// What an ACK says that holds no news ([`Peer::predicted`]).
struct Predicted {
    echo: Echo,
    rtt: Nanos,
    /// When the packet left that it echoes.
    sent: Time,
}

/// What an ACK has brought to light.
struct Evidence {
    /// Transmissions that arrived, by path: those before them on the same path are lost. The echoes', and those that the
    /// ACK covers while older ones of their path are outstanding (the ACK with their echo may have been lost).
    reached: ArrayVec<(PathId, u64), { 2 * MAX_ECHOES }>,
    samples: ArrayVec<Sample, MAX_ECHOES>,
    newly_acked: u32,
    /// The last first transmission that is newly acknowledged.
    newest: Option<Psn>,
    newest_order: u64,
}

impl Evidence {
    /// In place: a derived `Default` moves the empty lists.
    #[inline(always)]
    fn new() -> Evidence {
        Evidence {
            reached: ArrayVec::new_const(),
            samples: ArrayVec::new_const(),
            newly_acked: 0,
            newest: None,
            newest_order: 0,
        }
    }
}

impl<P: Payload> Peer<P> {
    /// An ACK has come.
    pub(crate) fn on_ack<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        ack: &Ack,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        shared.stats.acks_received += 1;
        if let Some(predicted) = self.predicted(now, ack, shared) {
            return self.take_predicted(now, ack, predicted, shared, upper);
        }
        self.patience.set(None);
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
        let mut evidence = Evidence::new();
        for echo in ack.arrived() {
            if !outgoing.paths.has(echo.path) {
                shared.stats.bad_acks += 1;
                continue;
            }
            self.on_echo(now, echo, &mut outgoing, &mut evidence, shared);
        }
        self.settle(now, ack, &mut outgoing, &mut evidence, shared, upper);
        self.hold_withheld(now, ack, &mut outgoing, shared);
        if evidence.newly_acked > 0 || !evidence.samples.is_empty() || ack.cuts > 0 {
            self.note_answer(now, &mut outgoing, shared);
        }
        self.learn(now, ack, inflight_bytes, &evidence, &mut outgoing, shared);
        if ack.cuts > 0 {
            self.on_cuts(now, ack.cut(), &mut outgoing, shared, upper);
        }
        self.find_losses(now, &evidence.reached, &mut outgoing, shared, upper);
        self.trace_controller(now, &outgoing, shared);
        self.outgoing = Some(outgoing);
    }

    /// Whether the ACK tells what was to be expected: all up to the packet that it echoes has arrived, and nothing waits in queues.
    /// Of such ACKs it is enough that the estimators and the controller see one now and then. (Header prediction: CCR 20(2).)
    #[inline]
    fn predicted(&self, now: Time, ack: &Ack, shared: &Shared) -> Option<Predicted> {
        let soon = Nanos(shared.config.base_rtt.0 / PREDICTED_PART);
        let (&[echo], 0) = (ack.echoes.as_slice(), ack.cuts) else { return None };
        let elapsed = shared.arrived.stamp().since(echo.stamp);
        let well = ack.cum == echo.psn.plus(1)
            && ack.sack.is_empty()
            && ack.ce_count == self.ce_count
            && ack.senders <= 1
            && ack.senders == self.share.senders
            && elapsed + now.since(shared.arrived) < soon
            && now < self.learned + soon
            && !self.window_limited
            && self.lost.is_empty()
            && self.liveness.silent_probes == 0
            && self.outgoing.as_ref()?.paths.next_event() == Time::NEVER;
        if !well {
            return None;
        }
        let packet = self.sent.get(echo.psn)?;
        let rtt = elapsed - echo.hold.nanos()?;
        let first = packet.tx_count == 0 && echo.tx_count == 0 && packet.path == echo.path;
        first.then_some(Predicted { echo, rtt, sent: packet.sent })
    }

    /// What is covered is settled; of the path it is known that it works.
    #[inline]
    fn take_predicted<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        ack: &Ack,
        Predicted { echo, rtt, sent }: Predicted,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let Some(mut outgoing) = self.outgoing.take() else { return };
        shared.stats.acks_predicted += 1;
        self.predicted += 1;
        let inflight = self.sent.inflight_bytes();
        let mut evidence = Evidence::new();
        outgoing.paths.on_success(now, echo.path, sent, shared);
        self.settle(now, ack, &mut outgoing, &mut evidence, shared, upper);
        self.liveness.answered(now);
        if let Some(newest) = evidence.newest {
            let (newest, next) = (*self.sent.record(newest), self.sent.next_order());
            self.sent.deliveries.on_ack(now, ack, &newest, next, Nanos::ZERO);
        }
        let early = self.is_early(rtt, shared);
        let acked = AckedPath { now, path: echo.path, rtt: Some(rtt), early, ce: false };
        outgoing.selector.on_ack(&acked);
        shared.trace.emit(now, self.id, || Event::AckReceived {
            newly_acked: evidence.newly_acked,
            inflight,
            ce_marks: 0,
            senders: ack.senders,
            delivery_rate: 0.0,
            app_limited: false,
        });
        self.trace_echo(&acked, &echo, shared);
        self.outgoing = Some(outgoing);
    }

    /// Tells the estimators, the selector and the controller.
    fn learn(
        &mut self,
        now: Time,
        ack: &Ack,
        inflight_bytes: u64,
        evidence: &Evidence,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
    ) {
        self.learned = now;
        let least = Nanos((shared.config.base_rtt.0 / 4).max(MIN_INTERVAL.0));
        self.delivery_rate.on_ack(ack, least);
        self.share.among(ack.senders, self.max_datagram);
        let ce_marks = self.new_marks(ack.ce_count);
        let next = self.sent.next_order();
        let rate = evidence.newest.and_then(|psn| {
            let newest = *self.sent.record(psn);
            self.sent.deliveries.on_ack(now, ack, &newest, next, least)
        });
        let newly_acked = evidence.newly_acked;
        let senders = ack.senders;
        shared.trace.emit(now, self.id, || Event::AckReceived {
            newly_acked,
            inflight: inflight_bytes,
            ce_marks,
            senders,
            delivery_rate: rate.map_or(0.0, |sample| sample.rate),
            app_limited: rate.is_some_and(|sample| sample.app_limited),
        });
        let mut sample = AckSample {
            now,
            path: None,
            rtt: None,
            host: Nanos::ZERO,
            hosts_ns: 0.0,
            local: now.since(shared.arrived),
            min_rtt: self.rtt.min(),
            newly_acked,
            predicted: std::mem::take(&mut self.predicted),
            inflight_bytes,
            window_limited: self.window_limited,
            senders,
            delivery_rate: self.delivery_rate.best(),
            rate,
            ce_marks,
            round: self.sent.deliveries.rounds(),
            sent_bytes: self.sent.deliveries.sent_bytes,
        };
        if evidence.samples.is_empty() {
            outgoing.controller.on_ack(&sample);
        }
        // ACKs count marks and do not say whose they are.
        let all_marked = ce_marks > 0 && (evidence.samples.len() == 1 || ce_marks >= newly_acked.max(1));
        let (mut newly_acked, mut left) = (newly_acked, evidence.samples.len() as u32);
        for &Sample { echo, rtt, host } in &evidence.samples {
            let early = rtt.is_some_and(|rtt| self.is_early(rtt, shared));
            let acked = AckedPath { now, path: echo.path, rtt, early, ce: all_marked };
            self.trace_echo(&acked, &echo, shared);
            outgoing.selector.on_ack(&acked);
            if let Some(rtt) = rtt {
                let path = outgoing.paths.get(echo.path);
                self.rtt.add_hosts(host);
                self.rtt.add(now, rtt, rtt - path.least_rtt().unwrap_or(shared.config.base_rtt));
                outgoing.paths.add_rtt(now, echo.path, rtt, shared.config.base_rtt);
            }
            (sample.path, sample.rtt, sample.host) = (Some(echo.path), rtt, host);
            sample.hosts_ns = self.rtt.hosts_ns();
            // What the ACK covers, divided among what it says of paths.
            sample.newly_acked = newly_acked / left + (newly_acked % left != 0) as u32;
            newly_acked -= sample.newly_acked;
            left -= 1;
            outgoing.controller.on_ack(&sample);
            (sample.ce_marks, sample.rate, sample.predicted) = (0, None, 0);
        }
    }

    fn is_early(&self, rtt: Nanos, shared: &Shared) -> bool {
        let base = shared.config.base_rtt;
        rtt <= self.rtt.smoothed(base) + Nanos(base.0 / 4)
    }

    fn trace_echo(&self, acked: &AckedPath, echo: &Echo, shared: &mut Shared) {
        let base = shared.config.base_rtt;
        shared.trace.emit(acked.now, self.id, || Event::PathAcked {
            path: acked.path,
            psn: echo.psn,
            tx_count: echo.tx_count,
            rtt: acked.rtt,
            delay: acked.rtt.map(|rtt| rtt - base),
            early: acked.early,
            marked: acked.ce,
        });
    }

    /// What the controller makes of it all.
    pub(crate) fn trace_controller(&self, now: Time, outgoing: &Outgoing, shared: &mut Shared) {
        shared.trace.emit(now, self.id, || {
            let (limits, view) = (outgoing.controller.send_limits(), outgoing.controller.view());
            Event::ControllerUpdated {
                window: limits.window_bytes,
                rate: limits.rate,
                phase: view.phase,
                delay: view.delay_ns,
                target: view.target_ns,
                delivery_rate: view.delivery_rate,
                transmit_rate: view.transmit_rate,
            }
        });
    }

    /// Congestion marks that the peer has not reported before.
    fn new_marks(&mut self, reported: u16) -> u32 {
        let new = reported.wrapping_sub(self.ce_count);
        if new > u16::MAX / 2 {
            return 0; // an ACK that was overtaken
        }
        self.ce_count = reported;
        new as u32
    }

    fn on_echo(
        &mut self,
        now: Time,
        echo: &Echo,
        outgoing: &mut Outgoing,
        evidence: &mut Evidence,
        shared: &mut Shared,
    ) {
        let elapsed = shared.arrived.stamp().since(echo.stamp);
        let hold = echo.hold.nanos();
        let rtt = hold.map(|hold| elapsed - hold).filter(|&rtt| rtt < MAX_RTT);
        let host = hold.unwrap_or_default() + now.since(shared.arrived);
        if echo.tx_count == Echo::PROBE {
            outgoing.paths.on_probe_echo(now, echo, shared);
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
        evidence.samples.push(Sample { echo: *echo, rtt, host });
        let Some(&packet) = self.sent.get(echo.psn) else {
            // Settled by an earlier ACK; the path has carried it all the same.
            let sent = rtt.map_or(Time(0), |_| Time(shared.arrived.0.saturating_sub(elapsed.0)));
            outgoing.paths.on_success(now, echo.path, sent, shared);
            return;
        };
        if packet.tx_count == echo.tx_count && packet.path == echo.path {
            outgoing.paths.on_success(now, echo.path, packet.sent, shared);
            self.newest_delivered = self.newest_delivered.max(packet.sent);
            evidence.reached.push((echo.path, packet.order));
            if let Some(blamed) = packet.blamed {
                outgoing.selector.on_timeout(now, blamed);
                outgoing.paths.on_timeout(now, blamed, packet.sent, shared);
            }
        } else if echo.tx_count < packet.tx_count {
            self.on_spurious(now, echo, outgoing, shared);
        }
    }

    /// Switches have cut packets: those are sent again, a moment later.
    #[cold]
    fn on_cuts<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        cuts: &[Echo],
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        for cut in cuts {
            self.on_cut_echo(now, cut, outgoing, shared, upper);
        }
        let limits = outgoing.controller.send_limits();
        self.pacer.stand_back(now, &limits, self.max_datagram as u64, &mut shared.rng);
    }

    /// The headers of a packet have arrived without its payload: it is lost, and its path works. It may have overtaken others of
    /// its path, since what is cut goes first.
    fn on_cut_echo<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        cut: &Echo,
        outgoing: &mut Outgoing,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let Some(&packet) = self.sent.get(cut.psn) else { return };
        let this = packet.path == cut.path && packet.tx_count == cut.tx_count;
        // Who cuts everything has the timers, which wait longer each time.
        if !this || !self.sent.is_in_flight(cut.psn) || packet.tx_count > ANSWERED_RETRIES {
            return;
        }
        outgoing.paths.on_success(now, cut.path, packet.sent, shared);
        shared.stats.lost_by_cut += 1;
        outgoing.selector.on_loss(now, cut.path);
        outgoing.controller.on_cut(now);
        self.lose(now, cut.psn, LossCause::Cut, outgoing, shared, upper);
    }

    /// A packet was retransmitted although its first copy has arrived.
    fn on_spurious(&mut self, now: Time, echo: &Echo, outgoing: &Outgoing, shared: &mut Shared) {
        shared.stats.spurious_retrans += 1;
        shared.trace.emit(now, self.id, || Event::Spurious { psn: echo.psn, path: echo.path });
        let (rtt, base) = (self.rtt.smoothed(shared.config.base_rtt), shared.config.base_rtt);
        if self.reordering.on_spurious(now, rtt, base) {
            let window = self.reorder_window(now, outgoing, shared);
            shared.trace.emit(now, self.id, || Event::LossRule { rule: "reordering", window });
        }
    }

    /// Settles what the ACK covers.
    fn settle<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        ack: &Ack,
        outgoing: &mut Outgoing,
        evidence: &mut Evidence,
        shared: &mut Shared,
        upper: &mut U,
    ) {
        let ahead = ack.cum.offset_from(self.sent.una());
        if ahead < u32::MAX / 2 {
            let mut psn = self.sent.una();
            while psn != ack.cum {
                let left = ack.cum.offset_from(psn);
                psn = psn.plus(self.settle_from(now, psn, left, outgoing, evidence, shared, upper));
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
                self.settle_from(now, psn, 1, outgoing, evidence, shared, upper);
            }
        }
        self.sent.advance();
        if evidence.newly_acked > 0 {
            self.hello.acknowledged = true;
        }
    }

    /// Packets that have arrived and are not acknowledged all the same: their messages are refused, and the peer waits
    /// to hear that we know. There is nothing to send again.
    fn hold_withheld(&mut self, now: Time, ack: &Ack, outgoing: &mut Outgoing, shared: &Shared) {
        for echo in ack.arrived() {
            if echo.tx_count != Echo::PROBE && self.sent.is_in_flight(echo.psn) {
                self.sent.lose(echo.psn, &mut outgoing.paths);
                self.held.push_back((now + shared.config.max_rto, echo.psn));
            }
        }
    }

    /// Settles the packet `psn` of `most` that are acknowledged, and those that left with it. How many they are.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn settle_from<U: UpperLayer<P>>(
        &mut self,
        now: Time,
        psn: Psn,
        most: u32,
        outgoing: &mut Outgoing,
        evidence: &mut Evidence,
        shared: &mut Shared,
        upper: &mut U,
    ) -> u32 {
        let Some(packet) = self.sent.acknowledge(psn, most, &mut outgoing.paths) else { return 1 };
        evidence.newly_acked += packet.count;
        if packet.tx_count == 0 {
            self.newest_delivered = self.newest_delivered.max(packet.sent);
            if packet.order >= evidence.newest_order {
                evidence.newest_order = packet.order;
                evidence.newest = Some(psn.plus(packet.count - 1));
            }
            if packet.overtook {
                let _ = evidence.reached.try_push((packet.path, packet.order)); // more than fit come again with the next
            }
            if !outgoing.paths.usable().contains(packet.path) {
                // Only its answer was late: the path was suspected for the way back.
                outgoing.paths.on_success(now, packet.path, packet.sent, shared);
            }
        }
        self.mtu.on_ack(packet.bytes);
        let slot = packet.message;
        let message = self.messages.get(slot);
        message.outstanding -= packet.count;
        if message.outstanding == 0 && message.all_sent && !message.over {
            message.over = true;
            match message.purpose {
                Purpose::UpperLayer(token) => self.complete(now, token, Ok(()), shared, upper),
                Purpose::Refusal { withheld } => self.refusal_known(now, withheld),
                Purpose::Forget => {}
            }
        }
        self.messages.free_if_done(slot);
        packet.count
    }

    fn note_answer(&mut self, now: Time, outgoing: &mut Outgoing, shared: &mut Shared) {
        if self.liveness.answered(now) {
            outgoing.paths.forgive(now, shared);
        }
    }

    /// The peer has refused the message of packet `refused`, which it will not acknowledge before it knows that we know.
    pub(crate) fn on_refusal<U: UpperLayer<P>>(
        &mut self,
        now: Time,
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
            self.complete(now, token, Err(status), shared, upper);
        }
    }
}
