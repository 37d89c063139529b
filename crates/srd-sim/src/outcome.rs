//! What a run has come to, in the words of its JSON.

use crate::fabric::PortId;
use crate::process::Process;
use crate::simulation::Simulation;
use crate::units::Ps;
use serde::Serialize;
use std::time::Instant;

/// Times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Times {
    /// The shortest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The mean.
    pub mean: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Times {
    /// Of times in any order; `None` if there are none. Quantiles by nearest rank.
    pub fn of(mut times: Vec<Ps>) -> Option<Times> {
        times.sort_unstable();
        let count = times.len();
        let rank = |q: f64| times[((q * count as f64).ceil() as usize).clamp(1, count) - 1].as_micros();
        (count > 0).then(|| Times {
            min: times[0].as_micros(),
            p50: rank(0.5),
            mean: times.iter().map(|time| time.as_micros()).sum::<f64>() / count as f64,
            p99: rank(0.99),
            max: times[count - 1].as_micros(),
        })
    }
}

/// One run. Everything but `cost` depends on the scenario and the seed alone.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The transport; several with a plus between them.
    pub transport: String,
    /// Hosts of the fabric.
    pub hosts: u32,
    /// Flows of the traffic.
    pub flows: u32,
    /// Those that came to their end.
    pub finished: u32,
    /// Those that the transport gave up.
    pub failed: u32,
    /// The seed.
    pub seed: u64,
    /// From a flow's start to its last acknowledgement at the sender.
    pub fct_us: Option<Times>,
    /// The best that is possible (see `ideal`).
    pub ideal_us: Option<f64>,
    /// Slowest by fastest completion time.
    pub spread: Option<f64>,
    /// Data packets sent for the first time.
    pub packets_new: u64,
    /// Data packets sent again.
    pub packets_rtx: u64,
    /// Of those, for nothing.
    pub packets_spurious: u64,
    /// Packets without data.
    pub packets_bare: u64,
    /// Frames that found no room in a queue or a receive ring.
    pub packets_dropped: u64,
    /// Frames that cables lost or damaged.
    pub packets_lost: u64,
    /// Frames that got congestion marks.
    pub packets_marked: u64,
    /// Frames cut to their headers.
    pub packets_trimmed: u64,
    /// Frames that crossed a cable, each cable counted.
    pub packet_hops: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Simulated time at the end.
    pub sim_us: f64,
    /// What the run took; differs from machine to machine.
    pub cost: Cost,
}

/// What a run took.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Cost {
    /// Processor time of this run's thread.
    pub cpu_s: f64,
    /// Time on the wall.
    pub wall_s: f64,
    /// Most memory that this process has held so far.
    pub rss_mb: f64,
    /// Data packets per second of processor time, those sent again included.
    pub packets_per_cpu_s: f64,
    /// Events per second of processor time.
    pub events_per_cpu_s: f64,
}

/// Measures what a run takes.
pub struct Meter {
    began: Instant,
    cpu_ns: u64,
}

impl Meter {
    /// From now on, on this thread.
    pub fn start() -> Meter {
        Meter { began: Instant::now(), cpu_ns: thread_cpu_ns() }
    }

    /// Until now.
    pub fn stop(&self, packets: u64, events: u64) -> Cost {
        let cpu_s = thread_cpu_ns().saturating_sub(self.cpu_ns) as f64 / 1e9;
        let per_s = |count: u64| if cpu_s > 0.0 { count as f64 / cpu_s } else { 0.0 };
        Cost {
            cpu_s,
            wall_s: self.began.elapsed().as_secs_f64(),
            rss_mb: peak_memory_mb(),
            packets_per_cpu_s: per_s(packets),
            events_per_cpu_s: per_s(events),
        }
    }
}

/// Processor time of this thread (clock_gettime(2)); to the nanosecond, where `/proc` counts in ticks.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Most memory held (proc(5), `VmHWM`); 0 where the system does not tell.
fn peak_memory_mb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

impl Outcome {
    /// Of a simulation that has run.
    pub fn of<T: Process>(simulation: &Simulation<'_, T>, ideal: Option<Ps>, meter: &Meter) -> Outcome {
        let settings = simulation.settings();
        let transports: Vec<&str> =
            settings.transports.iter().map(|transport| transport.name.as_str()).collect();
        let done = |flow: &crate::simulation::FlowState| Some(flow.sent? - flow.started?);
        let times: Vec<Ps> = simulation.flows.iter().filter_map(done).collect();
        let finished = times.len() as u32;
        let fct_us = Times::of(times);
        let fabric = &simulation.fabric;
        let ports = (0..fabric.ports()).map(|port| fabric.counters(PortId(port)));
        let sum = ports.fold(crate::fabric::PortCounters::default(), |mut sum, port| {
            sum.dropped += port.dropped;
            sum.lost += port.lost;
            sum.marked += port.marked;
            sum.trimmed += port.trimmed;
            sum
        });
        let counts = simulation.counts();
        Outcome {
            scenario: settings.name.clone(),
            transport: transports.join("+"),
            hosts: simulation.hosts(),
            flows: simulation.flows.len() as u32,
            finished,
            failed: simulation.flows.iter().filter(|flow| flow.failed.is_some()).count() as u32,
            seed: settings.seed,
            fct_us,
            ideal_us: ideal.map(Ps::as_micros),
            spread: fct_us.map(|times| times.max / times.min),
            packets_new: counts.data_new,
            packets_rtx: counts.data_again,
            packets_spurious: counts.spurious,
            packets_bare: counts.bare,
            packets_dropped: sum.dropped + simulation.host_losses.ring,
            packets_lost: sum.lost + simulation.host_losses.corrupt,
            packets_marked: sum.marked,
            packets_trimmed: sum.trimmed,
            packet_hops: fabric.hops,
            events: simulation.events(),
            sim_us: simulation.now.as_micros(),
            cost: meter.stop(counts.data_new + counts.data_again, simulation.events()),
        }
    }
}
