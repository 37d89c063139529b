//! CUBIC: the window is a cubic function of the time since the last loss (RFC 9438).

use super::hystart::HyStart;
use super::{Congestion, Control, LEAST, Sample, Window};
use srd_wire::Time;

/// Segments per cubic second (RFC 9438, section 5.1).
const C: f64 = 0.4;
/// Share of the window that is left after a loss (section 4.6).
const BETA: f64 = 0.7;
/// Growth per round trip that is fair to Reno (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC's state. Sizes are in segments, times in seconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cubic {
    slow_start: HyStart,
    /// Size just before the last reduction (W_max, after fast convergence), and without that correction.
    peak: f64,
    prior: f64,
    epoch: Option<Epoch>,
    before: Option<(f64, f64)>,
    /// Part of a segment by which the window has grown.
    fraction: f64,
    heard_at: Time,
}

/// Congestion avoidance since the last loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    /// Seconds until the window is back at its peak.
    k: f64,
    /// Size where the curve is flat.
    origin: f64,
    /// Size that Reno would have.
    reno: f64,
}

impl Cubic {
    /// Size at `seconds` after the epoch's start (section 4.2).
    fn curve(epoch: &Epoch, seconds: f64) -> f64 {
        let apart = seconds - epoch.k;
        C * apart * apart * apart + epoch.origin
    }

    fn avoid(&mut self, window: &mut Window, acked: u32, sample: &Sample) {
        let size = window.size as f64;
        let peak = self.peak;
        let epoch = self.epoch.get_or_insert_with(|| {
            let k = if peak > size { cube_root((peak - size) / C) } else { 0.0 };
            Epoch { start: sample.now, k, origin: peak.max(size), reno: size }
        });
        let seconds = sample.now.since(epoch.start).as_f64() / 1e9;
        let alpha = if epoch.reno >= self.prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * acked as f64 / size;
        let ahead = seconds + sample.smoothed.as_f64() / 1e9;
        let target = Cubic::curve(epoch, ahead).clamp(size, 1.5 * size);
        let grown = size + self.fraction + (target - size) / size * acked as f64;
        let grown = if Cubic::curve(epoch, seconds) < epoch.reno { grown.max(epoch.reno) } else { grown };
        // No jump: the curve may lie far above after a time without samples.
        let grown = grown.min(size + self.fraction + acked as f64);
        window.size = grown as u32;
        self.fraction = grown - window.size as f64;
    }
}

impl Control for Cubic {
    fn acknowledged(&mut self, window: &mut Window, sample: &Sample) {
        if !sample.limited || !sample.may_grow {
            // Time in which the window is not used does not count (section 5.8).
            if let Some(epoch) = self.epoch.as_mut().filter(|_| sample.may_grow) {
                epoch.start += sample.now.since(self.heard_at);
            }
            self.heard_at = sample.now;
            return;
        }
        self.heard_at = sample.now;
        let left = match window.in_slow_start() {
            true => self.slow_start.slow_start(window, sample),
            false => sample.acked,
        };
        if left > 0 && !window.in_slow_start() {
            self.avoid(window, left, sample);
        }
    }

    fn reduced(&mut self, window: &Window, _: Congestion) -> u32 {
        self.before = Some((self.peak, self.prior));
        let size = window.size as f64;
        // Fast convergence (section 4.7).
        self.peak = if size < self.peak { size * (1.0 + BETA) / 2.0 } else { size };
        (self.prior, self.epoch, self.fraction) = (size, None, 0.0);
        ((size * BETA) as u32).max(LEAST)
    }

    fn restored(&mut self) {
        if let Some((peak, prior)) = self.before.take() {
            (self.peak, self.prior, self.epoch) = (peak, prior, None);
        }
    }
}

/// The cube root, from additions and divisions alone: the same on every machine.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    loop {
        let better = (2.0 * root + value / (root * root)) / 3.0;
        if better >= root {
            return root;
        }
        root = better;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::*;
    use srd_wire::Nanos;

    #[test]
    fn cube_roots() {
        for value in [1e-9, 0.3, 1.0, 8.0, 1000.0, 1e12] {
            let root = cube_root(value);
            assert!((root * root * root - value).abs() < 1e-9 * value, "{value}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    /// A window of 1000 that has lost grows as the formula says, at a round trip of 100 ms, where Reno's
    /// growth does not matter.
    #[test]
    fn growth_follows_the_formula() {
        let mut cubic = Cubic::default();
        let mut window = Window { size: 1000, threshold: 1000 };
        window.threshold = cubic.reduced(&window, Congestion::Loss);
        window.size = window.threshold;
        assert_eq!(window.size, 700);
        let k = cube_root(1000.0 * (1.0 - BETA) / C);
        let (step, round_trip) = (Nanos::from_millis(1), Nanos::from_millis(100));
        let (mut now, mut acked, mut compared) = (Time(0), 0.0, 0);
        while now < Time(2 * (k * 1e9) as u64) {
            acked += window.size as f64 * step.as_f64() / round_trip.as_f64();
            let sample = Sample {
                now,
                acked: acked as u32,
                advanced: acked as u32,
                lost: 0,
                marked: false,
                rtt: Some(round_trip),
                smoothed: round_trip,
                first: 0,
                next: 0,
                delivered: 0,
                flights: (0, 0),
                rate: None,
            last_lost: None,
                phase: Phase::Open,
                limited: true,
                may_grow: true,
            };
            acked -= acked.floor();
            cubic.acknowledged(&mut window, &sample);
            now += step;
            let apart = now.0 as f64 / 1e9 - k;
            let expected = C * apart * apart * apart + 1000.0;
            if now.0 % 1_000_000_000 == 0 {
                let relative = window.size as f64 / expected;
                assert!((0.95..1.05).contains(&relative), "{now:?}: {} for {expected}", window.size);
                compared += 1;
            }
        }
        assert!(compared > 15, "{compared}");
    }
}
