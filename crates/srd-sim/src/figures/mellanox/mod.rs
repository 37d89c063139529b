//! Resilient RoCE: A. Shpiner, Mellanox, "Ubiquitous RoCE: RoCE on Datacenter Networks", 13th OpenFabrics Alliance Workshop,
//! 2017. Its switches are told with all their memory, and so are ours. `alone` has one transport at a time, `together` two
//! on one fabric, `control` flow control, congestion control and how fast that acts; this file has what they all run on.

mod alone;
mod control;
mod together;

pub(super) use alone::{ALL_TO_ALL, LARGE_MANY_TO_ONE, QUEUE_PAIRS, SMALL_MANY_TO_ONE};
pub(super) use control::{FOUR_QUADRANTS, REACTION};
pub(super) use together::BESIDE_TCP;

use super::lab::{Lab, Run};
use srd_baselines::units::Ps;
use srd_chart::plain;
use std::fmt::Write;

const SOURCE: &str = "OpenFabrics Alliance Workshop, 2017, \"Ubiquitous RoCE\"";

/// Cables of 10 m, switches of 300 ns. Hosts have 100 Gb/s (ConnectX-4) and Ethernet's usual MTU, which is RoCE's 1024 bytes.
/// Spectrum has 32 ports: one for the small cluster, two tiers of six for the large one.
const SMALL: &str = "kind = \"one-switch\"\nhosts = 17\n";
const LARGE: &str = "kind = \"leaf-spine\"\nleaves = 4\nspines = 2\nbundle = 8\nhosts_per_leaf = 16\n";
const CABLES: &str = "host_gbps = 100\ncable_us = 0.05\nswitch_latency_us = 0.3\n";
const MTU: &str = "mtu = 1500\n";

/// The seed's switch: 3.5 MB for all that may be lost, alpha 2, classes in turn: 0 lossy, 3 lossless, 6 notifications.
const SWITCH: &str = "capacity = \"3.5MB\"\nshared = \"3.5MB\"\nshared_alpha = 2\nclasses = \"weighted\"\n\
                      class_weights = [1, 1, 1, 1, 1, 1, 1, 1]\n";
/// Marks, of which the seed says nothing: what Onyx sets for RoCE (NVIDIA Onyx user manual, `show roce`).
const MARKS: &str = "ecn_min = \"150KB\"\necn_max = \"1500KB\"\necn_classes = [0, 3]\n";
/// The seed's: 3.5 MB more, alpha 2, and 94 KB of each port's own, of which 20 KB until it is paused.
const LOSSLESS: &str = "lossless = [3]\nshared_lossless = \"3.5MB\"\npfc_alpha = 2\npfc_xoff = \"20KB\"\n\
                        pfc_headroom = \"74KB\"\n";

/// Timers of DCQCN's paper, increments and least rate of ConnectX's firmware (RPG_AI_RATE, RPG_HAI_RATE, RPG_MIN_RATE). A
/// thousand queue pairs share a port, 100 Mb/s each, so the paper's increments of 100 Mb/s would each double a rate; and the
/// firmware's alpha, which decays within 200 us, has forgotten the last notification when the next one comes.
const REACTION_POINT: &str = "preset = \"paper\"\nrai_mbps = 5\nrhai_mbps = 50\nmin_rate_mbps = 1\n";

/// A transport with the switches that it is made for.
#[derive(Clone, Copy)]
struct Contender {
    label: &'static str,
    /// Keys of `[transport]`.
    transport: &'static [&'static str],
    /// Keys of `[queues]`, beside [`SWITCH`].
    queues: &'static [&'static str],
    /// All messages of two hosts share a connection, so that queue pairs make no difference.
    one_connection: bool,
}

const ROCE_LOSSLESS: Contender = Contender {
    label: "RoCE, lossless",
    transport: &["kind = \"roce\"\nclass = 3\n", REACTION_POINT],
    queues: &[MARKS, LOSSLESS],
    one_connection: false,
};
const ROCE_LOSSY: Contender = Contender {
    label: "RoCE, lossy",
    transport: &["kind = \"roce\"\n", REACTION_POINT],
    queues: &[MARKS],
    one_connection: false,
};
/// That of the seed: Linux 3.10, which has no RACK yet.
const TCP_2017: Contender = Contender {
    label: "TCP of Linux 3.10, lossy",
    transport: &["kind = \"tcp\"\ncongestion = \"cubic\"\nrecovery = \"sack\"\n"],
    queues: &[],
    one_connection: false,
};
/// At its best: CUBIC with RACK and TLP, as Linux has had it since 4.18.
const TCP: Contender = Contender {
    label: "TCP today, lossy",
    transport: &["kind = \"tcp\"\ncongestion = \"cubic\"\nrecovery = \"rack\"\n"],
    ..TCP_2017
};
/// With its authors' marks and with switches that cut packets, which Spectrum does not; a delivery context for each pair.
const NSCC: Contender = Contender {
    label: "NSCC, cut packets",
    transport: &["kind = \"nscc\"\n"],
    queues: &["ecn_min = \"0.2bdp\"\necn_max = \"0.8bdp\"\ntrim = true\n"],
    one_connection: true,
};
const SRD: Contender =
    Contender { label: "SRD, lossy", transport: &["kind = \"srd\"\n"], queues: &[], one_connection: false };

