//! What is drawn of a run: completion times, rates, queues, paths.

use super::super::name_index::ends_of;
use super::Page;
use crate::net::PortId;
use srd_baselines::input::counted;
use srd_baselines::units::Ps;
use srd_chart::{Axis, Chart, MAX_LINES, buckets, plain};
use std::collections::BTreeMap;

/// Most points of a line.
const POINTS: usize = 400;
/// Least points of a line of rates, even if that makes them shorter than a round trip.
const LEAST_POINTS: usize = 20;
/// Bars of the histogram of paths.
const BARS: usize = 24;
/// Slowest by fastest flow from which on completion times are drawn by orders of magnitude.
const WIDE_SPREAD: f64 = 20.0;

/// Most queues that are drawn one by one: lines of more hide one another.
const MAX_QUEUES: usize = 3;

const TIMES: &str = "Completion times of flows";
const RATES: &str = "Rates of flows over time";
const TOTAL: &str = "Rate of all flows together over time";
const QUEUES: &str = "Queues over time";
const PATHS: &str = "Use of paths";

/// From so many on it is said what most of them have, not only the longest.
const MANY_QUEUES: usize = 10;

/// A chart and what is to be said about it.
pub(super) struct Figure {
    pub(super) title: &'static str,
    pub(super) chart: String,
    pub(super) caption: String,
}

/// A unit of time and how many microseconds it has.
fn time_unit(longest: Ps) -> (&'static str, f64) {
    match longest.as_micros() {
        us if us >= 2e6 => ("s", 1e6),
        us if us >= 2e3 => ("ms", 1e3),
        _ => ("us", 1.0),
    }
}

/// A unit of bytes.
fn bytes_unit(most: u64) -> (&'static str, f64) {
    match most {
        2_000_000.. => ("MB", 1e6),
        2_000.. => ("KB", 1e3),
        _ => ("bytes", 1.0),
    }
}

