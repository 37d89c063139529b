//! The second generation of EFA: B. Barrett, M. Koop, "Second generation EFA: improving HPC and ML application performance in
//! the cloud", AWS HPC Blog, 2022. What is said there of NCCL and of collectives is made again with scripts over the
//! messaging layer. The article describes neither fabric nor software's times; ours are stated here.

use super::lab::{Lab, Planned};
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

[messages]
layer = "srd"
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
    make: Make::Code { runs: runs_of_data_ahead, draw: data_ahead },
};

pub(super) static IN_FLIGHT: Figure = Figure {
    name: "in-flight",
    title: "Bandwidth of a pair by what is in flight",
    source: SOURCE,
    make: Make::Code { runs: runs_of_in_flight, draw: in_flight },
};

pub(super) static ALL_REDUCE: Figure = Figure {
    name: "all-reduce",
    title: "Time of an all-reduce of 16 nodes with 16 ranks each, by size",
    source: "AWS HPC Blog, 2022, \"Second generation EFA\", Figure 4",
    make: Make::Code { runs: runs_of_all_reduce, draw: all_reduce },
};

pub(super) static GENERATIONS: Figure = Figure {
    name: "generations",
    title: "Time of a message by size, first and second generation",
    source: SOURCE,
    make: Make::Code { runs: runs_of_generations, draw: generations },
};

/// A run of scripts at `per_host` to a host.
fn planned(
    generation: Generation,
    scripts: Vec<Script>,
    per_host: u32,
    change: impl Fn(&mut Settings) + 'static,
) -> Planned {
    let hosts = scripts.len() as u32 / per_host;
    let sets = [
        format!("fabric.host_gbps={}", generation.gbps),
        format!("fabric.hosts_per_leaf={}", hosts / 2),
        format!("host.latency_us={:?}", generation.endpoint_us),
    ];
    Planned::of(move || {
        let mut scenario = Lab::of_programs(FABRIC, &sets, place(scripts.clone(), per_host));
        change(&mut scenario.settings);
        scenario
    })
}

/// How often a message goes there and back.
const ROUND_TRIPS: u32 = 5;

fn round_trips(generation: Generation, bytes: u64, change: impl Fn(&mut Settings) + 'static) -> Planned {
    planned(generation, ping_pong(bytes, ROUND_TRIPS).into(), 1, change)
}

/// Half a round trip, in microseconds.
fn half_round_trip(ended: &Ended) -> f64 {
    ended.span_of(0).map_or(f64::NAN, |span| span.as_micros()) / (2 * ROUND_TRIPS) as f64
}

/// A stream: bytes of a message, messages, and how many of them are under way.
type Stream = (u64, u32, u32);
/// The stream by what is in flight, and what else differs by that.
type Shape = fn(u32) -> Stream;
type Change = fn(&mut Settings, u32);

fn streamed(
    generation: Generation,
    (bytes, messages, window): Stream,
    change: impl Fn(&mut Settings) + 'static,
) -> Planned {
    planned(generation, stream(bytes, messages, window).into(), 1, change)
}

/// Gb/s of a stream.
fn bandwidth(ended: &Ended, (bytes, messages, _): Stream) -> f64 {
    let micros = ended.span_of(0).map_or(f64::NAN, |span| span.as_micros());
    (bytes * 8 * messages as u64) as f64 / micros / 1e3
}

