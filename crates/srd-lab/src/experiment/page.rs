//! The page of an experiment: what was run, tables of what came of it, and figures. One file that needs nothing else.
//!
//! What a summary holds is shown under the names of `columns`; `over_time` draws single runs.

mod over_time;

use super::campaign::{CaseResult, LeftOut, MOST_PAUSE_MS, Report, RunResult};
use super::columns::{Column, Shown, cell, names, remarks, spread};
use super::measure::Spread;
use super::plan::Case;
use crate::shape::Shape;
use srd_chart::{Axis, Chart, END, beginning, distribution, escape, figure};
use std::fmt::Write;

/// Most groups of bars beside each other.
const GROUPS: usize = 6;
/// Largest by smallest value from which on they are drawn by orders of magnitude.
const WIDE: f64 = 30.0;

/// The page. `command` made it, `program` ran.
pub fn page(report: &Report, command: &str, program: &str) -> String {
    Page { report, command, program }.html()
}

struct Page<'a> {
    report: &'a Report,
    command: &'a str,
    program: &'a str,
}

/// The run of which a value is the middle one. The value, too.
fn middle(result: &CaseResult, value: impl Fn(&RunResult) -> Option<f64>) -> Option<(&RunResult, f64)> {
    let mut runs: Vec<_> = result.runs.iter().filter_map(|run| Some((run, value(run)?))).collect();
    runs.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    runs.get(runs.len() / 2).copied()
}

/// A complaint, as HTML.
fn complaint(out: &mut String, text: &str) {
    let _ = writeln!(out, "<p class=\"complaint\">{}</p>", escape(text));
}

/// `4 leaves of 4 hosts, ...`
fn fabric(shape: &Shape) -> String {
    let tiers = match shape.pods {
        0 => format!("{} spines", shape.spines()),
        pods => format!("{pods} pods of {} aggregation routers, {} cores", shape.aggs_per_pod, shape.cores),
    };
    let mut text = format!(
        "{} leaves of {} hosts, {tiers}; {} Mbit/s to hosts, {} Mbit/s above; queues of {} bytes, MTU {}",
        shape.leaves,
        shape.hosts_per_leaf,
        shape.host_mbps,
        shape.uplink_mbps,
        shape.buffer_bytes,
        shape.mtu_bytes
    );
    if let Some(ecn_bytes) = shape.ecn_bytes {
        let _ = write!(text, ", packets marked from {ecn_bytes} bytes on");
    }
    if shape.trim {
        text.push_str(", packets cut where queues are full");
    }
    text
}

