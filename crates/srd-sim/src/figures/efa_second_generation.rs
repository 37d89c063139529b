//! The second generation of EFA: B. Barrett, M. Koop, "Second generation EFA: improving HPC and ML application performance in
//! the cloud", AWS HPC Blog, 2022. What is said there of NCCL and of collectives is made again with scripts over the
//! messaging layer. The article describes neither fabric nor software's times; ours are stated here.

use super::lab::Lab;
use super::{Drawn, Figure, Make, finding};
use crate::apps::Script;
use crate::apps::benchmarks::all_reduce::AllReduce;
use crate::apps::benchmarks::pairs::{ping_pong, stream};
use crate::hosts::{OnNode, Settings};
use crate::run::{Ended, place};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};
use srd_wire::BitRate;

const SOURCE: &str = "AWS HPC Blog, 2022, \"Second generation EFA\"";

/// Two tiers, full bisection: 2 us of cables and 3 us of switches from one leaf to the other.
const FABRIC: &str = r#"
[fabric]
kind = "leaf-spine"
leaves = 2
spines = 8
cable_us = 0.5
switch_latency_us = 1.0

[transport]
mtu = 9000
"#;

/// A generation of the card: its rate, and what card and host software add to a message's way, both ends together. The article
/// has the rates, and 30 % less; 10 us is our choice.
#[derive(Clone, Copy)]
struct Generation {
    gbps: u32,
    endpoint_us: f64,
}

const FIRST: Generation = Generation { gbps: 100, endpoint_us: 10.0 };
const SECOND: Generation = Generation { gbps: 200, endpoint_us: 7.0 };

/// How fast a rank adds one vector to another: 10 GB/s, as fast as it copies ([`OnNode`]).
const ADDS: BitRate = BitRate(80_000_000_000);

pub(super) static DATA_AHEAD: Figure = Figure {
    name: "data-ahead",
    title: "Time of a message by size, with and without data ahead of the rendezvous",
    source: SOURCE,
    make: Make::Code(data_ahead),
};

pub(super) static IN_FLIGHT: Figure = Figure {
    name: "in-flight",
    title: "Bandwidth of a pair by what is in flight",
    source: SOURCE,
    make: Make::Code(in_flight),
};

pub(super) static ALL_REDUCE: Figure = Figure {
    name: "all-reduce",
    title: "Time of an all-reduce of 16 nodes with 16 ranks each, by size",
    source: "AWS HPC Blog, 2022, \"Second generation EFA\", Figure 4",
    make: Make::Code(all_reduce),
};

pub(super) static GENERATIONS: Figure = Figure {
    name: "generations",
    title: "Time of a message by size, first and second generation",
    source: SOURCE,
    make: Make::Code(generations),
};

/// The runs of a figure, one after the other.
struct Runs<'l, 'w> {
    lab: &'l mut Lab<'w>,
    complaints: Vec<String>,
}

impl<'l, 'w> Runs<'l, 'w> {
    fn new(of: usize, lab: &'l mut Lab<'w>) -> Runs<'l, 'w> {
        lab.plan(of);
        Runs { lab, complaints: Vec::new() }
    }

    /// Scripts at `per_host` to a host.
    fn run(
        &mut self,
        generation: Generation,
        scripts: Vec<Script>,
        per_host: u32,
        change: impl FnOnce(&mut Settings),
    ) -> Option<Ended> {
        let hosts = scripts.len() as u32 / per_host;
        let sets = [
            format!("fabric.host_gbps={}", generation.gbps),
            format!("fabric.hosts_per_leaf={}", hosts / 2),
            format!("host.latency_us={:?}", generation.endpoint_us),
        ];
        let programs = place(scripts, per_host);
        let mut scenario = Lab::of_programs(FABRIC, &sets, programs);
        change(&mut scenario.settings);
        let ended = self.lab.over_messages(&scenario)?;
        self.complaints.extend(ended.complaints.clone());
        Some(ended)
    }

