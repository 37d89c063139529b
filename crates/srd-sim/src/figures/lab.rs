//! Where figures are made: runs of scenarios, one after the other, with what figures want to know of them.

use crate::apps::Program;
use crate::hosts::AnyHost;
use crate::input::Scenario;
use crate::net::PortId;
use crate::run::{self, Ended, Meter, Offer, Outcome, Simulation, to_end};
use srd_baselines::units::Ps;
use srd_wire::Time;
use std::path::Path;

/// A run that a figure takes, as long as its turn has not come.
pub struct Planned(Box<dyn Fn() -> Scenario>);

impl Planned {
    /// Of the scenario `text` with overrides.
    pub(super) fn new(text: impl Into<String>, sets: Vec<String>) -> Planned {
        let text = text.into();
        Planned::of(move || Lab::scenario(&text, &sets))
    }

    /// Of what is made when its turn comes.
    pub(super) fn of(scenario: impl Fn() -> Scenario + 'static) -> Planned {
        Planned(Box::new(scenario))
    }

    /// What is to be run.
    pub fn scenario(&self) -> Scenario {
        (self.0)()
    }
}

/// See the module.
pub(super) struct Lab<'w> {
    quick: bool,
    runs: usize,
    done: usize,
    watch: &'w mut dyn FnMut(f64) -> bool,
}

/// What became of a flow, in the order of the traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowResult {
    /// Index of its workload.
    pub workload: u16,
    pub started: Option<Ps>,
    /// The sender had every byte acknowledged.
    pub sent: Option<Ps>,
    /// Bytes that had come at the end of the run.
    pub delivered: u64,
}

impl FlowResult {
    /// Its completion time, if it is done.
    pub fn time(&self) -> Option<Ps> {
        Some(self.sent? - self.started?)
    }
}

/// A run that has come to its end.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub outcome: Outcome,
    pub flows: Vec<FlowResult>,
    /// Moments that each rank of the programs noted.
    pub marks: Vec<Vec<Time>>,
    /// Ranks of programs with an end that had not come to it.
    pub unfinished: usize,
    /// Bytes that had come of each flow, at each moment that was asked for.
    pub samples: Vec<Vec<u64>>,
    /// Bytes in the longest queue of the fabric, at the same moments.
    pub queues: Vec<u64>,
    pub offer: Offer,
    /// What did not go as it should, a line each.
    pub complaints: Vec<String>,
}

impl Run {
    /// Completion times of all flows that are done.
    pub fn times(&self) -> Vec<Ps> {
        self.flows.iter().filter_map(FlowResult::time).collect()
    }

    /// Payload that came in the whole run, in Gb/s, of the flows of a workload.
    pub fn goodput_gbps(&self, workload: u16) -> f64 {
        let of_it = self.flows.iter().filter(|flow| flow.workload == workload);
        let bytes: u64 = of_it.map(|flow| flow.delivered).sum();
        bytes as f64 * 8.0 / (self.outcome.sim_us * 1e3)
    }

    /// Gb/s of a flow between samples.
    pub fn rates_gbps(&self, flow: usize, every: Ps) -> Vec<f64> {
        let of_flow = self.samples.iter().map(|sample| sample[flow]);
        let before = std::iter::once(0).chain(of_flow.clone());
        let gbps = |bytes: u64| bytes as f64 * 8.0 / (every.as_micros() * 1e3);
        of_flow.zip(before).map(|(after, before)| gbps(after - before)).collect()
    }
}

