//! Makes a figure as its file says: a run for each series, point of the axis and seed; then lines or bars, and findings in words.

use super::file::{Bars, Case, End, FigureFile, Fold, For, Metric, Of, Words};
use super::lab::{Lab, Planned};
use super::measured::{Look, Part};
use super::{Drawn, Finding, finding};
use crate::apps::Summary;
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, plain};
use std::ops::RangeInclusive;

/// What stands for a run that did not come to its end.
const NO_END: &str = "did not end";

impl Fold {
    /// `None` of none.
    pub(super) fn of(self, values: &[f64]) -> Option<f64> {
        let sum = values.iter().sum::<f64>();
        let rank = |share: f64| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]
        };
        (!values.is_empty()).then(|| match self {
            Fold::Least => values.iter().copied().fold(f64::MAX, f64::min),
            Fold::Mean => sum / values.len() as f64,
            Fold::Most => values.iter().copied().fold(f64::MIN, f64::max),
            Fold::Sum => sum,
            Fold::Last => values[values.len() - 1],
            Fold::Count => values.len() as f64,
            Fold::Median => rank(0.5),
            Fold::Of100 => rank(0.99),
        })
    }

    /// One of those that there are of what programs say.
    fn of_summary(self, summary: &Summary) -> f64 {
        match self {
            Fold::Least => summary.least,
            Fold::Most => summary.most,
            Fold::Sum => summary.mean * summary.count as f64,
            _ => summary.mean,
        }
    }
}

/// A metric at a point: what is made of all seeds, and the least and the most of a seed.
#[derive(Clone, Copy, Debug)]
struct Value {
    value: f64,
    least: f64,
    most: f64,
}

/// What the metrics are after all runs of a figure.
struct Results<'a> {
    figure: &'a FigureFile,
    quick: bool,
    seeds: u64,
    series: Vec<&'a Case>,
    points: Vec<&'a Case>,
    /// By series, point, and metric.
    values: Vec<Vec<Vec<Option<Value>>>>,
    /// By series, what is drawn over time.
    lines: Vec<Vec<(f64, Option<f64>)>>,
    end_ms: f64,
}

/// The runs that it takes: by series, point of the axis, and seed.
pub(super) fn runs(figure: &'static FigureFile, quick: bool) -> Vec<Planned> {
    let results = Results::before(figure, quick);
    let mut runs = Vec::new();
    for series in &results.series {
        for point in &results.points {
            for seed in results.seeds_at(series, point) {
                let mut sets = results.sets(series, point);
                sets.push(format!("seed={seed}"));
                runs.push(Planned::new(&figure.scenario, sets));
            }
        }
    }
    runs
}

/// `None` if somebody has seen enough.
pub(super) fn make(figure: &'static FigureFile, lab: &mut Lab<'_>) -> Option<Drawn> {
    let quick = lab.is_quick();
    let runs = runs(figure, quick);
    lab.plan(runs.len());
    let mut runs = runs.into_iter();
    let mut results = Results::before(figure, quick);
    let mut complaints = Vec::new();
    for series in results.series.clone() {
        let mut of_series = Vec::new();
        for point in results.points.clone() {
            let mut of_seeds = vec![Vec::new(); figure.metrics.len()];
            for planned in runs.by_ref().take(results.seeds_at(series, point).count()) {
                let scenario = planned.scenario();
                let end = scenario.settings.end.as_micros();
                let samples = figure.samples.map(|samples| samples[usize::from(quick)]);
                let every = samples.map_or(Ps::NEVER, |samples| Ps::from_micros(end as u64 / samples));
                let run = lab.sampled(&scenario, every)?;
                if !series.may_fail && !point.may_fail {
                    let whose = if series.label.is_empty() { &point.label } else { &series.label };
                    complaints.extend(run.complaints.iter().map(|complaint| format!("{whose}: {complaint}")));
                }
                let look = Look { scenario: &scenario, run: &run, workload: None, part: Part::All, every };
                for (values, metric) in of_seeds.iter_mut().zip(&figure.metrics) {
                    values.extend(measured(metric, &look));
                }
                if figure.x.time {
                    results.lines.push(over_time(&figure.metrics[figure.drawn[0]], &look));
                    results.end_ms = end / 1e3;
                }
            }
            let metrics = figure.metrics.iter().zip(&of_seeds);
            of_series.push(metrics.map(|(metric, values)| made(metric, values, point.at)).collect());
        }
        results.values.push(of_series);
    }
    let findings = results.findings();
    let caption = results.words(&figure.caption, 0, results.points.len() - 1);
    let caption = caption.unwrap_or_else(|| panic!("{}: the caption says what there is", figure.name));
    Some(Drawn { chart: results.chart(), caption, findings, complaints })
}

