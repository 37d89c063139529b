//! Sweeps: one scenario after another, with one thing changed at a time or everything with everything, for several seeds.
//! docs/SCENARIOS.md, "Sweeps", is the reference of their files.
//!
//! `file` reads them, `batch` runs many things at once, `table` shows what came of it, `csv` hands it on, `seeds` knows
//! how ranges of seeds are written. `shard` is a part of the runs, `results` a directory in which each run leaves a file,
//! `kept` what is in it.

pub mod batch;
pub mod csv;
mod file;
mod kept;
mod results;
mod seeds;
mod shard;
mod table;

pub use file::KEYS;
pub use kept::Kept;
pub use results::{Found, Key, Results};
pub use seeds::Seeds;
pub use shard::Shard;

use crate::input::Scenario;
use crate::run::{Outcome, Ran};
use serde::{Deserialize, Serialize};
use srd_baselines::input::InputError;
use std::path::PathBuf;

/// A sweep, complete.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Its name.
    pub name: String,
    /// What it is for, in a paragraph.
    pub text: String,
    /// Scenarios that it begins with.
    pub cases: Vec<Case>,
    /// What is changed.
    pub axes: Vec<Axis>,
    /// How axes go together.
    pub combine: Combine,
}

/// How axes go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// One is changed, all others stay as the scenario has them.
    Each,
    /// Every value of one with every value of the others.
    All,
}

/// A scenario of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// Its name in tables.
    pub name: String,
    /// Its file.
    pub scenario: PathBuf,
    /// Overrides that always apply.
    pub sets: Vec<String>,
    /// Its seeds.
    pub seeds: Seeds,
    /// What tables show of it.
    pub show: Vec<Figure>,
}

/// Something that is changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Its name in tables.
    pub name: String,
    /// What it is, in a sentence or two.
    pub text: String,
    /// What it is changed to.
    pub values: Vec<Value>,
    /// The cases, by index, that it concerns.
    pub cases: Vec<usize>,
}

/// One value of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// Its name in tables.
    pub name: String,
    /// Overrides that make it so.
    pub sets: Vec<String>,
}

/// A figure of an outcome that a table may show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Slowest flow by the ideal time.
    Ideal,
    /// Median flow by the ideal time.
    Median,
    /// Slowest flow, in microseconds.
    Slowest,
    /// Median flow, in microseconds.
    Middle,
    /// Slowest by fastest flow.
    Spread,
    /// Packets retransmitted, of those sent for the first time.
    Again,
    /// Of those sent again, those for nothing: how many.
    Spurious,
}

/// One run of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Index of the case.
    pub case: usize,
    /// Indices of axis and value that differ from the case's own.
    pub changes: Vec<(usize, usize)>,
    /// The seed.
    pub seed: u64,
}

/// What a job has come to, with what it was, as JSON has it.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Row {
    /// The case.
    pub case: String,
    /// What differs from it.
    pub changes: Vec<Change>,
    /// The seed.
    pub seed: u64,
    /// The overrides with which `srd sim` repeats the run.
    pub sets: Vec<String>,
    /// What did not go as the scenario wants it.
    pub complaints: Vec<String>,
    /// What a person should know all the same.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// The outcome.
    pub outcome: Outcome,
}

/// An axis and the value that it was set to.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Change {
    /// The axis.
    pub axis: String,
    /// The value.
    pub value: String,
}

impl Sweep {
    /// All runs, in the order in which results are given.
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (case, runs) in self.cases.iter().enumerate() {
            for changes in self.points(case) {
                let job = |seed| Job { case, changes: changes.clone(), seed };
                jobs.extend(runs.seeds.iter().map(job));
            }
        }
        jobs
    }

    /// What is changed in each run of a case, seeds apart; nothing in the first.
    fn points(&self, case: usize) -> Vec<Vec<(usize, usize)>> {
        let mine = self.axes.iter().enumerate().filter(|(_, axis)| axis.cases.contains(&case));
        let mut points = vec![Vec::new()];
        for (number, axis) in mine {
            let values = || (0..axis.values.len()).map(move |value| (number, value));
            match self.combine {
                Combine::Each => points.extend(values().map(|change| vec![change])),
                Combine::All => {
                    points = (points.iter())
                        .flat_map(|point| values().map(|change| [&point[..], &[change]].concat()))
                        .collect();
                }
            }
        }
        points
    }

    /// Overrides of a job, its seed among them.
    pub fn sets(&self, job: &Job) -> Vec<String> {
        let mut sets = self.cases[job.case].sets.clone();
        for &(axis, value) in &job.changes {
            sets.extend(self.axes[axis].values[value].sets.iter().cloned());
        }
        sets.push(format!("seed={}", job.seed));
        sets
    }

    /// The scenario of a job.
    pub fn scenario(&self, job: &Job) -> Result<Scenario, InputError> {
        Scenario::load(&self.cases[job.case].scenario, &self.sets(job))
    }

    /// What a job was, for messages: `incast-15, slope 0, seed 2`.
    pub fn describe(&self, job: &Job) -> String {
        let mut text = self.cases[job.case].name.clone();
        for change in self.changes(job) {
            text += &format!(", {} {}", change.axis, change.value);
        }
        text + &format!(", seed {}", job.seed)
    }

    /// By what a job's result is found again; `scenario` is the job's.
    pub fn key(&self, job: &Job, scenario: &Scenario) -> Key {
        let Scenario { settings, topology, traffic, notes: _ } = scenario;
        let called = self.describe(job);
        Key::of(&called, &(&called, self.sets(job), settings, topology, traffic))
    }

    fn changes(&self, job: &Job) -> Vec<Change> {
        let change = |&(axis, value): &(usize, usize)| Change {
            axis: self.axes[axis].name.clone(),
            value: self.axes[axis].values[value].name.clone(),
        };
        job.changes.iter().map(change).collect()
    }

    /// A job with what it has come to.
    pub fn row(&self, job: &Job, ran: Ran) -> Row {
        Row {
            case: self.cases[job.case].name.clone(),
            changes: self.changes(job),
            seed: job.seed,
            sets: self.sets(job),
            complaints: ran.complaints,
            warnings: ran.warnings,
            outcome: ran.outcome,
        }
    }
}
