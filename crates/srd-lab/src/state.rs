//! What is written down about each lab, in /run/srd-lab/NAME: before anything is made, so that whatever happens everything can
//! be found and removed.

use crate::error::{Doing, Error, Result};
use crate::fault::ActiveFault;
use crate::shape::Shape;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Notes vanish with the machine's next start, as namespaces do.
const DIRECTORY: &str = "/run/srd-lab";
const FILE: &str = "lab.json";

/// Whether all of a lab is there.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    Building,
    Up,
}

/// All that is known of a lab.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct State {
    pub name: String,
    pub phase: Phase,
    pub shape: Shape,
    /// Those that exist or are about to.
    pub namespaces: Vec<String>,
    /// By node: the kernel's number of the map in which a router counts what it marks and cuts.
    pub queue_counters: Vec<Option<u32>>,
    pub faults: Vec<ActiveFault>,
    pub next_fault: u32,
}

/// The directory of a lab's notes.
pub(crate) fn directory(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Refuses names that would not do in a namespace's name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if letters && begins && name.len() <= 32 { Ok(()) } else { Err(Error::BadName { name: name.into() }) }
}

/// Names of all labs, up or half built.
pub(crate) fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

impl State {
    /// Makes the notes of a new lab. Two cannot both succeed with one name.
    pub(crate) fn create(&self) -> Result<()> {
        fs::create_dir_all(DIRECTORY).doing(|| format!("cannot make {DIRECTORY}"))?;
        match fs::create_dir(directory(&self.name)) {
            Ok(()) => self.write(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_up = State::read(&self.name).is_ok_and(|state| state.phase == Phase::Up);
                let state = if is_up { "up" } else { "half built, or just being built," };
                Err(Error::Exists { name: self.name.clone(), state })
            }
            Err(error) => Err(error).doing(|| format!("cannot make {}", directory(&self.name).display())),
        }
    }

    /// Reads a lab's notes.
    pub(crate) fn read(name: &str) -> Result<State> {
        check_name(name)?;
        let file = directory(name).join(FILE);
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).doing(|| format!("{} cannot be read", file.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory(name).is_dir() => {
                Err(Error::HalfBuilt { name: name.into() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let names = names();
                let others =
                    if names.is_empty() { String::new() } else { format!(" ({} is)", names.join(", ")) };
                Err(Error::NoSuchLab { name: name.into(), others })
            }
            Err(error) => Err(error).doing(|| format!("{} cannot be read", file.display())),
        }
    }

    /// Writes them anew, all or nothing.
    pub(crate) fn write(&self) -> Result<()> {
        let file = directory(&self.name).join(FILE);
        let beside = directory(&self.name).join("lab.json.new");
        let text = serde_json::to_string_pretty(self).expect("plain values");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &file))
            .doing(|| format!("cannot write {}", file.display()))
    }

    /// Forgets a lab.
    pub(crate) fn remove(name: &str) -> Result<()> {
        match fs::remove_dir_all(directory(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).doing(|| format!("cannot remove {}", directory(name).display()))
            }
            _ => {
                // Gone with the last lab.
                let _ = fs::remove_dir(DIRECTORY);
                Ok(())
            }
        }
    }
}

/// Keeps other commands from changing a lab at the same time, until dropped.
pub(crate) fn lock(name: &str) -> Result<Flock<File>> {
    let directory = directory(name);
    let what = || format!("cannot lock {}", directory.display());
    let file = File::open(&directory).doing(what)?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno).doing(what)
}
