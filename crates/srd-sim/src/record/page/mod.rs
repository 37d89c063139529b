//! The page of a run: its outcome, figures, and what a trace says about its slowest flow. One file that needs nothing
//! else, for a screen, a telephone or paper.
//!
//! `figures` decides what is drawn; this file is about words and tables.

mod figures;
mod ranks;

use figures::Figure;
pub(crate) use figures::distribution;
pub use ranks::{RanksRun, write_ranks_page};

use super::name_index::NameIndex;
use super::plan::Plan;
use super::samples::Series;
use super::{Observed, Recording};
use crate::apps::Size;
use crate::input::Scenario;
use crate::run::{Offer, Outcome, Ran, Simulation, Times};
use srd_baselines::input::counted;
use srd_chart::{END, beginning, escape, figure, plain};
use srd_trace::{Question, TraceFile};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most workloads that are told apart in the table.
const MAX_WORKLOADS: usize = 20;

/// What the page is made of.
pub(super) struct Page<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) offer: &'a Offer,
    pub(super) ran: &'a Ran,
    pub(super) recording: &'a Recording,
    pub(super) files: &'a [String],
    pub(super) notes: &'a [String],
    pub(super) plan: &'a Plan,
    pub(super) series: &'a Series,
    pub(super) names: &'a NameIndex,
    pub(super) simulation: &'a Simulation<'a, Observed>,
    /// Bytes that each flow delivered.
    pub(super) delivered: &'a [u64],
    pub(super) told: Option<&'a TraceFile>,
}

