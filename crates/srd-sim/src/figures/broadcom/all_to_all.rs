//! The slides' all-to-all of the OSU benchmarks: 32 nodes with 4 processes each, blocking and not.

use super::super::lab::Lab;
use super::super::{Drawn, Figure, Make, finding};
use super::{
    CC_AND_PFC, CC_ONLY, Configuration, DCTCP, IWARP, NSCC_CUT, NSCC_DROPS, PFC_ONLY, SOURCE, SRD, TCP, list,
    run,
};
use crate::apps::{Summary, spans};
use srd_chart::{Axis, Chart};

pub(in crate::figures) static BLOCKING: Figure = Figure {
    name: "osu-alltoall",
    title: "osu_alltoall: 32 nodes, 4 processes a node, average latency",
    source: SOURCE,
    make: Make::Code(|lab| all_to_all(lab, &BLOCKING, "auto")),
};

pub(in crate::figures) static NON_BLOCKING: Figure = Figure {
    name: "osu-ialltoall",
    title: "osu_ialltoall: 32 nodes, 4 processes a node, pure communication time",
    source: SOURCE,
    make: Make::Code(|lab| all_to_all(lab, &NON_BLOCKING, "at-once")),
};

/// SRD is the last.
const CONFIGURATIONS: [Configuration; 9] =
    [CC_ONLY, CC_AND_PFC, PFC_ONLY, TCP, DCTCP, IWARP, NSCC_CUT, NSCC_DROPS, SRD];
const SIZES: [u64; 6] = [8, 256, 1 << 10, 8 << 10, 32 << 10, 128 << 10];
const QUICK: [u64; 3] = [8, 1 << 10, 8 << 10];

fn all_to_all(lab: &mut Lab<'_>, figure: &Figure, algorithm: &str) -> Option<Drawn> {
    let sizes = lab.pick(&QUICK[..], &SIZES[..]);
    lab.plan(CONFIGURATIONS.len() * sizes.len());
    let mut lines: Vec<Vec<f64>> = Vec::new();
    let mut complaints = Vec::new();
    for configuration in CONFIGURATIONS {
        let mut times = Vec::new();
        for &size in sizes {
            let repeats = if size < 32 << 10 { lab.pick(1, 3) } else { 1 };
            let text = format!(
                "[[program]]\nkind = \"all-to-all\"\nper_host = 4\nsize = {size}\nalgorithm = \"{algorithm}\"\ntimes = {repeats}\n\
                 warmup = 1\n"
            );
            let run = run(lab, &text, configuration, &["end_us=2e6".to_string()])?;
            if run.unfinished > 0 {
                complaints
                    .push(format!("{}, {size} B: {} ranks unfinished", configuration.name, run.unfinished));
            }
            let all = run.marks.iter().flat_map(|marks| spans(marks)).map(|span| span.as_f64() / 1e3);
            times.push(Summary::of(all).map_or(f64::NAN, |times| times.mean));
        }
        lines.push(times);
    }
    let all = || lines.iter().flatten().copied();
    let x = Axis::new("size (B)", sizes[0] as f64, sizes[sizes.len() - 1] as f64).logarithmic();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let mut chart = Chart::new(figure.title, x, Axis::new("time (us)", low * 0.7, high * 1.4).logarithmic());
    let mut findings = Vec::new();
    for (configuration, times) in CONFIGURATIONS.iter().zip(&lines) {
        chart.line(
            configuration.name,
            sizes.iter().zip(times).map(|(&bytes, &time)| (bytes as f64, Some(time))),
        );
        let words = sizes.iter().zip(times).map(|(size, time)| (format!("{size} B"), *time));
        findings.push(finding(format!("{}, us", configuration.name), "a chart without numbers", list(words)));
    }
    let tcp = sizes
        .iter()
        .zip(lines[3].iter().zip(&lines[1]))
        .map(|(size, (tcp, roce))| (format!("{size} B"), tcp / roce));
    findings.push(finding("TCP by RoCE with CC and PFC", "RoCE \"significantly\" better", list(tcp)));
    let (srd, others) = lines.split_last().expect("there are several");
    let best = |size: usize| others.iter().map(|line| line[size]).fold(f64::MAX, f64::min);
    let srd =
        sizes.iter().enumerate().map(|(number, size)| (format!("{size} B"), srd[number] / best(number)));
    findings.push(finding("SRD by the best of the others", "", list(srd)));
    Some(Drawn {
        chart,
        caption: "Between ranks of one node through its memory, 10 GB/s a copy. Blocking: MPICH's choice of \
                   algorithms (Bruck's up to 256 B, 32 messages at once up to 32 KiB, then pair by pair); \
                   non-blocking: all messages at once. TCP here costs latency, but no processor time: with few \
                   large messages it loses less than on real hosts. NSCC that has its packets cut has a \
                   bandwidth-delay product for each port, all others the memory of the switch."
            .into(),
        findings,
        complaints,
    })
}
