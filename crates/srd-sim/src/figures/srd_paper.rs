//! The SRD paper: L. Shalev, H. Ayoub, N. Bshara, E. Sabbag, "A Cloud-Optimized Transport Protocol for Elastic and Scalable
//! HPC", IEEE Micro 40(6), 2020. Its fabric is not described; ours are the scenarios of the same names. TCP is Linux's: CUBIC,
//! with the paper's minimum retransmission timeout of 50 ms.

use super::lab::{Lab, Planned, Run};
use super::{Drawn, Figure, Make, NSCC, NSCC_CUT, finding};
use crate::record::distribution;
use crate::run::Times;
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};

const INCAST: &str = include_str!("../../../../scenarios/fig2-incast-48.toml");
const PERSISTENT: &str = include_str!("../../../../scenarios/fig4-persistent.toml");
const RACK_PAIRS: &str = include_str!("../../../../scenarios/fig6-rack-pairs.toml");
const DEAD_UPLINK: &str = include_str!("../../../../scenarios/dead-uplink.toml");

/// Sizes of transfers as a scenario names them, and in thousands of bytes.
const SIZES: [(&str, f64); 4] = [("32KB", 32.0), ("128KB", 128.0), ("512KB", 512.0), ("2MB", 2000.0)];
/// Messages of [`RACK_PAIRS`], and the processes of a host that share its link.
const RACK_PAIRS_SIZE: u64 = 2_000_000;
const RACK_PAIRS_PROCESSES: u64 = 16;

/// The two that the paper compares, and a later one, where switches cut packets and where they drop them.
const SRD: [&str; 0] = [];
const TCP: [&str; 3] = ["transport.kind=tcp", "transport.congestion=cubic", "transport.min_rto_us=50000"];
const SERIES: [(&str, &[&str]); 4] =
    [("SRD", &SRD), ("TCP (CUBIC)", &TCP), ("NSCC, cut packets", &NSCC_CUT), ("NSCC", &NSCC)];
/// A megabyte for each port: what a shared memory of some tens of megabytes leaves to one of 32 to 64 that is congested.
const QUEUES: &str = "queues.capacity=1MB";

pub(super) static INCAST_BY_SIZE: Figure = Figure {
    name: "incast-by-size",
    title: "Longest completion time of 48 flows into one server, by size",
    source: "IEEE Micro 40(6), 2020, Figure 2",
    make: Make::Code { runs: runs_of_incast_by_size, draw: incast_by_size },
};

pub(super) static INCAST_DISTRIBUTION: Figure = Figure {
    name: "incast-distribution",
    title: "Completion times of 48 flows of 2 MB into one server",
    source: "IEEE Micro 40(6), 2020, Figure 3",
    make: Make::Code { runs: runs_of_incast_distribution, draw: incast_distribution },
};

pub(super) static PERSISTENT_INCAST: Figure = Figure {
    name: "persistent-incast",
    title: "Throughput of flows while 48 send to one server without end",
    source: "IEEE Micro 40(6), 2020, Figure 4",
    make: Make::Code { runs: runs_of_persistent_incast, draw: persistent_incast },
};

pub(super) static RACK_TO_RACK: Figure = Figure {
    name: "rack-to-rack",
    title: "Completion times from rack to rack, half of the uplinks' bandwidth in use",
    source: "IEEE Micro 40(6), 2020, Figures 5 and 6",
    make: Make::Code { runs: runs_of_rack_to_rack, draw: rack_to_rack },
};

pub(super) static DEAD_LINK: Figure = Figure {
    name: "dead-link",
    title: "Longest pause of any flow when an uplink dies, by how long the network takes to route around it",
    source: "IEEE Micro 40(6), 2020, \"Multipath Load Balancing\"",
    make: Make::Code { runs: runs_of_dead_link, draw: dead_link },
};

/// Overrides as the scenario wants them.
fn sets(transport: &[&str], more: &[String]) -> Vec<String> {
    transport.iter().map(|set| set.to_string()).chain(more.iter().cloned()).collect()
}

/// Completion times in short. Flows that are not done count as long as the run.
fn summary(run: &Run) -> Times {
    let all = run.flows.iter().filter_map(|flow| {
        let end = flow.sent.unwrap_or(Ps::from_micros_f64(run.outcome.sim_us));
        Some(end - flow.started?)
    });
    Times::of(all.collect()).expect("some flow starts")
}

