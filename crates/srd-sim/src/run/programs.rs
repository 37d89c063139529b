//! Programs in a simulated fabric: from scripts and where each runs to the times that they noted.

use crate::apps::{Place, Program, Script};
use crate::hosts::{MsgProcess, Process};
use crate::input::Scenario;
use crate::run::drive::prepare_hosts;
use crate::run::offer::Offer;
use crate::run::simulation::Simulation;
use srd_baselines::units::Ps;
use srd_wire::Time;
use std::time::{Duration, Instant};

/// Programs that have come to their end, or did not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The times that each rank noted.
    pub marks: Vec<Vec<Time>>,
    /// What the messaging layer of each has counted.
    pub messages: Vec<srd_msg::Counters>,
    /// When the last one ended.
    pub at: Ps,
    /// Events of the run.
    pub events: u64,
    /// What did not go as it should, a line each.
    pub complaints: Vec<String>,
}

impl Ended {
    /// From the first mark of a rank to its last; `None` if it has noted nothing.
    pub fn span_of(&self, rank: usize) -> Option<Ps> {
        let marks = &self.marks[rank];
        Some(Ps::of(*marks.last()?).since(Ps::of(*marks.first()?)))
    }

    /// From the earliest first mark to the latest last one; `None` if a rank has noted nothing.
    pub fn span(&self) -> Option<Ps> {
        let first = self.marks.iter().map(|marks| marks.first().copied()).min()??;
        let last = self.marks.iter().map(|marks| marks.last().copied()).max()??;
        Some(Ps::of(last).since(Ps::of(first)))
    }
}

/// Programs of scripts, by rank: on each host `per_host` of them, one host behind the other.
pub fn place(scripts: impl IntoIterator<Item = Script>, per_host: u32) -> Vec<Program> {
    let at = |rank: u32| Place { host: rank / per_host, process: (rank % per_host) as u16 };
    (0..)
        .zip(scripts)
        .map(|(rank, script)| Program { at: at(rank), transport: 0, script, forever: false })
        .collect()
}

/// How often the watcher is asked, in events that take about that long.
const WATCH_EVERY: Duration = Duration::from_millis(30);

/// Runs the programs of a scenario to their end. `None` if `watch` returned false, which is asked now and then.
pub fn to_end(scenario: &Scenario, watch: &mut dyn FnMut() -> bool) -> Option<Ended> {
    let offer = Offer::of(scenario);
    let mut simulation: Simulation<'_, MsgProcess> = prepare_hosts(scenario, &offer);
    let mut span = Ps::from_micros(100);
    loop {
        let began = Instant::now();
        if !simulation.run(simulation.now + span) {
            break;
        }
        if !watch() {
            return None;
        }
        if began.elapsed() < WATCH_EVERY {
            span = Ps(span.0.saturating_mul(2));
        }
    }
    Some(Ended {
        marks: simulation
            .transports()
            .filter_map(MsgProcess::rank)
            .map(|rank| rank.marks().to_vec())
            .collect(),
        messages: simulation.transports().map(|process| *process.messages()).collect(),
        at: simulation.now,
        events: simulation.events(),
        complaints: complaints(&simulation),
    })
}

/// What did not go as it should in processes that run programs by themselves, a line each.
pub fn complaints<T: Process>(simulation: &Simulation<'_, T>) -> Vec<String> {
    let ranks = || simulation.transports().filter_map(T::rank);
    let failed = ranks().enumerate().filter_map(|(number, rank)| {
        let (step, why) = rank.failed()?;
        Some(format!("process {number} fails at {step:?}: {why}"))
    });
    let mut complaints: Vec<String> = failed.take(1).collect();
    let open = ranks().filter(|rank| !rank.is_done() && !rank.is_endless()).count();
    if open > 0 {
        let now = simulation.now.as_micros();
        complaints.push(format!(
            "{open} programs unfinished when the run ends at {now} us: a larger `end_us` gives them more time"
        ));
    }
    complaints
}
