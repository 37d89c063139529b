//! The reaction point of DCQCN: one queue pair's rate (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments",
//! SIGCOMM'15, section 3.1 and figure 7). Switches mark, the responder notifies, and this says how fast to send.
//!
//! Timers are not waited for: what they would have done is made up for when somebody asks.

use srd_wire::{BitRate, Nanos, Time};

/// When alpha moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlphaUpdate {
    /// Up with each notification, down after each interval without one (SIGCOMM'15, equations 1 and 2).
    Notification,
    /// Every interval: up if there was a notification in it, otherwise down (ConnectX: NVIDIA, "DCQCN CC Parameters").
    Interval,
}

/// Constants of the reaction point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Constants {
    /// Weight of the newest sample in alpha.
    pub g: f64,
    /// When alpha moves.
    pub alpha_update: AlphaUpdate,
    /// Interval of that.
    pub alpha_interval: Nanos,
    /// Least time between two cuts.
    pub decrease_interval: Nanos,
    /// Time between increases.
    pub timer: Nanos,
    /// Bytes sent between increases; `None`: only the timer counts.
    pub byte_counter: Option<u64>,
    /// Increases that only halve the way back to the target.
    pub recoveries: u32,
    /// What the target gains after those, in bits per second.
    pub additive: BitRate,
    /// What it gains when timer and counter have both had more of them.
    pub hyper: BitRate,
    /// Least rate.
    pub least: BitRate,
    /// The target follows the rate at each cut, not only at the first since an increase.
    pub clamp_target: bool,
}

/// Rate of a queue pair.
#[derive(Clone, Debug)]
pub(super) struct ReactionPoint {
    line: f64,
    rate: f64,
    target: f64,
    alpha: f64,
    /// When the interval of alpha ends.
    alpha_at: Time,
    /// A notification has come in it.
    notified: bool,
    /// A notification waits for `decrease_at`.
    pending: bool,
    decrease_at: Time,
    /// When the timer runs out; never if nothing holds the rate down.
    increase_at: Time,
    /// Times that it has since the last cut.
    timer_stage: u32,
    byte_stage: u32,
    bytes: u64,
}

impl ReactionPoint {
    /// At line rate, as a queue pair begins.
    pub(super) fn new(line: BitRate) -> ReactionPoint {
        let line = line.0 as f64;
        ReactionPoint {
            line,
            rate: line,
            target: line,
            alpha: 1.0,
            alpha_at: Time::NEVER,
            notified: false,
            pending: false,
            decrease_at: Time(0),
            increase_at: Time::NEVER,
            timer_stage: 0,
            byte_stage: 0,
            bytes: 0,
        }
    }

    /// Bits per second at this moment; `None`: nothing holds it down.
    pub(super) fn rate(&mut self, now: Time, constants: &Constants) -> Option<f64> {
        self.advance(now, constants);
        (self.rate < self.line).then_some(self.rate)
    }

    /// When the rate will change by itself.
    pub(super) fn changes_at(&self) -> Time {
        match self.pending {
            true => self.increase_at.min(self.decrease_at),
            false => self.increase_at,
        }
    }

    /// A notification has come.
    pub(super) fn notify(&mut self, now: Time, constants: &Constants) {
        self.advance(now, constants);
        let first = self.alpha_at == Time::NEVER;
        match constants.alpha_update {
            AlphaUpdate::Notification => {}
            AlphaUpdate::Interval if first => self.alpha_at = now + constants.alpha_interval,
            AlphaUpdate::Interval => {
                self.settle_alpha(now, constants);
                self.notified = true;
            }
        }
        match now >= self.decrease_at {
            true => self.cut(now, constants),
            false => self.pending = true,
        }
        if constants.alpha_update == AlphaUpdate::Notification {
            // After the cut, which goes by the alpha before it.
            self.settle_alpha(now, constants);
            self.alpha += constants.g * (1.0 - self.alpha);
            self.alpha_at = now + constants.alpha_interval;
        }
    }

