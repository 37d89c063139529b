//! From a scenario to its outcome.

use crate::apps::{Rank, Size};
use crate::hosts::{AnyHost, MsgProcess, Process, Srd};
use crate::input::Scenario;
use crate::run::offer::Offer;
use crate::run::outcome::{Meter, Outcome, deadlocks};
use crate::run::programs;
use crate::run::simulation::Simulation;
use crate::run::threads;
use srd_baselines::input::counted;
use srd_baselines::units::Ps;
use srd_wire::Nanos;
use std::time::{Duration, Instant};

/// A simulation of SRD hosts in the scenario, at its beginning.
pub fn prepare<'a>(scenario: &'a Scenario, offer: &Offer) -> Simulation<'a, Srd> {
    prepare_hosts(scenario, offer)
}

/// The same with hosts of any transport.
pub fn prepare_hosts<'a, T: Process>(scenario: &'a Scenario, offer: &Offer) -> Simulation<'a, T> {
    let line_rate = scenario.topology.fastest_host();
    let base_rtt = Nanos(offer.base_rtt.0.div_ceil(1000));
    Simulation::new(&scenario.settings, &scenario.topology, &scenario.traffic, line_rate, base_rtt)
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    run_watched(scenario, 1, &mut |_| true).expect("nobody stops it").outcome
}

/// What became of a run that somebody watched.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// Its outcome.
    pub outcome: Outcome,
    /// What did not go as the scenario wants it: flows that are not done, or have failed. A line each.
    pub complaints: Vec<String>,
    /// What a person should know although it is as the scenario wants it. A line each.
    pub warnings: Vec<String>,
}

impl Ran {
    /// Of a simulation that has come to its end.
    pub(crate) fn of<T: Process>(
        simulation: &mut Simulation<'_, T>,
        scenario: &Scenario,
        offer: &Offer,
        meter: &Meter,
    ) -> Ran {
        let outcome = Outcome::of(simulation, offer.ideal, meter);
        let complaints = complaints(simulation, scenario);
        Ran { warnings: warnings(&outcome), complaints, outcome }
    }
}

/// What did not go wrong, but is hardly what anybody wants.
fn warnings(outcome: &Outcome) -> Vec<String> {
    let lost = outcome.lossless_drops;
    let warning = format!(
        "{} of lossless classes lost for want of room: when a switch pauses a port, more is under way from there than \
         its headroom holds. Raise `pfc_headroom` of [queues], or leave it out: then it is what the cable takes",
        counted(lost, "packet")
    );
    (lost > 0).then_some(warning).into_iter().collect()
}

/// Runs a scenario to its end and tells `watch` every now and then which share of the work is done. `None` if `watch`
/// returned false: the run was given up. Who watches, and when, makes no difference to the outcome, nor do `threads`: as many as are of
/// use run it, up to that.
pub fn run_watched(scenario: &Scenario, threads: usize, watch: &mut dyn FnMut(f64) -> bool) -> Option<Ran> {
    if scenario.settings.over_srd_messaging {
        return run_hosts::<MsgProcess>(scenario, threads, watch);
    }
    match is_plain(scenario) {
        true => run_hosts::<Srd>(scenario, threads, watch),
        false => run_hosts::<AnyHost>(scenario, threads, watch),
    }
}

/// Whether all hosts speak the same SRD, and run no programs.
pub(crate) fn is_plain(scenario: &Scenario) -> bool {
    scenario.settings.is_plain_srd() && scenario.traffic.programs.is_empty()
}

fn run_hosts<T>(scenario: &Scenario, most: usize, watch: &mut dyn FnMut(f64) -> bool) -> Option<Ran>
where
    T: Process + Send,
    T::Content: Send,
{
    let mut meter = Meter::start();
    let offer = Offer::of(scenario);
    let mut simulation: Simulation<'_, T> = prepare_hosts(scenario, &offer);
    let work = Work::of(scenario, &offer);
    let done = match threads::useful(&simulation, &offer, work.packets, most) {
        1 => drive_on(&mut simulation, &work, watch),
        threads => {
            let mut told = Instant::now();
            let mut goes_on = |part: &Simulation<'_, T>| {
                if told.elapsed() < WATCH_EVERY {
                    return true;
                }
                told = Instant::now();
                // The others are about as far.
                watch((work.done(part) * f64::from(threads)).min(1.0))
            };
            threads::run(&mut simulation, scenario, &offer, threads, &mut meter, &mut goes_on)
        }
    };
    done.then(|| Ran::of(&mut simulation, scenario, &offer, &meter))
}

/// Ranks that are asked how far they are: it takes a look at their whole scripts.
const MOST_RANKS: usize = 16;
/// How often the watcher is told, about.
const WATCH_EVERY: Duration = Duration::from_millis(30);