/// Complaints of SRD's runs: that TCP's flows are not done in time is a result.
fn complaints<'r>(runs: impl IntoIterator<Item = &'r Run>) -> Vec<String> {
    let of_srd = runs.into_iter().filter(|run| run.outcome.transport == "srd");
    of_srd.flat_map(|run| run.complaints.iter().cloned()).collect()
}

/// The transports, and what else there is: TCP's time depends on how much a port may hold.
const INCASTS: [(&str, &[&str], &str); 5] = [
    ("SRD", &SRD, QUEUES),
    ("TCP (CUBIC)", &TCP, QUEUES),
    ("TCP, 4 MB of queue", &TCP, "queues.capacity=4MB"),
    ("NSCC, cut packets", &NSCC_CUT, QUEUES),
    ("NSCC", &NSCC, QUEUES),
];

fn runs_of_incast_by_size(quick: bool) -> Vec<Planned> {
    let rounds = format!("workload.rounds={}", if quick { 3 } else { 10 });
    let mut runs = Vec::new();
    for (_, transport, queues) in INCASTS {
        for (name, _) in SIZES {
            let more = [format!("workload.size={name}"), rounds.clone(), queues.into()];
            runs.push(Planned::new(INCAST, sets(transport, &more)));
        }
    }
    runs
}

fn incast_by_size(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all(&runs_of_incast_by_size(lab.is_quick()), Ps::NEVER)?;
    let by_transport: Vec<&[Run]> = runs.chunks(SIZES.len()).collect();
    let ideal = |run: &Run| run.offer.ideal.expect("an incast has one").as_micros();
    let srd = by_transport[0];
    let longest = runs.iter().map(|run| summary(run).max).fold(0.0, f64::max);
    let x = Axis::new("size of a flow (KB)", SIZES[0].1, SIZES[SIZES.len() - 1].1).logarithmic();
    let y = Axis::new("longest completion time (us)", ideal(&srd[0]) * 0.8, longest * 1.2);
    let mut chart = Chart::new(INCAST_BY_SIZE.title, x, y.logarithmic());
    let points = |runs: &[Run], value: &dyn Fn(&Run) -> f64| {
        SIZES.iter().zip(runs).map(|((_, size), run)| (*size, Some(value(run)))).collect::<Vec<_>>()
    };
    for ((label, ..), runs) in INCASTS.iter().zip(&by_transport) {
        chart.line(label, points(runs, &|run| summary(run).max));
    }
    chart.line("ideal", points(srd, &ideal));
    chart.published(
        "TCP in the paper: 3 to 20 times the ideal",
        &SIZES
            .iter()
            .zip(srd)
            .flat_map(|((_, size), run)| [3.0, 20.0].map(|x| (*size, x * ideal(run))))
            .collect::<Vec<_>>(),
    );
    let ratios = |runs: &[Run]| {
        let one =
            |((name, _), run): (&(&str, f64), &Run)| format!("{name}: {:.3}", summary(run).max / ideal(run));
        SIZES.iter().zip(runs).map(one).collect::<Vec<_>>().join(", ")
    };
    Some(Drawn {
        chart,
        caption: "Four servers of twelve processes send to one at the same moment, several times for each size; a megabyte of \
                  queue in front of the server, or four. The ideal is of SRD's packets."
            .into(),
        findings: vec![
            finding("SRD: longest by ideal", "close to the ideal", ratios(srd)),
            finding("TCP: longest by ideal", "3 to 20", ratios(by_transport[1])),
            finding("TCP with 4 MB of queue", "", ratios(by_transport[2])),
            finding("NSCC on switches that cut packets", "", ratios(by_transport[3])),
            finding("NSCC on switches that drop them", "", ratios(by_transport[4])),
        ],
        complaints: complaints(&runs),
    })
}

fn runs_of_incast_distribution(quick: bool) -> Vec<Planned> {
    let more = [format!("workload.rounds={}", if quick { 4 } else { 20 }), QUEUES.into()];
    SERIES.iter().map(|(_, transport)| Planned::new(INCAST, sets(transport, &more))).collect()
}

