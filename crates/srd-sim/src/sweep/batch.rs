//! Many runs at once. Each is one thread from beginning to end, so how many there are changes nothing but the time.

use rayon::iter::{ParallelBridge, ParallelIterator};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Steps in which the progress of one run is counted.
const STEPS: f64 = 1e6;

/// Threads to run on where nobody says how many: one for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// What is done for each number, with a way to tell how far it is.
pub type Job<'a, R> = dyn Fn(usize, &mut dyn FnMut(f64) -> bool) -> Option<R> + Sync + 'a;

/// Does `run` for each number below `count` on so many threads, beginning with the lowest. Results come in the order of
/// numbers; `None` stands for what was given up, or never begun, because `stop` was set.
///
/// A run tells how far it is, from 0 to 1, and goes on as long as it gets `true` for it; `report` hears what all have
/// done together, in runs.
pub fn run_all<R: Send>(
    count: usize,
    threads: usize,
    stop: &AtomicBool,
    report: &(dyn Fn(f64) + Sync),
    run: &Job<'_, R>,
) -> Vec<Option<R>> {
    let total = AtomicU64::new(0);
    let one = |number: usize| {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let mut counted = 0;
        let result = run(number, &mut |done| {
            let now = ((done * STEPS) as u64).max(counted);
            let all = total.fetch_add(now - counted, Ordering::Relaxed) + (now - counted);
            counted = now;
            report(all as f64 / STEPS);
            !stop.load(Ordering::Relaxed)
        });
        Some((number, result?))
    };
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let threads = threads.clamp(1, count.max(1));
    let done: Vec<(usize, R)> = match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        // A bridge hands numbers out one by one and in order, so that what is done first is what comes first.
        Ok(pool) if threads > 1 => pool.install(|| (0..count).par_bridge().filter_map(one).collect()),
        _ => (0..count).filter_map(one).collect(),
    };
    for (number, result) in done {
        results[number] = Some(result);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        for threads in [1, 2, 7] {
            let most = Mutex::new(0.0f64);
            let report = |done: f64| {
                let mut most = most.lock().unwrap();
                *most = most.max(done);
            };
            let results = run_all(50, threads, &AtomicBool::new(false), &report, &|number, tell| {
                (0..=4).all(|step| tell(step as f64 / 4.0)).then_some(number * number)
            });
            assert_eq!(results, (0..50).map(|number| Some(number * number)).collect::<Vec<_>>());
            assert!((*most.lock().unwrap() - 50.0).abs() < 1e-3);
        }
    }

    #[test]
    fn what_is_finished_when_it_stops_is_kept() {
        let stop = AtomicBool::new(false);
        let results = run_all(10, 1, &stop, &|_| {}, &|number, tell| {
            if number == 3 {
                stop.store(true, Ordering::Relaxed);
            }
            tell(0.5).then_some(number)
        });
        assert_eq!(results[..3], [Some(0), Some(1), Some(2)]);
        assert!(results[3..].iter().all(Option::is_none));
    }
}
