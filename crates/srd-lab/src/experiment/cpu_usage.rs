//! How busy the machine's processors are, and whether it stands still.

use crate::flow::clock::now_ns;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often it is looked whether the machine stands still.
const STEP: Duration = Duration::from_millis(1);

/// Time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// Now (proc_stat(5)).
    pub fn now() -> Ticks {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .skip(1)
            .take(8) // the rest is contained in these
            .filter_map(|field| field.parse().ok())
            .collect();
        let idle = fields.get(3).copied().unwrap_or(0) + fields.get(4).copied().unwrap_or(0);
        Ticks { idle, all: fields.iter().sum() }
    }

    /// Share of the time since then in which they were busy, in percent.
    pub fn busy_percent_since(self, earlier: Ticks) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let idle = self.idle.saturating_sub(earlier.idle) as f64;
        100.0 * (1.0 - idle / all).max(0.0)
    }
}

/// Does `work`, and looks meanwhile how long a process that asks for next to nothing is kept from any one processor at most,
/// in nanoseconds: a virtual machine may stand still as a whole or in part, and its clock goes on.
pub fn with_longest_pause_ns<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let done = AtomicBool::new(false);
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let processors = (0..CpuSet::count()).filter(|&processor| allowed.is_set(processor).unwrap_or(false));
    thread::scope(|scope| {
        let done = &done;
        let looks: Vec<_> = processors.map(|processor| scope.spawn(move || look(processor, done))).collect();
        let working = Working { done };
        let result = work();
        drop(working);
        (result, looks.into_iter().map(|look| look.join().expect("no panic")).max().unwrap_or(0))
    })
}

/// Sets `done` when it goes, also by a panic.
struct Working<'a> {
    done: &'a AtomicBool,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// The same on one processor.
fn look(processor: usize, done: &AtomicBool) -> u64 {
    let mut own = CpuSet::new();
    // Where it cannot be bound it looks at whichever processor it is on.
    let _ = own.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &own));
    let (mut longest_ns, mut before_ns) = (0, now_ns());
    while !done.load(Ordering::Relaxed) {
        thread::sleep(STEP);
        let now_ns = now_ns();
        longest_ns = longest_ns.max((now_ns - before_ns).saturating_sub(STEP.as_nanos() as u64));
        before_ns = now_ns;
    }
    longest_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stands_still_is_noticed() {
        let held = Duration::from_millis(60);
        let ((), pause_ns) = with_longest_pause_ns(|| {
            thread::sleep(Duration::from_millis(20));
            // To this process it is the same if it is stopped.
            let own = Pid::this();
            let mut waker = std::process::Command::new("sh");
            waker.args(["-c", &format!("kill -STOP {own}; sleep {}; kill -CONT {own}", held.as_secs_f64())]);
            waker.status().unwrap();
        });
        assert!(pause_ns >= (held.as_nanos() as u64) * 9 / 10, "{pause_ns}");
    }
}