fn incast_distribution(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all(&runs_of_incast_distribution(lab.is_quick()), Ps::NEVER)?;
    let ideal = runs[0].offer.ideal.expect("an incast has one");
    let [srd, tcp, cut, nscc] = [0, 1, 2, 3].map(|which| summary(&runs[which]));
    let ends = |times: Times| {
        let longest = times.max / ideal.as_micros();
        format!("longest {longest:.3} of the ideal, slowest {:.3} times the fastest", times.max / times.min)
    };
    let share = |test: &dyn Fn(f64) -> bool| {
        let times = runs[1].times();
        let count = times.iter().filter(|time| test(time.as_micros())).count();
        format!("{:.0} % of flows", 100.0 * count as f64 / times.len().max(1) as f64)
    };
    let findings = vec![
        finding("SRD: longest by ideal", "close to the ideal", format!("{:.3}", srd.max / ideal.as_micros())),
        finding("SRD: jitter", "very low", format!("slowest {:.3} times the fastest", srd.max / srd.min)),
        finding(
            "TCP: longest by ideal",
            "tail above 50 ms: 7 times",
            format!("{:.1}", tcp.max / ideal.as_micros()),
        ),
        finding("TCP: above 50 ms", "the tail", share(&|us| us > 50_000.0)),
        finding(
            "TCP: below 50 ms, but three times the ideal",
            "a large number of samples",
            share(&|us| us <= 50_000.0 && us > 3.0 * ideal.as_micros()),
        ),
        finding("TCP: above 1.5 times the ideal", "", share(&|us| us > 1.5 * ideal.as_micros())),
        finding("NSCC, cut packets", "", ends(cut)),
        finding("NSCC", "", ends(nscc)),
    ];
    let caption =
        "Which share of flows was done within which time. Dashed: the best for all of them together.";
    Some(completion_times(&INCAST_DISTRIBUTION, &runs, ideal, caption, findings))
}

/// For how long it is looked at, and how often, in microseconds.
fn persistent_us(quick: bool) -> (u64, u64) {
    if quick { (40_000, 2_000) } else { (400_000, 10_000) }
}

fn runs_of_persistent_incast(quick: bool) -> Vec<Planned> {
    let more = [format!("end_us={}", persistent_us(quick).0), QUEUES.into()];
    SERIES.iter().map(|(_, transport)| Planned::new(PERSISTENT, sets(transport, &more))).collect()
}

fn persistent_incast(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (end_us, every) = persistent_us(lab.is_quick());
    let every = Ps::from_micros(every);
    let runs = lab.all(&runs_of_persistent_incast(lab.is_quick()), every)?;
    let fair = 100.0 / 48.0;
    let rates: Vec<Vec<Vec<f64>>> = runs
        .iter()
        .map(|run| (0..run.flows.len()).map(|flow| run.rates_gbps(flow, every)).collect())
        .collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    // The two of each that differ most: those with the least and the most throughput.
    let ends = |flows: &[Vec<f64>]| {
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.sort_by(|&a, &b| mean(&flows[a]).total_cmp(&mean(&flows[b])));
        [order[0], order[order.len() - 1]]
    };
    let highest = rates.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let x = Axis::new("time (ms)", 0.0, end_us as f64 / 1e3);
    let mut chart =
        Chart::new(PERSISTENT_INCAST.title, x, Axis::new("throughput of a flow (Gb/s)", 0.0, highest * 1.05));
    for ((label, _), flows) in SERIES.iter().zip(&rates) {
        for (which, flow) in ["slowest", "fastest"].into_iter().zip(ends(flows)) {
            let points =
                (1..).zip(&flows[flow]).map(|(n, &gbps)| (n as f64 * every.as_micros() / 1e3, Some(gbps)));
            chart.line(&format!("{label}, {which} flow"), points);
        }
    }
    chart.level("a fair share", fair);
    let words = |flows: &[Vec<f64>]| {
        // The first samples have the beginning in them.
        let late: Vec<&[f64]> = flows.iter().map(|rates| &rates[rates.len() / 4..]).collect();
        let means: Vec<f64> = late.iter().map(|rates| mean(rates)).collect();
        let all: Vec<f64> = late.iter().flat_map(|rates| rates.iter().copied()).collect();
        let end = |values: &[f64], fold: fn(f64, f64) -> f64, from: f64| {
            plain(values.iter().copied().fold(from, fold))
        };
        let span =
            |values: &[f64]| format!("{} to {}", end(values, f64::min, f64::MAX), end(values, f64::max, 0.0));
        format!("flows on average {}, single samples {}", span(&means), span(&all))
    };
    Some(Drawn {
        chart,
        caption: format!(
            "48 flows into one server; a sample every {} ms (the paper's: every second). Drawn are the flows with the least \
             and the most throughput of each transport.",
            plain(every.as_micros() / 1e3)
        ),
        findings: vec![
            finding("SRD (Gb/s)", "consistent, close to 2, all flows", words(&rates[0])),
            finding("TCP (Gb/s)", "oscillating wildly, some flows far below their share", words(&rates[1])),
            finding("NSCC, cut packets (Gb/s)", "", words(&rates[2])),
            finding("NSCC (Gb/s)", "", words(&rates[3])),
        ],
        complaints: complaints(&runs),
    })
}

