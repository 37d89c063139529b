//! The default controller: a window, in packets, updated per ACK towards a queueing-delay target that falls with the logarithm of the window.
//!
//! The form is that of docs/design/congestion-control.md, "Constants of the window law": flows that share a queue see the same
//! delay, so they settle where their targets, and with them their windows, are equal. All delays are taken over the base round
//! trip B, which is configured.

mod competitive_mode;
mod spare_bandwidth;

use super::{AckSample, CongestionController, ControllerView, SendLimits};
use crate::Config;
use crate::rtt::follow_high;
use competitive_mode::{CompetitiveMode, ShareMeter};
use spare_bandwidth::SpareBandwidth;
use srd_wire::{Nanos, Time};

/// The constants of the law. Times are shares of the base round trip B, windows of the bandwidth-delay product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ControlLaw {
    /// Queueing target of a full window.
    pub target: f64,
    /// Growth of the target per e-fold of a smaller window: what makes flows equal.
    pub slope: f64,
    /// Gain of the increase, per ACK and share of B below the target.
    pub increase: f64,
    /// Most packets that one ACK adds.
    pub max_increase: f64,
    /// Gain of the decrease.
    pub decrease: f64,
    /// Most packets that one ACK takes away.
    pub max_decrease: f64,
    /// The delay is the least of the last samples, this share of the window in number.
    pub filter: f64,
    /// First window.
    pub first_window: f64,
    /// Largest window.
    pub max_window: f64,
    /// Acknowledgements without delay that end the start with a full window.
    pub clean_acks: u32,
    /// What all senders of one receiver together have in flight when they heed its count.
    pub hint_share: f64,
    /// Delay beyond which the receiver's count does not explain what is measured.
    pub hint_delay: f64,
    /// How much the pace of one who heeds the count follows the delay, near its target and far from it.
    pub hint_gain: f64,
    /// See `hint_gain`.
    pub hint_far_gain: f64,
    /// Least share of its part that one who heeds the count sends: queues drain while the link stays busy.
    pub hint_least: f64,
    /// Mean delay below which others leave parts of the line unused, for one who heeds the count and has one part.
    pub unused: f64,
    /// How fast he takes them, in e-folds per B.
    pub take: f64,
    /// Share of the window that a lost packet takes away, at least `0.6 * decrease` packets.
    pub loss: f64,
    /// And one that a switch has cut, at least as much.
    pub cut: f64,
    /// Below a window of one packet an ACK counts for the round trips since the last, up to so many.
    pub catch_up: f64,
    /// Packets sent this many B ago and longer, beside the delay, do not count as in flight.
    pub memory: f64,
}

impl Default for ControlLaw {
    /// docs/CONGESTION.md, "The law", tells where each value comes from.
    fn default() -> ControlLaw {
        ControlLaw {
            target: 0.70,
            slope: 0.06,
            increase: 0.6,
            max_increase: 0.25,
            decrease: 0.3,
            max_decrease: 0.5,
            filter: 0.5,
            first_window: 0.66,
            max_window: 1.8,
            clean_acks: 1,
            hint_share: 1.6,
            hint_delay: 0.85,
            hint_gain: 0.05,
            hint_far_gain: 0.6,
            hint_least: 0.85,
            unused: 0.25,
            take: 0.2,
            loss: 0.1,
            cut: 0.04,
            catch_up: 4.0,
            memory: 1.5,
        }
    }
}

/// Delay that counts as none, as a share of B: 3 us of 14 (docs/design/congestion-control.md, "Constants of the window law").
const CLEAN: f64 = 0.2;
/// Base round trips that the first windows of all senders are given to leave the queues, beside the time they take.
const PATIENCE: f64 = 4.0;
/// Base round trips for which a count that did not explain the delay is taken for a mere ceiling.
const DISTRUST: f64 = 1000.0;

/// Packets' worth of the measured delivery rate that count as no queue: at rates where one packet takes longer to send
/// than B, every delay is a multiple of the packet time (docs/design/host-datapath.md, "Slow links").
const PACKET_TIMES: f64 = 4.0;
/// Packets in B up to which their own time matters: a short packet's round trip then is far below that of a full one, whose delay over it
/// would look like a queue that no smaller window ends.
const FEW_PACKETS: f64 = 8.0;
/// Longest packet time believed: 10 Mb/s at 1500 bytes; a slower measurement is the program's own pace.
const MAX_PACKET_TIME_NS: f64 = 1.2e6;

