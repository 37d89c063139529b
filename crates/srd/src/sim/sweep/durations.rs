//! How long runs will take, by a few seconds of trying.

use srd_sim::input::{InputError, Scenario};
use srd_sim::run;
use srd_sim::sweep::{Job, Sweep};
use std::time::{Duration, Instant};

/// For so long runs are tried, all together, and none for less than its part or this.
const IN_ALL: Duration = Duration::from_secs(8);
const LEAST: Duration = Duration::from_millis(100);

/// How long each of some runs takes here, about; those of which it cannot be told, as long as the longest of the others. `None`: it can
/// be told of none.
pub fn tried(sweep: &Sweep, jobs: &[&Job]) -> Result<Option<Vec<Duration>>, InputError> {
    let began = Instant::now();
    let each = (IN_ALL / jobs.len().max(1) as u32).max(LEAST);
    let of_job = |&job: &&Job| match began.elapsed() < IN_ALL {
        true => Ok(of_run(&sweep.scenario(job)?, each)),
        false => Ok(None),
    };
    let times: Vec<Option<Duration>> = jobs.iter().map(of_job).collect::<Result<_, InputError>>()?;
    let longest = times.iter().flatten().max().copied();
    Ok(longest.map(|longest| times.into_iter().map(|time| time.unwrap_or(longest)).collect()))
}

/// By how far the run gets. Programs do not tell, so theirs must come to their end.
fn of_run(scenario: &Scenario, at_most: Duration) -> Option<Duration> {
    let began = Instant::now();
    let mut done = 0.0;
    let ran = run::run_watched(scenario, &mut |far| {
        done = far;
        began.elapsed() < at_most
    });
    let took = began.elapsed();
    match ran {
        Some(_) => Some(took),
        None => (done > 0.0 && done < 1.0).then(|| took.div_f64(done)),
    }
}