impl Page<'_> {
    pub(super) fn html(&self) -> String {
        let mut out = beginning(&self.ran.outcome.scenario, &self.summary());
        for complaint in self.ran.complaints.iter().chain(&self.ran.warnings) {
            let _ = writeln!(out, "<p class=\"complaint\">{}</p>", escape(complaint));
        }
        self.tables(&mut out);
        out.push_str("<h2>Figures</h2>\n<div class=\"figures\">\n");
        let from = self.provenance();
        for Figure { title, chart, caption } in self.figures() {
            out.push_str(&figure(title, &chart, &caption, &from));
        }
        out.push_str("</div>\n");
        self.story(&mut out);
        self.files(&mut out);
        out.push_str(END);
        out
    }

    /// What came of it, in a sentence.
    fn summary(&self) -> String {
        let outcome = &self.ran.outcome;
        let flows = counted(outcome.flows as u64, "flow");
        let hosts = counted(outcome.hosts as u64, "host");
        let what = match (outcome.flows, outcome.programs.len() as u64) {
            (_, 0) => flows,
            (0, programs) => counted(programs, "program"),
            (_, programs) => format!("{flows} and {}", counted(programs, "program")),
        };
        let mut text = format!("{what} on a fabric of {hosts}");
        if self.others() {
            let _ = write!(text, " ({})", outcome.transport);
        }
        if outcome.flows == 0 {
            text.push('.');
            return text;
        }
        match (outcome.fct_us, outcome.ideal_us) {
            (Some(times), Some(ideal)) => {
                let ratio = times.max / ideal;
                let _ = write!(
                    text,
                    ": the slowest took {} us, {ratio:.3} times what is possible at best ({} us).",
                    plain_us(times.max),
                    plain_us(ideal)
                );
            }
            (Some(times), None) => {
                let _ = write!(text, ": the slowest took {} us.", plain_us(times.max));
            }
            (None, _) if self.endless().next().is_some() => text.push_str(", without end."),
            (None, _) => text.push_str(": none of them has come to its end."),
        }
        text
    }

    /// Which run this is: for each figure, since figures travel alone.
    fn provenance(&self) -> String {
        let outcome = &self.ran.outcome;
        let mut text = format!("{}, seed {}", escape(&outcome.scenario), outcome.seed);
        if !self.recording.command.is_empty() {
            let _ = write!(text, " &middot; <code>{}</code>", escape(&self.recording.command));
        }
        let _ = write!(text, " &middot; {}", escape(&self.recording.program));
        format!("<p class=\"from\">{text}</p>\n")
    }

    // ---- tables ----

    fn tables(&self, out: &mut String) {
        let outcome = &self.ran.outcome;
        out.push_str("<h2>Outcome</h2>\n<div class=\"tables\">\n");
        table(out, &[self.flows_rows(), times_rows(outcome), self.rates_rows()].concat());
        table(out, &packets_rows(outcome));
        out.push_str("</div>\n");
        // On a line of its own: it differs from run to run, as nothing else on the page does.
        let cost = &outcome.cost;
        let _ = writeln!(
            out,
            "<p class=\"cost\">It took {} s of processor time: {} data packets and {} events per second.</p>",
            plain(cost.cpu_s),
            grouped(cost.packets_per_cpu_s.round() as u64),
            grouped(cost.events_per_cpu_s.round() as u64)
        );
        self.workloads(out);
        self.programs(out);
    }

    /// What programs have measured.
    fn programs(&self, out: &mut String) {
        if self.ran.outcome.programs.is_empty() {
            return;
        }
        out.push_str(
            "<div class=\"wide\"><table>\n<tr><th>Program<th>ranks<th>what<th>unit<th>number<th>least<th>mean<th>99 %<th>most</tr>\n",
        );
        for program in &self.ran.outcome.programs {
            let (name, ranks) = (escape(&program.name), program.ranks);
            for of in &program.figures {
                let (what, unit) = (escape(&of.what), escape(&of.unit));
                let _ = write!(out, "<tr><td>{name}<td>{ranks}<td>{what}<td>{unit}<td>{}", of.count);
                for value in [of.least, of.mean, of.p99, of.most] {
                    let _ = write!(out, "<td>{}", plain(value));
                }
                out.push_str("</tr>\n");
            }
            if program.figures.is_empty() {
                let _ = writeln!(out, "<tr><td>{name}<td>{ranks}<td colspan=\"7\">not at its end</tr>");
            }
        }
        out.push_str("</table></div>\n");
    }

    /// Whether somebody speaks something else than SRD.
    fn others(&self) -> bool {
        !self.scenario.settings.is_plain_srd()
    }

    fn flows_rows(&self) -> Vec<(&'static str, String)> {
        let outcome = &self.ran.outcome;
        let endless = self.endless().count() as u32;
        let unfinished = (outcome.flows - endless).saturating_sub(outcome.finished + outcome.failed);
        let counts = [
            (outcome.finished, "finished"),
            (endless, "without end"),
            (outcome.failed, "failed"),
            (unfinished, "not at their end"),
        ];
        if outcome.flows == 0 {
            return vec![("Simulated time", format!("{} us", plain_us(outcome.sim_us)))];
        }
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let flows: Vec<String> =
            counts.map(|&(count, word)| format!("{} {word}", grouped(count as u64))).collect();
        vec![("Flows", flows.join(", ")), ("Simulated time", format!("{} us", plain_us(outcome.sim_us)))]
    }

    /// Flows that have begun and go on until a moment: rate in Gb/s of each over all of its time.
    fn endless(&self) -> impl Iterator<Item = f64> {
        let flows = self.scenario.traffic.flows.iter().zip(&self.simulation.flows).zip(self.delivered);
        flows.filter_map(|((flow, state), &delivered)| match flow.size {
            Size::Until(until) => {
                let span = until.min(self.simulation.now) - state.started?;
                Some(delivered as f64 * 8000.0 / span.0.max(1) as f64)
            }
            Size::Bytes(_) => None,
        })
    }

    fn rates_rows(&self) -> Vec<(&'static str, String)> {
        let mut rates: Vec<f64> = self.endless().collect();
        rates.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (rates.first(), rates.last()) else { return Vec::new() };
        let gbps = |rate: f64| format!("{} Gb/s", plain(rate));
        let (sum, squares) =
            rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
        // Jain, Chiu and Hawe: A quantitative measure of fairness (1984).
        let fairness = sum * sum / (rates.len() as f64 * squares);
        vec![
            ("Least rate of a flow without end", gbps(*least)),
            ("Median rate", gbps(rates[rates.len() / 2])),
            ("Greatest rate", gbps(*most)),
            ("Jain's index of these rates", format!("{fairness:.4}")),
        ]
    }

    /// Completion times of each workload, where there are several.
    fn workloads(&self, out: &mut String) {
        let traffic = &self.scenario.traffic;
        let mut of_workload: BTreeMap<u16, (u64, u16, Vec<_>)> = BTreeMap::new();
        for (flow, state) in traffic.flows.iter().zip(&self.simulation.flows) {
            let (flows, transport, times) = of_workload.entry(flow.workload).or_default();
            *transport = flow.transport;
            *flows += 1;
            times.extend(state.sent.map(|sent| sent - state.started.unwrap_or(sent)));
        }
        if of_workload.len() < 2 {
            return;
        }
        out.push_str(
            "<div class=\"wide\"><table>\n<tr><th>Workload<th>flows<th>finished<th>median us<th>99 % us<th>slowest us</tr>\n",
        );
        for (workload, (flows, transport, times)) in of_workload.into_iter().take(MAX_WORKLOADS) {
            let finished = times.len();
            let mut name = escape(&traffic.workloads[workload as usize]).to_string();
            if self.others() {
                let transport = &self.scenario.settings.transports[transport as usize].name;
                let _ = write!(name, " ({})", escape(transport));
            }
            let _ = write!(out, "<tr><td>{name}<td>{flows}<td>{finished}");
            let values =
                Times::of(times).map_or([None; 3], |times| [times.p50, times.p99, times.max].map(Some));
            for value in values {
                let _ = write!(out, "<td>{}", value.map_or_else(|| "-".to_string(), plain_us));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></div>\n");
    }

    // ---- what is below the figures ----

    fn story(&self, out: &mut String) {
        let Some(trace) = self.told else { return };
        let Ok(report) = trace.report(&Question::Slowest(1)) else { return };
        if !report.stories.is_empty() {
            let _ = writeln!(
                out,
                "<h2>Why the slowest flow took so long</h2>\n<pre>{}</pre>",
                escape(&report.text())
            );
        }
    }

    fn files(&self, out: &mut String) {
        let link =
            |file: &String| format!("<a href=\"{}\">{}</a>", escape(&file.replace('#', "%23")), escape(file));
        let links: Vec<String> = self.files.iter().skip(1).map(link).collect();
        let _ = writeln!(out, "<h2>Files</h2>\n<p>{}</p>", links.join(", "));
        for note in self.notes.iter().chain(&self.scenario.notes) {
            let _ = writeln!(out, "<p>{}</p>", escape(note));
        }
        out.push_str(&self.provenance());
    }
}

/// A table of names and values.
fn table(out: &mut String, rows: &[(&str, String)]) {
    out.push_str("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<tr><th>{name}<td>{value}</tr>");
    }
    out.push_str("</table>\n");
}