    /// Half a round trip of a message of so many bytes, in microseconds.
    fn half_round_trip(
        &mut self,
        generation: Generation,
        bytes: u64,
        change: impl FnOnce(&mut Settings),
    ) -> Option<f64> {
        let times = 5;
        let ended = self.run(generation, ping_pong(bytes, times).into(), 1, change)?;
        Some(ended.span_of(0).map_or(f64::NAN, |span| span.as_micros()) / (2 * times) as f64)
    }

    /// Gb/s of a stream of messages, so many of them under way.
    fn bandwidth(
        &mut self,
        generation: Generation,
        (bytes, messages, window): (u64, u32, u32),
        change: impl FnOnce(&mut Settings),
    ) -> Option<f64> {
        let ended = self.run(generation, stream(bytes, messages, window).into(), 1, change)?;
        let micros = ended.span_of(0).map_or(f64::NAN, |span| span.as_micros());
        Some((bytes * 8 * messages as u64) as f64 / micros / 1e3)
    }
}

/// A size as people write it.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// How much less, in percent, by size.
fn less<'a>(pairs: impl IntoIterator<Item = (u64, &'a f64, &'a f64)>) -> String {
    let one = |(bytes, before, after): (u64, &f64, &f64)| {
        format!("{}: {:.0} %", size(bytes), (1.0 - after / before) * 100.0)
    };
    pairs.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A chart of times in microseconds by size.
fn times_by_size(title: &str, sizes: &[u64], lines: &[(&str, &[f64])]) -> Chart {
    let all = || lines.iter().flat_map(|(_, times)| times.iter().copied());
    let x = Axis::new("size (B)", sizes[0] as f64, sizes[sizes.len() - 1] as f64).logarithmic();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let mut chart = Chart::new(title, x, Axis::new("time (us)", low * 0.7, high * 1.4).logarithmic());
    for (label, times) in lines {
        chart.line(label, sizes.iter().zip(*times).map(|(&bytes, &time)| (bytes as f64, Some(time))));
    }
    chart
}

// ---- data ahead of the rendezvous ----

const MESSAGE_SIZES: [u64; 11] =
    [8, 64, 512, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Bytes ahead; the first is the default.
const AHEAD: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];
const AHEAD_NAMES: [&str; 3] = ["16 KiB ahead of it", "64 KiB ahead of it", "256 KiB ahead of it"];

fn data_ahead(lab: &mut Lab<'_>) -> Option<Drawn> {
    let mut runs = Runs::new((AHEAD.len() + 2) * MESSAGE_SIZES.len(), lab);
    // Bytes ahead of a rendezvous, by which all messages meet; or as configured.
    let mut times = |ahead: Option<u64>| -> Option<Vec<f64>> {
        let one = |bytes| {
            runs.half_round_trip(FIRST, bytes, |settings| {
                if let Some(ahead) = ahead {
                    settings.messages.medium_limit = 0;
                    settings.messages.eager_ahead = ahead;
                }
            })
        };
        MESSAGE_SIZES.into_iter().map(one).collect()
    };
    let without = times(Some(0))?;
    let with = AHEAD.into_iter().map(|ahead| times(Some(ahead))).collect::<Option<Vec<_>>>()?;
    let ours = times(None)?;
    let by_size = |after: &[f64]| {
        let pairs = MESSAGE_SIZES.iter().zip(without.iter().zip(after));
        less(pairs.map(|(&bytes, (before, after))| (bytes, before, after)))
    };
    let lines = [
        ("rendezvous alone", &without[..]),
        (AHEAD_NAMES[0], &with[0][..]),
        (AHEAD_NAMES[1], &with[1][..]),
        (AHEAD_NAMES[2], &with[2][..]),
        ("as configured: no rendezvous up to 64 KiB", &ours[..]),
    ];
    Some(Drawn {
        chart: times_by_size(DATA_AHEAD.title, &MESSAGE_SIZES, &lines),
        caption: "Half a round trip of two hosts in different racks, 100 Gb/s, 10 us of card and host software and 5 us of \
                  fabric one way. All messages meet by rendezvous in the first line: the receiver is told of the message \
                  and reads it. In the next lines the beginning of a message goes ahead while that is set up; what we do is \
                  16 KiB, and no rendezvous for short messages. NCCL's time, of which the article speaks, has a part of \
                  its own that no protocol changes."
            .into(),
        findings: vec![
            finding("Less time, 16 KiB ahead", "almost 40 % for small and medium messages of NCCL", by_size(&with[0])),
            finding("Less time, 64 KiB ahead", "", by_size(&with[1])),
            finding("Less time, 256 KiB ahead", "", by_size(&with[2])),
            finding("Less time, as configured", "", by_size(&ours)),
        ],
        complaints: runs.complaints,
    })
}

