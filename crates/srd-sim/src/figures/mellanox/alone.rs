//! One transport at a time: many to one and all to all.

use super::{
    ALL, Bench, Contender, LARGE, ROCE_LOSSLESS, ROCE_LOSSY, SMALL, SOURCE, SRD, Shares, TCP, TCP_2017,
};
use super::{all_to_all, alone, losses, many_to_one, mean, range};
use crate::figures::lab::{Lab, Run};
use crate::figures::{Drawn, Figure, Finding, Make, finding};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};

pub(in crate::figures) static SMALL_MANY_TO_ONE: Figure = Figure {
    name: "roce-16-to-1",
    title: "Throughput while 16 hosts send to one, 64 queue pairs each",
    source: SOURCE,
    make: Make::Code(small_many_to_one),
};

pub(in crate::figures) static LARGE_MANY_TO_ONE: Figure = Figure {
    name: "roce-63-to-1",
    title: "Throughput while 63 hosts send to one, 16 queue pairs each",
    source: SOURCE,
    make: Make::Code(large_many_to_one),
};

pub(in crate::figures) static QUEUE_PAIRS: Figure = Figure {
    name: "roce-queue-pairs",
    title: "Throughput of 16 hosts that send to one, by queue pairs of each",
    source: SOURCE,
    make: Make::Code(queue_pairs),
};

pub(in crate::figures) static ALL_TO_ALL: Figure = Figure {
    name: "roce-all-to-all",
    title: "Throughput of hosts that all send to each other, 4 queue pairs for each two",
    source: SOURCE,
    make: Make::Code(in_all_directions),
};

/// What the seed says where it shows curves that are lost.
const LINK_RATE: &str = "about link rate (\"Throughput ~= link rate\")";

/// What the seed says of a contender.
fn published(contender: &Contender) -> &'static str {
    match contender.label {
        label if label == ROCE_LOSSLESS.label => LINK_RATE,
        label if label == ROCE_LOSSY.label => {
            "\"may cause slightly lower performance\", \"Resilient RoCE works\""
        }
        label if label == TCP_2017.label => "shown beside RoCE; the curve is lost",
        _ => "",
    }
}

fn small_many_to_one(lab: &mut Lab<'_>) -> Option<Drawn> {
    let bench = Bench {
        fabric: SMALL,
        pairs: many_to_one(16),
        each: 64,
        end_us: lab.pick(40_000, 150_000),
        spread_us: 1_000,
        seed: 1,
    };
    over_time(lab, &SMALL_MANY_TO_ONE, &bench)
}

fn large_many_to_one(lab: &mut Lab<'_>) -> Option<Drawn> {
    let bench = Bench {
        fabric: LARGE,
        pairs: many_to_one(lab.pick(31, 63)),
        each: 16,
        end_us: lab.pick(30_000, 150_000),
        spread_us: 1_000,
        seed: 1,
    };
    over_time(lab, &LARGE_MANY_TO_ONE, &bench)
}

/// How much of the receiver's link is used, over time.
fn over_time(lab: &mut Lab<'_>, figure: &Figure, bench: &Bench<'_>) -> Option<Drawn> {
    let every = Ps::from_micros(bench.end_us / 60);
    lab.plan(ALL.len());
    let x = Axis::new("time (ms)", 0.0, bench.end_us as f64 / 1e3);
    let mut chart =
        Chart::new(figure.title, x, Axis::new("payload, all senders (% of the link)", 0.0, 100.0));
    let mut findings = Vec::new();
    let mut complaints = Vec::new();
    for contender in &ALL {
        let (run, shares) = alone(lab, bench, contender, every)?;
        chart.line(contender.label, shares.total());
        findings.push(finding(
            format!("{}: late throughput", contender.label),
            published(contender),
            format!("{} (fair: {})", shares.words(), plain(100.0 / shares.of.len() as f64)),
        ));
        findings.push(finding(format!("{}: on the way", contender.label), "", on_the_way(&run, &shares)));
        complaints.extend(of_srd(contender, &run));
    }
    Some(Drawn {
        chart,
        caption: format!(
            "Streams of writes from {} hosts, which all begin within {} ms. Payload: of a full frame of RoCE it \
             is 92.6 %, of TCP 94.2 %, of SRD 91.7 %. Late: the last third. RoCE has DCQCN with the paper's timers and the \
             firmware's increments. TCP is CUBIC, that of the lab without RACK. NSCC has switches that cut packets, and one \
             connection for each sender. SRD has neither marks nor flow control.",
            bench.pairs.len(),
            bench.spread_us as f64 / 1e3
        ),
        findings,
        complaints,
    })
}

