//! Throughput of each flow over time, of the run that is the middle one.

use super::super::campaign::{CaseResult, RunResult};
use super::super::plan::Case;
use super::super::traffic::{Flow, flows};
use super::{Page, middle};
use crate::flow::protocol::Amount;
use crate::plan::Plan;
use srd_chart::{Axis, Chart, MAX_LINES, figure};

/// Most points of a line.
const POINTS: usize = 150;

/// A line goes up to so much of a host's link: what a program reads at once that came before lies above.
const ROOM: f64 = 1.3;

/// A line: when, in seconds, and how fast, in Mbit/s.
type Line = Vec<(f64, Option<f64>)>;

/// What a figure shows.
struct Shown<'a> {
    transport: &'a str,
    run: &'a RunResult,
    caption: String,
    step: usize,
    own: Vec<Line>,
    beside: Vec<Line>,
}

/// By what the middle run of a case is found, and how that is called.
type Key = (&'static str, &'static str, fn(&RunResult) -> Option<f64>);

fn key(case: &Case) -> Key {
    match case {
        Case { faults, .. } if !faults.is_empty() => {
            ("longest stall", "ms", |run| Some(run.figures.throughput.as_ref()?.longest_stall_ms))
        }
        _ => ("sum", "Mbit/s", |run| Some(run.figures.throughput.as_ref()?.sum_mbps)),
    }
}

/// `host4 to host0` for each, told apart where there are several.
fn labels(flows: &[Flow]) -> Vec<String> {
    let name = |flow: &Flow| format!("host{} to host{}", flow.from, flow.to);
    let label = |(n, flow): (usize, &Flow)| {
        let twins = |flows: &[Flow]| flows.iter().filter(|other| name(other) == name(flow)).count();
        match twins(flows) {
            1 => name(flow),
            _ => format!("{} ({})", name(flow), twins(&flows[..=n])),
        }
    };
    flows.iter().enumerate().map(label).collect()
}

/// A flow's line: nothing before it begins and after it has ended, and nothing is 0 in between.
fn line(bins: &[f64], flow: &Flow, bin_s: f64, end_s: f64, step: usize) -> Line {
    let begin_s = flow.begin_ns as f64 / 1e9;
    let over_s = match flow.amount {
        Amount::ForNs(span) => begin_s + span as f64 / 1e9,
        Amount::Bytes(_) => end_s,
    };
    let steps = ((end_s / bin_s).round() as usize).div_ceil(step);
    let point = |n: usize| {
        let (from, to) = (n * step, (n + 1) * step);
        let at = (from + to) as f64 / 2.0 * bin_s;
        let sum: f64 = (from..to).filter_map(|bin| bins.get(bin)).sum();
        (at, (begin_s..over_s).contains(&at).then_some(sum / step as f64))
    };
    (0..steps).map(point).collect()
}

/// Least, quarter, median, three quarters and most of all lines at each point.
fn quantiles(lines: &[Line]) -> Vec<(f64, Option<[f64; 5]>)> {
    let point = |n: usize| {
        let mut values: Vec<f64> = lines.iter().filter_map(|line| line[n].1).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        (lines[0][n].0, (!values.is_empty()).then(|| [0.0, 0.25, 0.5, 0.75, 1.0].map(at)))
    };
    (0..lines.first().map_or(0, Vec::len)).map(point).collect()
}

