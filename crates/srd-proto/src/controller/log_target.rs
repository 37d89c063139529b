//! A window, in packets, updated per ACK towards a queueing-delay target that falls with the logarithm of the window.
//!
//! The law is the one measured in CC_FINDINGS ("Winning law", profile H: F with the receiver's hint): flows that share
//! a queue see the same delay, so they settle where their targets, and with them their windows, are equal. All delays
//! are taken over the base round trip B, which is configured.

use super::{AckSample, Allowance, CongestionController};
use crate::Config;
use srd_wire::Time;

/// Queueing target of a full window, as a share of B. CC_FINDINGS, profile F.
const T0: f64 = 0.40;
/// Growth of the target per e-fold of a smaller window, as a share of B. CC_FINDINGS, profile F.
const S: f64 = 0.06;
/// Gain of the decrease. CC_FINDINGS, profile F.
const KD: f64 = 0.3;
/// Gain and ceiling of the increase per ACK. CC_FINDINGS, law.
const KI: f64 = 0.6;
const MAX_INCREASE: f64 = 0.25;
/// Floor of the change per ACK. CC_FINDINGS, law.
const MAX_DECREASE: f64 = -0.5;
/// Largest window in units of the bandwidth-delay product. CC_FINDINGS, law (NSCC has the same).
const MAX_WINDOW: f64 = 1.5;
/// First window in units of the bandwidth-delay product. CC_FINDINGS, profile H.
const FIRST_WINDOW: f64 = 0.25;
/// Most of the bandwidth-delay product, divided by the senders, that the hint leaves. CC_FINDINGS, hint.
const HINT_SHARE: f64 = 1.6;
/// Packets' worth of the measured delivery rate that count as no queue: at rates where one packet takes longer to send
/// than B, every delay is a multiple of the packet time (LAB_MEASUREMENTS).
const PACKET_TIMES: f64 = 4.0;
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

/// See the module.
pub(super) struct LogTarget {
    /// Configured base round trip: the unit in which delays are judged.
    unit_ns: f64,
    /// Base round trip of this context.
    base_ns: f64,
    learn_base: bool,
    packet_bytes: f64,
    max_window: f64,
    min_window: f64,
    bdp: f64,
    hint: bool,
    max_burst: f64,
    /// Window in packets, possibly below one.
    window: f64,
    startup: bool,
    clean_acks: u32,
    recent: RecentMin,
    delay: f64,
    delay_ewma: f64,
    packet_time_ns: f64,
    /// What follows from all this; asked for per packet, changed per ACK.
    allowance: Allowance,
}

impl LogTarget {
    pub(super) fn new(config: &Config, packet_bytes: u32) -> LogTarget {
        let base_ns = config.base_rtt.as_f64();
        let bdp = (config.line_rate.bytes_in(config.base_rtt) as f64 / packet_bytes as f64).max(1.0);
        let max_window = MAX_WINDOW * bdp;
        let mut law = LogTarget {
            unit_ns: base_ns,
            base_ns,
            learn_base: config.learn_base_rtt,
            packet_bytes: packet_bytes as f64,
            max_window,
            min_window: config.min_window.min(max_window),
            bdp,
            hint: config.receiver_hint,
            max_burst: config.burst_bytes as f64,
            window: (FIRST_WINDOW * bdp).max(4.0).min(max_window),
            startup: true,
            clean_acks: 0,
            recent: RecentMin::new(),
            delay: 0.0,
            delay_ewma: 0.0,
            packet_time_ns: 0.0,
            allowance: Allowance { window_bytes: 0, rate: 0.0, burst_bytes: 0 },
        };
        law.settle();
        law
    }

    fn target_ns(&self) -> f64 {
        self.unit_ns * (T0 + S * (self.max_window / self.window).ln()) + PACKET_TIMES * self.packet_time_ns
    }

    fn clamp(&mut self) {
        self.window = self.window.clamp(self.min_window, self.max_window);
    }

