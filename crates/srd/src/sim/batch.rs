//! Runs at once on all cores: a bar with the time left, an interrupt that keeps what is finished.

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use srd_sim::run::{MemoryEstimate, available_memory};
use srd_sim::sweep::batch;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Steps of the bar for each run.
const STEPS: u64 = 1000;

/// How runs are done.
#[derive(clap::Args, Clone, Debug)]
pub struct Manner {
    /// Runs at once; a run that is alone is divided among so many threads, where its fabric allows it [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Run even if the memory that is free looks too small
    #[arg(long)]
    pub no_memory_check: bool,
}

impl Manner {
    fn threads(&self) -> usize {
        self.threads.map_or_else(batch::cores, usize::from)
    }

    /// Threads for each of `count` runs: those that are there and fit into the memory that is free. `estimate`: of the largest run.
    pub fn threads_of_each(&self, count: usize, estimate: &MemoryEstimate) -> usize {
        if count != 1 {
            return 1;
        }
        let available = available_memory().filter(|_| !self.no_memory_check).unwrap_or(u64::MAX);
        let more = available.saturating_sub(estimate.bytes()) / estimate.bytes_of_thread().max(1);
        self.threads().min(usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1))
    }
}

/// Code of a program that an interrupt has ended.
pub const INTERRUPTED: u8 = 130;

/// What became of several runs.
pub struct Results<R> {
    /// In the order asked for; `None` where an interrupt came first.
    pub all: Vec<Option<R>>,
}

impl<R> Results<R> {
    /// Numbers of the runs that are missing.
    pub fn missing(&self) -> Vec<usize> {
        self.all.iter().enumerate().filter(|(_, result)| result.is_none()).map(|(number, _)| number).collect()
    }

    /// Says what is missing, if anything is; `names` calls runs by name. The exit code of the command; `failed`: some run
    /// did not go as it should.
    pub fn conclude(&self, names: &dyn Fn(usize) -> String, failed: bool) -> ExitCode {
        let missing = self.missing();
        if missing.is_empty() {
            return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
        if self.all.len() == 1 {
            eprintln!("srd: interrupted: the run has not come to its end, so there is no outcome");
            return ExitCode::from(INTERRUPTED);
        }
        let finished = self.all.len() - missing.len();
        let few: Vec<String> = missing.iter().take(10).map(|&number| names(number)).collect();
        let more = match missing.len() - few.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        eprintln!(
            "srd: interrupted: {finished} of {} runs are finished; missing: {}{more}",
            self.all.len(),
            few.join("; ")
        );
        ExitCode::from(INTERRUPTED)
    }
}

/// Does `run` for each number below `count`. `estimate`: of the largest of them.
pub fn run_all<R: Send>(
    count: usize,
    manner: &Manner,
    estimate: &MemoryEstimate,
    run: &batch::Job<'_, R>,
) -> anyhow::Result<Results<R>> {
    let wanted = manner.threads().min(count).max(1);
    let threads = if manner.no_memory_check { wanted } else { threads_that_fit(wanted, estimate)? };
    let stop = stop_on_signal()?;
    let bar = bar(count);
    let report = |done: f64| bar.set_position((done * STEPS as f64) as u64);
    let all = batch::run_all(count, threads, &stop, &report, run);
    bar.finish_and_clear();
    Ok(Results { all })
}

/// How many may run at once in the memory that is free.
fn threads_that_fit(wanted: usize, estimate: &MemoryEstimate) -> anyhow::Result<usize> {
    let Some(available) = available_memory() else { return Ok(wanted) };
    let fit = (available / estimate.bytes().max(1)) as usize;
    if fit == 0 {
        anyhow::bail!("{}. --no-memory-check runs it all the same", estimate.refusal(available));
    }
    if fit < wanted {
        eprintln!("srd: {fit} runs at once instead of {wanted}: {}", estimate.comparison(available));
    }
    Ok(fit.min(wanted))
}

/// Set when somebody wants an end: by an interrupt or SIGTERM. A second one ends the program at once.
fn stop_on_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// On a terminal; elsewhere it shows nothing. indicatif writes to standard error.
fn bar(count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64 * STEPS);
    let what = if count == 1 { "run".to_string() } else { format!("{count} runs") };
    let form = format!("  {what} {{wide_bar}} {{percent:>3}} %  {{elapsed}} so far, {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&form) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
