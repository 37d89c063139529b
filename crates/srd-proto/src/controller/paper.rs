//! dev
use super::{AckSample, Allowance, CongestionController, ControllerView};
use crate::Config;
use srd_wire::{Nanos, PathId, Time};

fn k(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

const RECENT: usize = 16;

struct PathDelays {
    entries: [(PathId, f32, Time); RECENT],
    count: usize,
    next: usize,
}

impl PathDelays {
    fn new() -> PathDelays {
        PathDelays { entries: [(PathId(0), 0.0, Time(0)); RECENT], count: 0, next: 0 }
    }
    fn add(&mut self, now: Time, path: PathId, delay: f64) {
        let entry = (path, delay as f32, now);
        if let Some(old) = self.entries[..self.count].iter_mut().find(|e| e.0 == path) {
            *old = entry;
            return;
        }
        self.entries[self.next] = entry;
        self.next = (self.next + 1) % RECENT;
        self.count = (self.count + 1).min(RECENT);
    }
    fn median(&self, since: Time) -> Option<f64> {
        let mut v = [0f32; RECENT];
        let mut n = 0;
        for e in &self.entries[..self.count] {
            if e.2 >= since {
                v[n] = e.1;
                n += 1;
            }
        }
        if n == 0 {
            return None;
        }
        let m = (n - 1) / 2;
        Some(*v[..n].select_nth_unstable_by(m, f32::total_cmp).1 as f64)
    }
}

pub(super) struct Paper {
    unit_ns: f64,
    base_ns: f64,
    learn_base: bool,
    packet_bytes: f64,
    line: f64,
    max_burst: f64,
    rate: f64,
    est: f64,
    tx: f64,
    round: u32,
    round_at: Time,
    round_bytes: u64,
    delays: PathDelays,
    delay: f64,
    delay_ewma: f64,
    startup: bool,
    allowance: Allowance,
    kp: f64,
    t0: f64,
    s: f64,
    gain: f64,
    cap: f64,
    mem: f64,
    eg: f64,
    ai: f64,
    lossf: f64,
    upg: f64,
    tmin: f64,
    tmax: f64,
    bt: f64,
    txg: f64,
    clean: u32,
}

impl Paper {
    pub(super) fn new(config: &Config, packet_bytes: u32) -> Paper {
        let unit_ns = config.base_rtt.as_f64();
        let line = config.line_rate.0 as f64 / 8e9;
        let mut p = Paper {
            unit_ns,
            base_ns: unit_ns,
            learn_base: config.learn_base_rtt,
            packet_bytes: packet_bytes as f64,
            line,
            max_burst: config.burst_bytes as f64,
            rate: (line * k("FW", 0.0)).max(k("FPK", 1.0) * packet_bytes as f64 / unit_ns).min(line),
            est: 0.0,
            tx: 0.0,
            round: 0,
            round_at: Time(0),
            round_bytes: 0,
            delays: PathDelays::new(),
            delay: 0.0,
            delay_ewma: 0.0,
            startup: true,
            allowance: Allowance {
                window_bytes: 0,
                rate: 0.0,
                burst_bytes: 0,
                credit_bytes: 0,
                memory: Nanos(u64::MAX),
            },
            kp: k("KP", 0.5),
            t0: k("T0", 0.4),
            s: k("S", 0.08),
            gain: k("G", 0.5),
            cap: k("CAP", 1.25),
            mem: k("MEM", 1.5),
            eg: k("EG", 0.25),
            ai: k("AI", 0.0),
            lossf: k("LOSSF", 0.98),
            upg: k("UPG", 1.0),
            bt: k("BT", 0.9),
            txg: k("TXG", 0.5),
            clean: 0,
            tmin: k("TMIN", 0.15),
            tmax: k("TMAX", 0.9),
        };
        p.settle();
        p
    }

    fn target_ns(&self) -> f64 {
        self.unit_ns * (self.t0 + self.s * (self.line / self.rate).ln()).clamp(self.tmin, self.tmax)
    }

    fn clamp(&mut self) {
        let least = self.packet_bytes / self.unit_ns / 64.0;
        self.rate = self.rate.clamp(least.min(self.line), self.line);
    }

    fn settle(&mut self) {
        let window = (self.cap * self.rate * (self.base_ns + self.target_ns().max(self.delay_ewma))
            / self.packet_bytes)
            .ceil()
            .max(1.0);
        let burst =
            (self.rate * self.target_ns()).clamp(self.packet_bytes, self.max_burst.max(self.packet_bytes));
        self.allowance = Allowance {
            window_bytes: (window * self.packet_bytes) as u64,
            rate: self.rate,
            burst_bytes: burst as u64,
            credit_bytes: burst as u64,
            memory: if self.mem > 0.0 {
                Nanos((self.mem * self.base_ns + self.delay_ewma) as u64)
            } else {
                Nanos(u64::MAX)
            },
        };
    }
}

impl CongestionController for Paper {
    fn on_ack(&mut self, sample: &AckSample) {
        if let Some(min) = sample.min_rtt {
            let min = min.as_f64();
            self.base_ns = if self.learn_base { self.unit_ns.max(min) } else { self.unit_ns.min(min) };
        }
        let packets = self.rate * self.unit_ns / self.packet_bytes;
        if let (Some(rtt), Some(path)) = (sample.rtt, sample.path) {
            let d = (rtt.as_f64() - self.base_ns).max(0.0);
            self.delays.add(sample.now, path, d);
            let horizon = (self.base_ns + self.delay_ewma) as u64;
            self.delay = self.delays.median(Time(sample.now.0.saturating_sub(horizon))).unwrap_or(d);
            let g = if packets < 1.0 { 0.5 } else { 0.125 };
            self.delay_ewma += (d - self.delay_ewma) * g;
            self.clean = if d < 0.1 * self.unit_ns { self.clean + 1 } else { 0 };
        }
        if let Some(s) = sample.rate {
            let r = s.rate.min(self.line);
            if self.est == 0.0 {
                self.est = r;
            } else if !(s.app_limited && r < self.est) {
                self.est += (r - self.est) * (self.eg / packets).min(0.5);
            }
        }
        if sample.round != self.round {
            let span = sample.now.since(self.round_at).as_f64();
            if self.round_at > Time(0) && span > 0.0 {
                let t = (sample.sent_bytes - self.round_bytes) as f64 / span;
                self.tx = if self.tx == 0.0 { t } else { self.tx + (t - self.tx) * self.txg };
            }
            (self.round, self.round_at, self.round_bytes) = (sample.round, sample.now, sample.sent_bytes);
        }
        let target = self.target_ns();
        let x = (target - self.delay) / self.unit_ns;
        for _ in 0..sample.newly_acked {
            if self.startup {
                if x < 0.0 {
                    self.startup = false;
                    if self.est > 0.0 {
                        self.rate = self.rate.min(self.est);
                    }
                } else if sample.window_limited {
                    let step = if self.clean >= 2 { 2.0 } else { self.upg };
                    self.rate += step * self.packet_bytes / (self.unit_ns + self.delay_ewma);
                }
            } else if self.est > 0.0 {
                let behind = self.est < self.bt * self.tx;
                let most = if behind { 1.0 } else { 1.5 };
                let add = if behind {
                    0.0
                } else {
                    (self.ai * self.line).min(self.rate / 4.0) * (1.0 / packets).clamp(1.0, 8.0)
                };
                let goal = self.est * (1.0 + self.kp * x).clamp(0.5, most) + add;
                if goal < self.rate || sample.window_limited {
                    self.rate += (goal - self.rate) * (self.gain / packets).min(self.gain);
                }
            }
            self.clamp();
        }
        self.settle();
    }

    fn on_loss(&mut self, _: Time) {
        if self.startup {
            self.startup = false;
            if self.est > 0.0 {
                self.rate = self.rate.min(self.est);
            }
        }
        if self.delay > self.target_ns() || self.est == 0.0 {
            self.rate *= self.lossf;
        }
        self.clamp();
        self.settle();
    }

    fn allowance(&self) -> Allowance {
        self.allowance
    }

    fn view(&self) -> ControllerView {
        ControllerView {
            phase: if self.startup { "startup" } else { "steady" },
            delay_ns: self.delay,
            target_ns: self.target_ns(),
            delivery_rate: self.est,
            transmit_rate: self.tx,
        }
    }
}