fn times_rows(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let us = |value: f64| format!("{} us", plain_us(value));
    rows.extend(outcome.ideal_us.map(|ideal| ("Ideal completion time", us(ideal))));
    if let Some(times) = outcome.fct_us {
        rows.extend([
            ("Fastest", us(times.min)),
            ("Median", us(times.p50)),
            ("Mean", us(times.mean)),
            ("99 of 100 within", us(times.p99)),
            ("Slowest", us(times.max)),
        ]);
        rows.extend(outcome.ideal_us.map(|ideal| ("Slowest by ideal", format!("{:.3}", times.max / ideal))));
    }
    rows.extend(outcome.spread.map(|spread| ("Slowest by fastest", format!("{spread:.3}"))));
    rows
}

fn packets_rows(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let share = 100.0 * outcome.packets_rtx as f64 / outcome.packets_new.max(1) as f64;
    vec![
        ("Data packets", grouped(outcome.packets_new)),
        ("Sent again", format!("{} ({share:.2} %)", grouped(outcome.packets_rtx))),
        ("of these for nothing", grouped(outcome.packets_spurious)),
        ("Packets without data", grouped(outcome.packets_bare)),
        ("Dropped by full queues", grouped(outcome.packets_dropped)),
        ("Lost by cables", grouped(outcome.packets_lost)),
        ("Marked", grouped(outcome.packets_marked)),
        ("Trimmed", grouped(outcome.packets_trimmed)),
        ("Hops of packets", grouped(outcome.packet_hops)),
        ("Events", grouped(outcome.events)),
    ]
}

/// `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Microseconds as a person reads them.
fn plain_us(us: f64) -> String {
    match us {
        us if us >= 1000.0 => grouped(us.round() as u64),
        us => format!("{us:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        assert_eq!((plain_us(7713.42).as_str(), plain_us(12.345).as_str()), ("7,713", "12.35"));
    }
}