impl Page<'_> {
    fn html(&self) -> String {
        let experiment = &self.report.experiment;
        let mut out = beginning(&experiment.name, &experiment.about);
        self.what_was_run(&mut out);
        let bars = self.bars();
        if !bars.is_empty() {
            let _ = writeln!(out, "<h2>Figures</h2>\n<div class=\"figures\">\n{bars}</div>");
        }
        for (case, results) in experiment.cases.iter().zip(self.by_case()) {
            self.case(&mut out, case, results);
        }
        self.words(&mut out);
        let _ = writeln!(
            out,
            "<p>Every run, with what arrived of each flow in each interval: <a href=\"report.json\">report.json</a></p>"
        );
        out.push_str(END);
        out
    }

    /// Results of each case.
    fn by_case(&self) -> impl Iterator<Item = &[CaseResult]> {
        self.report.results.chunks(self.report.experiment.transports.len().max(1))
    }

    /// Where a figure comes from, as HTML.
    fn from(&self, what: &str) -> String {
        let experiment = &self.report.experiment;
        let (name, what) = (escape(&experiment.name), escape(what));
        let (command, program) = (escape(self.command), escape(self.program));
        let seed = experiment.seed;
        format!(
            "<p class=\"from\">{name}{what}, seed {seed} &middot; <code>{command}</code> &middot; {program}</p>\n"
        )
    }

    fn what_was_run(&self, out: &mut String) {
        let Report { experiment, left_out, machine, discarded, .. } = self.report;
        let most = experiment.most_cpu_percent;
        let rows = [
            ("Fabric", fabric(&experiment.fabric)),
            ("Transports", experiment.transports.join(", ")),
            ("Runs of each", experiment.repeats.to_string()),
            ("Seed", format!("{}, and one more for each further run", experiment.seed)),
            ("Machine", format!("Linux {}, {} processors", machine.kernel, machine.processors)),
            (
                "Runs discarded",
                format!(
                    "{discarded}: those in which processors were busy for more than {most} % of the time, or the machine stood still for more than {MOST_PAUSE_MS} ms"
                ),
            ),
        ];
        out.push_str("<h2>What was run</h2>\n<table>\n");
        for (name, value) in rows {
            let _ = writeln!(out, "<tr><th>{name}<td>{}</tr>", escape(&value));
        }
        out.push_str("</table>\n");
        for LeftOut { transport, why } in left_out {
            complaint(out, &format!("{transport} was left out: {why}"));
        }
    }

    // ---- all cases beside each other ----

    fn bars(&self) -> String {
        let cases = &self.report.experiment.cases;
        let mut out = String::new();
        for name in
            names(&self.report.results).into_iter().filter(|name| Column::is_shown(name, Shown::AsFigure))
        {
            let there: Vec<(&Case, &[CaseResult])> = cases
                .iter()
                .zip(self.by_case())
                .filter(|(_, results)| results.iter().any(|result| spread(result, name).is_some()))
                .collect();
            for groups in there.chunks(GROUPS) {
                out.push_str(&self.bars_of(name, groups));
            }
        }
        out
    }

    fn bars_of(&self, name: &str, groups: &[(&Case, &[CaseResult])]) -> String {
        let transports = &self.report.experiment.transports;
        let all =
            groups.iter().flat_map(|(_, results)| results.iter()).filter_map(|result| spread(result, name));
        let (least, most) = all.fold((f64::INFINITY, 0.0f64), |(least, most), spread| {
            (least.min(spread.least), most.max(spread.most))
        });
        let words = Column::words(name);
        let wide = least > 0.0 && most / least > WIDE;
        let y = match wide {
            true => Axis::new(words, least * 0.7, most * 1.2).logarithmic(),
            false => Axis::new(words, 0.0, most * 1.05),
        };
        let x = Axis::of_names("", groups.iter().map(|(case, _)| case.name.as_str())).broken();
        let mut chart = Chart::new(words, x, y);
        for (n, transport) in transports.iter().enumerate() {
            let spreads: Vec<Option<Spread>> =
                groups.iter().map(|(_, results)| spread(results.get(n)?, name)).collect();
            let medians: Vec<Option<f64>> = spreads.iter().map(|spread| Some((*spread)?.median)).collect();
            let ends: Vec<_> = spreads.iter().map(|spread| spread.map(|of| (of.least, of.most))).collect();
            let place = (n, transports.len());
            chart.grouped_bars(transport, place, &medians);
            if self.report.experiment.repeats > 1 {
                chart.spreads(place, &ends);
            }
        }
        let title = match words.chars().next() {
            Some(first) => first.to_uppercase().chain(words.chars().skip(1)).collect(),
            None => String::new(),
        };
        let runs = match self.report.experiment.repeats {
            1 => "One run.",
            _ => "Bars: the middle of all runs; lines: from the least to the most.",
        };
        let orders = if wide { " By orders of magnitude." } else { "" };
        figure(&title, &chart.html(), &format!("{runs}{orders}"), &self.from(""))
    }

    // ---- a case ----

    fn case(&self, out: &mut String, case: &Case, results: &[CaseResult]) {
        let _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escape(&case.name), escape(&self.situation(case)));
        self.table(out, results);
        let experiment = &self.report.experiment;
        for remark in results.iter().flat_map(|result| remarks(result, experiment)) {
            complaint(out, &remark);
        }
        for (result, said) in results.iter().flat_map(|result| {
            result.runs.iter().flat_map(|run| &run.figures.complaints).map(move |said| (result, said))
        }) {
            complaint(out, &format!("{}: {said}", result.transport));
        }
        let figures = self.completion_times(case, results).into_iter().chain(self.over_time(case, results));
        let figures: String = figures.collect();
        if !figures.is_empty() {
            let _ = writeln!(out, "<div class=\"figures\">\n{figures}</div>");
        }
    }

    /// What happens in a case, in words.
    fn situation(&self, case: &Case) -> String {
        let mut text = format!("{}.", case.traffic);
        if let Some(beside) = &case.beside {
            let _ = write!(text, " Beside: {}, {}.", beside.transport, beside.traffic);
        }
        for timed in &case.faults {
            let _ = write!(text, " From {} to {} ms: {}.", timed.at_ms, timed.heal_ms, timed.fault);
        }
        if let Some(bytes) = case.buffer_bytes {
            let _ = write!(text, " Queues of {bytes} bytes.");
        }
        if let Some(mbps) = case.possible_mbps {
            let _ = write!(text, " {mbps} Mbit/s of payload are possible for all flows together.");
        }
        text
    }

    fn table(&self, out: &mut String, results: &[CaseResult]) {
        let names = names(results);
        out.push_str(
            "<div class=\"wide\"><table style=\"white-space: nowrap; margin-bottom: 1rem\">\n<tr><th>",
        );
        for name in &names {
            let _ = write!(out, "<th>{}", escape(Column::title(name)));
        }
        out.push_str("<th>discarded</tr>\n");
        for result in results {
            let _ = write!(out, "<tr><th>{}", escape(&result.transport));
            for name in &names {
                // The ends in a line of their own: tables are wide enough.
                let cell = escape(&cell(result, name)).replace(' ', "<br>");
                let _ = write!(out, "<td>{cell}");
            }
            let _ = writeln!(out, "<td>{}</tr>", result.discarded);
        }
        out.push_str("</table></div>\n");
    }

    /// Which share of flows was there when.
    fn completion_times(&self, case: &Case, results: &[CaseResult]) -> Option<String> {
        let last = |run: &RunResult| run.figures.times_ms.iter().copied().reduce(f64::max);
        let runs: Vec<(&str, &RunResult)> = results
            .iter()
            .filter_map(|result| Some((result.transport.as_str(), middle(result, last)?.0)))
            .collect();
        let all = runs.iter().flat_map(|(_, run)| run.figures.times_ms.iter().copied());
        let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(low, high), ms| (low.min(ms), high.max(ms)));
        if runs.is_empty() {
            return None;
        }
        let ideal = runs.iter().find_map(|(_, run)| Some(run.figures.completion?.ideal_ms));
        let high = high.max(ideal.unwrap_or(0.0));
        let title = "time since the start (ms)";
        let x = match low > 0.0 && high / low > WIDE {
            true => Axis::new(title, low * 0.9, high * 1.1).logarithmic(),
            false => Axis::new(title, 0.0, high * 1.03),
        };
        let name = "Completion times";
        let mut chart = Chart::new(name, x, Axis::new("share of flows", 0.0, 1.0));
        for (transport, run) in runs {
            let times = run.figures.times_ms.clone();
            // Flows that did not finish are in no step, and the line stays below 1.
            let finished = times.len() as f64 / (times.len() + run.figures.incomplete) as f64;
            let points =
                distribution(times).into_iter().map(|(x, share)| (x, share.map(|share| share * finished)));
            chart.line(transport, points);
        }
        if let Some(ideal) = ideal {
            chart.upright("ideal", ideal);
        }
        let caption = "Which share of flows was there when. Of each transport the run whose last flow is the middle one. \
                       Dashed: when all could be there at best.";
        Some(figure(name, &chart.html(), caption, &self.from(&format!(", {}", case.name))))
    }

    /// What the columns mean.
    fn words(&self, out: &mut String) {
        out.push_str("<h2>What the columns say</h2>\n<table>\n");
        for name in names(&self.report.results) {
            let (title, words) = (escape(Column::title(name)), escape(Column::words(name)));
            let _ = writeln!(out, "<tr><th>{title}<td>{words}</tr>");
        }
        out.push_str("</table>\n<p>The middle of all runs, and in brackets the least and the most.</p>\n");
    }
}

#[cfg(test)]
mod tests;