/// Smallest of roughly the last `n` samples, in two half windows.
#[derive(Clone, Copy)]
struct RecentMin {
    current: f64,
    previous: f64,
    count: u32,
}

impl RecentMin {
    fn new() -> RecentMin {
        RecentMin { current: f64::INFINITY, previous: f64::INFINITY, count: 0 }
    }

    fn add(&mut self, sample: f64, n: f64) -> f64 {
        self.current = self.current.min(sample);
        self.count += 1;
        let least = self.current.min(self.previous);
        if self.count as f64 >= (n / 2.0).max(1.0) {
            self.previous = if n < 2.0 { f64::INFINITY } else { self.current };
            self.current = f64::INFINITY;
            self.count = 0;
        }
        least
    }
}

/// Least of a quantity within one to two periods.
#[derive(Clone, Copy, Default)]
struct LatelyLeast {
    /// The least of the last full period, and what is less of this one.
    ns: f64,
    current: f64,
    count: u32,
    until: Time,
}

impl LatelyLeast {
    fn add(&mut self, now: Time, ns: f64, period: Nanos) {
        if now >= self.until && (self.count >= STANDING_SAMPLES || self.until == Time(0)) {
            (self.ns, self.current) = (self.current, ns); // 0 in the first period
            self.until = now + period;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.current = self.current.min(ns);
        self.ns = self.ns.min(ns);
    }
}

/// Base round trips of the period of which the least time that hosts hold packets is taken, beside that time.
const STANDING_PERIOD: f64 = 16.0;
/// Windows that it reduces, as a share of the BDP. Small ones have too few samples to tell it from a host that looks late.
const STANDING_LEAST: f64 = 0.5;
/// Samples that the period has at least.
const STANDING_SAMPLES: u32 = 64;
/// Largest first window where neither the base nor the rate of the line is known.
const UNSURE_WINDOW: f64 = 0.25;
/// Distance from the target up to which `hint_gain` holds, as a share of B.
const NEAR: f64 = 0.4;
/// Weight of a delay sample in the mean, where ACKs come many to a round trip and where they come one by one.
const MEAN_GAIN: f64 = 0.125;
const LONE_GAIN: f64 = 0.5;
/// How late the host's card may send a packet, as a share of B, without that it counts: other processes' packets are before it,
/// and where all are in step always the same ones.
const CARD_WAIT: f64 = 0.25;
/// Base round trips after parts were given back for which none are taken: the queue must leave.
const PAUSE: f64 = 16.0;
/// Largest window, in BDP, beside others who fill the queue.
const MOST_IN_COMPETITION: f64 = 16.0;
/// How much faster than its window a round trip it may send beside them, lest the pace and not the window be what limits it:
/// Linux paces TCP at 1.2 of its window (tcp_pacing_ca_ratio).
const COMPETITIVE_PACE: f64 = 1.2;
/// Where the rate of the line is known, a burst is at most the window's part of so many paths: with few paths in use some links
/// are idle and others have queues.
const PATHS_AT_ONCE: f64 = 16.0;
/// Up to so many times the configured base round trip a learned one confirms it.
const SURE_BASE: f64 = 1.25;
/// A count that is a mere ceiling leaves at least this share of what it allows.
const CEILING_FLOOR: f64 = 0.02;

/// What the controller makes of the receiver's count of senders.
#[derive(Clone, Copy, Default)]
struct Hint {
    senders: u16,
    /// The least count since many have begun.
    least: u16,
    /// The window and the pace are what the count says.
    rules: bool,
    /// When many have begun, and when the count was heard last.
    since: Time,
    heard: Time,
    /// The count is believed to be all that matters until then, if delays stay high; then it is a mere ceiling until
    /// `ceiling_until`.
    patient_until: Time,
    ceiling_until: Time,
}

/// See the module.
pub(super) struct LogTarget {
    law: ControlLaw,
    /// Configured base round trip: the unit in which delays are judged.
    unit_ns: f64,
    /// Base round trip of this context, over which its delays are taken.
    base_ns: f64,
    /// Base round trip of the fabric, by which everybody paces, so that who is near gets no more.
    pace_base_ns: f64,
    learn_base: bool,
    knows_line: bool,
    packet_bytes: f64,
    max_window: f64,
    /// A window, and what [`LogTarget::smallness`] says of it.
    smallness: (f64, f64),
    min_window: f64,
    bdp: f64,
    heed_hint: bool,
    hint: Hint,
    spare: SpareBandwidth,
    competitive: CompetitiveMode,
    share_meter: ShareMeter,
    max_burst: f64,
    /// Window in packets, possibly below one.
    window: f64,
    startup: bool,
    /// When the first packet that was answered had left, and whether a base round trip has passed since.
    began: Time,
    heard_all: bool,
    clean_acks: u32,
    /// When the window was reduced last.
    reduced: Time,
    recent: RecentMin,
    delay: f64,
    delay_ewma: f64,
    /// Time for which hosts, not the network, often hold a packet and its ACK.
    host_ns: f64,
    /// The least of it of late: packets wait in a host that is slower than its card, and not only until it looks.
    standing: LatelyLeast,
    /// Time for which this host holds them.
    local_ns: f64,
    packet_time_ns: f64,
    /// What follows from all this; asked for per packet, changed per ACK.
    limits: SendLimits,
}

impl LogTarget {
    pub(super) fn new(config: &Config, packet_bytes: u32) -> LogTarget {
        let base_ns = config.base_rtt.as_f64();
        let law = config.law;
        let bdp = (config.line_rate.bytes_in(config.base_rtt) as f64 / packet_bytes as f64).max(1.0);
        let max_window = law.max_window * bdp;
        let first_window =
            if config.learn_base_rtt { law.first_window.min(UNSURE_WINDOW) } else { law.first_window };
        let mut controller = LogTarget {
            law,
            unit_ns: base_ns,
            base_ns,
            pace_base_ns: base_ns,
            learn_base: config.learn_base_rtt,
            knows_line: config.line_rate_known,
            packet_bytes: packet_bytes as f64,
            max_window,
            smallness: (0.0, 0.0),
            min_window: config.min_window.min(max_window),
            bdp,
            heed_hint: config.receiver_hint,
            hint: Hint::default(),
            spare: SpareBandwidth::new(),
            competitive: CompetitiveMode::default(),
            share_meter: ShareMeter::default(),
            max_burst: config.burst_bytes as f64,
            window: (first_window * bdp).max(4.0).min(max_window),
            startup: true,
            began: Time(0),
            heard_all: false,
            clean_acks: 0,
            reduced: Time(0),
            recent: RecentMin::new(),
            delay: 0.0,
            delay_ewma: 0.0,
            host_ns: 0.0,
            standing: LatelyLeast::default(),
            local_ns: 0.0,
            packet_time_ns: 0.0,
            limits: SendLimits {
                window_bytes: 0,
                rate: 0.0,
                burst_bytes: 0,
                credit_bytes: 0,
                inflight_horizon: Nanos(u64::MAX),
            },
        };
        controller.settle();
        controller
    }

