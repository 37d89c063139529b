//! Bandwidth of each pair across random bisections of fat trees of up to 3,456 nodes: the talk's plot of an InfiniBand cluster of
//! some 4,000 nodes.

use super::super::lab::Run;
use super::super::{Drawn, Figure, Make, finding};
use super::{Lab, Network, SOURCE, Spread, complaints, network};
use crate::apps::Draw;
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static BISECTION: Figure = Figure {
    name: "sandia-bisection",
    title: "Bandwidth of a pair across random bisections, by the number of nodes",
    source: SOURCE,
    make: Make::Code(bisection),
};

/// Arity of the trees, the last with 3,456 nodes.
const TREES: [u32; 4] = [8, 12, 16, 24];
const BYTES: u64 = 4_000_000;

const FABRIC: &str = r#"
end_us = 200000

[fabric]
kind = "fat-tree"
host_gbps = 10
cable_us = 0.05
switch_latency_us = 0.2

[host]
latency_us = 6.0

[queues]
shared = "1MB"
capacity = "1MB"

[transport]
kind = "iwarp"
mtu = 9000

[[workload]]
kind = "flows"
"#;

/// What it is called, its network, and whether the halves of the tree are paired in the order of their ports.
fn cases() -> [(&'static str, Network, bool); 5] {
    [
        ("SDR InfiniBand", network("SDR InfiniBand, static"), false),
        ("SDR InfiniBand, pairs in the order of ports", network("SDR InfiniBand, static"), true),
        ("iWARP, adaptive", network("iWARP, adaptive"), false),
        ("NSCC, cut packets, ECMP hash", network("NSCC, cut packets, ECMP hash"), false),
        ("SRD, ECMP hash", network("SRD, ECMP hash"), false),
    ]
}

/// Pairs of one host of each half. A half is any, or the first hosts.
fn pairs(hosts: u32, seed: u64, in_order: bool) -> Vec<(u32, u32)> {
    let mut order: Vec<u32> = (0..hosts).collect();
    let half = (hosts / 2) as usize;
    match in_order {
        // Shifted, as CBench does from pairing to pairing.
        true => order[half..].rotate_left(seed as usize * 7 % half),
        false => Draw::of(seed, 0x6269_7365).shuffle(&mut order),
    }
    let (from, to) = order.split_at(half);
    from.iter().copied().zip(to.iter().copied()).collect()
}

/// Of each pair, percent of what its link carries.
fn shares(run: &Run, gbps: f64) -> Vec<f64> {
    let end = run.outcome.sim_us;
    let of = |flow: &super::super::lab::FlowResult| {
        let us = flow.time().map_or(end, |time| time.as_micros());
        flow.delivered as f64 * 8.0 / (us * 1e3) / gbps * 100.0
    };
    run.flows.iter().map(of).collect()
}

fn bisection(lab: &mut Lab<'_>) -> Option<Drawn> {
    let trees = lab.pick(&TREES[..2], &TREES[..]);
    let several = lab.pick(1, 3);
    let seeds = |k: u32| if k == TREES[3] { 1 } else { several };
    let cases = cases();
    lab.plan(cases.len() * trees.iter().map(|&k| seeds(k)).sum::<usize>());
    let mut wrong = Vec::new();
    let mut all = Vec::new();
    for (_, network, in_order) in &cases {
        let mut of_case = Vec::new();
        for &k in trees {
            let hosts = k * k * k / 4;
            let mut percent = Vec::new();
            for seed in 1..=seeds(k) as u64 {
                let list: Vec<String> = pairs(hosts, seed, *in_order)
                    .iter()
                    .map(|(from, to)| format!("\"{from}->{to}\""))
                    .collect();
                let mut sets = network.sets.clone();
                sets.extend([
                    format!("seed={seed}"),
                    format!("fabric.k={k}"),
                    format!("workload.size={BYTES}"),
                    format!("workload.pairs=[{}]", list.join(",")),
                ]);
                let scenario = Lab::scenario(FABRIC, &sets);
                let gbps = scenario.topology.fastest_host().0 as f64 / 1e9;
                let run = lab.run(&scenario)?;
                wrong.extend(complaints(network, &run));
                percent.extend(shares(&run, gbps));
            }
            of_case.push(percent);
        }
        all.push(of_case);
    }
    let nodes: Vec<f64> = trees.iter().map(|k| f64::from(k * k * k / 4)).collect();
    let x = Axis::new("nodes", nodes[0], nodes[nodes.len() - 1]).logarithmic();
    let mut chart =
        Chart::new(BISECTION.title, x, Axis::new("bandwidth of a pair (% of its link)", 0.0, 100.0));
    for (which, value) in
        [("mean", (|spread: Spread| spread.mean) as fn(Spread) -> f64), ("slowest", |spread| spread.least)]
    {
        for ((label, ..), of_case) in cases.iter().zip(&all) {
            let points = nodes
                .iter()
                .zip(of_case)
                .map(|(&nodes, of)| (nodes, Spread::of(of.iter().copied()).map(value)));
            chart.line(&format!("{label}: {which}"), points);
        }
    }
    let words = |of_case: &[Vec<f64>]| {
        let last = of_case.last().and_then(|of| {
            let below = of.iter().filter(|&&percent| percent < 50.0).count();
            Some((Spread::of(of.iter().copied())?, 100.0 * below as f64 / of.len() as f64))
        });
        last.map_or(String::new(), |(spread, below)| {
            format!(
                "slowest {} %, mean {} %, fastest {} %; {} % of pairs below half",
                plain(spread.least),
                plain(spread.mean),
                plain(spread.most),
                plain(below)
            )
        })
    };
    let published = [
        "static routing is limiting: pairs of one cluster differ widely",
        "",
        "regain what static routes lose (the talk's aim for more than one tier)",
        "",
        "",
    ];
    let findings = cases
        .iter()
        .zip(&all)
        .zip(published)
        .map(|(((label, ..), of_case), published)| {
            finding(format!("{label}, {} nodes", nodes[nodes.len() - 1]), published, words(of_case))
        })
        .collect();
    Some(Drawn {
        chart,
        caption: "Fat trees with as much bandwidth in each tier (the real cluster's tiers are not told); half of the nodes send \
                  4 MB each to the other half, at once; three bisections for each number of nodes, one for the largest. Packet by packet, as \
                  everywhere. D-mod-k routes are free of conflicts where pairs follow the order of ports, which jobs do not."
            .into(),
        findings,
        complaints: wrong,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bisection_has_every_host_once() {
        for (seed, in_order) in [(1, false), (2, false), (1, true), (9, true)] {
            let pairs = pairs(128, seed, in_order);
            let mut hosts: Vec<u32> = pairs.iter().flat_map(|&(from, to)| [from, to]).collect();
            hosts.sort_unstable();
            assert_eq!(hosts, (0..128).collect::<Vec<u32>>(), "{seed} {in_order}");
        }
        assert_ne!(pairs(128, 1, false), pairs(128, 2, false));
    }
}
