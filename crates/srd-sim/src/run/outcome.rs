//! What a run has come to, in the words of its JSON.

use crate::apps::catalogue::{Figure, Job};
use crate::apps::{Rank, Size};
use crate::hosts::Process;
use crate::net::{Deadlock, PortId};
use crate::run::simulation::Simulation;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use srd_baselines::units::Ps;
use srd_wire::Time;
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// Ports whose queues are told of.
const QUEUES: usize = 8;

/// Times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
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
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
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
    /// The best that is possible (see `lower_bound`).
    pub ideal_us: Option<f64>,
    /// Slowest by fastest completion time.
    pub spread: Option<f64>,
    /// Data packets sent for the first time.
    pub packets_new: u64,
    /// Data packets retransmitted.
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
    /// Frames trimmed to their headers.
    pub packets_trimmed: u64,
    /// Pause frames, those that let go on included.
    pub pause_frames: u64,
    /// For how long ports could not send, those of hosts too, over all ports and classes.
    pub paused_us: f64,
    /// Frames of lossless classes that found no room: headroom was too small.
    pub lossless_drops: u64,
    /// Frames dropped because their class had been paused for too long.
    pub watchdog_drops: u64,
    /// Ports that waited for each other for ever.
    pub deadlocks: Vec<DeadlockFound>,
    /// Ports of switches with the longest queues, the longest first: the first few.
    pub queues: Vec<QueueOfPort>,
    /// Each workload by itself.
    pub workloads: Vec<OfWorkload>,
    /// What each program says of its run.
    pub programs: Vec<OfProgram>,
    /// Jobs of real programs, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<OfJob>,
    /// Frames that crossed a cable, each cable counted.
    pub packet_hops: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Simulated time at the end.
    pub sim_us: f64,
    /// What the run took; differs from machine to machine.
    pub cost: Cost,
}

/// What became of a job of real programs.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct OfJob {
    /// Its ranks.
    pub ranks: u32,
    /// When all of them were at their program's end; `None`: it went on when the first job was at its own, or the run had ended before.
    pub ended_us: Option<f64>,
}

/// Ports that wait for each other for ever.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct DeadlockFound {
    /// When the last of them was paused.
    pub at_us: f64,
    /// The class that they may not send; the lowest where it is the whole link.
    pub class: u8,
    /// The ports, by the ends of their cables: each waits for the next, the last for the first.
    pub ports: Vec<String>,
}

/// The queue of a switch's port.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
pub struct QueueOfPort {
    /// The port, by the ends of its cable.
    pub port: String,
    /// Most bytes that it held, what is left of the frame that is leaving included.
    pub most_bytes: u64,
    /// What it held on average over the run's time.
    pub mean_bytes: f64,
    /// Bytes that it sent.
    pub sent_bytes: u64,
}

/// What became of one workload.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
pub struct OfWorkload {
    /// Its name.
    pub name: String,
    /// The transport of its flows.
    pub transport: String,
    /// Its flows.
    pub flows: u32,
    /// Those that came to their end.
    pub finished: u32,
    /// Those that the transport gave up.
    pub failed: u32,
    /// From a flow's start to its last acknowledgement at the sender.
    pub fct_us: Option<Times>,
    /// Payload that its receivers got, in Gb/s of the time from the first start to the end of the run, or of its last flow.
    pub goodput_gbps: f64,
    /// Least and most of that of a flow, among flows without end.
    pub goodput_of_flows_gbps: Option<(f64, f64)>,
}

/// What became of one program.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
pub struct OfProgram {
    /// Its name.
    pub name: String,
    /// Its ranks.
    pub ranks: u32,
    /// What it measured; nothing if it did not come to its end.
    pub figures: Vec<ProgramFigure>,
}

/// What a program measured.
#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
pub struct ProgramFigure {
    /// What it is.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// How often it was measured.
    pub count: usize,
    /// The least.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// 99 of 100 are not more.
    pub p99: f64,
    /// The most.
    pub most: f64,
}