    fn target_ns(&mut self) -> f64 {
        if self.smallness.0 != self.window {
            self.smallness = (self.window, self.smallness());
        }
        self.target_at(self.smallness.1)
    }

    /// How many e-folds the window is below the largest.
    fn smallness(&self) -> f64 {
        (self.max_window / self.window).ln()
    }

    fn target_at(&self, small: f64) -> f64 {
        self.unit_ns * (self.law.target + self.law.slope * small) + PACKET_TIMES * self.packet_time_ns
    }

    fn clamp(&mut self) {
        // A smaller window hears of nothing for long. It is worth that only where the receiver counts so many.
        let part = self.bdp / self.hint.senders.max(1) as f64;
        self.window = self.window.clamp(self.min_window.max(part.min(1.0)), self.max_window);
    }

    /// How many answers without delay show that the way is free. Where neither the base nor the rate of the line is
    /// known, a window full of them.
    fn clean_acks_needed(&self) -> u32 {
        if self.learn_base { self.window.max(4.0) as u32 } else { self.law.clean_acks }
    }

    /// Works out the limits.
    fn settle(&mut self) {
        let rate = if self.hint.rules {
            self.shared_rate()
        } else {
            let rate = self.window * self.packet_bytes / (self.pace_base_ns + self.delay_ewma);
            if self.competitive.goes_on() { COMPETITIVE_PACE * rate } else { rate }
        };
        let mut burst = rate * self.target_ns();
        if self.knows_line {
            burst = burst.min(self.window * self.packet_bytes / PATHS_AT_ONCE);
        }
        let burst = burst.clamp(self.packet_bytes, self.max_burst.max(self.packet_bytes));
        // What hosts hold up is in flight too, but in nobody's queue.
        let held = (self.host_ns - self.standing.ns).max(0.0) / (self.pace_base_ns + self.delay_ewma);
        let window = self.window.ceil() + (self.window * held).floor();
        self.limits = SendLimits {
            window_bytes: (window * self.packet_bytes) as u64,
            rate,
            burst_bytes: burst as u64,
            credit_bytes: (burst.max(rate * self.local_ns) + rate * CARD_WAIT * self.unit_ns) as u64,
            inflight_horizon: Nanos(
                (self.law.memory * self.pace_base_ns + self.delay_ewma + self.host_ns) as u64,
            ),
        };
    }

