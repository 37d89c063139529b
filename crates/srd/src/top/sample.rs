//! One look at all processes of this user on this host.

use super::answer::{self, printable};
use serde::Serialize;
use serde_json::value::RawValue;
use srd_net::Stats;
use srd_net::stats_directory::{Asked, ask_all};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest that all instances together have for their answers. One that is held answers within a second or not at all.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Which processes are looked at.
#[derive(Clone, Default, Debug)]
pub struct Chosen {
    /// These; all if there are none.
    pub pids: Vec<u32>,
    /// Those of this program.
    pub program: Option<String>,
}

impl Chosen {
    /// The kernel keeps 15 bytes of a program's name.
    const LONGEST_NAME: usize = 15;

    fn is_one(&self, pids: [u32; 2], program: &str) -> bool {
        let by_pid = self.pids.is_empty() || pids.iter().any(|pid| self.pids.contains(pid));
        let by_name = self.program.as_deref().is_none_or(|name| {
            let end = (0..=name.len().min(Self::LONGEST_NAME)).rev().find(|&end| name.is_char_boundary(end));
            program == name || program == &name[..end.unwrap_or(0)]
        });
        by_pid && by_name
    }
}

/// What all have told at one time.
#[derive(Clone, Default, Debug)]
pub struct Sample {
    /// Those that have answered.
    pub instances: Vec<Told>,
    /// Those that have not.
    pub silent: Vec<Silent>,
}

impl Sample {
    /// Whether a process is among them, by either of its numbers.
    fn has(&self, pid: u32) -> bool {
        self.instances.iter().any(|told| told.pid == pid || told.stats.pid == pid)
            || self.silent.iter().any(|silent| silent.pid == pid)
    }
}

/// What one instance has told.
#[derive(Clone, Debug)]
pub struct Told {
    /// Where it was asked: the same in the next sample.
    pub socket: PathBuf,
    /// The process, by its number here.
    pub pid: u32,
    /// As far as it is shown.
    pub stats: Stats,
    /// All of it.
    pub answer: Box<RawValue>,
}

/// An instance that has not answered.
#[derive(Clone, Serialize, Debug)]
pub struct Silent {
    /// The process.
    pub pid: u32,
    /// Its program, if the host knows.
    pub program: String,
    /// Why, as far as one can tell.
    pub why: String,
}

/// Asks all that are chosen. What dead processes have left, sockets and shared memory, goes on this occasion.
pub fn take(chosen: &Chosen) -> Sample {
    let mut sample = Sample::default();
    let until = Instant::now() + PATIENCE;
    srd_shm::clear_away_the_dead(Path::new(srd_shm::DIRECTORY));
    for mut asked in ask_all() {
        let (pid, socket) = (asked.pid, asked.path.clone());
        match read(&mut asked, until) {
            Ok((answer, stats)) if chosen.is_one([pid, stats.pid], &stats.program) => {
                sample.instances.push(Told { socket, pid, stats, answer });
            }
            Ok(_) => {}
            Err(why) => {
                let program = printable(name_of(pid).trim());
                if !asked.clear_if_dead() && chosen.is_one([pid, pid], &program) {
                    sample.silent.push(Silent { pid, program, why });
                }
            }
        }
    }
    if !sample.instances.is_empty() || !sample.silent.is_empty() {
        for &pid in &chosen.pids {
            if !sample.has(pid) {
                let why = "no process of this user on this host that uses SRD has this number".into();
                sample.silent.push(Silent { pid, program: printable(name_of(pid).trim()), why });
            }
        }
    }
    sample.instances.sort_by(|a, b| (a.pid, &a.socket).cmp(&(b.pid, &b.socket)));
    sample
}

fn read(asked: &mut Asked, until: Instant) -> Result<(Box<RawValue>, Stats), String> {
    let bytes = asked
        .read(until)
        .map_err(|_| "it does not answer: it is stopped, or in one long call of the device, or just ended")?;
    // Not made a tree of: that would take three times as long as all the rest of a look.
    let text = String::from_utf8(bytes).map_err(|_| "its answer is no text")?;
    let answer = RawValue::from_string(text).map_err(|_| "its answer is cut off")?;
    let stats = answer::read(answer.get()).map_err(|why| format!("its release tells otherwise: {why}"))?;
    Ok((answer, stats))
}

fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_chosen_by_either_number_or_by_name() {
        assert!(Chosen::default().is_one([1, 2], "a"));
        let by_pid = Chosen { pids: vec![2, 9], program: None };
        assert!(by_pid.is_one([1, 2], "a") && by_pid.is_one([9, 1], "a") && !by_pid.is_one([1, 3], "a"));
        let by_name = |name: &str| Chosen { pids: vec![], program: Some(name.into()) };
        assert!(by_name("lmp").is_one([1, 1], "lmp") && !by_name("lm").is_one([1, 1], "lmp"));
        assert!(by_name("a_program_with_a_long_name").is_one([1, 1], "a_program_with_"));
        assert!(!by_name("a_program_with").is_one([1, 1], "a_program_with_"));
    }
}