/// What a run took.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize, Serialize)]
pub struct Cost {
    /// Processor time of this run's threads.
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
    /// Of other threads.
    added_ns: u64,
}

impl Meter {
    /// From now on, on this thread.
    pub fn start() -> Meter {
        Meter { began: Instant::now(), cpu_ns: thread_cpu_ns(), added_ns: 0 }
    }

    /// What another thread has done for the run.
    pub(crate) fn add(&mut self, cpu_ns: u64) {
        self.added_ns += cpu_ns;
    }

    /// Until now.
    pub fn stop(&self, packets: u64, events: u64) -> Cost {
        let cpu_s = (thread_cpu_ns().saturating_sub(self.cpu_ns) + self.added_ns) as f64 / 1e9;
        let per_s = |count: u64| if cpu_s > 0.0 { count as f64 / cpu_s } else { 0.0 };
        Cost {
            cpu_s,
            wall_s: self.began.elapsed().as_secs_f64(),
            rss_mb: peak_memory() as f64 / f64::from(1 << 20),
            packets_per_cpu_s: per_s(packets),
            events_per_cpu_s: per_s(events),
        }
    }
}

/// Processor time of this thread (clock_gettime(2)); to the nanosecond, where `/proc` counts in ticks.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    time.as_nanos() as u64
}

/// Most memory that this process has held, in bytes (proc(5), `VmHWM`); 0 where the system does not tell.
pub fn peak_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Each workload by itself.
fn of_workloads<T: Process>(simulation: &mut Simulation<'_, T>) -> Vec<OfWorkload> {
    struct Sum {
        transport: u16,
        times: Vec<Ps>,
        flows: u32,
        failed: u32,
        begin: Ps,
        end: Ps,
        bytes: u64,
        endless_gbps: Vec<f64>,
    }
    let traffic = simulation.traffic();
    let blank = || Sum {
        transport: 0,
        times: Vec::new(),
        flows: 0,
        failed: 0,
        begin: Ps::NEVER,
        end: Ps::ZERO,
        bytes: 0,
        endless_gbps: Vec::new(),
    };
    let gbps = |bytes: u64, span: Ps| bytes as f64 * 8.0 / (span.as_micros() * 1e3).max(1e-3);
    let mut sums: Vec<Sum> = traffic.workloads.iter().map(|_| blank()).collect();
    for (index, flow) in (0..).zip(&traffic.flows) {
        let delivered = simulation.delivered(index);
        let state = simulation.flows[index as usize];
        let sum = &mut sums[flow.workload as usize];
        sum.transport = flow.transport;
        sum.flows += 1;
        sum.bytes += delivered;
        sum.failed += state.failed.is_some() as u32;
        let Some(started) = state.started else { continue };
        let stop = match flow.size {
            Size::Until(until) => until,
            Size::Bytes(_) => Ps::NEVER,
        };
        let end = state.sent.unwrap_or(simulation.now.min(stop));
        sum.begin = sum.begin.min(started);
        sum.end = sum.end.max(end);
        sum.times.extend(state.sent.map(|sent| sent - started));
        if stop != Ps::NEVER {
            sum.endless_gbps.push(gbps(delivered, end - started));
        }
    }
    let transports = &simulation.settings().transports;
    let of = |(name, sum): (&String, Sum)| OfWorkload {
        name: name.clone(),
        transport: transports[sum.transport as usize].name.clone(),
        flows: sum.flows,
        finished: sum.times.len() as u32,
        failed: sum.failed,
        fct_us: Times::of(sum.times),
        goodput_gbps: gbps(sum.bytes, sum.end.since(sum.begin)),
        goodput_of_flows_gbps: (!sum.endless_gbps.is_empty()).then(|| {
            let least = sum.endless_gbps.iter().copied().fold(f64::MAX, f64::min);
            (least, sum.endless_gbps.iter().copied().fold(0.0, f64::max))
        }),
    };
    traffic.workloads.iter().zip(sums).map(of).collect()
}