/// What did not go as it should in any run.
fn complaints(runs: &[Ended]) -> Vec<String> {
    runs.iter().flat_map(|ended| ended.complaints.iter().cloned()).collect()
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

/// Each size with bytes ahead of a rendezvous, by which all messages meet: none, and each of [`AHEAD`]; then as configured.
fn runs_of_data_ahead(_quick: bool) -> Vec<Planned> {
    let ahead = [Some(0)].into_iter().chain(AHEAD.map(Some)).chain([None]);
    let of = |ahead: Option<u64>| {
        MESSAGE_SIZES.into_iter().map(move |bytes| {
            round_trips(FIRST, bytes, move |settings| {
                if let Some(ahead) = ahead {
                    settings.messages.medium_limit = 0;
                    settings.messages.eager_ahead = ahead;
                }
            })
        })
    };
    ahead.flat_map(of).collect()
}

fn data_ahead(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all_over_messages(&runs_of_data_ahead(lab.is_quick()))?;
    let times: Vec<f64> = runs.iter().map(half_round_trip).collect();
    let mut times = times.chunks(MESSAGE_SIZES.len());
    let mut next = || times.next().expect("there is a run of each size");
    let without = next();
    let with = AHEAD.map(|_| next());
    let ours = next();
    let by_size = |after: &[f64]| {
        let pairs = MESSAGE_SIZES.iter().zip(without.iter().zip(after));
        less(pairs.map(|(&bytes, (before, after))| (bytes, before, after)))
    };
    let lines = [
        ("rendezvous alone", without),
        (AHEAD_NAMES[0], with[0]),
        (AHEAD_NAMES[1], with[1]),
        (AHEAD_NAMES[2], with[2]),
        ("as configured: no rendezvous up to 64 KiB", ours),
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
            finding("Less time, 16 KiB ahead", "almost 40 % for small and medium messages of NCCL", by_size(with[0])),
            finding("Less time, 64 KiB ahead", "", by_size(with[1])),
            finding("Less time, 256 KiB ahead", "", by_size(with[2])),
            finding("Less time, as configured", "", by_size(ours)),
        ],
        complaints: complaints(&runs),
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

/// What the streams are by what is in flight: messages, reads, receive buffers.
const STREAMS: [Shape; 3] =
    [|window| (TRANSACTION, 400, window), |_| (LONG_MESSAGE, 6, 1), |_| (SHORT_MESSAGE, 2000, 64)];

fn runs_of_in_flight(_quick: bool) -> Vec<Planned> {
    let changes: [Change; 3] = [
        |_, _| {},
        |settings, reads| {
            settings.messages.read_bytes = TRANSACTION;
            settings.messages.reads_in_flight = reads;
        },
        |settings, buffers| {
            settings.messages.receive_buffers = buffers;
            settings.hosts.looks_every = LOOKS_EVERY;
        },
    ];
    let line = |(shape, change): (Shape, Change)| {
        IN_FLIGHT_AT_A_TIME
            .into_iter()
            .map(move |count| streamed(FIRST, shape(count), move |settings| change(settings, count)))
    };
    STREAMS.into_iter().zip(changes).flat_map(line).collect()
}

fn in_flight(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all_over_messages(&runs_of_in_flight(lab.is_quick()))?;
    let of_line = |(runs, shape): (&[Ended], Shape)| -> Vec<f64> {
        runs.iter().zip(IN_FLIGHT_AT_A_TIME).map(|(ended, count)| bandwidth(ended, shape(count))).collect()
    };
    let values: Vec<Vec<f64>> = runs.chunks(IN_FLIGHT_AT_A_TIME.len()).zip(STREAMS).map(of_line).collect();
    let labels = [
        "messages of 64 KiB under way",
        "reads of 64 KiB under way, of one message of 4 MiB",
        "receive buffers, 64 messages of 8 KiB under way",
    ];
    let lines = labels.into_iter().zip(&values);
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
    for (((label, values), what), published) in lines.zip(whats).zip(published) {
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
        complaints: complaints(&runs),
    })
}

// ---- all-reduce ----

const VECTOR_SIZES: [u64; 6] = [8, 512, 8 << 10, 64 << 10, 256 << 10, 1 << 20];
const NODES: u32 = 16;
const PER_NODE: u32 = 16;

/// How often an all-reduce is made. Long ones take many packets, and as long every time.
fn times(bytes: u64) -> u32 {
    if bytes > 8 << 10 { 1 } else { 3 }
}

/// Scripts of all ranks for so many all-reduces.
type Scripts = fn(AllReduce, u32) -> Vec<Script>;

/// Each size flat, flat with shared memory, and on each node first.
fn runs_of_all_reduce(_quick: bool) -> Vec<Planned> {
    let shared_memory = Some(OnNode::default());
    let flat: Scripts = |what, times| what.flat(false, times);
    let aware: Scripts = |what, times| what.on_node_first(times);
    let line = |(scripts, intra_node): (Scripts, Option<OnNode>)| {
        VECTOR_SIZES.into_iter().map(move |bytes| {
            let what = AllReduce { nodes: NODES, per_node: PER_NODE, bytes, adds: ADDS };
            planned(SECOND, scripts(what, times(bytes)), PER_NODE, move |settings| {
                settings.hosts.intra_node = intra_node;
            })
        })
    };
    [(flat, None), (flat, shared_memory), (aware, shared_memory)].into_iter().flat_map(line).collect()
}

fn all_reduce(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all_over_messages(&runs_of_all_reduce(lab.is_quick()))?;
    let time = |(ended, bytes): (&Ended, u64)| {
        ended.span().map_or(f64::NAN, |span| span.as_micros()) / times(bytes) as f64
    };
    let of_line = |runs: &[Ended]| -> Vec<f64> { runs.iter().zip(VECTOR_SIZES).map(time).collect() };
    let lines: Vec<Vec<f64>> = runs.chunks(VECTOR_SIZES.len()).map(of_line).collect();
    let [flat, in_order, aware] = [0, 1, 2].map(|line| &lines[line][..]);
    let by_size = |before: &[f64]| {
        let pairs = VECTOR_SIZES.iter().zip(before.iter().zip(aware));
        less(pairs.map(|(&bytes, (before, after))| (bytes, before, after)))
    };
    let lines = [
        ("flat: every message through the card", flat),
        ("flat, shared memory within a node", in_order),
        ("on each node first", aware),
    ];
    Some(Drawn {
        chart: times_by_size(ALL_REDUCE.title, &VECTOR_SIZES, &lines),
        caption: "Second generation. Flat: recursive doubling among all 256 ranks, all of which talk to other nodes through \
                  their node's one card. On each node first: a tree to one rank of the node, recursive doubling among \
                  these, and back. Shared memory takes 0.3 us and 10 GB/s a copy; sums are made at 10 GB/s."
            .into(),
        findings: vec![
            finding("Less time on each node first", "more than 75 % for smaller collectives, 16 trn1.32xlarge", by_size(flat)),
            finding("Less than flat with shared memory", "", by_size(in_order)),
        ],
        complaints: complaints(&runs),
    })
}

// ---- two generations of the card ----

const LONG_STREAM: Stream = (1 << 20, 100, 16);

/// Of each generation all sizes, then a stream.
fn runs_of_generations(_quick: bool) -> Vec<Planned> {
    let of = |generation| {
        let by_size = MESSAGE_SIZES.into_iter().map(move |bytes| round_trips(generation, bytes, |_| {}));
        by_size.chain([streamed(generation, LONG_STREAM, |_| {})])
    };
    [FIRST, SECOND].into_iter().flat_map(of).collect()
}

fn generations(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all_over_messages(&runs_of_generations(lab.is_quick()))?;
    let of = |runs: &[Ended]| -> (Vec<f64>, f64) {
        let (by_size, last) = runs.split_at(MESSAGE_SIZES.len());
        (by_size.iter().map(half_round_trip).collect(), bandwidth(&last[0], LONG_STREAM))
    };
    let (of_first, of_second) = runs.split_at(runs.len() / 2);
    let ((first, first_gbps), (second, second_gbps)) = (of(of_first), of(of_second));
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
        complaints: complaints(&runs),
    })
}