fn runs_of_rack_to_rack(quick: bool) -> Vec<Planned> {
    let (seeds, repeats) = if quick { (2, 2) } else { (6, 5) };
    let mut runs = Vec::new();
    for (_, transport) in SERIES {
        for seed in 1..=seeds {
            let more = [format!("workload.repeats={repeats}"), QUEUES.into(), format!("seed={seed}")];
            runs.push(Planned::new(RACK_PAIRS, sets(transport, &more)));
        }
    }
    runs
}

fn rack_to_rack(lab: &mut Lab<'_>) -> Option<Drawn> {
    let mut of_seeds = lab.all(&runs_of_rack_to_rack(lab.is_quick()), Ps::NEVER)?;
    let seeds = of_seeds.len() / SERIES.len();
    // Which flows meet on an uplink is chance: the flows of all seeds together.
    let together = |runs: &mut [Run]| {
        let mut all = runs[0].clone();
        for run in &mut runs[1..] {
            all.flows.append(&mut run.flows);
            all.complaints.append(&mut run.complaints);
        }
        all
    };
    let runs: Vec<Run> = of_seeds.chunks_mut(seeds).map(together).collect();
    let rate = Lab::scenario(RACK_PAIRS, &[]).topology.fastest_host();
    let bytes = RACK_PAIRS_PROCESSES * runs[0].offer.cost.bytes(RACK_PAIRS_SIZE);
    let ideal = Ps::to_send(bytes, rate) + runs[0].offer.base_rtt;
    let by_ideal = |us: f64| format!("{:.3}", us / ideal.as_micros());
    let [srd, tcp, cut, nscc] = [0, 1, 2, 3].map(|which| summary(&runs[which]));
    let both = |times: Times| format!("median {}, longest {}", by_ideal(times.p50), by_ideal(times.max));
    let findings = vec![
        finding("SRD: median by ideal", "1.15", by_ideal(srd.p50)),
        finding("SRD: longest by ideal", "less than the average of TCP", by_ideal(srd.max)),
        finding("TCP: mean by ideal", "1.5", by_ideal(tcp.mean)),
        finding("TCP: 99 of 100 by ideal", "one to two orders of magnitude", by_ideal(tcp.p99)),
        finding("TCP: longest by ideal", "one to two orders of magnitude", by_ideal(tcp.max)),
        finding("NSCC, cut packets, by ideal", "", both(cut)),
        finding("NSCC by ideal", "", both(nscc)),
    ];
    let caption = "Eight servers of a rack send to eight of another, sixteen processes each at its own pace, several seeds. Dashed: \
                   sixteen flows of 2 MB through one network card; while fewer are on their way, each is faster.";
    Some(completion_times(&RACK_TO_RACK, &runs, ideal, caption, findings))
}

/// Distributions of completion times beside the ideal.
fn completion_times(
    figure: &Figure,
    runs: &[Run],
    ideal: Ps,
    caption: &str,
    findings: Vec<super::Finding>,
) -> Drawn {
    let longest = runs.iter().map(|run| summary(run).max).fold(ideal.as_micros(), f64::max);
    let shortest = runs.iter().map(|run| summary(run).min).fold(ideal.as_micros(), f64::min);
    let x = Axis::new("completion time (us)", shortest * 0.9, longest * 1.1).logarithmic();
    let mut chart = Chart::new(figure.title, x, Axis::new("share of flows", 0.0, 1.0));
    for ((label, _), run) in SERIES.iter().zip(runs) {
        chart.line(label, distribution(run.times(), 1.0));
    }
    chart.upright(&format!("ideal: {} us", plain(ideal.as_micros())), ideal.as_micros());
    Drawn { chart, caption: caption.into(), findings, complaints: complaints(runs) }
}

/// How long routing takes to notice, in microseconds: from a switch that sees its port go down to a distant failure.
const NOTICED_AFTER_US: [u64; 3] = [1_000, 10_000, 100_000];

/// Those of a coarse figure, or all.
fn noticed_after_us(quick: bool) -> &'static [u64] {
    if quick { &NOTICED_AFTER_US[..2] } else { &NOTICED_AFTER_US }
}

