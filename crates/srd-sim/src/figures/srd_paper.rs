//! The SRD paper: L. Shalev, H. Ayoub, N. Bshara, E. Sabbag, "A Cloud-Optimized Transport Protocol for Elastic and Scalable
//! HPC", IEEE Micro 40(6), 2020. Its fabric is not described; ours are the scenarios of the same names.

use super::{Drawn, Figure, Finding};
use crate::outcome::Times;
use crate::record::chart::{Axis, Chart, plain};
use crate::record::page::distribution;
use crate::run::{self, Offer};
use crate::scenario::Scenario;
use crate::units::Ps;
use std::path::Path;

const INCAST: &str = include_str!("../../../../scenarios/fig2-incast-48.toml");
const RACK_PAIRS: &str = include_str!("../../../../scenarios/fig6-rack-pairs.toml");

/// Sizes of transfers as a scenario names them, and in thousands of bytes.
const SIZES: [(&str, f64); 4] = [("32KB", 32.0), ("128KB", 128.0), ("512KB", 512.0), ("2MB", 2000.0)];
/// Messages of [`RACK_PAIRS`], and the processes of a host that share its link.
const RACK_PAIRS_SIZE: u64 = 2_000_000;
const RACK_PAIRS_PROCESSES: u64 = 16;

pub(super) static INCAST_BY_SIZE: Figure = Figure {
    name: "incast-by-size",
    title: "Longest completion time of 48 flows into one server, by size",
    source: "IEEE Micro 40(6), 2020, Figure 2",
    make: incast_by_size,
};

pub(super) static INCAST_DISTRIBUTION: Figure = Figure {
    name: "incast-distribution",
    title: "Completion times of 48 flows of 2 MB into one server",
    source: "IEEE Micro 40(6), 2020, Figure 3",
    make: incast_distribution,
};

pub(super) static RACK_TO_RACK: Figure = Figure {
    name: "rack-to-rack",
    title: "Completion times from rack to rack, half of the uplinks' bandwidth in use",
    source: "IEEE Micro 40(6), 2020, Figures 5 and 6",
    make: rack_to_rack,
};

/// A run that has come to its end.
struct Ran {
    /// Completion times of its flows.
    times: Vec<Ps>,
    summary: Times,
    offer: Offer,
    complaints: Vec<String>,
}

fn ran(text: &str, sets: &[String], watch: &mut dyn FnMut(f64) -> bool) -> Option<Ran> {
    let scenario =
        Scenario::parse(text, "scenario", Path::new(""), sets).expect("tests read it, and the changes");
    let offer = Offer::of(&scenario);
    let mut simulation = run::prepare(&scenario, &offer);
    if !run::drive(&mut simulation, &scenario, &offer, watch) {
        return None;
    }
    let times: Vec<Ps> =
        simulation.flows.iter().filter_map(|flow| Some(flow.sent? - flow.started?)).collect();
    let summary = Times::of(times.clone()).expect("some flow comes to its end");
    Some(Ran { times, summary, offer, complaints: run::complaints(&simulation, &scenario) })
}

fn incast_by_size(watch: &mut dyn FnMut(f64) -> bool) -> Option<Drawn> {
    let share = 1.0 / SIZES.len() as f64;
    let mut runs = Vec::new();
    for (number, (name, size)) in SIZES.into_iter().enumerate() {
        let done = |part: f64| watch(((number as f64 + part) * share).min(1.0));
        let ran = ran(INCAST, &[format!("workload.size={name}")], &mut { done })?;
        runs.push((size, ran));
    }
    let ideal = |ran: &Ran| ran.offer.ideal.expect("an incast has one").as_micros();
    let (first, last) = (&runs[0], &runs[runs.len() - 1]);
    let x = Axis::new("size of a flow (KB)", first.0, last.0).logarithmic();
    let y = Axis::new("longest completion time (us)", ideal(&first.1) * 0.8, last.1.summary.max * 1.2);
    let mut chart = Chart::new(INCAST_BY_SIZE.title, x, y.logarithmic());
    chart.line("SRD", runs.iter().map(|(size, ran)| (*size, Some(ran.summary.max))));
    chart.line("ideal", runs.iter().map(|(size, ran)| (*size, Some(ideal(ran)))));
    let ratio = |ran: &Ran| format!("{:.3}", ran.summary.max / ideal(ran));
    let ratios: Vec<String> =
        SIZES.iter().zip(&runs).map(|((name, _), (_, ran))| format!("{name}: {}", ratio(ran))).collect();
    Some(Drawn {
        chart: chart.finish(),
        caption: "Four servers of twelve processes send to one at the same moment, ten times for each size."
            .into(),
        findings: vec![Finding {
            what: "Longest by ideal",
            published: "close to the ideal; TCP 3 to 20",
            here: ratios.join(", "),
        }],
        complaints: runs.into_iter().flat_map(|(_, ran)| ran.complaints).collect(),
    })
}

fn incast_distribution(watch: &mut dyn FnMut(f64) -> bool) -> Option<Drawn> {
    let ran = ran(INCAST, &[], watch)?;
    let ideal = ran.offer.ideal.expect("an incast has one");
    let findings = vec![
        Finding {
            what: "Longest by ideal",
            published: "close to the ideal; TCP above 50 ms where the ideal is about 7.7 ms",
            here: format!("{:.3}", ran.summary.max / ideal.as_micros()),
        },
        Finding {
            what: "Jitter",
            published: "very low",
            here: format!("slowest {:.3} times the fastest", ran.summary.max / ran.summary.min),
        },
    ];
    let caption =
        "Which share of flows was done within which time. Dashed: the best for all of them together.";
    Some(completion_times(&INCAST_DISTRIBUTION, ran, ideal, caption, findings))
}

fn rack_to_rack(watch: &mut dyn FnMut(f64) -> bool) -> Option<Drawn> {
    let ran = ran(RACK_PAIRS, &[], watch)?;
    let rate = Scenario::parse(RACK_PAIRS, "scenario", Path::new(""), &[]).ok()?.topology.fastest_host();
    let bytes = RACK_PAIRS_PROCESSES * ran.offer.cost.bytes(RACK_PAIRS_SIZE);
    let ideal = Ps::to_send(bytes, rate) + ran.offer.base_rtt;
    let by_ideal = |us: f64| us / ideal.as_micros();
    let findings = vec![
        Finding {
            what: "Median by ideal",
            published: "1.15",
            here: format!("{:.3}", by_ideal(ran.summary.p50)),
        },
        Finding {
            what: "Longest by ideal",
            published: "less than the average of TCP, which is 1.5",
            here: format!("{:.3}", by_ideal(ran.summary.max)),
        },
    ];
    let caption = "Eight servers of a rack send to eight of another, sixteen processes each at its own pace. Dashed: \
                   sixteen flows of 2 MB through one network card; while fewer are on their way, each is faster.";
    Some(completion_times(&RACK_TO_RACK, ran, ideal, caption, findings))
}

/// A distribution of completion times beside the ideal.
fn completion_times(figure: &Figure, ran: Ran, ideal: Ps, caption: &str, findings: Vec<Finding>) -> Drawn {
    let x = Axis::new("completion time (us)", 0.0, ran.summary.max.max(ideal.as_micros()) * 1.1);
    let mut chart = Chart::new(figure.title, x, Axis::new("share of flows", 0.0, 1.0));
    chart.line("SRD", distribution(ran.times, 1.0));
    chart.upright(&format!("ideal: {} us", plain(ideal.as_micros())), ideal.as_micros());
    Drawn { chart: chart.finish(), caption: caption.into(), findings, complaints: ran.complaints }
}
