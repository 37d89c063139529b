//! The slides' latencies of cards and switches, as parts of half a round trip: what is simulated of each, found by leaving it out.

use super::super::lab::{Lab, Planned};
use super::super::{Drawn, Figure, Make, finding};
use super::{SOURCE, list, planned};
use crate::apps::benchmarks::imb::{Benchmark, Imb};
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart};

pub(in crate::figures) static LATENCY: Figure = Figure {
    name: "latency-budget",
    title: "Half a round trip across the fabric, 8 bytes: what takes how long",
    source: SOURCE,
    make: Make::Code { runs, draw: latency },
};

/// A part, and what leaves it out.
const PARTS: [(&str, &str); 4] = [
    ("cards", "host.latency_us=0"),
    ("kernel", "transport.stack_us=0"),
    ("switches", "fabric.switch_latency_us=0"),
    ("cables", "fabric.cable_us=0"),
];
const CONFIGURATIONS: [&str; 3] = ["RoCE, PFC only", "TCP (CUBIC)", "SRD"];
const SIZES: [u64; 5] = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// Two ranks play ping-pong.
fn imb(bytes: u64) -> Imb {
    Imb { ranks: 2, benchmark: Benchmark::PingPong, bytes, iterations: 20, warmup: 4 }
}

/// They are on hosts 7 and 8, of different racks.
fn half_round_trip(configuration: &str, bytes: u64, more: &[String]) -> Planned {
    let imb = imb(bytes);
    let text = format!(
        "[[program]]\nkind = \"imb\"\nbenchmark = \"pingpong\"\nsize = {bytes}\nfirst_host = 7\nhosts = 2\niterations = {}\n\
         warmup = {}\n",
        imb.iterations, imb.warmup
    );
    planned(&text, configuration, more)
}

/// Of each configuration all sizes, then the first without each part.
fn runs(_quick: bool) -> Vec<Planned> {
    let of = |configuration| {
        let by_size = SIZES.iter().map(move |&size| half_round_trip(configuration, size, &[]));
        let without = |(_, without): &(_, &str)| [without.to_string()];
        by_size.chain(PARTS.iter().map(move |part| half_round_trip(configuration, SIZES[0], &without(part))))
    };
    CONFIGURATIONS.into_iter().flat_map(of).collect()
}

fn latency(lab: &mut Lab<'_>) -> Option<Drawn> {
    let runs = lab.all(&runs(lab.is_quick()), Ps::NEVER)?;
    let mut findings = Vec::new();
    let mut bars = Vec::new();
    for (configuration, runs) in CONFIGURATIONS.into_iter().zip(runs.chunks(SIZES.len() + PARTS.len())) {
        let sizes = SIZES.iter().copied().chain(PARTS.map(|_| SIZES[0]));
        let times: Vec<f64> = sizes
            .zip(runs)
            .map(|(bytes, run)| imb(bytes).times(&run.marks).first().copied().unwrap_or(f64::NAN))
            .collect();
        let (by_size, without) = times.split_at(SIZES.len());
        let whole = by_size[0];
        let mut parts: Vec<f64> = without.iter().map(|without| whole - without).collect();
        let rest = whole - parts.iter().sum::<f64>();
        parts.push(rest);
        let names =
            PARTS.iter().map(|(name, _)| name.to_string()).chain(["sending".to_string(), "all".to_string()]);
        parts.push(whole);
        findings.push(finding(
            format!("{}: 8 B, us", configuration),
            "back to back RoCE 1 to 1.2, InfiniBand 0.6; a switch 0.2 to 0.5",
            list(names.zip(parts.iter().copied())),
        ));
        let sizes = SIZES.iter().zip(by_size).map(|(size, time)| (format!("{size} B"), *time));
        findings.push(finding(format!("{}: by size, us", configuration), "", list(sizes)));
        bars.push(parts);
    }
    let names = PARTS.iter().map(|(name, _)| *name).chain(["sending", "all"]);
    let highest = bars.iter().flatten().copied().fold(0.0, f64::max);
    let y = Axis::new("time (us)", 0.0, highest * 1.05);
    let mut chart = Chart::new(LATENCY.title, Axis::of_names("", names), y);
    for (number, (configuration, parts)) in CONFIGURATIONS.iter().zip(&bars).enumerate() {
        let values: Vec<Option<f64>> = parts.iter().copied().map(Some).collect();
        chart.grouped_bars(
            if number == 0 { "RoCE" } else { configuration },
            (number, CONFIGURATIONS.len()),
            &values,
        );
    }
    Some(Drawn {
        chart,
        caption: "Two hosts in different racks, three switches between them; each part is what half a round trip loses without it, and \
                  \"sending\" the rest: each switch takes a packet in before it sends it on. Cards: 1.1 us, an input. \
                  Kernel: 10 us, an input. A hop costs 0.3 us and the packet's time, 0.01 us for 8 B and 0.34 for 4096."
            .into(),
        findings,
        complaints: Vec::new(),
    })
}