    /// The pace of one of several senders that share a port, in bytes per nanosecond: its part of the line, whatever it
    /// measures, and a little more or less so that the queue stays where all want it. A pace that followed the delay
    /// more closely would follow chance: with a packet every 40 us, who always meets a short queue would get more.
    fn shared_rate(&self) -> f64 {
        let part = self.bdp * self.packet_bytes / self.unit_ns / self.hint.senders as f64;
        let short = (self.law.hint_share - 1.0) - self.delay_ewma / self.unit_ns;
        let near = short.clamp(-NEAR, NEAR);
        let factor = 1.0 + self.law.hint_gain * near + self.law.hint_far_gain * (short - near);
        part * self.spare.parts() * factor.max(self.law.hint_least)
    }

    fn learn(&mut self, sample: &AckSample) {
        if sample.delivery_rate > 0.0 {
            self.packet_time_ns = (self.packet_bytes / sample.delivery_rate).min(MAX_PACKET_TIME_NS);
            if self.packet_time_ns < self.unit_ns / FEW_PACKETS {
                self.packet_time_ns = 0.0;
            }
        }
        if let Some(min) = sample.min_rtt {
            // The configured base is that of the longest way; who has a shorter one must not take its queue for nothing.
            let min_ns = min.as_f64();
            if self.learn_base {
                self.base_ns = self.unit_ns.max(min_ns);
                self.pace_base_ns = self.base_ns;
            } else if self.bdp > FEW_PACKETS {
                self.base_ns = self.unit_ns.min(min_ns);
            }
        }
        if let Some(rtt) = sample.rtt {
            // Who is near hears of the others only when the farthest of them has been heard at the receiver.
            if self.began == Time(0) {
                self.began = Time(sample.now.0.saturating_sub(rtt.0));
            }
            self.heard_all = self.heard_all || sample.now >= self.began + Nanos(self.unit_ns as u64);
            self.host_ns = sample.hosts_ns;
            let period = STANDING_PERIOD * (self.unit_ns + self.host_ns);
            let remote = (sample.host - sample.local).as_f64();
            self.standing.add(sample.now, remote, Nanos(period as u64));
            let standing = if self.window > STANDING_LEAST * self.bdp { self.standing.ns } else { 0.0 };
            let delay = (rtt.as_f64() - self.base_ns).max(0.0) + standing;
            let span = if self.startup { 4.0 } else { (self.window * self.law.filter).max(1.0) };
            self.delay = self.recent.add(delay, span);
            let gain = if self.window < 1.0 { LONE_GAIN } else { MEAN_GAIN };
            self.delay_ewma += (delay - self.delay_ewma) * gain;
            follow_high(&mut self.local_ns, sample.local.as_f64());
            let clean = self.clean_acks.saturating_add(1 + sample.predicted);
            self.clean_acks = if delay < CLEAN * self.unit_ns { clean } else { 0 };
        }
    }