fn runs_of_dead_link(quick: bool) -> Vec<Planned> {
    let pairs: Vec<String> = (0..8)
        .flat_map(|host| (0..4).map(move |process| format!("\"{host}.{process}->{}.{process}\"", host + 8)))
        .collect();
    let mut runs = Vec::new();
    for (label, transport) in SERIES {
        for &noticed in noticed_after_us(quick) {
            let more = [
                format!("workload.pairs=[{}]", pairs.join(",")),
                "workload.size=8GB".to_string(),
                format!("end_us={}", 1_000 + 3 * noticed),
                format!("fault.0.for_us={}", 3 * noticed),
                format!("fault.0.noticed_after_us={noticed}"),
                "fabric.host_gbps=10".to_string(),
                "fabric.base_rtt_us=40".to_string(),
            ];
            let mut sets = sets(transport, &more);
            if label == SERIES[3].0 {
                // Where packets are cut, the clock alone does better here: 1.9 ms instead of 15 where routing takes 100.
                sets.push("transport.recovery=sleek".into());
            }
            runs.push(Planned::new(DEAD_UPLINK, sets));
        }
    }
    runs
}

fn dead_link(lab: &mut Lab<'_>) -> Option<Drawn> {
    let cases = noticed_after_us(lab.is_quick());
    let every = Ps::from_micros(20);
    let runs = lab.all(&runs_of_dead_link(lab.is_quick()), every)?;
    let pause = |run: &Run| {
        let longest = (0..run.flows.len()).map(|flow| longest_pause(&run.samples, flow)).max();
        longest.unwrap_or_default() as f64 * every.as_micros()
    };
    let pauses: Vec<Vec<f64>> =
        runs.chunks(cases.len()).map(|of_transport| of_transport.iter().map(pause).collect()).collect();
    let of_srd = runs[..cases.len()].iter().filter(|run| run.outcome.failed > 0);
    let complaints = of_srd.flat_map(|run| run.complaints.iter().cloned()).collect();
    let highest = pauses.iter().flatten().copied().fold(0.0, f64::max);
    let x = Axis::new("routing takes (us)", cases[0] as f64 * 0.8, cases[cases.len() - 1] as f64 * 1.25);
    let y = Axis::new("longest pause of a flow (us)", every.as_micros(), highest * 2.0).logarithmic();
    let mut chart = Chart::new(DEAD_LINK.title, x.logarithmic(), y);
    for ((label, _), pauses) in SERIES.iter().zip(&pauses) {
        chart.line(label, cases.iter().zip(pauses).map(|(&us, &pause)| (us as f64, Some(pause))));
    }
    let words = |pauses: &[f64]| {
        let one = |(us, pause): (&u64, &f64)| format!("{} ms: {} us", *us as f64 / 1e3, plain(*pause));
        cases.iter().zip(pauses).map(one).collect::<Vec<_>>().join(", ")
    };
    let [srd, tcp] = [pauses[0][pauses[0].len() - 1], pauses[1][pauses[1].len() - 1]];
    Some(Drawn {
        chart,
        caption: "32 flows between two racks of 10 Gb/s hosts over eight spines; one uplink dies, and switches \
                   route around it after the time on the axis. A pause: nothing of a flow comes, to the nearest \
                   20 us; a host's flows take turns, which is in it. NSCC without cutting looks at what comes \
                   out of order, too (SLEEK), and has pauses three times as long without."
            .into(),
        findings: vec![
            finding("SRD", "reroutes at once; the network takes 2 to 3 orders of magnitude longer", words(&pauses[0])),
            finding("TCP", "waits for the network", words(&pauses[1])),
            finding("NSCC, cut packets", "", words(&pauses[2])),
            finding("NSCC", "", words(&pauses[3])),
            finding("TCP by SRD, slowest network", "100 to 1000", plain(tcp / srd)),
        ],
        complaints,
    })
}

/// Most samples in a row in which nothing of a flow came, between its first and its last byte.
fn longest_pause(samples: &[Vec<u64>], flow: usize) -> usize {
    let mut longest = 0;
    let mut pause = 0;
    let moved = samples.windows(2).map(|pair| pair[1][flow] > pair[0][flow]);
    for moved in moved.skip_while(|moved| !moved) {
        pause = if moved { 0 } else { pause + 1 };
        longest = longest.max(pause);
    }
    longest
}
