//! Makes a figure as its file says: a run for each network, value of the axis and seed; then lines, and findings in words.

use super::file::{End, FigureFile, Fold, Measured, Metric, Words};
use super::lab::{Lab, Run};
use super::{Drawn, Finding, finding};
use crate::apps::Summary;
use crate::input::Scenario;
use srd_chart::{Axis, Chart, plain};

/// What stands for a run that did not come to its end.
const NO_END: &str = "did not end";

impl Fold {
    /// `None` of none.
    fn of(self, values: &[f64]) -> Option<f64> {
        let sum = values.iter().sum::<f64>();
        match self {
            Fold::Least => values.iter().copied().reduce(f64::min),
            Fold::Mean => (!values.is_empty()).then(|| sum / values.len() as f64),
            Fold::Most => values.iter().copied().reduce(f64::max),
            Fold::Sum => (!values.is_empty()).then_some(sum),
        }
    }

    fn of_summary(self, summary: &Summary) -> f64 {
        match self {
            Fold::Least => summary.least,
            Fold::Mean => summary.mean,
            Fold::Most => summary.most,
            Fold::Sum => summary.mean * summary.count as f64,
        }
    }
}

/// What the metrics are after all runs of a figure.
struct Results<'a> {
    figure: &'a FigureFile,
    x: &'a [u32],
    sets: Vec<String>,
    /// By network, value of the axis, and metric.
    values: Vec<Vec<Vec<Option<f64>>>>,
}

/// The figure of a file.
pub(super) fn make(figure: &FigureFile, lab: &mut Lab<'_>) -> Option<Drawn> {
    let x = lab.pick(&figure.x.quick, &figure.x.values);
    let seeds = lab.pick(figure.quick_seeds, figure.seeds);
    let sets = [&figure.sets[..], lab.pick(&figure.quick, &figure.full)].concat();
    lab.plan(figure.series.len() * x.len() * seeds as usize);
    let mut results = Results { figure, x, sets, values: Vec::new() };
    let mut complaints = Vec::new();
    for series in &figure.series {
        let network = &series.network;
        let mut of_network = Vec::new();
        for &x in x {
            let mut of_seeds = vec![Vec::new(); figure.metrics.len()];
            for seed in 1..=seeds {
                let own = [format!("seed={seed}"), format!("{}={x}", figure.x.key)];
                let scenario =
                    Lab::scenario(&figure.scenario, &[&network.sets[..], &own, &results.sets].concat());
                let run = lab.run(&scenario)?;
                if !network.may_fail {
                    let told = run.complaints.iter();
                    complaints.extend(told.map(|complaint| format!("{}: {complaint}", network.label)));
                }
                for (values, metric) in of_seeds.iter_mut().zip(&figure.metrics) {
                    values.extend(measured(metric, &scenario, &run));
                }
            }
            let metrics = figure.metrics.iter().zip(&of_seeds);
            of_network.push(metrics.map(|(metric, values)| made(metric, values, x)).collect());
        }
        results.values.push(of_network);
    }
    let findings = figure.findings.iter().flat_map(|words| results.findings(words)).collect();
    let caption = results.words(&figure.caption, 0, x.len() - 1);
    let caption = caption.unwrap_or_else(|| panic!("{}: the caption says what there is", figure.name));
    Some(Drawn { chart: results.chart(), caption, findings, complaints })
}

/// What a run says; nothing if its program has not come to its end.
fn measured(metric: &Metric, scenario: &Scenario, run: &Run) -> Option<f64> {
    let said = scenario.traffic.jobs[0].figures(&run.marks);
    match &metric.of {
        Measured::Program(what, take) => {
            Some(take.of_summary(&said.iter().find(|figure| figure.what == what)?.values))
        }
        Measured::Dropped => said.first().map(|_| run.outcome.packets_dropped as f64),
        Measured::Retransmitted => said.first().map(|_| run.outcome.packets_rtx as f64),
    }
}

/// The metric of what the runs of all seeds said.
fn made(metric: &Metric, of_seeds: &[f64], x: u32) -> Option<f64> {
    let value = metric.over_seeds.of(of_seeds)?;
    let value = if metric.by_x { value / f64::from(x) } else { value };
    Some(metric.percent_of.map_or(value, |whole| 100.0 * value / whole))
}

