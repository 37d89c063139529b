//! What can be seen of a job's processes from outside: whether any of them still does something by itself.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the list of processes is believed.
const LIST_FOR: Duration = Duration::from_millis(20);

/// For so long a program that a rank has started is waited for, even if it sleeps: the rank may wait for what it says.
const LET_FINISH: Duration = Duration::from_secs(10);
/// So long it may take until killed processes are gone; one that waits for a disk goes later.
const LONGEST_END: Duration = Duration::from_secs(2);

/// The processes that descend from this one.
#[derive(Debug, Default)]
pub struct Job {
    /// By process, and when it was made.
    processes: BTreeSet<u32>,
    listed: Option<Instant>,
    /// Programs that ranks have started and wait for, and since when that is known.
    awaited: BTreeMap<u32, Instant>,
    /// Processor time of those that were seen busy since all were quiet, as it was then.
    busy: BTreeMap<u32, u64>,
}

/// A `stat` file's fields from the third on (proc(5)).
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat[stat.rfind(')')? + 1..].split_ascii_whitespace())
}

/// Third and fourth field: the state, and the parent.
fn state_and_parent(path: &Path) -> Option<(u8, u32)> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = fields(&text)?;
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// Field 41, the scheduling policy, of a thread that gets a processor only when nobody else wants one: so the preloaded library marks those
/// that have nothing to do and cannot be made to sleep.
const SCHED_IDLE: &str = "5";

/// Fields 14 and 15: processor time in ticks.
fn ticks(path: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = fields(&text)?.skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Processor time of a thread, in ticks of 10 ms.
pub fn thread_ticks(process: u32, thread: u32) -> u64 {
    ticks(&format!("/proc/{process}/task/{thread}/stat")).unwrap_or(0)
}

fn numbers(directory: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a thread in this state will do something without anybody else: it runs, wants a core, or waits for a disk.
fn moves(state: u8) -> bool {
    matches!(state, b'R' | b'D')
}

/// Whether a process is there, and not what is left of one.
pub fn is_alive(process: u32) -> bool {
    let stat = format!("/proc/{process}/stat");
    state_and_parent(Path::new(&stat)).is_some_and(|(state, _)| !matches!(state, b'Z' | b'X'))
}

/// Whether a thread sleeps.
pub fn sleeps(process: u32, thread: u32) -> bool {
    let stat = format!("/proc/{process}/task/{thread}/stat");
    state_and_parent(Path::new(&stat)).is_none_or(|(state, _)| !moves(state))
}

/// Whether it moves, but has nothing to do.
fn drifts(process: u32, thread: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).unwrap_or_default();
    fields(&text).and_then(|mut fields| fields.nth(38)) == Some(SCHED_IDLE)
}

fn is_quiet(process: u32) -> bool {
    numbers(&format!("/proc/{process}/task")).all(|thread| sleeps(process, thread) || drifts(process, thread))
}

impl Job {
    /// Whether a program runs that this process has started, and may wait for.
    pub fn awaits_a_program(&mut self, process: u32) -> bool {
        let tasks = format!("/proc/{process}/task");
        let mut children = Vec::new();
        for thread in numbers(&tasks) {
            let line = fs::read_to_string(format!("{tasks}/{thread}/children")).unwrap_or_default();
            children.extend(line.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        children.into_iter().any(|child| {
            is_alive(child) && self.awaited.entry(child).or_insert_with(Instant::now).elapsed() < LET_FINISH
        })
    }

    /// Whether no thread does anything by itself, but those of processes of which `but` is true.
    pub fn is_quiet(&mut self, but: &dyn Fn(u32) -> bool) -> bool {
        self.list_now_and_then();
        let quiet = self.processes.iter().all(|process| but(*process) || is_quiet(*process));
        if quiet {
            self.busy.clear();
        }
        quiet
    }

    /// The processes that have done something by themselves for so many ticks (10 ms) of processor time since [`Job::is_quiet`] was last true. One
    /// that waits for a core uses none.
    pub fn restless(&mut self, most: u64, but: &dyn Fn(u32) -> bool) -> Vec<u32> {
        let busy = self.processes.iter().copied().filter(|process| !but(*process) && !is_quiet(*process));
        let used = busy.filter_map(|process| Some((process, ticks(&format!("/proc/{process}/stat"))?)));
        let restless =
            used.filter(|(process, used)| used - *self.busy.entry(*process).or_insert(*used) >= most);
        restless.map(|(process, _)| process).collect()
    }

    fn list_now_and_then(&mut self) {
        if self.listed.is_none_or(|listed| listed.elapsed() > LIST_FOR) {
            self.list();
        }
    }

    fn list(&mut self) {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for process in numbers("/proc") {
            if let Some((_, parent)) = state_and_parent(Path::new(&format!("/proc/{process}/stat"))) {
                children.entry(parent).or_default().push(process);
            }
        }
        self.processes.clear();
        let mut open = vec![std::process::id()];
        while let Some(parent) = open.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                self.processes.insert(child);
                open.push(child);
            }
        }
        self.listed = Some(Instant::now());
    }

    /// All of them end now, and those that they still make meanwhile.
    pub fn kill(&mut self) {
        let began = Instant::now();
        while began.elapsed() < LONGEST_END {
            self.list();
            self.processes.retain(|process| is_alive(*process));
            if self.processes.is_empty() {
                return;
            }
            for process in &self.processes {
                // It fails only for one that has ended.
                let _ = kill(Pid::from_raw(*process as i32), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
