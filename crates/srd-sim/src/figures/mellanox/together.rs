//! Two transports at a time: RoCE or SRD, and TCP, many to one.

use super::{
    Bench, Contender, LOSSLESS, MARKS, MTU, ROCE_LOSSLESS, ROCE_LOSSY, SMALL, SOURCE, SRD, Shares, TCP,
    TCP_2017,
};
use super::{add_streams, losses, many_to_one, mean, range};
use crate::figures::lab::Lab;
use crate::figures::{Drawn, Figure, Make, finding};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};
use std::fmt::Write;

pub(in crate::figures) static BESIDE_TCP: Figure = Figure {
    name: "roce-beside-tcp",
    title: "RoCE and TCP together, 16 hosts to one, with and without a class for each",
    source: SOURCE,
    make: Make::Code(beside_tcp),
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
        name: "RoCE apart",
        published: "priorities isolated: round robin between classes, 50:50",
        transport: ROCE_LOSSLESS.transport,
        queues: &[MARKS, LOSSLESS],
        each: 32,
    },
    Mixture {
        name: "RoCE mixed",
        published: "no isolation; \"avoid co-existence problems with non-controlled traffic\"",
        transport: ROCE_LOSSY.transport,
        queues: &[MARKS],
        each: 64,
    },
    Mixture {
        name: "SRD apart",
        published: "",
        transport: &["kind = \"srd\"\nclass = 3\n"],
        queues: &[],
        each: 32,
    },
    Mixture { name: "SRD mixed", published: "", transport: SRD.transport, queues: &[], each: 64 },
];
const TCP_FLOWS: usize = 32;
const SEEDS: u64 = 2;

/// What came of a mixture: shares of the link in percent, by seed, and losses of the last one.
struct Outcome {
    own: Vec<f64>,
    tcp: Vec<f64>,
    losses: String,
}

/// TCP begins when RoCE has settled, and over as long as its shortest timeout: flows that begin together time out together.
const TCP_BEGINS: &str = "start_us = 40000\nspread_us = 200000\n";

fn together(lab: &mut Lab<'_>, mixture: &Mixture, stack: &Contender) -> Option<Outcome> {
    let end_us = lab.pick(300_000, 480_000);
    let every = Ps::from_micros(end_us / 60);
    let mut outcome = Outcome { own: Vec::new(), tcp: Vec::new(), losses: String::new() };
    for seed in 1..=lab.pick(1, SEEDS) {
        let bench = Bench {
            fabric: SMALL,
            pairs: many_to_one(16),
            each: mixture.each,
            end_us,
            spread_us: 1_000,
            seed,
        };
        let mut text = bench.fabric(&mixture.queues.concat());
        let _ = write!(text, "[transport]\n{MTU}{}", mixture.transport.concat());
        let _ = write!(text, "[[rival]]\nname = \"beside\"\n{}", stack.transport.concat());
        add_streams(&mut text, &bench.begin(), &bench.pairs, mixture.each);
        let beside = format!("name = \"tcp\"\ntransport = \"beside\"\n{TCP_BEGINS}");
        add_streams(&mut text, &beside, &bench.pairs, TCP_FLOWS);
        let run = lab.sampled(&Lab::scenario(&text, &[]), every)?;
        let late = |workload: u16| {
            let which = |flow: usize| (run.flows[flow].workload == workload).then_some(0);
            Shares::of(&run, every, which).late_total()
        };
        outcome.own.push(late(0));
        outcome.tcp.push(late(1));
        outcome.losses = losses(&run);
    }
    Some(outcome)
}

fn beside_tcp(lab: &mut Lab<'_>) -> Option<Drawn> {
    let stacks = lab.pick(&[TCP][..], &[TCP, TCP_2017][..]);
    lab.plan(stacks.len() * MIXTURES.len() * lab.pick(1, SEEDS) as usize);
    let x = Axis::of_names("", MIXTURES.iter().map(|mixture| mixture.name));
    let y = Axis::new("payload, all senders (% of the link)", 0.0, 100.0);
    let mut chart = Chart::new(BESIDE_TCP.title, x, y);
    let (mut bars, mut findings) = (Vec::new(), Vec::new());
    for mixture in &MIXTURES {
        for stack in stacks {
            let Outcome { own, tcp, losses } = together(lab, mixture, stack)?;
            let what = format!("{}: its % beside {}", mixture.name, stack.label);
            let [a, b] = [&own, &tcp].map(|shares| format!("{} ({})", plain(mean(shares)), range(shares)));
            findings.push(finding(what, mixture.published, format!("{a} beside {b}; {losses}")));
            bars.push([mean(&own), mean(&tcp)]);
        }
    }
    let labels = stacks.iter().flat_map(|stack| [("RoCE or SRD", stack), ("TCP", stack)]);
    for (n, (label, stack)) in labels.enumerate() {
        let label = match label {
            "TCP" => stack.label.to_string(),
            own => format!("{own} beside it"),
        };
        let of_it = bars.iter().skip(n / 2).step_by(stacks.len()).map(|pair| Some(pair[n % 2]));
        chart.grouped_bars(&label, (n, 2 * stacks.len()), &of_it.collect::<Vec<_>>());
    }
    Some(Drawn {
        chart,
        caption: "Apart: a class for each; mixed: the same class. 32 queue pairs of each sender where classes are apart, 64 \
                  where they are not, and 32 flows of TCP. RoCE's own class is lossless, SRD's is not; classes take turns \
                  by bytes. TCP's flows begin one after another within 200 ms. The last third of the run."
            .into(),
        findings,
        complaints: Vec::new(),
    })
}
