//! The labs of an experiment: each goes down whatever happens, and at once when somebody interrupts the experiment.

use crate::error::{Error, Result, bad};
use crate::lab::Lab;
use crate::shape::Shape;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it is looked whether somebody has interrupted.
const LOOK: Duration = Duration::from_millis(20);

/// Makes labs, under one name and what is added to it.
pub struct Labs<'a> {
    name: &'a str,
    interrupted: &'a AtomicBool,
    standing: Mutex<Vec<String>>,
}

/// A lab that goes down when this is dropped.
pub struct RunningLab<'a> {
    lab: Lab,
    labs: &'a Labs<'a>,
}

impl<'a> Labs<'a> {
    /// None yet. Whoever sets `interrupted` takes them down.
    pub fn new(name: &'a str, interrupted: &'a AtomicBool) -> Labs<'a> {
        Labs { name, interrupted, standing: Mutex::default() }
    }

    /// What their names begin with.
    pub fn name(&self) -> &str {
        self.name
    }

    /// Whether somebody has interrupted.
    pub fn are_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Builds one.
    pub fn up(&'a self, addition: &str, shape: &Shape) -> Result<RunningLab<'a>> {
        if self.are_interrupted() {
            return Err(bad("interrupted".into()));
        }
        let lab = Lab::up(&format!("{}{addition}", self.name), shape)?;
        self.lock().push(lab.name().into());
        Ok(RunningLab { lab, labs: self })
    }

    /// Does `work`. An interrupt takes away the labs that are up, with all that runs in them, which ends work that waits for
    /// programs there.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        // Dropped when the work is over, also by a panic.
        let (working, over) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    if self.are_interrupted() {
                        self.lock().drain(..).for_each(|name| remove(&name));
                    }
                }
            });
            let _working = working;
            work()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for RunningLab<'_> {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for RunningLab<'_> {
    fn drop(&mut self) {
        let mut standing = self.labs.lock();
        // Otherwise it is down already.
        if let Some(place) = standing.iter().position(|name| name == self.lab.name()) {
            remove(&standing.swap_remove(place));
        }
    }
}

fn remove(name: &str) {
    match Lab::remove(name) {
        Ok(_) | Err(Error::NoSuchLab { .. }) => {} // measured down early, where a job has failed
        Err(error) => eprintln!("srd: warning: the lab {name} stays: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_ends_with_the_work_also_when_that_panics() {
        let interrupted = AtomicBool::new(true);
        let labs = Labs::new("lab", &interrupted);
        assert_eq!(labs.watch(|| 42), 42);
        assert!(
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| labs.watch(|| panic!("a test"))))
                .is_err()
        );
        assert!(labs.up("", &Shape::default()).is_err(), "nothing is built after an interrupt");
    }
}