    /// One packet has been acknowledged; `excess`: how far the delay is below the target, in units of B.
    fn acknowledged(&mut self, excess: f64, sample: &AckSample) {
        let (law, now, window_limited) = (self.law, sample.now, sample.window_limited);
        // Below one packet, what left before the last reduction says nothing of its effect, and there can be much of it:
        // the first window, before its sender heard of the others.
        let sent = sample.rtt.map_or(now, |rtt| Time(now.0.saturating_sub(rtt.0)));
        if self.startup {
            if excess < 0.0 {
                self.startup = false;
            } else if window_limited && self.heard_all {
                self.window += 1.0;
                if self.clean_acks >= self.clean_acks_needed() {
                    self.window = self.max_window;
                    self.startup = false;
                }
            }
        } else if excess > 0.0 {
            if window_limited {
                // Below one packet ACKs are farther apart than round trips.
                let rounds = (1.0 / self.window).clamp(1.0, law.catch_up);
                self.window += (law.increase * excess).min(law.max_increase) * self.window.min(1.0) * rounds;
            }
        } else if self.window >= 1.0 || sent >= self.reduced {
            self.window += (law.decrease * excess).max(-law.max_decrease) * self.window.min(1.0);
            self.reduced = now;
        }
        self.clamp();
    }

    /// The receiver serves so many senders: each takes its share. Where the rate of the line is known, a window is not
    /// only limited to that but set to it, so that flows that share a port are equal at once; unless delays show that
    /// others, whom the receiver does not count, are in the way too.
    fn heed(&mut self, now: Time, senders: u16, window_limited: bool) {
        if senders == 0 {
            return; // it has not said
        }
        if senders == 1 {
            (self.hint.senders, self.hint.least) = (1, 1);
            self.competitive.end();
            if std::mem::take(&mut self.hint.rules) {
                self.window = self.window.max(self.bdp); // the others have gone
                self.clamp();
            }
            return;
        }
        self.note_senders(now, senders);
        if now <= self.first_until() {
            // While all send the least that they may, a queue takes that long to leave.
            let queue = self.delay_ewma / (1.0 - self.law.hint_least);
            let until = now + Nanos((queue + PATIENCE * self.unit_ns) as u64);
            self.hint.patient_until = self.hint.patient_until.max(until);
        }
        // One long delay is chance, where packets are few.
        let explained = self.delay.min(self.delay_ewma) < self.law.hint_delay * self.unit_ns;
        if !explained {
            self.give_back(now); // it may be this sender's own doing, as others use their parts again
        }
        let may_take = window_limited && now > self.hint.patient_until;
        let delay = self.delay_ewma / self.unit_ns;
        self.spare.judge(now, senders, delay, self.unit_ns, may_take, &self.law);
        let share = self.law.hint_share * self.bdp / senders as f64 * self.spare.parts();
        let share = share.clamp(self.min_window, self.max_window);
        if !explained && now > self.hint.patient_until {
            self.hint.ceiling_until = now + Nanos((DISTRUST * self.unit_ns) as u64);
        }
        let trusted = now > self.hint.ceiling_until && (explained || now <= self.hint.patient_until);
        self.hint.rules = trusted && self.is_sure() || self.is_never_empty();
        if self.hint.rules {
            self.window = share;
            self.startup = false;
            self.competitive.end();
        } else if self.competitive.goes_on() {
            // Until the count may be believed again.
        } else if now <= self.hint.ceiling_until && self.is_sure() && self.share_meter.starved() {
            self.startup = false;
            self.competitive.begin(self.part());
        } else {
            if self.window > share {
                self.reduced = now;
            }
            self.window = self.window.min(share).max(share * CEILING_FLOOR);
        }
        self.clamp();
    }

    /// Whether there always is a queue, unless all pace themselves by the count: a packet of each is more than a known line holds.
    /// Then no delay will ever speak for the count.
    fn is_never_empty(&self) -> bool {
        self.learn_base && self.knows_line && self.bdp < self.min_window * self.hint.senders as f64
    }

    /// Whether the rate of the line and the base round trip are known well enough to work out a part of the line.
    fn is_sure(&self) -> bool {
        !self.learn_base || self.knows_line && self.base_ns <= SURE_BASE * self.unit_ns
    }

    /// The window, in packets, with which this sender has its part of the line although others fill the queue.
    fn part(&self) -> f64 {
        // A host counts senders to all its processes (`set_neighbours`), but no connections of others, as a card does: there are
        // some, and may be as many.
        let others = if self.learn_base { 2.0 } else { 1.0 };
        let part = self.bdp / (others * self.hint.senders.max(1) as f64);
        (part * (1.0 + self.delay_ewma / self.unit_ns)).min(MOST_IN_COMPETITION * self.bdp)
    }

