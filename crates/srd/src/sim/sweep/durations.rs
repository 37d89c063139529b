//! How long runs will take, by a few seconds of trying.

use srd_sim::input::{InputError, Scenario};
use srd_sim::run;
use srd_sim::sweep::{Job, Sweep};
use std::time::{Duration, Instant};

/// For so long runs are tried, all together, and at most so many of them.
const IN_ALL: Duration = Duration::from_secs(8);
const MOST: usize = 80;

/// How long each of some runs takes here, about. Of many only some are tried, and the others take as long as the one before them, which is
/// much the same run in the order of a sweep. Those of which it cannot be told take as long as the longest of the others. `None`: it can be told of
/// none.
pub fn tried(sweep: &Sweep, jobs: &[&Job]) -> Result<Option<Vec<Duration>>, InputError> {
    let began = Instant::now();
    let stride = jobs.len().div_ceil(MOST).max(1);
    let chosen: Vec<&Job> = jobs.iter().step_by(stride).copied().collect();
    let each = IN_ALL / chosen.len().max(1) as u32;
    let of_job = |job: &Job| match began.elapsed() < IN_ALL {
        true => Ok(of_run(&sweep.scenario(job)?, each)),
        false => Ok(None),
    };
    let times: Vec<Option<Duration>> = chosen.into_iter().map(of_job).collect::<Result<_, InputError>>()?;
    let longest = times.iter().flatten().max().copied();
    let of_all = |longest| (0..jobs.len()).map(|number| times[number / stride].unwrap_or(longest)).collect();
    Ok(longest.map(of_all))
}

/// By how far the run gets. Programs do not tell, so theirs must come to their end.
fn of_run(scenario: &Scenario, at_most: Duration) -> Option<Duration> {
    let began = Instant::now();
    let mut done = 0.0;
    let ran = run::run_watched(scenario, 1, &mut |far| {
        done = far;
        began.elapsed() < at_most
    });
    let took = began.elapsed();
    match ran {
        Some(_) => Some(took),
        None => (done > 0.0 && done < 1.0).then(|| took.div_f64(done)),
    }
}