/// What each program says of its run.
fn of_programs<T: Process>(simulation: &Simulation<'_, T>) -> Vec<OfProgram> {
    let of = |rank: &Rank| rank.marks().to_vec();
    let marks: Vec<Vec<Time>> = match simulation.messages() {
        Some(messages) => messages.ranks().map(of).collect(),
        None => simulation.ranks().filter_map(T::rank).map(of).collect(),
    };
    if marks.is_empty() {
        return Vec::new();
    }
    let figure = |figure: Figure| ProgramFigure {
        what: figure.what.into(),
        unit: figure.unit.into(),
        count: figure.values.count,
        least: figure.values.least,
        mean: figure.values.mean,
        p99: figure.values.p99,
        most: figure.values.most,
    };
    let of = |job: &Job| OfProgram {
        name: job.name.clone(),
        ranks: job.kind.ranks(),
        figures: job.figures(&marks).into_iter().map(figure).collect(),
    };
    simulation.traffic().jobs.iter().map(of).collect()
}

impl Outcome {
    /// Of a simulation that has run.
    pub fn of<T: Process>(simulation: &mut Simulation<'_, T>, ideal: Option<Ps>, meter: &Meter) -> Outcome {
        let workloads = of_workloads(simulation);
        let settings = simulation.settings();
        let transports: Vec<&str> =
            settings.transports.iter().map(|transport| transport.name.as_str()).collect();
        let done = |flow: &crate::run::simulation::FlowState| Some(flow.sent? - flow.started?);
        let times: Vec<Ps> = simulation.flows.iter().filter_map(done).collect();
        let finished = times.len() as u32;
        let fct_us = Times::of(times);
        let fabric = &simulation.fabric;
        let ports = (0..fabric.ports()).map(|port| fabric.counters(PortId(port)));
        let sum = ports.fold(crate::net::PortCounters::default(), |mut sum, port| {
            sum.dropped += port.dropped;
            sum.lost += port.lost;
            sum.marked += port.marked;
            sum.trimmed += port.trimmed;
            sum
        });
        let counts = simulation.counts();
        let pauses = fabric.pause_counters(simulation.now);
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
            pause_frames: pauses.frames,
            paused_us: pauses.paused.as_micros(),
            lossless_drops: pauses.lossless_drops,
            watchdog_drops: pauses.watchdog_drops,
            deadlocks: deadlocks(simulation),
            queues: longest_queues(simulation),
            workloads,
            programs: of_programs(simulation),
            jobs: Vec::new(), // whoever runs them says so
            packet_hops: fabric.hops,
            events: simulation.events(),
            sim_us: simulation.now.as_micros(),
            cost: meter.stop(counts.data_new + counts.data_again, simulation.events()),
        }
    }
}

/// The longest queues of switches.
fn longest_queues<T: Process>(simulation: &Simulation<'_, T>) -> Vec<QueueOfPort> {
    let fabric = &simulation.fabric;
    let of_switches = (0..fabric.ports()).map(PortId).filter(|&port| fabric.is_of_switch(port));
    let most = of_switches.map(|port| (Reverse(fabric.counters(port).most_waiting), port));
    let mut longest: Vec<_> = most.filter(|(most, _)| most.0 > 0).collect();
    longest.sort_unstable();
    let of = |&(Reverse(most_bytes), port): &(Reverse<u64>, PortId)| QueueOfPort {
        port: fabric.port_name(port),
        most_bytes,
        mean_bytes: (fabric.mean_waiting(simulation.now, port) * 10.0).round() / 10.0,
        sent_bytes: fabric.counters(port).bytes,
    };
    longest.iter().take(QUEUES).map(of).collect()
}

/// The deadlocks of a run, by names.
pub fn deadlocks<T: Process>(simulation: &Simulation<'_, T>) -> Vec<DeadlockFound> {
    let name = |&port: &PortId| simulation.fabric.port_name(port);
    let found = |deadlock: &Deadlock| DeadlockFound {
        at_us: deadlock.at.as_micros(),
        class: deadlock.class,
        ports: deadlock.ports.iter().map(name).collect(),
    };
    simulation.fabric.deadlocks().iter().map(found).collect()
}