/// Runs to the end in spans that take about [`WATCH_EVERY`]. Returns whether it came there.
pub fn drive<T: Process>(
    simulation: &mut Simulation<'_, T>,
    scenario: &Scenario,
    offer: &Offer,
    watch: &mut dyn FnMut(f64) -> bool,
) -> bool {
    drive_on(simulation, &Work::of(scenario, offer), watch)
}

fn drive_on<T: Process>(
    simulation: &mut Simulation<'_, T>,
    work: &Work,
    watch: &mut dyn FnMut(f64) -> bool,
) -> bool {
    let mut span = Ps::from_micros(10);
    loop {
        let began = Instant::now();
        if !simulation.run(simulation.now + span) {
            watch(1.0);
            return true;
        }
        if !watch(work.done(simulation)) {
            return false;
        }
        let took = began.elapsed();
        if took < WATCH_EVERY / 2 {
            span = Ps(span.0.saturating_mul(2));
        } else if took > WATCH_EVERY * 2 {
            span = Ps((span.0 / 2).max(1));
        }
    }
}

/// What a run has to do, to say how much of it is done.
struct Work {
    packets: u64,
    endless_until: Ps,
}

impl Work {
    fn of(scenario: &Scenario, offer: &Offer) -> Work {
        let mut work = Work { packets: 0, endless_until: Ps::ZERO };
        for flow in &scenario.traffic.flows {
            match flow.size {
                Size::Bytes(bytes) => work.packets += bytes.div_ceil(offer.cost.payload),
                Size::Until(until) => work.endless_until = work.endless_until.max(until),
            }
        }
        work
    }

    fn done<T: Process>(&self, simulation: &Simulation<'_, T>) -> f64 {
        let share =
            |part: u64, whole: u64| if whole > 0 { (part as f64 / whole as f64).min(1.0) } else { 1.0 };
        let sent = simulation.counts();
        // Where endless flows run beside others, nobody can tell whose packets were counted.
        let of_flows = match self.endless_until {
            Ps::ZERO => share(sent.data_new, self.packets),
            until => share(simulation.now.0, until.0),
        };
        of_flows.min(of_programs(simulation))
    }
}

/// Which share of their scripts some of the ranks have done, on average.
fn of_programs<T: Process>(simulation: &Simulation<'_, T>) -> f64 {
    let mean = |ranks: &mut dyn Iterator<Item = &Rank>| {
        let done: Vec<f64> = ranks.filter_map(Rank::done).collect();
        (!done.is_empty()).then(|| done.iter().sum::<f64>() / done.len() as f64)
    };
    let stride = simulation.traffic().programs.len().div_ceil(MOST_RANKS).max(1);
    let of_layer = mean(&mut simulation.transports().filter_map(T::rank).step_by(stride));
    let of_flows = || mean(&mut simulation.messages()?.ranks().step_by(stride));
    of_layer.or_else(of_flows).unwrap_or(1.0)
}

/// Flows that are not done, and other things that a person must be told.
pub(crate) fn complaints<T: Process>(simulation: &Simulation<'_, T>, scenario: &Scenario) -> Vec<String> {
    let flows = || simulation.flows.iter().zip(&scenario.traffic.flows);
    let count = |n: usize| format!("{n} of {}", counted(simulation.flows.len() as u64, "flow"));
    let finite = flows().filter(|(_, flow)| matches!(flow.size, Size::Bytes(_)));
    let open: Vec<_> = finite.filter(|(state, _)| state.sent.is_none() && state.failed.is_none()).collect();
    let mut complaints = Vec::new();
    for deadlock in deadlocks(simulation) {
        complaints.push(format!(
            "deadlock: since {} us these ports wait for each other to send class {}: {}. Routes without circles, `pfc_watchdog_us` \
             or more memory (`pfc_xoff`) help",
            deadlock.at_us,
            deadlock.class,
            deadlock.ports.join(", ")
        ));
    }
    if !open.is_empty() {
        let waiting = open.iter().filter(|(state, _)| state.started.is_none()).count();
        let waiting = if waiting > 0 { format!(" ({waiting} of them never began)") } else { String::new() };
        complaints.push(format!(
            "{} unfinished when the run ends at {} us{waiting}: a larger `end_us` gives them more time",
            count(open.len()),
            simulation.now.as_micros()
        ));
    }
    let mut failed = flows().filter_map(|(state, flow)| Some((state.failed?, flow)));
    let failures = failed.clone().count();
    if let Some((why, flow)) = failed.next() {
        complaints.push(format!(
            "{} failed; the first is flow {}, h{} to h{}: {why}",
            count(failures),
            flow.id,
            flow.src.host,
            flow.dst.host
        ));
    }
    if let Some(programs) = simulation.programs() {
        complaints.extend(programs.complaints(simulation.now));
    }
    complaints.extend(programs::complaints(simulation));
    complaints.extend(simulation.mistake.clone());
    complaints
}
