//! Sandia's figure that is code: bandwidth of each pair across random bisections of fat trees of up to 3,456 nodes, the talk's plot of
//! an InfiniBand cluster of some 4,000 nodes. Where it comes from and what was chosen stands in `figures/sandia/family.toml` of this
//! crate, with the networks.

use super::file::{Fold, family};
use super::lab::{FlowResult, Lab, Planned, Run};
use super::{Drawn, Figure, Make, finding};
use crate::apps::Draw;
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};

const SOURCE: &str = "Naegle et al., OpenFabrics workshop, 2008";

pub(super) static BISECTION: Figure = Figure {
    name: "sandia-bisection",
    title: "Bandwidth of a pair across random bisections, by the number of nodes",
    source: SOURCE,
    make: Make::Code { runs: runs_of_bisection, draw: bisection },
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

/// What it is called, its network in the family, and whether the halves of the tree are paired in the order of their ports.
const CASES: [(&str, &str, bool); 5] = [
    ("SDR InfiniBand", "SDR InfiniBand, static", false),
    ("SDR InfiniBand, pairs in the order of ports", "SDR InfiniBand, static", true),
    ("iWARP, adaptive", "iWARP, adaptive", false),
    ("NSCC, cut packets, ECMP hash", "NSCC, cut packets, ECMP hash", false),
    ("SRD, ECMP hash", "SRD, ECMP hash", false),
];

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
    let of = |flow: &FlowResult| {
        let us = flow.time().map_or(end, |time| time.as_micros());
        flow.delivered as f64 * 8.0 / (us * 1e3) / gbps * 100.0
    };
    run.flows.iter().map(of).collect()
}

/// The trees, each with how many seeds it is run.
fn trees(quick: bool) -> Vec<(u32, u64)> {
    match quick {
        true => TREES[..2].iter().map(|&k| (k, 1)).collect(),
        false => TREES.iter().map(|&k| (k, if k == TREES[3] { 1 } else { 3 })).collect(),
    }
}

fn runs_of_bisection(quick: bool) -> Vec<Planned> {
    let family = family("sandia");
    let mut runs = Vec::new();
    for (_, network, in_order) in CASES {
        let network = family.network(network).expect("family.toml has it");
        for (k, seeds) in trees(quick) {
            for seed in 1..=seeds {
                let hosts = k * k * k / 4;
                let list: Vec<String> = pairs(hosts, seed, in_order)
                    .iter()
                    .map(|(from, to)| format!("\"{from}->{to}\""))
                    .collect();
                let mut sets = network.sets.always.clone();
                sets.extend([
                    format!("seed={seed}"),
                    format!("fabric.k={k}"),
                    format!("workload.size={BYTES}"),
                    format!("workload.pairs=[{}]", list.join(",")),
                ]);
                runs.push(Planned::new(FABRIC, sets));
            }
        }
    }
    runs
}

fn bisection(lab: &mut Lab<'_>) -> Option<Drawn> {
    let trees = trees(lab.is_quick());
    let planned = runs_of_bisection(lab.is_quick());
    lab.plan(planned.len());
    let mut planned = planned.iter();
    let mut wrong = Vec::new();
    let mut all = Vec::new();
    for (label, ..) in CASES {
        let mut of_case = Vec::new();
        for &(_, seeds) in &trees {
            let mut percent = Vec::new();
            for planned in planned.by_ref().take(seeds as usize) {
                let scenario = planned.scenario();
                let gbps = scenario.topology.fastest_host().0 as f64 / 1e9;
                let run = lab.sampled(&scenario, Ps::NEVER)?;
                wrong.extend(run.complaints.iter().map(|complaint| format!("{label}: {complaint}")));
                percent.extend(shares(&run, gbps));
            }
            of_case.push(percent);
        }
        all.push(of_case);
    }
    let nodes: Vec<f64> = trees.iter().map(|(k, _)| f64::from(k * k * k / 4)).collect();
    let x = Axis::new("nodes", nodes[0], nodes[nodes.len() - 1]).logarithmic();
    let mut chart =
        Chart::new(BISECTION.title, x, Axis::new("bandwidth of a pair (% of its link)", 0.0, 100.0));
    for (which, fold) in [("mean", Fold::Mean), ("slowest", Fold::Least)] {
        for ((label, ..), of_case) in CASES.iter().zip(&all) {
            let values = of_case.iter().map(|of| fold.of(of));
            chart.line(&format!("{label}: {which}"), nodes.iter().copied().zip(values));
        }
    }
    let words = |of_case: &[Vec<f64>]| {
        let of = &of_case[of_case.len() - 1];
        let below = of.iter().filter(|&&percent| percent < 50.0).count();
        let [least, mean, most] =
            [Fold::Least, Fold::Mean, Fold::Most].map(|fold| plain(fold.of(of).unwrap_or_default()));
        let below = plain(100.0 * below as f64 / of.len() as f64);
        format!("slowest {least} %, mean {mean} %, fastest {most} %; {below} % of pairs below half")
    };
    let published = [
        "static routing is limiting: pairs of one cluster differ widely",
        "",
        "regain what static routes lose (the talk's aim for more than one tier)",
        "",
        "",
    ];
    let findings = CASES
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