/// What a run says; nothing if its program has not come to its end.
fn measured(metric: &Metric, look: &Look<'_>) -> Option<f64> {
    let said = look.scenario.traffic.jobs.first().map(|job| job.figures(&look.run.marks));
    let value = match &metric.of {
        _ if said.as_ref().is_some_and(Vec::is_empty) => None,
        Of::Run(..) => metric.take.of(&values(metric, metric.part, look)),
        Of::Program(what) => {
            let said = said.unwrap_or_default();
            let found = said.iter().find(|figure| figure.what == what);
            let names = said.iter().map(|figure| figure.what);
            let found = found.unwrap_or_else(|| {
                let names = names.collect::<Vec<_>>().join(", ");
                panic!("nothing that is measured is called {what}; of programs there is: {names}")
            });
            Some(metric.take.of_summary(&found.values))
        }
    };
    let gbps = look.scenario.topology.fastest_host().0 as f64 / 1e9;
    value.map(|value| metric.percent_of_link_by.map_or(value, |by| 100.0 * (value / (gbps / by))))
}

/// All that is measured in a part of a run, besides what its program says.
fn values(metric: &Metric, part: Part, look: &Look<'_>) -> Vec<f64> {
    let Of::Run(measured, workload) = &metric.of else { return Vec::new() };
    let at = |name: &String| look.scenario.traffic.workloads.iter().position(|other| other == name);
    let workload =
        workload.as_ref().map(|name| at(name).unwrap_or_else(|| panic!("there is no workload {name}")));
    (measured.values)(&Look { workload, part, ..*look })
}

/// The line of a run.
fn over_time(metric: &Metric, look: &Look<'_>) -> Vec<(f64, Option<f64>)> {
    let values = values(metric, Part::All, look).into_iter();
    values.enumerate().map(|(n, value)| (look.ms(n), Some(value))).collect()
}

/// The metric of what the runs of all seeds said.
fn made(metric: &Metric, of_seeds: &[f64], at: f64) -> Option<Value> {
    let whole = metric.percent_of.unwrap_or(1.0) * if metric.by_x { at } else { 1.0 };
    let scaled = |value: f64| if metric.percent_of.is_some() { 100.0 * value / whole } else { value / whole };
    let of = |fold: Fold| fold.of(of_seeds).map(scaled);
    Some(Value { value: of(metric.over_seeds)?, least: of(Fold::Least)?, most: of(Fold::Most)? })
}