impl Page<'_> {
    /// A figure for each transport, all with the same axes.
    pub(super) fn over_time(&self, case: &Case, results: &[CaseResult]) -> Vec<String> {
        let there = |traffic| flows(traffic, &Plan::new(&self.report.experiment.fabric).ok()?).ok();
        let Some(own) = there(&case.traffic) else { return Vec::new() };
        let beside = case.beside.as_ref().and_then(|beside| there(&beside.traffic)).unwrap_or_default();
        let end_s = |flow: &Flow| match flow.amount {
            Amount::ForNs(span) => (flow.begin_ns + span) as f64 / 1e9,
            Amount::Bytes(_) => 0.0,
        };
        let end_s = own.iter().chain(&beside).map(end_s).fold(0.0, f64::max);
        let (what, unit, value) = key(case);
        let shown: Vec<Shown<'_>> = results
            .iter()
            .filter_map(|result| {
                let (run, value) = middle(result, value)?;
                let bin_s = run.bin_ms / 1e3;
                let step = ((end_s / bin_s).round() as usize).div_ceil(POINTS).max(1);
                let lines = |flows: &[Flow], series: &[Vec<f64>]| -> Vec<Line> {
                    flows
                        .iter()
                        .zip(series)
                        .map(|(flow, bins)| line(bins, flow, bin_s, end_s, step))
                        .collect()
                };
                let caption = match result.runs.len() {
                    1 => String::new(),
                    runs => {
                        format!(" Of {runs} runs the one whose {what} is the middle one, {value:.1} {unit}.")
                    }
                };
                Some(Shown {
                    transport: &result.transport,
                    run,
                    caption,
                    step,
                    own: lines(&own, &run.series_mbps),
                    beside: lines(&beside, &run.beside_series_mbps),
                })
            })
            .collect();
        let all = shown.iter().flat_map(|shown| shown.own.iter().chain(&shown.beside)).flatten();
        let high = all.filter_map(|(_, mbps)| *mbps).fold(0.0, f64::max);
        let high = high.min(self.report.experiment.fabric.host_mbps * ROOM);
        let (own, beside) = (labels(&own), labels(&beside));
        shown.iter().map(|shown| self.figure_over_time(case, shown, (&own, &beside), (end_s, high))).collect()
    }

    fn figure_over_time(
        &self,
        case: &Case,
        shown: &Shown<'_>,
        (own, beside): (&[String], &[String]),
        (end_s, high): (f64, f64),
    ) -> String {
        let title = format!("Throughput of each flow over time, {}", shown.transport);
        let x = Axis::new("time since the start (s)", 0.0, end_s);
        let mut chart = Chart::new(title.as_str(), x, Axis::new("payload (Mbit/s)", 0.0, high * 1.05));
        let by = case.beside.as_ref().map_or("", |beside| &beside.transport);
        for timed in &case.faults {
            let (at_s, heal_s) = (timed.at_ms as f64 / 1e3, timed.heal_ms as f64 / 1e3);
            chart.span(&timed.fault.to_string(), at_s, heal_s);
        }
        let mut which = "each flow";
        if shown.own.len() + shown.beside.len() <= MAX_LINES {
            for (label, line) in own.iter().zip(&shown.own) {
                chart.line(label, line.iter().copied());
            }
            for (label, line) in beside.iter().zip(&shown.beside) {
                chart.line(&format!("{label} ({by})"), line.iter().copied());
            }
        } else {
            which = "flows that were under way";
            let quantiles_of_own = quantiles(&shown.own);
            let between = |low: usize, high: usize| -> Vec<_> {
                quantiles_of_own.iter().map(|&(x, q)| (x, q.map(|q| (q[low], q[high])))).collect()
            };
            chart.band("slowest to fastest", 0.15, &between(0, 4));
            chart.band("middle half", 0.3, &between(1, 3));
            chart.line("median", quantiles_of_own.iter().map(|&(x, q)| (x, q.map(|q| q[2]))));
            if !shown.beside.is_empty() {
                let median = quantiles(&shown.beside).into_iter().map(|(x, q)| (x, q.map(|q| q[2])));
                chart.line(&format!("median of the flows beside ({by})"), median);
            }
        }
        let averaged = shown.run.bin_ms * shown.step as f64;
        let all = shown.own.iter().chain(&shown.beside).flatten();
        let late = match all.filter_map(|(_, mbps)| *mbps).any(|mbps| mbps > high) {
            true => {
                " Peaks are cut: there a receiver reads at once what came before, behind a missing packet or while it had no processor."
            }
            false => "",
        };
        let caption = format!(
            "Payload that arrived of {which}, on average over {averaged:.0} ms.{}{late}",
            shown.caption
        );
        let from = self.from(&format!(", {}, {}", case.name, shown.transport));
        figure(&title, &chart.html(), &caption, &from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::protocol::ALL;

    fn flow(from: usize, begin_s: u64) -> Flow {
        Flow {
            from,
            to: 0,
            amount: Amount::ForNs(1_000_000_000),
            begin_ns: begin_s * 1_000_000_000,
            offered_bps: ALL,
        }
    }

    #[test]
    fn a_line_is_where_its_flow_is() {
        let points = line(&[0.0, 0.0, 8.0, 4.0], &flow(1, 1), 0.5, 3.0, 1);
        let values: Vec<Option<f64>> = points.iter().map(|(_, mbps)| *mbps).collect();
        assert_eq!(values, [None, None, Some(8.0), Some(4.0), None, None]);
        let coarse = line(&[0.0, 0.0, 8.0], &flow(1, 1), 0.5, 3.0, 2);
        assert_eq!(coarse, [(0.5, None), (1.5, Some(4.0)), (2.5, None)], "nothing counts as 0 while it goes");
    }

    #[test]
    fn flows_between_the_same_hosts_are_told_apart() {
        let labels = labels(&[flow(4, 0), flow(5, 0), flow(4, 0)]);
        assert_eq!(labels, ["host4 to host0 (1)", "host5 to host0", "host4 to host0 (2)"]);
    }

    #[test]
    fn many_lines_become_their_quantiles() {
        let lines: Vec<Line> = (0..5).map(|n| vec![(0.1, Some(f64::from(n))), (0.2, None)]).collect();
        assert_eq!(quantiles(&lines), [(0.1, Some([0.0, 1.0, 2.0, 3.0, 4.0])), (0.2, None)]);
    }
}
