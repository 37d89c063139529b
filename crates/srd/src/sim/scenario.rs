//! `srd sim SCENARIO`: a scenario, for one seed or several.

use super::batch::{self, Manner};
use super::recording::Record;
use super::table;
use crate::output;
use anyhow::anyhow;
use srd_sim::input::{InputError, Scenario};
use srd_sim::record::{check_verified, run_verified};
use srd_sim::run::{self, MemoryEstimate, Ran};
use srd_sim::sweep::Seeds;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `srd sim SCENARIO`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The scenario: a TOML file
    #[arg(required = true)]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    runs: Runs,
}

/// What is asked of the runs of one scenario.
#[derive(clap::Args, Clone, Debug)]
pub struct Runs {
    /// Change a value of the scenario: --set transport.paths=16 (may be given again)
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Seed of everything that is random [default: the scenario's]
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,
    /// One run for each of these seeds, both ends included: --seeds 1..8
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Print JSON: an object, with --seeds an array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    record: Record,
    #[command(flatten)]
    manner: Manner,
}

/// Makes a scenario of overrides.
type Load<'a> = &'a (dyn Fn(&[String]) -> Result<Scenario, InputError> + Sync);

/// A run that has come to its end, and what a person should know about its files.
struct Done {
    ran: Ran,
    notes: Vec<String>,
}

impl Runs {
    /// The overrides of each run. Without a seed of the command line, the scenario's own counts.
    fn sets(&self) -> Vec<Vec<String>> {
        let seeds: Vec<Option<u64>> = match &self.seeds {
            Some(seeds) => seeds.iter().map(Some).collect(),
            None => vec![self.seed],
        };
        let with_seed = |seed: Option<u64>| {
            let seed = seed.map(|seed| format!("seed={seed}"));
            self.set.iter().cloned().chain(seed).collect()
        };
        seeds.into_iter().map(with_seed).collect()
    }

    /// Does one run, with so many threads. `None` if it was interrupted.
    fn one(
        &self,
        scenario: Result<Scenario, InputError>,
        threads: usize,
        watch: &mut dyn FnMut(f64) -> bool,
    ) -> Option<anyhow::Result<Done>> {
        let scenario = match scenario {
            Ok(scenario) => scenario,
            Err(error) => return Some(Err(error.into())),
        };
        let done = |ran: Ran| {
            let notes = ran.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
            Done { ran, notes }
        };
        if let Some(result) = self.record.run(&scenario, self.seeds.is_some(), watch) {
            return result.transpose().map(|result| result.map(|(ran, notes)| Done { ran, notes }));
        }
        if self.record.verify {
            if let Err(what) = check_verified(&scenario) {
                return Some(Err(anyhow!(what)));
            }
            let result = run_verified(&scenario, watch)?;
            return Some(result.map(done).map_err(|defect| anyhow!("verification: {defect}")));
        }
        run::run_watched(&scenario, threads, watch).map(|ran| Ok(done(ran)))
    }

    /// Name of a run in messages, with what goes between it and them; nothing if there is but one.
    fn prefix(&self, number: usize) -> String {
        self.seed_of(number).map_or_else(String::new, |seed| format!("seed {seed}: "))
    }

    fn seed_of(&self, number: usize) -> Option<u64> {
        self.seeds.iter().flat_map(Seeds::iter).nth(number)
    }
}

/// Runs and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.scenario.clone().unwrap_or_default();
    run_all(&args.runs, &|sets| Scenario::load(&path, sets))
}

/// Runs what `load` makes of overrides, as often as asked for, and prints what came of it.
pub fn run_all(runs: &Runs, load: Load<'_>) -> anyhow::Result<ExitCode> {
    let sets = runs.sets();
    let first = load(&sets[0])?;
    first.notes.iter().for_each(|note| eprintln!("srd: {note}"));
    runs.record.check(&first)?;
    let estimate = MemoryEstimate::of(&first);
    drop(first);
    let threads = runs.manner.threads_of_each(sets.len(), &estimate);
    let results = batch::run_all(sets.len(), &runs.manner, &estimate, &|number, watch| {
        runs.one(load(&sets[number]), threads, watch)
    })?;
    let mut failed = false;
    let mut outcomes = Vec::new();
    for (number, result) in results.all.iter().enumerate() {
        let complaints = match result {
            None => continue,
            Some(Err(error)) => vec![format!("{error:#}")],
            Some(Ok(done)) => {
                done.notes.iter().for_each(|note| eprintln!("srd: {}{note}", runs.prefix(number)));
                outcomes.push(&done.ran.outcome);
                done.ran.complaints.clone()
            }
        };
        failed |= !complaints.is_empty();
        complaints.iter().for_each(|complaint| eprintln!("srd: {}{complaint}", runs.prefix(number)));
    }
    match (runs.json, &runs.seeds, &outcomes[..]) {
        (false, ..) => output::text(&table::describe(&outcomes))?,
        (true, Some(_), all) => output::json(&all)?,
        (true, None, [one]) => output::json(one)?,
        (true, None, _) => {}
    }
    let name = |number| runs.seed_of(number).map_or_else(String::new, |seed| format!("seed {seed}"));
    Ok(results.conclude(&name, failed))
}