// ---- transactions in flight ----

const IN_FLIGHT_AT_A_TIME: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Of the messages of the first line, and of reads of the second.
const TRANSACTION: u64 = 64 << 10;
const LONG_MESSAGE: u64 = 4 << 20;
/// It takes one packet, and one receive buffer.
const SHORT_MESSAGE: u64 = 8 << 10;
/// How often programs look at their receive buffers: a buffer is used once in that time.
const LOOKS_EVERY: Ps = Ps::from_micros(5);

fn in_flight(lab: &mut Lab<'_>) -> Option<Drawn> {
    let mut runs = Runs::new(3 * IN_FLIGHT_AT_A_TIME.len(), lab);
    let mut line = |shape: &dyn Fn(u32) -> (u64, u32, u32), change: &dyn Fn(&mut Settings, u32)| {
        let one = |count| runs.bandwidth(FIRST, shape(count), |settings| change(settings, count));
        IN_FLIGHT_AT_A_TIME.into_iter().map(one).collect::<Option<Vec<f64>>>()
    };
    let messages = line(&|window| (TRANSACTION, 400, window), &|_, _| {})?;
    let reads = line(&|_| (LONG_MESSAGE, 6, 1), &|settings, reads| {
        settings.messages.read_bytes = TRANSACTION;
        settings.messages.reads_in_flight = reads;
    })?;
    let buffers = line(&|_| (SHORT_MESSAGE, 2000, 64), &|settings, buffers| {
        settings.messages.receive_buffers = buffers;
        settings.hosts.looks_every = LOOKS_EVERY;
    })?;
    let lines = [
        ("messages of 64 KiB under way", &messages),
        ("reads of 64 KiB under way, of one message of 4 MiB", &reads),
        ("receive buffers, 64 messages of 8 KiB under way", &buffers),
    ];
    let last = IN_FLIGHT_AT_A_TIME[IN_FLIGHT_AT_A_TIME.len() - 1] as f64;
    let x = Axis::new("in flight", 1.0, last).logarithmic();
    let mut chart = Chart::new(IN_FLIGHT.title, x, Axis::new("bandwidth (Gb/s)", 0.0, FIRST.gbps as f64));
    let all = |line: &[f64]| {
        let pairs = IN_FLIGHT_AT_A_TIME.iter().zip(line);
        pairs.map(|(count, gbps)| format!("{count}: {}", plain(*gbps))).collect::<Vec<_>>().join(", ")
    };
    let mut findings = Vec::new();
    let published = ["more transactions in flight hide the network's latency", "", "more network buffers"];
    let whats = ["Gb/s by messages under way", "Gb/s by reads under way", "Gb/s by receive buffers"];
    for (((label, values), what), published) in lines.into_iter().zip(whats).zip(published) {
        chart.line(label, IN_FLIGHT_AT_A_TIME.iter().zip(values).map(|(&n, &gbps)| (n as f64, Some(gbps))));
        findings.push(finding(what, published, all(values)));
    }
    Some(Drawn {
        chart,
        caption: "Two hosts in different racks, 100 Gb/s, 15 us one way. A message that finds no receive buffer is sent \
                  again after a while. In the last line programs look at what has come every 5 us, so that a buffer is \
                  used once in that time; in the others, at once."
            .into(),
        findings,
        complaints: runs.complaints,
    })
}

// ---- all-reduce ----