    /// So many bytes have been sent.
    pub(super) fn sent(&mut self, bytes: u64, constants: &Constants) {
        let Some(counter) = constants.byte_counter.filter(|_| self.increase_at != Time::NEVER) else { return };
        self.bytes += bytes;
        if self.bytes >= counter {
            self.bytes -= counter;
            self.increase(constants);
            self.byte_stage += 1;
        }
    }

    /// Does what the timers should have done by now.
    fn advance(&mut self, now: Time, constants: &Constants) {
        while self.changes_at() <= now {
            if self.pending && self.decrease_at <= self.increase_at {
                self.cut(self.decrease_at, constants);
            } else {
                self.increase_at += constants.timer;
                self.increase(constants);
                self.timer_stage += 1;
            }
        }
    }

    fn cut(&mut self, now: Time, constants: &Constants) {
        self.settle_alpha(now, constants);
        if constants.clamp_target || self.timer_stage > 0 || self.byte_stage > 0 {
            self.target = self.rate;
        }
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(constants.least.0 as f64).min(self.rate);
        (self.timer_stage, self.byte_stage, self.bytes) = (0, 0, 0);
        self.pending = false;
        self.increase_at = now + constants.timer;
        self.decrease_at = now + constants.decrease_interval;
    }

    fn increase(&mut self, constants: &Constants) {
        let by_timer = self.timer_stage;
        let by_bytes = if constants.byte_counter.is_some() { self.byte_stage } else { by_timer };
        if by_timer.max(by_bytes) >= constants.recoveries {
            let hyper = by_timer.min(by_bytes) > constants.recoveries;
            let gain = if hyper { constants.hyper } else { constants.additive };
            self.target = (self.target + gain.0 as f64).min(self.line);
        }
        self.rate = (self.rate + self.target) / 2.0;
        // Halving never arrives; a NIC releases the limiter at line rate, and its rates are not exact to 1/1000.
        if self.target >= self.line && self.rate > 0.999 * self.line {
            self.rate = self.line;
            self.increase_at = Time::NEVER;
        }
    }

    /// Makes up for the ends of intervals until now.
    fn settle_alpha(&mut self, now: Time, constants: &Constants) {
        if now < self.alpha_at {
            return;
        }
        let ends = 1 + now.since(self.alpha_at).0 / constants.alpha_interval.0;
        let up = u64::from(std::mem::take(&mut self.notified));
        self.alpha += up as f64 * constants.g * (1.0 - self.alpha);
        self.alpha *= (1.0 - constants.g).powf((ends - up) as f64);
        self.alpha_at += Nanos(ends * constants.alpha_interval.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 40e9;

    fn constants() -> Constants {
        Constants {
            g: 1.0 / 256.0,
            alpha_update: AlphaUpdate::Notification,
            alpha_interval: Nanos::from_micros(55),
            decrease_interval: Nanos::from_micros(50),
            timer: Nanos::from_micros(60),
            byte_counter: None,
            recoveries: 5,
            additive: BitRate(40_000_000),
            hyper: BitRate(200_000_000),
            least: BitRate(100_000_000),
            clamp_target: true,
        }
    }

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} instead of {expected}");
    }

    #[test]
    fn the_gap_is_halved_five_times_then_the_target_rises() {
        let (constants, mut point) = (constants(), ReactionPoint::new(BitRate(LINE as u64)));
        point.notify(at(1000), &constants);
        near(point.rate(at(1000), &constants).unwrap(), LINE / 2.0);
        point.notify(at(1050), &constants);
        // The alpha of the second cut has had one notification: (1 - g) 1 + g = 1.
        near(point.rate(at(1050), &constants).unwrap(), LINE / 4.0);
        let (mut rate, mut target) = (LINE / 4.0, LINE / 2.0);
        for stage in 0..8 {
            let time = at(1050 + 60 * (stage + 1));
            near(point.rate(Time(time.0 - 1), &constants).unwrap(), rate);
            target += [0.0, 0.0, 0.0, 0.0, 0.0, 40e6, 200e6, 200e6][stage as usize];
            rate = (rate + target) / 2.0;
            near(point.rate(time, &constants).unwrap(), rate);
        }
    }