    /// Gives parts back that others have left, if there are any, and takes none for a while.
    fn give_back(&mut self, now: Time) {
        if self.spare.give_back() {
            let until = now + Nanos((PAUSE * self.unit_ns + self.delay_ewma) as u64);
            self.hint.patient_until = self.hint.patient_until.max(until);
        }
    }

    /// As many first windows as there are senders must leave the queues before delays tell anything.
    fn note_senders(&mut self, now: Time, senders: u16) {
        // At twice the time that a packet of each sender takes this one must have been idle, unless others hold it up.
        let rest = PATIENCE + 2.0 * senders as f64 / self.bdp;
        let held_up = self.share_meter.starved() || self.competitive.goes_on();
        let rested = now.since(self.hint.heard).as_f64() > rest * self.unit_ns && !held_up;
        self.hint.heard = now;
        if senders == self.hint.senders && !rested {
            return;
        }
        self.hint.least = self.hint.least.min(senders);
        let more = |times: u32, than: u16| senders as u32 >= times * than as u32;
        if more(2, self.hint.senders) || more(4, self.hint.least) || rested {
            // Many have begun, or all begin again.
            (self.hint.since, self.hint.least) = (now, senders);
        }
        self.hint.senders = senders;
        self.hint.patient_until = self.hint.patient_until.max(self.first_until());
    }

    /// A packet has found no room, which takes `part` of the window.
    fn lose(&mut self, now: Time, part: f64) {
        self.startup = false;
        self.give_back(now); // queues may be too short to show in the delay that there is nothing left to take
        if self.competitive.goes_on() {
            self.window = self.competitive.lost();
            return self.settle();
        }
        if self.delay < self.law.target * self.unit_ns {
            return; // a fault of the path, not of the load
        }
        let share = self.window * part;
        self.window -= if self.window >= 1.0 { share.max(0.6 * self.law.decrease) } else { share };
        self.clamp();
        self.settle();
    }

    /// By then the first windows of all have left the queues, unless others send more into them.
    fn first_until(&self) -> Time {
        let rounds = self.hint.senders as f64 * self.law.first_window + PATIENCE;
        self.hint.since + Nanos((rounds * self.unit_ns) as u64)
    }
}

impl CongestionController for LogTarget {
    fn on_ack(&mut self, sample: &AckSample) {
        self.learn(sample);
        if self.hint.senders > 1 {
            let part = self.bdp / self.hint.senders as f64;
            self.share_meter.see(sample, part, self.delay_ewma / self.unit_ns, self.unit_ns);
        }
        if self.competitive.goes_on() {
            self.heed(sample.now, sample.senders, sample.window_limited);
            if self.competitive.goes_on() {
                self.window = self.competitive.acknowledged(sample, self.part());
            }
            return self.settle();
        }
        for _ in 0..sample.newly_acked {
            let target = self.target_ns();
            // In units of the base, or of the target where packet times make that far longer.
            let excess = (target - self.delay) / self.unit_ns.max(target / 4.0);
            self.acknowledged(excess, sample);
        }
        if self.heed_hint {
            self.heed(sample.now, sample.senders, sample.window_limited);
        }
        self.settle();
    }

    fn on_loss(&mut self, now: Time) {
        self.lose(now, self.law.loss);
    }

    fn on_cut(&mut self, now: Time) {
        self.lose(now, self.law.cut);
    }

    fn on_restart_after_idle(&mut self) {
        if self.learn_base {
            return; // delays of a host's own making do not leave with the queue
        }
        self.recent = RecentMin::new();
        (self.delay, self.delay_ewma) = (0.0, 0.0);
        let part = self.law.first_window * self.bdp / self.hint.senders.max(1) as f64;
        self.window = self.window.max(part);
        self.clamp();
        self.settle();
    }

    fn send_limits(&self) -> SendLimits {
        self.limits
    }