impl Results<'_> {
    fn chart(&self) -> Chart {
        let FigureFile { x, y, drawn, .. } = self.figure;
        let [first, last] = [self.x[0], self.x[self.x.len() - 1]].map(f64::from);
        let all = || self.values.iter().flatten().filter_map(|metrics| metrics[*drawn]);
        let end = |end: End, of: f64| match end {
            End::At(at) => at,
            End::Times(times) => of * times,
        };
        let horizontal = Axis::new(&x.title, first, x.most.unwrap_or(last));
        let vertical = Axis::new(
            &y.title,
            end(y.least, all().fold(f64::MAX, f64::min)),
            end(y.most, all().fold(0.0, f64::max)),
        );
        let scaled = |axis: Axis, logarithmic| if logarithmic { axis.logarithmic() } else { axis };
        let (horizontal, vertical) = (scaled(horizontal, x.logarithmic), scaled(vertical, y.logarithmic));
        let mut chart = Chart::new(&self.figure.title, horizontal, vertical);
        for (series, values) in self.figure.series.iter().zip(&self.values).filter(|(series, _)| series.drawn)
        {
            let points = self.x.iter().zip(values).map(|(&x, metrics)| (f64::from(x), metrics[*drawn]));
            chart.line(&series.network.label, points);
        }
        for (label, at) in &self.figure.levels {
            chart.level(label, *at);
        }
        chart
    }

    fn findings(&self, words: &Words) -> Vec<Finding> {
        let last = self.x.len() - 1;
        let say = |text: &str, series, x| self.words(text, series, x).unwrap_or_else(|| NO_END.to_string());
        let one = |series: usize, published: &str| {
            let here = match words.each_x {
                false => say(&words.here, series, last),
                true => {
                    let no_end = |x: usize| format!("{}: {NO_END}", self.x[x]);
                    let at = |x| self.words(&words.here, series, x).unwrap_or_else(|| no_end(x));
                    (0..=last).map(at).collect::<Vec<_>>().join(", ")
                }
            };
            finding(say(&words.what, series, last), published, here)
        };
        match words.of_each {
            false => vec![one(0, &words.published)],
            true => (0..).zip(&self.figure.series).map(|(n, series)| one(n, &series.published)).collect(),
        }
    }

    /// A text with what stands in braces put in; `None` if that is of a run that did not end.
    fn words(&self, text: &str, series: usize, x: usize) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (key, behind) = behind.split_once('}').unwrap_or((behind, ""));
            out += before;
            out += &self.word(key, series, x)?;
            rest = behind;
        }
        Some(out + rest)
    }

    /// What stands in braces: `network`, `x`, a key of the overrides; or a metric, of this network and value of the axis, `at`
    /// another value, `of each` network, or `of` one network `by` that of another.
    fn word(&self, key: &str, series: usize, x: usize) -> Option<String> {
        let labels = || self.figure.series.iter().map(|series| series.network.label.as_str());
        let set = self.sets.iter().find_map(|set| set.strip_prefix(key)?.strip_prefix('='));
        match (key, set) {
            ("network", _) => return labels().nth(series).map(String::from),
            ("x", _) => return Some(self.x[x].to_string()),
            (_, Some(value)) => return Some(value.to_string()),
            _ => {}
        }
        if let Some(metric) = key.strip_suffix(" of each") {
            let one = |(n, label)| {
                let shown = self.shown(metric, n, x).unwrap_or_else(|| NO_END.to_string());
                format!("{label}: {shown}")
            };
            return Some((0..).zip(labels()).map(one).collect::<Vec<_>>().join("; "));
        }
        if let Some((metric, networks)) = key.split_once(" of ") {
            let value = |label: &str| {
                let at = labels().position(|other| other == label);
                let at = at.unwrap_or_else(|| panic!("{}: there is no network {label}", self.figure.name));
                self.values[at][x][self.metric(metric)]
            };
            let (one, other) = networks.split_once(" by ")?;
            return Some(plain(value(one)? / value(other)?));
        }
        if let Some((metric, at)) = key.split_once(" at ") {
            let x = self.x.iter().position(|x| x.to_string() == at);
            return self.shown(metric, series, x?);
        }
        self.shown(key, series, x)
    }

    fn metric(&self, name: &str) -> usize {
        let at = self.figure.metrics.iter().position(|metric| metric.name == name);
        at.unwrap_or_else(|| panic!("{}: there is no metric {name}", self.figure.name))
    }

    /// A metric as people read it.
    fn shown(&self, name: &str, series: usize, x: usize) -> Option<String> {
        let metric = self.metric(name);
        let value = self.values[series][x][metric]?;
        Some(match self.figure.metrics[metric].of {
            Measured::Program(..) => plain(value),
            Measured::Dropped | Measured::Retransmitted => format!("{value:.0}"),
        })
    }
}
