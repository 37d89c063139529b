//! Flow control and congestion control, with and without, and how fast congestion control acts.

use super::{Bench, Contender, ROCE_LOSSLESS, ROCE_LOSSY, SMALL, SOURCE, SRD, Shares};
use super::{add_streams, losses, many_to_one, mean, range};
use crate::figures::lab::Lab;
use crate::figures::{Drawn, Figure, Make, finding};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};

pub(in crate::figures) static FOUR_QUADRANTS: Figure = Figure {
    name: "roce-four-quadrants",
    title: "Flow control and congestion control: many to one, and a stream to a neighbour of the one",
    source: SOURCE,
    make: Make::Code(four_quadrants),
};

pub(in crate::figures) static REACTION: Figure = Figure {
    name: "roce-reaction",
    title: "Queue by how fast senders act on a notification",
    source: SOURCE,
    make: Make::Code(reaction),
};

/// Two racks of 16 hosts, as much bandwidth between them as below.
const TWO_RACKS: &str = "kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nbundle = 8\nhosts_per_leaf = 16\n";
/// Many to one is from one rack to host 0 in the other, and beside it this host streams to another one there.
const VICTIM: (u32, u32) = (31, 1);

/// What is on, and what the seed says of it.
struct Quadrant {
    name: &'static str,
    published: &'static str,
    contender: Contender,
}

const UNCONTROLLED: &str = "kind = \"roce\"\ndcqcn = false\n";
/// With so few queue pairs the paper's increments are better than the firmware's, which take long to come back to link
/// rate.
const CONTROLLED: &str = "kind = \"roce\"\npreset = \"paper\"\n";
const RESILIENT: Contender = Contender { transport: &[CONTROLLED], ..ROCE_LOSSY };

const QUADRANTS: [Quadrant; 5] = [
    Quadrant {
        name: "neither",
        published: "low performance due to many packet drops",
        contender: Contender { transport: &[UNCONTROLLED], ..ROCE_LOSSY },
    },
    Quadrant {
        name: "PFC",
        published: "used in HPC; congestion might spread; not recommended for large data centers",
        contender: Contender { transport: &[UNCONTROLLED, "class = 3\n"], ..ROCE_LOSSLESS },
    },
    Quadrant {
        name: "DCQCN",
        published: "Resilient RoCE: easier to configure, may cause slightly lower performance",
        contender: RESILIENT,
    },
    Quadrant {
        name: "both",
        published: "lossless RoCE: recommended for large scale",
        contender: ROCE_LOSSLESS,
    },
    Quadrant { name: "SRD", published: "", contender: SRD },
];

fn four_quadrants(lab: &mut Lab<'_>) -> Option<Drawn> {
    const EACH: usize = 4;
    let end_us = lab.pick(30_000, 90_000);
    let every = Ps::from_micros(end_us / 30);
    let seeds = lab.pick(1, 3);
    lab.plan(QUADRANTS.len() * seeds as usize);
    let x = Axis::of_names("", QUADRANTS.iter().map(|quadrant| quadrant.name));
    let mut chart = Chart::new(FOUR_QUADRANTS.title, x, Axis::new("payload (% of a link)", 0.0, 100.0));
    let (mut ones, mut victims, mut findings, mut complaints) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for quadrant in &QUADRANTS {
        let (mut one, mut victim, mut lost) = (Vec::new(), Vec::new(), String::new());
        for seed in 1..=seeds {
            let pairs = (16..31).map(|sender| (sender, 0)).collect();
            let bench = Bench { fabric: TWO_RACKS, pairs, each: EACH, end_us, spread_us: 1_000, seed };
            let mut text = bench.scenario(&quadrant.contender);
            add_streams(&mut text, &format!("name = \"victim\"\n{}", bench.begin()), &[VICTIM], EACH);
            let run = lab.sampled(&Lab::scenario(&text, &[]), every)?;
            let late = |workload: u16| {
                let which = |flow: usize| (run.flows[flow].workload == workload).then_some(0);
                Shares::of(&run, every, which).late_total()
            };
            one.push(late(0));
            victim.push(late(1));
            lost = losses(&run);
            if quadrant.contender.label == SRD.label {
                complaints.extend(run.complaints);
            }
        }
        ones.push(Some(mean(&one)));
        victims.push(Some(mean(&victim)));
        let [a, b] = [&one, &victim].map(|shares| format!("{} % ({})", plain(mean(shares)), range(shares)));
        let what = format!("{}: the one, and its neighbour", quadrant.name);
        findings.push(finding(what, quadrant.published, format!("{a}, {b}; {lost}")));
    }
    chart.grouped_bars("15 hosts to one", (0, 2), &ones);
    chart.grouped_bars("one host to the one's neighbour", (1, 2), &victims);
    Some(Drawn {
        chart,
        caption: format!(
            "From one rack to another, with as much bandwidth between racks as in them: nothing but the one's link is \
             short. PFC: flow control; DCQCN: congestion control. {EACH} queue pairs of each sender, also of the stream to the \
             neighbour. The last third of {} ms; mean over seeds ({seeds}), and their range.",
            end_us / 1000
        ),
        findings,
        complaints,
    })
}

