//! Two transports at a time: RoCE or SRD, and TCP, many to one.

use super::{Bench, LOSSLESS, MARKS, MTU, ROCE_LOSSLESS, ROCE_LOSSY, SMALL, SOURCE, SRD, Shares, TCP};
use super::{losses, many_to_one, mean, range};
use crate::figures::lab::Lab;
use crate::figures::{Drawn, Figure, finding};
use crate::record::chart::{Axis, Chart, plain};
use crate::units::Ps;
use std::fmt::Write;

pub(in crate::figures) static BESIDE_TCP: Figure = Figure {
    name: "roce-beside-tcp",
    title: "RoCE and TCP together, 16 hosts to one, with and without a class for each",
    source: SOURCE,
    make: beside_tcp,
};

/// A transport beside TCP's 32 flows of each sender.
struct Mixture {
    name: &'static str,
    published: &'static str,
    /// Keys of its `[transport]`.
    transport: &'static [&'static str],
    queues: &'static [&'static str],
    /// Queue pairs of each sender.
    each: usize,
}

const MIXTURES: [Mixture; 4] = [
    Mixture {
        name: "RoCE, own class",
        published: "priorities isolated: round robin between classes, 50:50",
        transport: ROCE_LOSSLESS.transport,
        queues: &[MARKS, LOSSLESS],
        each: 32,
    },
    Mixture {
        name: "RoCE, TCP's class",
        published: "no isolation; \"avoid co-existence problems with non-controlled traffic\"",
        transport: ROCE_LOSSY.transport,
        queues: &[MARKS],
        each: 64,
    },
    Mixture {
        name: "SRD, own class",
        published: "",
        transport: &["kind = \"srd\"\nclass = 3\n"],
        queues: &[],
        each: 32,
    },
    Mixture { name: "SRD, TCP's class", published: "", transport: SRD.transport, queues: &[], each: 64 },
];
const TCP_FLOWS: usize = 32;

fn beside_tcp(lab: &mut Lab<'_>) -> Option<Drawn> {
    let seeds = lab.pick(1, 3);
    let end_us = lab.pick(30_000, 240_000);
    let every = Ps::from_micros(end_us / 60);
    lab.plan(MIXTURES.len() * seeds as usize);
    let x = Axis::of_names("", MIXTURES.iter().map(|mixture| mixture.name));
    let mut chart =
        Chart::new(BESIDE_TCP.title, x, Axis::new("payload, all senders (% of the link)", 0.0, 100.0));
    let (mut mine, mut tcps, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for mixture in &MIXTURES {
        let (mut own, mut tcp, mut lost) = (Vec::new(), Vec::new(), String::new());
        for seed in 1..=seeds {
            let bench =
                Bench { fabric: SMALL, pairs: many_to_one(16), each: 0, end_us, spread_us: 1_000, seed };
            let mut text = bench.fabric(&mixture.queues.concat());
            let _ = write!(text, "[transport]\n{MTU}{}", mixture.transport.concat());
            let _ = write!(text, "[[rival]]\nname = \"beside\"\n{}", TCP.transport.concat());
            bench.workload(&mut text, "", &bench.pairs, mixture.each);
            bench.workload(&mut text, "transport = \"beside\"\nname = \"tcp\"\n", &bench.pairs, TCP_FLOWS);
            let run = lab.sampled(&Lab::scenario(&text, &[]), every)?;
            let late = |workload: u16| {
                Shares::of(&run, every, |flow| (run.flows[flow].workload == workload).then_some(0))
                    .late_total()
            };
            own.push(late(0));
            tcp.push(late(1));
            lost = losses(&run);
        }
        let words = format!(
            "{} ({}) beside {} ({}); {lost}",
            plain(mean(&own)),
            range(&own),
            plain(mean(&tcp)),
            range(&tcp)
        );
        findings.push(finding(format!("{}: its % beside TCP's", mixture.name), mixture.published, words));
        mine.push(Some(mean(&own)));
        tcps.push(Some(mean(&tcp)));
    }
    chart.grouped_bars("RoCE or SRD", (0, 2), &mine);
    chart.grouped_bars("TCP", (1, 2), &tcps);
    Some(Drawn {
        chart,
        caption: format!(
            "32 queue pairs of each sender where classes are apart, 64 where they are not, and 32 flows of TCP. RoCE's own class \
             is lossless, SRD's is not. The last third of {} ms; mean of {seeds} seeds, and their range. Classes take turns by \
             bytes.",
            end_us / 1000
        ),
        findings,
        complaints: Vec::new(),
    })
}