impl<'w> Lab<'w> {
    /// `quick`: figures are to be coarser. `watch` is told which share is done; false ends it.
    pub fn new(quick: bool, watch: &'w mut dyn FnMut(f64) -> bool) -> Lab<'w> {
        Lab { quick, runs: 1, done: 0, watch }
    }

    /// Whether figures are to be coarser.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// So many runs will be made.
    pub fn plan(&mut self, runs: usize) {
        self.runs = runs.max(1);
    }

    /// Makes all runs of a figure, and notes what has come of each flow every so often, as of [`Lab::sampled`].
    pub fn all(&mut self, planned: &[Planned], every: Ps) -> Option<Vec<Run>> {
        self.plan(planned.len());
        planned.iter().map(|run| self.sampled(&run.scenario(), every)).collect()
    }

    /// The same of programs over the messaging layer and SRD, as they are.
    pub fn all_over_messages(&mut self, planned: &[Planned]) -> Option<Vec<Ended>> {
        self.plan(planned.len());
        planned.iter().map(|run| self.over_messages(&run.scenario())).collect()
    }

    fn tell(&mut self, part: f64) -> bool {
        (self.watch)(((self.done as f64 + part) / self.runs as f64).min(1.0))
    }

    /// The scenario `text` with overrides.
    pub fn scenario(text: &str, sets: &[String]) -> Scenario {
        match Scenario::parse(text, "scenario", Path::new(""), sets) {
            Ok(scenario) => scenario,
            Err(error) => panic!("a figure's scenario is read by tests: {error}"),
        }
    }

    /// The fabric and transport of `text` with overrides, and programs on it.
    pub fn of_programs(text: &str, sets: &[String], programs: Vec<Program>) -> Scenario {
        match Scenario::of_programs(text, "scenario", sets, programs) {
            Ok(scenario) => scenario,
            Err(error) => panic!("a figure's scenario is read by tests: {error}"),
        }
    }

    /// Runs a scenario to its end, and notes what has come of each flow every so often. `None`: somebody has seen enough.
    pub fn sampled(&mut self, scenario: &Scenario, every: Ps) -> Option<Run> {
        let meter = Meter::start();
        let offer = Offer::of(scenario);
        let mut simulation: Simulation<'_, AnyHost> = run::prepare_hosts(scenario, &offer);
        let (mut samples, mut queues) = (Vec::new(), Vec::new());
        if every == Ps::NEVER {
            if !run::drive(&mut simulation, scenario, &offer, &mut |part| self.tell(part)) {
                return None;
            }
        } else {
            simulation.keep_order();
            while simulation.run(simulation.now + every) {
                samples.push(delivered(&mut simulation));
                queues.push(longest_queue(&simulation));
                let share = simulation.now.as_micros() / scenario.settings.end.as_micros();
                if !self.tell(share) {
                    return None;
                }
            }
        }
        self.done += 1;
        if !self.tell(0.0) {
            return None;
        }
        let delivered = delivered(&mut simulation);
        let flows = scenario.traffic.flows.iter().zip(&simulation.flows).zip(delivered);
        let flows = flows.map(|((flow, state), delivered)| FlowResult {
            workload: flow.workload,
            started: state.started,
            sent: state.sent,
            delivered,
        });
        Some(Run {
            flows: flows.collect(),
            marks: simulation
                .messages()
                .map_or_else(Vec::new, |all| all.ranks().map(|rank| rank.marks().to_vec()).collect()),
            unfinished: simulation
                .messages()
                .map_or(0, |all| all.ranks().filter(|rank| !rank.is_done() && !rank.is_endless()).count()),
            samples,
            queues,
            complaints: run::complaints(&simulation, scenario),
            outcome: Outcome::of(&mut simulation, offer.ideal, &meter),
            offer,
        })
    }

    fn over_messages(&mut self, scenario: &Scenario) -> Option<Ended> {
        let share = self.done as f64 / self.runs as f64;
        let ended = to_end(scenario, &mut || (self.watch)(share))?;
        self.done += 1;
        self.tell(0.0).then_some(ended)
    }
}

fn longest_queue(simulation: &Simulation<'_, AnyHost>) -> u64 {
    let fabric = &simulation.fabric;
    (0..fabric.ports()).map(|port| fabric.waiting(simulation.now, PortId(port))).max().unwrap_or(0)
}

fn delivered(simulation: &mut Simulation<'_, AnyHost>) -> Vec<u64> {
    (0..simulation.flows.len() as u32).map(|flow| simulation.delivered(flow)).collect()
}
