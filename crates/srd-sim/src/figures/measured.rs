//! What a figure's file may have measured in a run besides what the run's program says.

use super::lab::Run;
use crate::input::Scenario;
use srd_baselines::units::Ps;
use std::collections::BTreeMap;

/// A run as it is looked at.
pub(super) struct Look<'a> {
    pub scenario: &'a Scenario,
    pub run: &'a Run,
    /// Index of a workload; `None`: all of them.
    pub workload: Option<usize>,
    pub part: Part,
    /// Between samples.
    pub every: Ps,
}

/// Part of the samples of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    All,
    Third,
    Quarter,
    Rest,
}

pub(super) const PARTS: [(&str, Part); 3] = [
    ("the last third", Part::Third),
    ("the first quarter", Part::Quarter),
    ("all but the first quarter", Part::Rest),
];

impl Part {
    fn of<T>(self, samples: &[T]) -> &[T] {
        let quarter = samples.len() / 4;
        match self {
            Part::All => samples,
            Part::Third => &samples[samples.len() - samples.len().div_ceil(3)..],
            Part::Quarter => &samples[..quarter],
            Part::Rest => &samples[quarter..],
        }
    }
}

/// A kind of measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub what: &'static str,
    /// Its values: one, or one for each flow, sender or sample.
    pub values: fn(&Look<'_>) -> Vec<f64>,
    /// They are counts.
    pub counts: bool,
}

const fn number(what: &'static str, values: fn(&Look<'_>) -> Vec<f64>) -> Measured {
    Measured { what, values, counts: false }
}

const fn count(what: &'static str, values: fn(&Look<'_>) -> Vec<f64>) -> Measured {
    Measured { what, values, counts: true }
}

/// All kinds. Payload is in Gb/s, which is percent of a link of 100 Gb/s.
pub(super) const ALL: &[Measured] = &[
    count("packets dropped", |look| vec![look.run.outcome.packets_dropped as f64]),
    count("packets sent again", |look| vec![look.run.outcome.packets_rtx as f64]),
    count("packets cut", |look| vec![look.run.outcome.packets_trimmed as f64]),
    count("pause frames", |look| vec![look.run.outcome.pause_frames as f64]),
    number("% of packets dropped", |look| {
        vec![100.0 * look.run.outcome.packets_dropped as f64 / look.run.outcome.packets_new as f64]
    }),
    number("% of packets sent again for nothing", |look| {
        vec![100.0 * look.run.outcome.packets_spurious as f64 / look.run.outcome.packets_new as f64]
    }),
    number("time of a flow", |look| {
        look.flows().filter_map(|flow| Some(look.run.flows[flow].time()?.as_micros())).collect()
    }),
    number("payload", |look| vec![look.payload(look.workload.unwrap_or(0))]),
    number("payload of a flow", |look| {
        let rate =
            |flow: usize| look.run.flows[flow].delivered as f64 * 8.0 / (look.run.outcome.sim_us * 1e3);
        look.flows().map(rate).collect()
    }),
    number("payload of a flow without end", |look| {
        let ends = look.run.outcome.workloads[look.workload.unwrap_or(0)].goodput_of_flows_gbps;
        ends.map_or(Vec::new(), |(least, most)| vec![least, most])
    }),
    number("payload by a half of both", |look| {
        vec![look.payload(look.workload.unwrap_or(0)) / (look.payload(0) + look.payload(1)) * 2.0]
    }),
    number("payload over time", |look| look.part.of(&look.rates(|_| 0)[0]).to_vec()),
    number("payload of all senders over time", |look| look.part.of(&look.total()).to_vec()),
    number("payload of a sender", |look| look.of_senders()),
    number("fair share of a sender", |look| vec![100.0 / look.by_sender().len() as f64]),
    number("time to 9/10 of the late payload (ms)", |look| {
        let goal = 0.9 * Look { part: Part::Third, ..*look }.of_senders().iter().sum::<f64>();
        let below = look.total().iter().rposition(|&rate| rate < goal);
        vec![below.map_or(0.0, |last| look.ms(last))]
    }),
    number("longest queue over time (KB)", |look| {
        look.part.of(&look.run.queues).iter().map(|&bytes| bytes as f64 / 1e3).collect()
    }),
];

impl Look<'_> {
    /// When a sample is taken, in milliseconds.
    pub fn ms(&self, sample: usize) -> f64 {
        (sample + 1) as f64 * self.every.as_micros() / 1e3
    }

    fn flows(&self) -> impl Iterator<Item = usize> {
        let of_it =
            |flow: &usize| self.workload.is_none_or(|n| usize::from(self.run.flows[*flow].workload) == n);
        (0..self.run.flows.len()).filter(of_it)
    }

    fn payload(&self, workload: usize) -> f64 {
        self.run.outcome.workloads[workload].goodput_gbps
    }

    /// Rates between samples, of flows of the same group together.
    fn rates(&self, group: impl Fn(usize) -> u32) -> Vec<Vec<f64>> {
        let mut of: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for flow in self.flows() {
            let rates = self.run.rates_gbps(flow, self.every);
            let sum = of.entry(group(flow)).or_insert_with(|| vec![0.0; rates.len()]);
            sum.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        }
        of.into_values().collect()
    }

    fn by_sender(&self) -> Vec<Vec<f64>> {
        self.rates(|flow| self.scenario.traffic.flows[flow].src.host)
    }

    fn total(&self) -> Vec<f64> {
        let of = self.by_sender();
        let at = |n: usize| of.iter().map(|rates| rates[n]).sum();
        (0..self.run.samples.len()).map(at).collect()
    }

    /// Each sender's mean.
    fn of_senders(&self) -> Vec<f64> {
        let mean = |rates: &Vec<f64>| {
            let rates = self.part.of(rates);
            rates.iter().sum::<f64>() / rates.len().max(1) as f64
        };
        self.by_sender().iter().map(mean).collect()
    }
}
