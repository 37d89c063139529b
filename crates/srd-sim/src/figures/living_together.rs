//! SRD on one fabric with transports of others: on one port, where each kind should get its share, and on uplinks, where SRD
//! should keep out of the way of flows that cannot move. The SRD paper claims the latter ("we designed SRD to share the network
//! with legacy traffic") and gives no figure.

use super::lab::{Lab, Run};
use super::{Drawn, Figure, Make, finding};
use crate::run::Times;
use srd_chart::{Axis, Chart, plain};

const SOURCE: &str = "IEEE Micro 40(6), 2020, \"Multipath Load Balancing\" (no figure there)";

pub(super) static ONE_PORT: Figure = Figure {
    name: "living-together",
    title: "Throughput of four flows of SRD and four of another transport on one port",
    source: SOURCE,
    make: Make::Code(one_port),
};

pub(super) static UPLINKS: Figure = Figure {
    name: "heavy-flows",
    title: "SRD's completion times beside heavy TCP flows on the same uplinks, and these flows' throughput beside SRD",
    source: SOURCE,
    make: Make::Code(uplinks),
};

const PORT: &str = r#"
end_us = 60_000

[fabric]
kind = "one-switch"
hosts = 9
host_gbps = 100
base_rtt_us = 12

[transport]
mtu = 9000

[[rival]]
name = "other"
kind = "tcp"

[[workload]]
name = "srd"
kind = "flows"
pairs = ["1->0", "2->0", "3->0", "4->0"]
persistent = true

[[workload]]
name = "other"
kind = "flows"
transport = "other"
pairs = ["5->0", "6->0", "7->0", "8->0"]
persistent = true
"#;

/// Who else is there, and what the fabric is like: queues and marks as those recommend who made them.
const OTHERS: [(&str, &[&str]); 10] = [
    ("CUBIC, 1 MB", &["queues.capacity=1MB"]),
    ("CUBIC, 4 MB", &["queues.capacity=4MB"]),
    ("NewReno, 1 MB", &["rival.0.congestion=newreno", "queues.capacity=1MB"]),
    ("DCTCP, 100 KB", &["rival.0.congestion=dctcp", "queues.capacity=1MB", "queues.ecn_min=100KB"]),
    ("DCTCP, 400 KB", &["rival.0.congestion=dctcp", "queues.capacity=2MB", "queues.ecn_min=400KB"]),
    (
        "DCQCN, lossy",
        &[
            "rival.0.kind=roce",
            "queues.capacity=2MB",
            "queues.ecn_min=400KB",
            "queues.ecn_max=1600KB",
            "queues.ecn_probability=0.2",
        ],
    ),
    (
        "DCQCN, PFC",
        &[
            "rival.0.kind=roce",
            "rival.0.class=3",
            "queues.lossless=[3]",
            "queues.capacity=2MB",
            "queues.ecn_min=400KB",
            "queues.ecn_max=1600KB",
            "queues.ecn_probability=0.2",
        ],
    ),
    (
        "NSCC, 1 MB",
        &["rival.0.kind=nscc", "queues.capacity=1MB", "queues.ecn_min=0.2bdp", "queues.ecn_max=0.8bdp"],
    ),
    (
        "NSCC, cut packets",
        &[
            "rival.0.kind=nscc",
            "queues.capacity=1MB",
            "queues.ecn_min=0.2bdp",
            "queues.ecn_max=0.8bdp",
            "queues.trim=true",
        ],
    ),
    ("BBR, 1 MB", &["rival.0.congestion=bbr", "queues.capacity=1MB"]),
];

fn texts(sets: &[&str]) -> Vec<String> {
    sets.iter().map(|set| set.to_string()).collect()
}

fn one_port(lab: &mut Lab<'_>) -> Option<Drawn> {
    let others = lab.pick(&OTHERS[..7], &OTHERS[..]);
    let end = format!("end_us={}", lab.pick(30_000, 60_000));
    lab.plan(others.len());
    let mut runs = Vec::new();
    for (_, sets) in others {
        let mut sets = texts(sets);
        sets.push(end.clone());
        runs.push(lab.run(&Lab::scenario(PORT, &sets))?);
    }
    let gbps = |run: &Run, which: usize| run.outcome.workloads[which].goodput_gbps;
    let share = |run: &Run, which: usize| gbps(run, which) / (gbps(run, 0) + gbps(run, 1)) * 2.0;
    let names = others.iter().map(|(name, _)| *name);
    let mut chart = Chart::new(
        ONE_PORT.title,
        Axis::of_names("the other", names),
        Axis::new("Gb/s of four flows", 0.0, 100.0),
    );
    for (which, label) in ["SRD", "the other"].into_iter().enumerate() {
        let values: Vec<Option<f64>> = runs.iter().map(|run| Some(gbps(run, which))).collect();
        chart.grouped_bars(label, (which, 2), &values);
    }
    chart.level("half", 49.0);
    let findings = others
        .iter()
        .zip(&runs)
        .map(|((name, _), run)| {
            let flows = |which: usize| match run.outcome.workloads[which].goodput_of_flows_gbps {
                Some((least, most)) => format!("{} to {}", plain(least), plain(most)),
                None => String::new(),
            };
            let here = format!(
                "SRD {:.2}, the other {:.2} of a fair share; single flows {} and {} Gb/s",
                share(run, 0),
                share(run, 1),
                flows(0),
                flows(1)
            );
            finding(*name, "wanted: each from 0.5 to 2", here)
        })
        .collect();
    Some(Drawn {
        chart,
        caption: "Four senders of SRD and four of another transport, 100 Gb/s, 12 us, one port. Sizes are the \
                   port's queue, or where it begins to mark; DCQCN: marks from 400 KB to 1.6 MB, as for 100 Gb/s \
                   in the configuration of HPCC's authors; NSCC: marks as its authors have them, but packets \
                   without data in the queue of all others, as a class in front of SRD's would be no equal's. \
                   The receiver's card counts the connections of all transports, and SRD takes its part of that \
                   count."
            .into(),
        findings,
        complaints: Vec::new(),
    })
}