    #[test]
    fn alpha_goes_up_with_notifications_and_down_without() {
        let constants = Constants { timer: Nanos::from_micros(600), ..constants() };
        let mut point = ReactionPoint::new(BitRate(LINE as u64));
        point.notify(at(0), &constants);
        // Ten intervals of 55 us end by 550 us; the cut goes by (1 - g)^10, and then alpha rises.
        let before = point.rate(at(551), &constants).unwrap();
        point.notify(at(551), &constants);
        let alpha = (255.0f64 / 256.0).powi(10);
        near(point.rate(at(551), &constants).unwrap(), before * (1.0 - alpha / 2.0));
        near(point.alpha, alpha * 255.0 / 256.0 + 1.0 / 256.0);
    }

    #[test]
    fn alpha_by_the_clock_counts_an_interval_once() {
        let interval = Nanos::from_micros(1);
        let constants =
            Constants { alpha_update: AlphaUpdate::Interval, alpha_interval: interval, ..constants() };
        let mut point = ReactionPoint::new(BitRate(LINE as u64));
        point.notify(Time(0), &constants);
        for nanos in [100_000, 100_200, 100_400] {
            point.notify(Time(nanos), &constants);
        }
        point.settle_alpha(Time(102_000), &constants);
        let g = 1.0 / 256.0;
        // A hundred intervals without, one with three notifications, one without.
        let alpha = (1.0f64 - g).powi(100);
        near(point.alpha, (alpha + g * (1.0 - alpha)) * (1.0 - g));
    }

    #[test]
    fn cuts_keep_their_distance_and_none_is_forgotten() {
        let (constants, mut point) = (constants(), ReactionPoint::new(BitRate(LINE as u64)));
        point.notify(at(0), &constants);
        point.notify(at(10), &constants);
        point.notify(at(20), &constants);
        near(point.rate(at(49), &constants).unwrap(), LINE / 2.0);
        near(point.rate(at(50), &constants).unwrap(), LINE / 4.0);
        near(point.rate(at(109), &constants).unwrap(), LINE / 4.0);
    }

    #[test]
    fn without_clamping_the_target_stays_until_an_increase() {
        let constants = Constants { clamp_target: false, ..constants() };
        let mut point = ReactionPoint::new(BitRate(LINE as u64));
        point.notify(at(0), &constants);
        point.notify(at(50), &constants);
        near(point.rate(at(50), &constants).unwrap(), LINE / 4.0);
        near(point.rate(at(110), &constants).unwrap(), (LINE / 4.0 + LINE) / 2.0);
    }

    #[test]
    fn bytes_count_as_the_timer_does_and_hyper_increase_needs_both() {
        let constants = Constants { byte_counter: Some(1_000_000), ..constants() };
        let mut point = ReactionPoint::new(BitRate(LINE as u64));
        point.notify(at(0), &constants);
        point.notify(at(50), &constants);
        let (mut rate, mut target) = (LINE / 4.0, LINE / 2.0);
        for stage in 0..8 {
            point.sent(1_000_000, &constants);
            target += if stage < 5 { 0.0 } else { 40e6 };
            rate = (rate + target) / 2.0;
            near(point.rate(at(51), &constants).unwrap(), rate);
        }
    }

    #[test]
    fn a_rate_has_a_floor_and_comes_back_to_the_line() {
        let (constants, mut point) = (constants(), ReactionPoint::new(BitRate(LINE as u64)));
        for micros in (0..2000).step_by(50) {
            point.notify(at(micros), &constants);
        }
        near(point.rate(at(2000), &constants).unwrap(), 100e6);
        assert_eq!(point.rate(at(60_000), &constants), None);
        assert_eq!(point.changes_at(), Time::NEVER);
    }
}