    /// Works out the allowance.
    fn settle(&mut self) {
        let rate = self.window * self.packet_bytes / (self.base_ns + self.delay_ewma);
        let burst = (rate * self.target_ns()).clamp(self.packet_bytes, self.max_burst.max(self.packet_bytes));
        self.allowance = Allowance {
            window_bytes: (self.window.ceil() * self.packet_bytes) as u64,
            rate,
            burst_bytes: burst as u64,
        };
    }
}

impl CongestionController for LogTarget {
    fn on_ack(&mut self, sample: &AckSample) {
        if sample.delivery_rate > 0.0 {
            self.packet_time_ns = (self.packet_bytes / sample.delivery_rate).min(MAX_PACKET_TIME_NS);
            if self.packet_time_ns < self.unit_ns / 8.0 {
                self.packet_time_ns = 0.0;
            }
        }
        if let Some(min) = sample.min_rtt.filter(|_| self.learn_base) {
            self.base_ns = self.unit_ns.max(min.as_f64());
        }
        if let Some(rtt) = sample.rtt {
            let delay = (rtt.as_f64() - self.base_ns).max(0.0);
            self.delay = self.recent.add(delay, (self.window / 2.0).max(1.0));
            self.delay_ewma += (delay - self.delay_ewma) / 8.0;
        }
        let target = self.target_ns();
        // In units of the base, or of the target where packet times make that far longer.
        let excess = (target - self.delay) / self.unit_ns.max(target / 4.0);
        for _ in 0..sample.newly_acked {
            if self.startup {
                if excess < 0.0 {
                    self.startup = false;
                } else if sample.window_limited {
                    self.window += 1.0;
                    // 3 us of B = 14 us: CC_FINDINGS, law.
                    self.clean_acks = if self.delay < 0.2 * self.unit_ns { self.clean_acks + 1 } else { 0 };
                    if self.clean_acks as f64 > self.window.max(4.0) {
                        self.window = self.max_window;
                        self.startup = false;
                    }
                }
            } else if excess > 0.0 {
                if sample.window_limited {
                    self.window += (KI * excess).min(MAX_INCREASE) * self.window.min(1.0);
                }
            } else {
                self.window += (KD * excess).max(MAX_DECREASE) * self.window.min(1.0);
            }
            self.clamp();
        }
        if self.hint && sample.senders >= 2 {
            let share = HINT_SHARE * self.bdp / sample.senders as f64;
            self.window = self.window.min(share.max(self.min_window));
        }
        self.settle();
    }

    fn on_loss(&mut self, _: Time) {
        self.startup = false;
        if self.delay < T0 * self.unit_ns {
            return; // a fault of the path, not of the load
        }
        if self.window >= 1.0 {
            self.window -= 0.6 * KD;
        } else {
            self.window *= 0.95;
        }
        self.clamp();
        self.settle();
    }

    fn allowance(&self) -> Allowance {
        self.allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::Nanos;

    fn sample(rtt_us: u64) -> AckSample {
        AckSample {
            now: Time(0),
            rtt: Some(Nanos::from_micros(rtt_us)),
            min_rtt: None,
            newly_acked: 1,
            inflight_bytes: 0,
            window_limited: true,
            senders: 0,
            delivery_rate: 0.0,
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
    fn loss_without_delay_is_the_paths_fault() {
        let mut cc = LogTarget::new(&Config::default(), 4150);
        cc.on_ack(&sample(14));
        let before = cc.window;
        cc.on_loss(Time(0));
        assert_eq!(cc.window, before);
    }

    #[test]
    fn window_never_leaves_its_bounds() {
        let config = Config::default();
        let mut cc = LogTarget::new(&config, 4150);
        for _ in 0..10_000 {
            cc.on_ack(&sample(10_000));
            cc.on_loss(Time(0));
        }
        assert!(cc.window >= config.min_window && cc.allowance().window_bytes >= 4150);
        for _ in 0..10_000 {
            cc.on_ack(&sample(14));
        }
        assert!(cc.window <= cc.max_window);
    }
}
