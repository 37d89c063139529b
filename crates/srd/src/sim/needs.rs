//! What the shards of a sweep or of figures will need, by estimates and by a few seconds of trying. Time is the processor's: what others do on
//! this machine meanwhile is not in it.

use nix::time::{ClockId, clock_gettime};
use srd_sim::input::{InputError, Scenario};
use srd_sim::run::{self, MemoryEstimate};
use srd_sim::sweep::Shard;
use std::time::Duration;

/// For so long runs are tried, all together; of so many at most, and one of each part where there are more parts.
const IN_ALL: Duration = Duration::from_secs(8);
const MOST: usize = 80;

/// See the module.
pub struct Needs {
    /// Memory of the largest run.
    pub bytes: u64,
    /// How long each run of each part takes here, about; `None` where nobody can tell.
    pub times: Option<Vec<Vec<Duration>>>,
}

impl Needs {
    /// Of runs in some parts: `parts` has the number of each part's runs, and `scenario` makes a run of a part.
    pub fn of(
        parts: &[usize],
        scenario: &dyn Fn(usize, usize) -> Result<Scenario, InputError>,
    ) -> Result<Needs, InputError> {
        let times = tried(parts, scenario)?;
        // What runs took that were tried: estimates know little of programs.
        let mut bytes = run::peak_memory();
        for (part, &runs) in parts.iter().enumerate() {
            for run in 0..runs {
                bytes = bytes.max(MemoryEstimate::of(&scenario(part, run)?).bytes());
            }
        }
        Ok(Needs { bytes, times })
    }
}

/// How long each run of some parts takes here, about. Of many only some are tried, evenly spread over each part, and the others take as long as the one before them,
/// which is much the same run in the order of a sweep or a figure. Those of which it cannot be told take as long as the longest of the others. `None`: it
/// can be told of none.
fn tried(
    parts: &[usize],
    scenario: &dyn Fn(usize, usize) -> Result<Scenario, InputError>,
) -> Result<Option<Vec<Vec<Duration>>>, InputError> {
    let began = now();
    let all = parts.iter().sum::<usize>().max(1);
    let stride = |runs: usize| runs.div_ceil((runs * MOST.min(all) / all).max(1)).max(1);
    let chosen = parts
        .iter()
        .enumerate()
        .flat_map(|(part, &runs)| (0..runs).step_by(stride(runs)).map(move |run| (part, run)));
    let chosen: Vec<(usize, usize)> = chosen.collect();
    let mut times = vec![Vec::new(); parts.len()];
    for (number, &(part, run)) in chosen.iter().enumerate() {
        // What shorter ones leave, longer ones get.
        let left = IN_ALL.saturating_sub(now() - began) / (chosen.len() - number) as u32;
        let time = if left.is_zero() { None } else { of_run(&scenario(part, run)?, left) };
        times[part].push(time);
    }
    let longest = times.iter().flatten().flatten().max().copied();
    let of_all = |longest| {
        let of_part = |(times, &runs): (&Vec<Option<Duration>>, &usize)| {
            (0..runs).map(|run| times[run / stride(runs)].unwrap_or(longest)).collect()
        };
        times.iter().zip(parts).map(of_part).collect()
    };
    Ok(longest.map(of_all))
}

/// This thread's, since it began.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// By how far the run gets.
fn of_run(scenario: &Scenario, at_most: Duration) -> Option<Duration> {
    let began = now();
    let mut done = 0.0;
    let ran = run::run_watched(scenario, 1, &mut |far| {
        done = far;
        now() - began < at_most
    });
    let took = now() - began;
    match ran {
        Some(_) => Some(took),
        None => (done > 0.0 && done < 1.0).then(|| took.div_f64(done)),
    }
}

/// The longest of so many shards, each of which has so many of the runs, or figures, at once, of these times.
pub fn of_longest_shard(times: &[Duration], shards: u32, threads: u16) -> Option<Duration> {
    let of_shard = |shard: Shard| {
        let own =
            || times.iter().enumerate().filter(|(number, _)| shard.holds(*number)).map(|(_, time)| *time);
        (own().sum::<Duration>() / u32::from(threads)).max(own().max().unwrap_or_default())
    };
    Shard::all(shards).map(of_shard).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn of_each_part_some_runs_are_tried_and_all_have_a_time() {
        let text =
            "[fabric]\nkind = \"one-switch\"\nhosts = 2\n[[workload]]\nkind = \"permutation\"\nsize = 1\n";
        let seen = RefCell::new(Vec::new());
        let scenario = |part, run| {
            seen.borrow_mut().push((part, run));
            Scenario::parse(text, "a.toml", Path::new(""), &[])
        };
        let needs = Needs::of(&[1, 0, 400], &scenario).unwrap();
        let times = needs.times.unwrap();
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 400]);
        assert!(times.iter().flatten().all(|time| *time > Duration::ZERO) && needs.bytes > 1 << 20);
        // All are looked at for their memory, and those that were tried twice.
        let all: BTreeSet<_> = seen.borrow().iter().copied().collect();
        let twice = seen.borrow().len() - all.len();
        assert!(all.len() == 401 && (2..=MOST + 1).contains(&twice), "{twice}");
    }

    #[test]
    fn a_shard_takes_as_long_as_all_of_it_and_as_the_longest_of_it() {
        let times = [3, 1, 1, 1].map(Duration::from_secs);
        for (shards, threads, expected) in [(1, 1, 6.0), (2, 1, 4.0), (2, 2, 3.0), (4, 1, 3.0)] {
            let longest = of_longest_shard(&times, shards, threads).unwrap();
            assert_eq!(longest.as_secs_f64(), expected, "{shards} {threads}");
        }
    }
}