/// How a run got there.
fn on_the_way(run: &Run, shares: &Shares) -> String {
    let total = shares.total();
    let goal = 0.9 * shares.late_total();
    let below = total.iter().rposition(|(_, share)| share.is_some_and(|share| share < goal));
    let from = below.map_or(0.0, |last| total[last].0);
    let queue = &run.queues[run.queues.len() - run.queues.len().div_ceil(3)..];
    let queue: Vec<f64> = queue.iter().map(|&bytes| bytes as f64 / 1e3).collect();
    let of_it = format!("9/10 of that from {} ms on", plain(from));
    format!("{of_it}; {}; late queue {} KB on average", losses(run), plain(mean(&queue)))
}

/// What went wrong with SRD: that others' flows fail is a result.
fn of_srd(contender: &Contender, run: &Run) -> Vec<String> {
    if contender.label == SRD.label { run.complaints.clone() } else { Vec::new() }
}

fn queue_pairs(lab: &mut Lab<'_>) -> Option<Drawn> {
    const LOADS: [usize; 4] = [4, 16, 32, 64];
    let contenders = [ROCE_LOSSLESS, ROCE_LOSSY, TCP_2017, TCP, SRD];
    let seeds = lab.pick(1, 3);
    let end_us = lab.pick(30_000, 90_000);
    lab.plan(contenders.len() * LOADS.len() * seeds as usize);
    let x = Axis::of_names("queue pairs of each sender", LOADS.map(|load| load.to_string()));
    let mut chart =
        Chart::new(QUEUE_PAIRS.title, x, Axis::new("payload, all senders (% of the link)", 0.0, 100.0));
    let mut findings = Vec::new();
    let mut complaints = Vec::new();
    for (n, contender) in contenders.iter().enumerate() {
        let mut means = Vec::new();
        let mut words = Vec::new();
        for each in LOADS {
            let mut late = Vec::new();
            for seed in 1..=seeds {
                let bench =
                    Bench { fabric: SMALL, pairs: many_to_one(16), each, end_us, spread_us: 1_000, seed };
                let (run, shares) = alone(lab, &bench, contender, Ps::from_micros(end_us / 30))?;
                late.push(shares.late_total());
                complaints.extend(of_srd(contender, &run));
            }
            means.push(Some(mean(&late)));
            words.push(format!("{each}: {} ({})", plain(mean(&late)), range(&late)));
        }
        chart.grouped_bars(contender.label, (n, contenders.len()), &means);
        findings.push(finding(format!("{} (%)", contender.label), published(contender), words.join(", ")));
    }
    Some(Drawn {
        chart,
        caption: format!(
            "The last third of {} ms; as in the figure before this one. Mean over seeds ({seeds}), and their range.",
            end_us / 1000
        ),
        findings,
        complaints,
    })
}

fn in_all_directions(lab: &mut Lab<'_>) -> Option<Drawn> {
    let clusters: &[(&str, u32)] = lab.pick(&[(SMALL, 16)], &[(SMALL, 16), (LARGE, 64)]);
    lab.plan(ALL.len() * clusters.len());
    let x = Axis::of_names("", clusters.iter().map(|(_, hosts)| format!("{hosts} hosts")));
    let mut chart =
        Chart::new(ALL_TO_ALL.title, x, Axis::new("payload of a host (% of its link)", 0.0, 100.0));
    let mut findings: Vec<Finding> = Vec::new();
    let mut complaints = Vec::new();
    for (n, contender) in ALL.iter().enumerate() {
        let mut means = Vec::new();
        for &(fabric, hosts) in clusters {
            let end_us = lab.pick(6_000, 12_000);
            let bench = Bench { fabric, pairs: all_to_all(hosts), each: 4, end_us, spread_us: 500, seed: 1 };
            let (run, shares) = alone(lab, &bench, contender, Ps::from_micros(end_us / 12))?;
            let late = shares.late();
            means.push(Some(mean(&late)));
            findings.push(finding(
                format!("{}, {hosts} hosts", contender.label),
                published(contender),
                format!("{} %; hosts {}; {}", plain(mean(&late)), range(&late), on_the_way(&run, &shares)),
            ));
            complaints.extend(of_srd(contender, &run));
        }
        chart.grouped_bars(contender.label, (n, ALL.len()), &means);
    }
    Some(Drawn {
        chart,
        caption: "What each host sends, in the last third of the run. One switch for 16 hosts; for 64, four switches of 16 \
                  hosts below two, with as much bandwidth above as below, and ECMP."
            .into(),
        findings,
        complaints,
    })
}