impl<'a> Results<'a> {
    /// When nothing has been run.
    fn before(figure: &'a FigureFile, quick: bool) -> Results<'a> {
        let seeds = figure.seeds[usize::from(quick)];
        let (series, points) = (Case::all(&figure.series, quick), Case::all(&figure.x.points, quick));
        let (values, lines) = (Vec::new(), Vec::new());
        Results { figure, quick, seeds, series, points, values, lines, end_ms: 0.0 }
    }

    /// Seeds of the runs of a series at a point.
    fn seeds_at(&self, series: &Case, point: &Case) -> RangeInclusive<u64> {
        1..=if series.is_run_at(point) { self.seeds } else { 0 }
    }

    /// Overrides of a run: the figure's, then those of its series and of its point.
    fn sets(&self, series: &Case, point: &Case) -> Vec<String> {
        [&self.figure.sets, &series.sets, &point.sets]
            .into_iter()
            .flat_map(|sets| sets.of(self.quick))
            .collect()
    }

    /// Where the vertical axis begins and ends.
    fn ends(&self) -> [f64; 2] {
        let drawn = self.series.iter().zip(&self.values).filter(|(series, _)| series.drawn);
        let metrics =
            drawn.flat_map(|(_, of)| of.iter().flat_map(|of| self.figure.drawn.iter().map(|&n| of[n])));
        let all: Vec<Value> = metrics.flatten().collect();
        let least = all.iter().map(|value| value.least).fold(f64::MAX, f64::min);
        let most = all.iter().map(|value| value.most).fold(0.0, f64::max);
        [(self.figure.y.least, least), (self.figure.y.most, most)].map(|(end, of)| match end {
            End::At(at) => at,
            End::Times(times) => of * times,
            End::Below(by) => (of - by).floor(),
        })
    }

    fn chart(&self) -> Chart {
        let FigureFile { x, y, drawn, names, .. } = self.figure;
        let scaled = |axis: Axis, logarithmic| if logarithmic { axis.logarithmic() } else { axis };
        let [least, most] = self.ends();
        let vertical = scaled(Axis::new(&y.title, least, most), y.logarithmic);
        let labels: Vec<String> = self.points.iter().map(|point| point.label.clone()).collect();
        let horizontal = match (self.figure.bars, names) {
            (Some(Bars::Networks), Some(names)) => Axis::of_names(&x.title, names.clone()),
            (Some(_), _) => Axis::of_names(&x.title, labels),
            _ if x.time => Axis::new(&x.title, 0.0, self.end_ms),
            _ => Axis::new(
                &x.title,
                self.points[0].at,
                x.most.unwrap_or(self.points[self.points.len() - 1].at),
            ),
        };
        let mut chart = Chart::new(&self.figure.title, scaled(horizontal, x.logarithmic), vertical);
        let series: Vec<usize> = (0..self.series.len()).filter(|&n| self.series[n].drawn).collect();
        for (place, &n) in series.iter().enumerate() {
            let label = &self.series[n].label;
            let of = |metric: usize| self.values[n].iter().map(move |of| Some(of[metric]?.value));
            match self.figure.bars {
                None if x.time => chart.line(label, self.lines[n].iter().copied()),
                None => chart.line(label, self.points.iter().map(|point| point.at).zip(of(drawn[0]))),
                Some(Bars::Networks) => {
                    let values =
                        self.values[n].iter().flat_map(|of| drawn.iter().map(|&m| Some(of[m]?.value)));
                    chart.grouped_bars(label, (place, series.len()), &values.collect::<Vec<_>>());
                }
                Some(Bars::Metrics) => {
                    for (k, &metric) in drawn.iter().enumerate() {
                        let name = names.as_ref().and_then(|names| self.words(&names[k], n, 0));
                        let (place, all) = (place * drawn.len() + k, series.len() * drawn.len());
                        let values = of(metric).collect::<Vec<_>>();
                        chart.grouped_bars(&name.unwrap_or_default(), (place, all), &values);
                    }
                }
            }
        }
        for (label, at) in &self.figure.levels {
            chart.level(label, *at);
        }
        chart
    }

    /// Those that there are of the same, one after another, are told together.
    fn findings(&self) -> Vec<Finding> {
        let last = self.points.len() - 1;
        let (networks, values) = (0..self.series.len(), 0..=last);
        let mut findings = Vec::new();
        for together in self.figure.findings.chunk_by(|one, next| one.of == next.of) {
            let of: Vec<(usize, usize)> = match together[0].of {
                For::One => vec![(0, last)],
                For::Network => networks.clone().map(|n| (n, last)).collect(),
                For::Value => values.clone().map(|x| (0, x)).collect(),
                For::NetworkAndValue => {
                    networks.clone().flat_map(|n| (0..=last).map(move |x| (n, x))).collect()
                }
                For::ValueAndNetwork => {
                    values.clone().flat_map(|x| networks.clone().map(move |n| (n, x))).collect()
                }
            };
            for (n, x) in of {
                findings.extend(
                    together.iter().enumerate().filter_map(|(k, words)| self.finding(words, k, n, x)),
                );
            }
        }
        findings
    }

    /// Number `k` of the findings that are told together of a series at a point: what was published of these stands with the first.
    /// `None` if it was not run there.
    fn finding(&self, words: &Words, k: usize, series: usize, x: usize) -> Option<Finding> {
        let of_case = self.series[series].published.as_ref().or(self.points[x].published.as_ref());
        let of_first = of_case.filter(|_| k == 0 && words.of != For::One);
        let published = words.published.as_ref().or(of_first).cloned().unwrap_or_default();
        let no_end = |said: String| self.series[series].only.is_none().then_some(said);
        let here = match words.each_x {
            false => self.words(&words.here, series, x).or_else(|| no_end(NO_END.to_string()))?,
            true => {
                let no_end = |x: usize| no_end(format!("{}: {NO_END}", self.points[x].label));
                let at = |x| self.words(&words.here, series, x).or_else(|| no_end(x));
                (0..self.points.len()).filter_map(at).collect::<Vec<_>>().join(", ")
            }
        };
        Some(finding(self.words(&words.what, series, x).unwrap_or_default(), published, here))
    }

    /// A text with what stands in braces put in; `None` if that is of a run that did not end. What stands in brackets is left out
    /// if a number in it is 0.
    fn words(&self, text: &str, series: usize, x: usize) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '[']) {
            let close = if rest[at..].starts_with('{') { '}' } else { ']' };
            let (inner, behind) = rest[at + 1..].split_once(close).unwrap_or((&rest[at + 1..], ""));
            out += &rest[..at];
            let keys = inner.split('{').skip(1).filter_map(|rest| rest.split('}').next());
            if close == '}' {
                out += &self.word(inner, series, x)?;
            } else if !keys.into_iter().any(|key| self.word(key, series, x).as_deref() == Some("0")) {
                out += &self.words(inner, series, x)?;
            }
            rest = behind;
        }
        Some(out + rest)
    }

    /// What stands in braces: `network`, `x`, `seeds`, `y least`, a key of the overrides, or that `in ms`; or a metric, of this
    /// series and point, its `range` over seeds or the `most` of a seed; `at` another point, `of each` series, or `of` one
    /// series `by` that of another or of `the best other`.
    fn word(&self, key: &str, series: usize, x: usize) -> Option<String> {
        let place = |label: &str| self.points.iter().position(|point| point.label == label);
        if let Some((key, x)) = key.split_once(" at ").and_then(|(key, at)| Some((key, place(at)?))) {
            return self.word(key, series, x);
        }
        let sets = self.sets(self.series[series], self.points[x]);
        let set = |key: &str| {
            let value = sets.iter().rev().find_map(|set| set.strip_prefix(key)?.strip_prefix('='));
            value.map(String::from)
        };
        let in_ms = key.strip_suffix(" in ms").and_then(set);
        match key {
            "network" => Some(self.series[series].label.clone()),
            "x" => Some(self.points[x].label.clone()),
            "seeds" => Some(self.seeds.to_string()),
            "y least" => Some(self.ends()[0].to_string()),
            _ if in_ms.is_some() => Some(plain(in_ms?.parse::<f64>().ok()? / 1e3)),
            _ => set(key).or_else(|| self.of_metric(key, series, x)),
        }
    }

    fn of_metric(&self, key: &str, series: usize, x: usize) -> Option<String> {
        let all = &self.series;
        if let Some(metric) = key.strip_suffix(" of each") {
            let one = |(n, series): (usize, &&Case)| {
                let shown = self.of_metric(metric, n, x).unwrap_or_else(|| NO_END.to_string());
                format!("{}: {shown}", series.label)
            };
            return Some(all.iter().enumerate().map(one).collect::<Vec<_>>().join("; "));
        }
        if let Some((metric, networks)) = key.split_once(" of ") {
            let metric = self.metric(metric);
            let (one, other) = networks.split_once(" by ")?;
            let of = |n: usize| Some(self.values[n][x][metric]?.value);
            let named = |label: &str| {
                let at = all.iter().position(|series| series.label == label);
                at.unwrap_or_else(|| panic!("{}: there is no network {label}", self.figure.name))
            };
            let one = named(one);
            let other = match other {
                "the best other" => (0..all.len()).filter(|&n| n != one).filter_map(of).reduce(f64::min),
                label => of(named(label)),
            };
            return Some(plain(of(one)? / other?));
        }
        let (range, most_of) = (key.strip_suffix(" range"), key.strip_suffix(" most"));
        let metric = self.metric(range.or(most_of).unwrap_or(key));
        let Value { value, least, most } = self.values[series][x][metric]?;
        let shown = |value: f64| match &self.figure.metrics[metric] {
            Metric { digits: Some(digits), .. } => format!("{value:.digits$}"),
            Metric { of: Of::Run(measured, ..), .. } if measured.counts => format!("{value:.0}"),
            _ => plain(value),
        };
        Some(match range {
            Some(_) => format!("{} to {}", shown(least), shown(most)),
            None => shown(if most_of.is_some() { most } else { value }),
        })
    }

    fn metric(&self, name: &str) -> usize {
        let at = self.figure.metrics.iter().position(|metric| metric.name == name);
        at.unwrap_or_else(|| panic!("{}: there is no metric {name}", self.figure.name))
    }
}