const ALL: [Contender; 6] = [ROCE_LOSSLESS, ROCE_LOSSY, TCP_2017, TCP, NSCC, SRD];

/// A run to be made.
struct Bench<'a> {
    fabric: &'a str,
    /// Sender and receiver of each pair.
    pairs: Vec<(u32, u32)>,
    /// Queue pairs, or flows, of each.
    each: usize,
    end_us: u64,
    /// They begin within so long.
    spread_us: u64,
    seed: u64,
}

impl Bench<'_> {
    /// The scenario of one transport.
    fn scenario(&self, contender: &Contender) -> String {
        let each = if contender.one_connection { 1 } else { self.each };
        let mut text = self.fabric(&contender.queues.concat());
        let _ = write!(text, "[transport]\n{MTU}{}", contender.transport.concat());
        add_streams(&mut text, &self.begin(), &self.pairs, each);
        text
    }

    /// When streams begin.
    fn begin(&self) -> String {
        format!("spread_us = {}\n", self.spread_us)
    }

    /// Fabric and switches.
    fn fabric(&self, queues: &str) -> String {
        let Bench { fabric, end_us, seed, .. } = self;
        format!("seed = {seed}\nend_us = {end_us}\n[fabric]\n{fabric}{CABLES}[queues]\n{SWITCH}{queues}")
    }
}

/// Adds streams without end, so many for each pair; `keys` are more of the workload's.
fn add_streams(text: &mut String, keys: &str, pairs: &[(u32, u32)], each: usize) {
    let all = pairs.iter().flat_map(|pair| std::iter::repeat_n(pair, each));
    let all: Vec<String> = all.map(|(from, to)| format!("\"{from}->{to}\"")).collect();
    let _ = write!(
        text,
        "[[workload]]\nkind = \"flows\"\npersistent = true\n{keys}pairs = [{}]\n",
        all.join(",")
    );
}

/// The first hosts but 0, and host 0.
fn many_to_one(senders: u32) -> Vec<(u32, u32)> {
    (1..=senders).map(|sender| (sender, 0)).collect()
}

/// Each to each other.
fn all_to_all(hosts: u32) -> Vec<(u32, u32)> {
    (0..hosts).flat_map(|from| (1..hosts).map(move |n| (from, (from + n) % hosts))).collect()
}

/// What a link carries of each sender's payload, in percent of it, between samples.
struct Shares {
    every: Ps,
    /// By sender.
    of: Vec<Vec<f64>>,
}

impl Shares {
    /// Flows by sender are those of `which` that have the same number.
    fn of(run: &Run, every: Ps, which: impl Fn(usize) -> Option<u32>) -> Shares {
        let mut of: std::collections::BTreeMap<u32, Vec<f64>> = std::collections::BTreeMap::new();
        for flow in 0..run.flows.len() {
            let Some(sender) = which(flow) else { continue };
            let rates = run.rates_gbps(flow, every);
            let sum = of.entry(sender).or_insert_with(|| vec![0.0; rates.len()]);
            sum.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        }
        Shares { every, of: of.into_values().collect() }
    }

    /// All together, over time in milliseconds.
    fn total(&self) -> Vec<(f64, Option<f64>)> {
        let samples = self.of.first().map_or(0, Vec::len);
        let at = |n: usize| self.of.iter().map(|rates| rates[n]).sum();
        (0..samples).map(|n| ((n + 1) as f64 * self.every.as_micros() / 1e3, Some(at(n)))).collect()
    }

    /// Each sender's mean over the last third.
    fn late(&self) -> Vec<f64> {
        let mean = |rates: &Vec<f64>| {
            let late = &rates[rates.len() - rates.len().div_ceil(3)..];
            late.iter().sum::<f64>() / late.len().max(1) as f64
        };
        self.of.iter().map(mean).collect()
    }

    /// All together in the last third.
    fn late_total(&self) -> f64 {
        self.late().iter().sum()
    }

    /// The same in words, with the least and the most of a sender.
    fn words(&self) -> String {
        format!("{} %; senders {}", plain(self.late_total()), range(&self.late()))
    }
}

/// Least and most.
fn range(values: &[f64]) -> String {
    let (low, high) =
        (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max));
    format!("{} to {}", plain(low), plain(high))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// What got lost and what came of it.
fn losses(run: &Run) -> String {
    let outcome = &run.outcome;
    let pauses = match outcome.pause_frames {
        0 => String::new(),
        frames => format!(", {frames} pause frames"),
    };
    let cut = match outcome.packets_trimmed {
        0 => String::new(),
        cut => format!(", {cut} cut"),
    };
    format!("{} packets lost{cut}, {} sent again{pauses}", outcome.packets_dropped, outcome.packets_rtx)
}

/// Runs what one transport makes of it, and looks at it every so often.
fn alone(lab: &mut Lab<'_>, bench: &Bench<'_>, contender: &Contender, every: Ps) -> Option<(Run, Shares)> {
    let scenario = Lab::scenario(&bench.scenario(contender), &[]);
    let run = lab.sampled(&scenario, every)?;
    let shares = Shares::of(&run, every, |flow| Some(scenario.traffic.flows[flow].src.host));
    Some((run, shares))
}