    fn view(&self) -> ControllerView {
        let phase = match (self.startup, self.hint.rules) {
            (true, _) => "startup",
            (false, true) => "count",
            (false, false) => "law",
        };
        // The rate that it believes in is the line's: this law measures none.
        ControllerView {
            phase,
            delay_ns: self.delay,
            target_ns: self.target_at(self.smallness()),
            ..ControllerView::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::BitRate;

    fn sample(rtt_us: u64) -> AckSample {
        AckSample {
            now: Time(1_000_000),
            rtt: Some(Nanos::from_micros(rtt_us)),
            newly_acked: 1,
            window_limited: true,
            ..AckSample::default()
        }
    }

    #[test]
    fn delay_above_target_shrinks_the_window_and_below_grows_it() {
        let mut cc = LogTarget::new(&Config::default(), 4150);
        let first = cc.window;
        cc.on_ack(&sample(14));
        assert!(cc.window > first);
        for _ in 0..200 {
            cc.on_ack(&sample(40));
        }
        let congested = cc.window;
        assert!(congested < first);
        for _ in 0..200 {
            cc.on_ack(&sample(14));
        }
        assert!(cc.window > congested);
    }

    #[test]
    fn predicted_acks_show_that_the_way_is_free() {
        for (predicted, free) in [(0, false), (1000, true)] {
            let mut cc = LogTarget::new(&Config::default(), 1500);
            cc.on_ack(&sample(14));
            cc.on_ack(&AckSample { now: Time(1_100_000), predicted, ..sample(14) });
            assert_eq!(cc.window == cc.max_window, free, "after {predicted}");
        }
    }

    #[test]
    fn loss_without_delay_is_the_paths_fault() {
        let mut cc = LogTarget::new(&Config::default(), 4150);
        cc.on_ack(&sample(14));
        let before = cc.window;
        cc.on_loss(Time(0));
        assert_eq!(cc.window, before);
    }

    #[test]
    fn senders_that_begin_again_by_and_by_are_waited_for_as_those_that_begin_together() {
        // The count falls, and rises again by less than twice at a time, while the queue stays long.
        let mut cc = LogTarget::new(&Config::of_a_simulated_card(), 4150);
        let mut now = Time(1_000_000);
        let round = |cc: &mut LogTarget, counts: &[u16], now: &mut Time| {
            for &senders in counts {
                *now += Nanos::from_micros(14);
                cc.on_ack(&AckSample { now: *now, senders, ..sample(60) });
            }
        };
        for _ in 0..20 {
            round(&mut cc, &[48, 40, 30, 20, 10, 6, 8, 12, 20, 30, 48], &mut now);
            assert!(cc.hint.rules, "the count is doubted at {now:?}");
        }
        // Who waits for a queue that stays although nobody begins doubts the count in the end.
        round(&mut cc, &[48; 1_000], &mut now);
        assert!(!cc.hint.rules);
    }

    #[test]
    fn a_cut_packet_takes_less_than_a_lost_one() {
        let mut windows = [0, 1].map(|_| {
            let mut cc = LogTarget::new(&Config::of_a_simulated_card(), 4150);
            (0..8).for_each(|_| cc.on_ack(&sample(40)));
            cc
        });
        let before = windows[0].window;
        windows[0].on_loss(Time(2_000_000));
        windows[1].on_cut(Time(2_000_000));
        assert!(windows[0].window < windows[1].window && windows[1].window < before);
    }

    #[test]
    fn a_short_packets_round_trip_is_no_base_where_packets_take_long() {
        // 0.1 Gb/s, two cables: 48 bytes are there and back in 45 us, a full packet in 264 us.
        let slow = Config {
            line_rate: BitRate(100_000_000),
            base_rtt: Nanos::from_micros(269),
            learn_base_rtt: false,
            line_rate_known: true,
            ..Config::default()
        };
        let mut cc = LogTarget::new(&slow, 1472);
        cc.on_loss(Time(0)); // the start is over
        cc.window = 1.0;
        for _ in 0..100 {
            cc.on_ack(&AckSample { min_rtt: Some(Nanos::from_micros(45)), ..sample(264) });
        }
        assert!(cc.window > 2.0, "{}", cc.window);
    }

    #[test]
    fn window_never_leaves_its_bounds() {
        let config = Config::default();
        let mut cc = LogTarget::new(&config, 4150);
        for _ in 0..10_000 {
            cc.on_ack(&sample(10_000));
            cc.on_loss(Time(0));
        }
        assert!(cc.window >= config.min_window && cc.send_limits().window_bytes >= 4150);
        for _ in 0..10_000 {
            cc.on_ack(&sample(14));
        }
        assert!(cc.window <= cc.max_window);
    }
}