/// From a notification's arrival to what it does, in microseconds: hardware, firmware, software, a long queue that is posted.
const REACTIONS_US: [(f64, &str); 4] = [(0.05, "50 ns"), (10.0, "10 us"), (50.0, "50 us"), (200.0, "200 us")];

fn reaction(lab: &mut Lab<'_>) -> Option<Drawn> {
    let end_us = lab.pick(20_000, 40_000);
    let every = Ps::from_micros(50);
    lab.plan(REACTIONS_US.len() + 1);
    let x = Axis::new("time (ms)", 0.0, end_us as f64 / 1e3);
    let mut chart =
        Chart::new(REACTION.title, x, Axis::new("queue at the receiver's port (KB)", 0.0, 2_500.0));
    let mut findings = Vec::new();
    let mut complaints = Vec::new();
    let bench =
        Bench { fabric: SMALL, pairs: many_to_one(16), each: 4, end_us, spread_us: end_us / 4, seed: 1 };
    let mut contenders: Vec<(String, String)> = Vec::new();
    for (us, name) in REACTIONS_US {
        let text = bench.scenario(&RESILIENT);
        let text = text.replacen(CONTROLLED, &format!("{CONTROLLED}reaction_us = {us:?}\n"), 1);
        contenders.push((format!("RoCE acts after {name}"), text));
    }
    contenders.push((SRD.label.to_string(), bench.scenario(&SRD)));
    for (n, (label, text)) in contenders.iter().enumerate() {
        let run = lab.sampled(&Lab::scenario(text, &[]), every)?;
        let points = (1..)
            .zip(&run.queues)
            .map(|(n, &bytes)| (n as f64 * every.as_micros() / 1e3, Some(bytes as f64 / 1e3)));
        chart.line(label, points);
        let all: Vec<f64> = run.queues.iter().map(|&bytes| bytes as f64 / 1e3).collect();
        let total = Shares::of(&run, every, |_| Some(0)).total();
        let joining = &all[..all.len() / 4];
        let goodput: Vec<f64> = total[total.len() / 4..].iter().filter_map(|(_, share)| *share).collect();
        let words = format!(
            "while they join: {} KB on average, {} at most; then {} KB and {} % of the link; {}",
            plain(mean(joining)),
            plain(joining.iter().copied().fold(0.0, f64::max)),
            plain(mean(&all[all.len() / 4..])),
            plain(mean(&goodput)),
            losses(&run)
        );
        let published = match n {
            0 => "hardware, tens of ns: buffers are less likely to overflow",
            1 | 2 => "software or firmware, tens of us and more",
            3 => "\"might be much longer due to length of posted queue\"",
            _ => "",
        };
        findings.push(finding(label, published, words));
        if label == SRD.label {
            complaints.extend(run.complaints);
        }
    }
    Some(Drawn {
        chart,
        caption: format!(
            "16 hosts send to one, lossy, 4 queue pairs each, which begin one after another in the first {} ms, at line \
             rate. The queue is looked at every 50 us; a port may hold 2,333 KB.",
            end_us as f64 / 4e3
        ),
        findings,
        complaints,
    })
}