impl Page<'_> {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let figures = [self.completion_times(), self.rates(), self.delivered(), self.queues(), self.paths()];
        figures.into_iter().flatten().collect()
    }

    /// The x axis of everything over time.
    fn time_axis(&self) -> (Axis, f64) {
        let (unit, micros) = time_unit(self.simulation.now);
        (Axis::new(format!("time ({unit})"), 0.0, self.simulation.now.as_micros() / micros), micros)
    }

    // ---- completion times ----

    fn completion_times(&self) -> Option<Figure> {
        let mut of_workload: BTreeMap<u16, Vec<Ps>> = BTreeMap::new();
        for (flow, state) in self.scenario.traffic.flows.iter().zip(&self.simulation.flows) {
            if let (Some(started), Some(sent)) = (state.started, state.sent) {
                of_workload.entry(flow.workload).or_default().push(sent - started);
            }
        }
        let fastest = *of_workload.values().flatten().min()?;
        let slowest = *of_workload.values().flatten().max()?;
        let ideal = self.ran.outcome.ideal_us;
        let (unit, micros) = time_unit(slowest);
        let low = fastest.as_micros().min(ideal.unwrap_or(f64::INFINITY)) / micros;
        let high = slowest.as_micros().max(ideal.unwrap_or(0.0)) / micros;
        let title = format!("completion time ({unit})");
        let x = match high / low > WIDE_SPREAD && low > 0.0 {
            true => Axis::new(title, low * 0.9, high * 1.1).logarithmic(),
            false => {
                let room = (high - low).max(high * 0.02) * 0.08;
                Axis::new(title, (low - room).max(0.0), high + room)
            }
        };
        let mut chart = Chart::new(TIMES, x, Axis::new("share of flows", 0.0, 1.0));
        let lines = of_workload.len();
        if lines <= MAX_LINES {
            for (workload, times) in of_workload {
                let name = match lines {
                    1 => "flows",
                    _ => &self.scenario.traffic.workloads[workload as usize],
                };
                chart.line(name, distribution(times, micros));
            }
        } else {
            chart.line("flows", distribution(of_workload.into_values().flatten().collect(), micros));
        }
        if let Some(ideal) = ideal {
            chart.upright("ideal", ideal / micros);
        }
        let ideal =
            if ideal.is_some() { " Dashed: the best that is possible for all of them together." } else { "" };
        let caption = format!(
            "Which share of flows was done within which time, from a flow's start to its last acknowledgement.{ideal}"
        );
        Some(Figure { title: TIMES, chart: chart.html(), caption })
    }

    // ---- rates ----

    fn rates(&self) -> Option<Figure> {
        let series = &self.series.rates;
        let points = self.rate_points();
        let averaged = self.plan.step.as_micros().max(self.simulation.now.as_micros() / points as f64);
        let averaged = format!("on average over {} us", plain(averaged));
        let (x, micros) = self.time_axis();
        let chart = |highest: f64| {
            let y = Axis::new("rate of a flow (Gb/s)", 0.0, highest * 1.05);
            (highest > 0.0).then(|| Chart::new(RATES, x, y))
        };
        if series.len() <= MAX_LINES {
            let value = |values: &[Option<f32>]| mean(values.iter().copied().flatten());
            let line =
                |rates: &'_ Vec<Option<f32>>| self.points(points, rates, micros, value).collect::<Vec<_>>();
            let lines: Vec<_> = series.iter().map(line).collect();
            let mut chart = chart(lines.iter().flatten().filter_map(|&(_, rate)| rate).fold(0.0, f64::max))?;
            for (&flow, line) in self.plan.flows.iter().zip(lines) {
                chart.line(&self.flow_name(flow), line);
            }
            let caption = format!("Payload delivered by each flow, {averaged}.");
            return Some(Figure { title: RATES, chart: chart.html(), caption });
        }
        let quantiles = self.quantiles(series, micros);
        let mut chart = chart(quantiles.iter().filter_map(|(_, q)| Some((*q)?[4])).fold(0.0, f64::max))?;
        let between = |low: usize, high: usize| -> Vec<_> {
            quantiles.iter().map(|&(x, q)| (x, q.map(|q| (q[low], q[high])))).collect()
        };
        chart.band("slowest to fastest", 0.15, &between(0, 4));
        chart.band("middle half", 0.3, &between(1, 3));
        chart.line("median", quantiles.iter().map(|&(x, q)| (x, q.map(|q| q[2]))));
        let all = self.scenario.traffic.flows.len();
        let which =
            if series.len() < all { format!("{} of {all}", series.len()) } else { format!("all {all}") };
        let caption =
            format!("Payload delivered by flows that were on their way ({which} flows sampled), {averaged}.");
        Some(Figure { title: RATES, chart: chart.html(), caption })
    }

    /// Points of a line of rates: what is shorter than a round trip is a matter of single packets.
    fn rate_points(&self) -> usize {
        let round_trips = self.simulation.now.0 / self.offer.base_rtt.0.max(1);
        (round_trips as usize).clamp(LEAST_POINTS, POINTS)
    }

    fn flow_name(&self, flow: u32) -> String {
        let Some(of) = self.scenario.traffic.flows.get(flow as usize) else { return String::new() };
        format!("flow {}: h{} to h{}", self.names.id(flow), of.src.host, of.dst.host)
    }

    /// Least, quarter, median, three quarters and most of all flows' rates at each point.
    fn quantiles(&self, series: &[Vec<Option<f32>>], micros: f64) -> Vec<(f64, Option<[f64; 5]>)> {
        let samples = self.series.times.len();
        buckets(samples, self.rate_points())
            .map(|(from, to)| {
                let mut rates: Vec<f64> = series
                    .iter()
                    .filter_map(|rates| mean(rates[from..to].iter().copied().flatten()))
                    .collect();
                rates.sort_by(f64::total_cmp);
                let at = |share: f64| rates[((rates.len() - 1) as f64 * share).round() as usize];
                let quantiles = (!rates.is_empty()).then(|| [0.0, 0.25, 0.5, 0.75, 1.0].map(at));
                (self.series.times[to - 1].as_micros() / micros, quantiles)
            })
            .collect()
    }

    fn delivered(&self) -> Option<Figure> {
        if self.scenario.traffic.flows.len() < 2 {
            return None;
        }
        let (x, micros) = self.time_axis();
        let value = |values: &[f64]| mean(values.iter().map(|&value| value as f32));
        let points: Vec<_> = self.points(self.rate_points(), &self.series.delivered, micros, value).collect();
        let highest = points.iter().filter_map(|&(_, rate)| rate).fold(0.0, f64::max);
        let y = Axis::new("all flows together (Gb/s)", 0.0, highest * 1.05);
        let mut chart = Chart::new(TOTAL, x, y);
        chart.line("delivered", points);
        let caption = "Payload delivered by all flows together. What headers take is not in it.".to_string();
        (highest > 0.0).then(|| Figure { title: TOTAL, chart: chart.html(), caption })
    }

    /// A line through samples, of which several make a point where there are many.
    fn points<'s, T>(
        &'s self,
        most: usize,
        samples: &'s [T],
        micros: f64,
        value: impl Fn(&[T]) -> Option<f64> + 's,
    ) -> impl Iterator<Item = (f64, Option<f64>)> + 's {
        buckets(samples.len(), most).map(move |(from, to)| {
            (self.series.times[to - 1].as_micros() / micros, value(&samples[from..to]))
        })
    }

    // ---- queues ----

    fn queues(&self) -> Option<Figure> {
        let (ports, series) = (&self.plan.ports, &self.series.queues);
        let most = series.iter().flatten().copied().max().filter(|&most| most > 0)?;
        let (x, micros) = self.time_axis();
        let (unit, bytes) = bytes_unit(most);
        let capacity = self.capacity(*ports.first()?);
        let y = Axis::new(format!("waiting ({unit})"), 0.0, most as f64 * 1.08 / bytes);
        let mut chart = Chart::new(QUEUES, x, y);
        // Ports whose queue comes to half of the longest, if they are few; of others what is typical, and the extremes.
        let counters = |&port: &PortId| self.simulation.fabric.counters(port);
        let longest = counters(&ports[0]).most_waiting;
        let long = ports.iter().filter(|port| counters(port).most_waiting * 2 >= longest).count();
        let alone = if long <= MAX_QUEUES { long } else { 0 };
        for (&port, waiting) in ports.iter().zip(series).take(alone) {
            let points = self.points(POINTS, waiting, micros, |values| {
                values.iter().max().map(|&most| most as f64 / bytes)
            });
            chart.line(&self.names.port_name(port), points);
        }
        let rest = &series[alone..];
        if !rest.is_empty() {
            let name = if alone > 0 { "longest of the others" } else { "longest of all" };
            let of = |rank: fn(&mut [u64]) -> u64| self.over_ports(rest, micros, bytes, rank);
            chart.line(name, of(|values| values.iter().copied().max().unwrap_or(0)));
            if rest.len() >= MANY_QUEUES {
                chart.line("a tenth is longer", of(nine_tenths));
            }
        }
        if capacity <= most as f64 * 1.08 {
            chart.level("capacity", capacity / bytes);
        }
        let which = match (alone, rest.len()) {
            (_, 0) => String::new(),
            (0, all) if all < MANY_QUEUES => format!(" The longest of {all} queues at each moment."),
            (0, all) => {
                format!(" The longest of {all} queues at each moment, and which a tenth of them exceeds.")
            }
            (_, others) => format!(" The longest by name; {} together.", counted(others as u64, "other")),
        };
        let caption = format!(
            "Bytes that wait at ports of switches, the frame that is leaving included.{which} The longest queue of all, at \
             {}, held {} {unit} for a moment, of {} that fit; samples may miss such moments.",
            self.names.port_name(ports[0]),
            plain(longest as f64 / bytes),
            plain(capacity / bytes)
        );
        Some(Figure { title: QUEUES, chart: chart.html(), caption })
    }

    /// One value of many queues at each point, each at its longest there.
    fn over_ports(
        &self,
        series: &[Vec<u64>],
        micros: f64,
        bytes: f64,
        rank: fn(&mut [u64]) -> u64,
    ) -> Vec<(f64, Option<f64>)> {
        let point = |(from, to): (usize, usize)| {
            let longest = |waiting: &Vec<u64>| waiting[from..to].iter().copied().max();
            let mut values: Vec<u64> = series.iter().filter_map(longest).collect();
            (self.series.times[to - 1].as_micros() / micros, Some(rank(&mut values) as f64 / bytes))
        };
        buckets(self.series.times.len(), POINTS).map(point).collect()
    }

    /// What a port may hold, in bytes.
    fn capacity(&self, port: PortId) -> f64 {
        let topology = &self.scenario.topology;
        let cable = &topology.cables[port.cable() as usize];
        let at_a = ends_of(topology, port).0 == cable.a;
        let own = cable.queue_bytes[if at_a { 0 } else { 1 }];
        own.unwrap_or(self.scenario.settings.queues.capacity) as f64
    }

    // ---- paths ----

    fn paths(&self) -> Option<Figure> {
        let shares = &self.series.path_shares;
        if shares.len() as u64 <= self.series.connections {
            return None; // one path each: nothing was chosen
        }
        let most = shares.iter().copied().fold(0.0, f32::max) as f64;
        let width = most * 1.0001 / BARS as f64;
        let mut bars = [0u64; BARS];
        for &share in shares {
            bars[((share as f64 / width) as usize).min(BARS - 1)] += 1;
        }
        let highest = bars.iter().copied().max()?;
        let percent = |count: u64| 100.0 * count as f64 / shares.len() as f64;
        let x = Axis::new("bytes on a path, by an equal share", 0.0, width * BARS as f64);
        let y = Axis::new("paths (%)", 0.0, percent(highest) * 1.05);
        let mut chart = Chart::new(PATHS, x, y);
        chart.bars(bars.iter().enumerate().map(|(n, &count)| {
            let (from, to) = (n as f64 * width, (n + 1) as f64 * width);
            let label = format!("{} to {}: {}", plain(from), plain(to), counted(count, "path"));
            (from, to, percent(count), label)
        }));
        if most > 1.0 {
            chart.upright("an equal share", 1.0);
        }
        let unused = match self.series.paths_unused {
            0 => "all in use at the end".to_string(),
            n => format!("{n} not in use at the end"),
        };
        let idle = shares.iter().filter(|&&share| share == 0.0).count();
        let caption = format!(
            "How evenly connections used their paths: 1 is what each path would carry if all carried the same. {} of {}, \
             {unused}; {idle} of them carried nothing.",
            counted(shares.len() as u64, "path"),
            counted(self.series.connections, "connection")
        );
        Some(Figure { title: PATHS, chart: chart.html(), caption })
    }
}

/// The value that a tenth of all exceed.
fn nine_tenths(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) * 9 / 10).copied().unwrap_or(0)
}

fn mean(values: impl Iterator<Item = f32>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value as f64, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// Which share is done within which time, in units of `micros` microseconds: a staircase from 0 to 1.
pub(crate) fn distribution(times: Vec<Ps>, micros: f64) -> Vec<(f64, Option<f64>)> {
    srd_chart::distribution(times.into_iter().map(|time| time.as_micros() / micros).collect())
}