const RACKS: &str = r#"
end_us = 30_000

[fabric]
kind = "leaf-spine"
leaves = 2
spines = 8
hosts_per_leaf = 16
host_gbps = 100
base_rtt_us = 12

[queues]
capacity = "1MB"

[transport]
mtu = 9000

[[rival]]
name = "tcp"
kind = "tcp"

[[workload]]
name = "heavy"
kind = "flows"
transport = "tcp"
pairs = ["8->24", "9->25"]
until_us = 30_000

[[workload]]
name = "messages"
kind = "flows"
pairs = ["0->16", "1->17", "2->18", "3->19"]
size = "256KB"
repeats = 300
"#;

/// What is on the fabric.
const MIXTURES: [(&str, &[&str]); 6] = [
    ("SRD alone", &["workload.0.until_us=0.001"]),
    ("SRD beside heavy TCP", &[]),
    ("TCP alone", &["workload.0.until_us=0.001", "workload.1.transport=tcp"]),
    ("TCP beside heavy TCP", &["workload.1.transport=tcp"]),
    (
        "NSCC alone",
        &[
            "workload.0.until_us=0.001",
            "transport.kind=nscc",
            "queues.ecn_min=0.2bdp",
            "queues.ecn_max=0.8bdp",
        ],
    ),
    (
        "NSCC beside heavy TCP",
        // Dropping, its longest is longer, and its median the same.
        &["transport.kind=nscc", "queues.ecn_min=0.2bdp", "queues.ecn_max=0.8bdp", "queues.trim=true"],
    ),
];

fn uplinks(lab: &mut Lab<'_>) -> Option<Drawn> {
    let seeds: u64 = lab.pick(3, 10);
    lab.plan(MIXTURES.len() * seeds as usize);
    let mut times: Vec<Vec<Times>> = Vec::new();
    let mut heavy: Vec<Vec<f64>> = Vec::new();
    for (_, sets) in MIXTURES {
        let (mut of_times, mut of_heavy) = (Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let mut sets = texts(sets);
            sets.push(format!("seed={seed}"));
            let run = lab.run(&Lab::scenario(RACKS, &sets))?;
            of_heavy.push(run.outcome.workloads[0].goodput_gbps);
            of_times.push(Times::of(run.times_of(1)).expect("messages arrive"));
        }
        times.push(of_times);
        heavy.push(of_heavy);
    }
    let worst = |of: fn(&Times) -> f64, which: usize| times[which].iter().map(of).fold(0.0, f64::max);
    let mean = |of: fn(&Times) -> f64, which: usize| times[which].iter().map(of).sum::<f64>() / seeds as f64;
    let names = MIXTURES.iter().map(|(name, _)| *name);
    let highest = (0..MIXTURES.len()).map(|which| worst(|times| times.max, which)).fold(0.0, f64::max);
    let y = Axis::new("completion time (us)", 10.0, highest * 1.5).logarithmic();
    let mut chart = Chart::new(UPLINKS.title, Axis::of_names("messages", names), y);
    type Quantile = (&'static str, fn(&Times) -> f64);
    let quantiles: [Quantile; 3] =
        [("median", |times| times.p50), ("99 of 100", |times| times.p99), ("longest", |times| times.max)];
    for (n, (label, of)) in quantiles.into_iter().enumerate() {
        let values: Vec<Option<f64>> = (0..MIXTURES.len()).map(|which| Some(mean(of, which))).collect();
        chart.grouped_bars(label, (n, 3), &values);
    }
    let words = |which: usize| {
        format!(
            "median {}, 99 of 100 {}, longest {} us (worst seed {})",
            plain(mean(|times| times.p50, which)),
            plain(mean(|times| times.p99, which)),
            plain(mean(|times| times.max, which)),
            plain(worst(|times| times.max, which))
        )
    };
    let range = |which: usize| {
        let least = heavy[which].iter().copied().fold(f64::MAX, f64::min);
        format!("{} to {} Gb/s", plain(least), plain(heavy[which].iter().copied().fold(0.0, f64::max)))
    };
    let mut findings: Vec<super::Finding> =
        MIXTURES.iter().enumerate().map(|(which, (name, _))| finding(*name, "", words(which))).collect();
    findings.push(finding("The heavy TCP flows beside SRD", "SRD avoids overloaded paths", range(1)));
    findings.push(finding("The heavy TCP flows beside TCP", "", range(3)));
    findings.push(finding("The heavy TCP flows beside NSCC", "", range(5)));
    Some(Drawn {
        chart,
        caption: format!(
            "Four pairs of hosts exchange messages of 256 KB over eight uplinks of 100 Gb/s, alone or beside two \
             CUBIC flows that never end, which ECMP pins to one uplink each; {seeds} seeds, by which it pins. \
             The uplinks have room for all. NSCC beside them has switches that mark and cut, all in one class."
        ),
        findings,
        complaints: Vec::new(),
    })
}