const VECTOR_SIZES: [u64; 6] = [8, 512, 8 << 10, 64 << 10, 256 << 10, 1 << 20];
const NODES: u32 = 16;
const PER_NODE: u32 = 16;

fn all_reduce(lab: &mut Lab<'_>) -> Option<Drawn> {
    let mut runs = Runs::new(3 * VECTOR_SIZES.len(), lab);
    let mut line = |scripts: &dyn Fn(AllReduce, u32) -> Vec<Script>, intra_node| -> Option<Vec<f64>> {
        let one = |bytes| {
            // Long ones take many packets, and as long every time.
            let times = if bytes > 8 << 10 { 1 } else { 3 };
            let what = AllReduce { nodes: NODES, per_node: PER_NODE, bytes, adds: ADDS };
            let ended = runs.run(SECOND, scripts(what, times), PER_NODE, |settings: &mut Settings| {
                settings.hosts.intra_node = intra_node;
            })?;
            Some(ended.span().map_or(f64::NAN, |span| span.as_micros()) / times as f64)
        };
        VECTOR_SIZES.into_iter().map(one).collect()
    };
    let shared_memory = Some(OnNode::default());
    let flat = line(&|what, times| what.flat(false, times), None)?;
    let in_order = line(&|what, times| what.flat(false, times), shared_memory)?;
    let aware = line(&|what, times| what.on_node_first(times), shared_memory)?;
    let by_size = |before: &[f64]| {
        let pairs = VECTOR_SIZES.iter().zip(before.iter().zip(&aware));
        less(pairs.map(|(&bytes, (before, after))| (bytes, before, after)))
    };
    let lines = [
        ("flat: every message through the card", &flat[..]),
        ("flat, shared memory within a node", &in_order[..]),
        ("on each node first", &aware[..]),
    ];
    Some(Drawn {
        chart: times_by_size(ALL_REDUCE.title, &VECTOR_SIZES, &lines),
        caption: "Second generation. Flat: recursive doubling among all 256 ranks, all of which talk to other nodes through \
                  their node's one card. On each node first: a tree to one rank of the node, recursive doubling among \
                  these, and back. Shared memory takes 0.3 us and 10 GB/s a copy; sums are made at 10 GB/s."
            .into(),
        findings: vec![
            finding("Less time on each node first", "more than 75 % for smaller collectives, 16 trn1.32xlarge", by_size(&flat)),
            finding("Less than flat with shared memory", "", by_size(&in_order)),
        ],
        complaints: runs.complaints,
    })
}

// ---- two generations of the card ----

fn generations(lab: &mut Lab<'_>) -> Option<Drawn> {
    let mut runs = Runs::new(2 * (MESSAGE_SIZES.len() + 1), lab);
    let mut of = |generation| -> Option<(Vec<f64>, f64)> {
        let one = |bytes| runs.half_round_trip(generation, bytes, |_| {});
        let times = MESSAGE_SIZES.into_iter().map(one).collect::<Option<Vec<f64>>>()?;
        Some((times, runs.bandwidth(generation, (1 << 20, 100, 16), |_| {})?))
    };
    let ((first, first_gbps), (second, second_gbps)) = (of(FIRST)?, of(SECOND)?);
    let pairs = MESSAGE_SIZES.iter().zip(first.iter().zip(&second));
    let lines = [
        ("first: 100 Gb/s, 10 us in cards and hosts", &first[..]),
        ("second: 200 Gb/s, 7 us in cards and hosts", &second[..]),
    ];
    Some(Drawn {
        chart: times_by_size(GENERATIONS.title, &MESSAGE_SIZES, &lines),
        caption: "Half a round trip of two hosts in different racks; 5 us of each way are the fabric's, which stays as it is."
            .into(),
        findings: vec![
            finding("Less time", "30 % less endpoint latency, which is an input here", less(pairs.map(|(&bytes, (before, after))| (bytes, before, after)))),
            finding("Gb/s of 1 MiB messages, 16 under way", "100 and 200 Gb/s of the card, an input here", format!("{} and {}", plain(first_gbps), plain(second_gbps))),
        ],
        complaints: runs.complaints,
    })
}
