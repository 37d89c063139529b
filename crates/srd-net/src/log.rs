//! What is said on standard error, as much of it as `SRD_LOG` lets through: one line each, with one prefix. A library must
//! not rely on its host program for this, and must not say the same thing a million times: what is said once is remembered
//! for each place in the code that says it, and of what strangers can cause only so much is said ([`Kind`]). The C libraries
//! above say here what they have to say, too; libfabric's own log is not asked, because its symbols would tie a provider to
//! one way of loading the library.

use crate::options::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

pub use crate::options::LogLevel as Level;

/// Nobody has set a level: it is that of the environment.
const UNSET: u8 = u8::MAX;

static LEVEL: AtomicU8 = AtomicU8::new(UNSET);

/// Most different messages of one place in the code that are remembered, and so said once.
const MOST_REMEMBERED: usize = 1000;

/// Most warnings of a [`Kind`] that are said.
const MOST_OF_A_KIND: usize = 10;

/// Sets how much is said.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether `level` is said.
pub fn enabled(level: Level) -> bool {
    let set = LEVEL.load(Ordering::Relaxed);
    if set != UNSET {
        return level as u8 <= set;
    }
    set_level(Options::from_env().map(|(options, _)| options.log).unwrap_or_default());
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Says `what` if `level` is said.
pub fn say(level: Level, what: fmt::Arguments<'_>) {
    if enabled(level) {
        let name = match level {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        };
        // In one write, so that lines of several processes do not mix. There is nobody to tell if it fails.
        let _ = std::io::stderr().write_all(format!("srd: {name}: {what}\n").as_bytes());
    }
}

/// Says an error.
pub fn error(what: fmt::Arguments<'_>) {
    say(Level::Error, what);
}

/// Says a warning.
pub fn warn(what: fmt::Arguments<'_>) {
    say(Level::Warn, what);
}

/// Says what is good to know.
pub fn info(what: fmt::Arguments<'_>) {
    say(Level::Info, what);
}

/// Says what helps to find mistakes.
pub fn debug(what: fmt::Arguments<'_>) {
    say(Level::Debug, what);
}

/// Says `what` the first time that the caller says something under this name.
#[track_caller]
pub fn once(level: Level, name: &str, what: fmt::Arguments<'_>) {
    static SAID: Mutex<BTreeMap<(&str, u32), BTreeSet<String>>> = Mutex::new(BTreeMap::new());
    let place = Location::caller();
    let is_new = |said: &mut BTreeSet<String>| said.len() < MOST_REMEMBERED && said.insert(name.to_owned());
    // Where the lock is held at the moment of a fork, the child says nothing.
    if enabled(level)
        && SAID.try_lock().is_ok_and(|mut said| is_new(said.entry((place.file(), place.line())).or_default()))
    {
        say(level, what);
    }
}

/// Says a warning the first time.
#[track_caller]
pub fn warn_once(what: fmt::Arguments<'_>) {
    if enabled(Level::Warn) {
        once(Level::Warn, &what.to_string(), what);
    }
}

/// Warnings that name one of many who can cause them: each is said once, the first ten of them, and then where to look for
/// the rest.
pub struct Kind {
    rest: &'static str,
    said: Mutex<BTreeSet<String>>,
}

/// What is said of a warning of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    All,
    /// That there are more.
    Rest,
    Nothing,
}

impl Kind {
    /// `rest`: what is said in place of the eleventh.
    pub const fn new(rest: &'static str) -> Kind {
        Kind { rest, said: Mutex::new(BTreeSet::new()) }
    }

    /// Says a warning, if it is new and there is room for it.
    pub fn warn(&self, what: fmt::Arguments<'_>) {
        if enabled(Level::Warn) {
            match self.part(what) {
                Part::All => warn(what),
                Part::Rest => warn(format_args!("{}", self.rest)),
                Part::Nothing => {}
            }
        }
    }

    fn part(&self, what: fmt::Arguments<'_>) -> Part {
        let Ok(mut said) = self.said.try_lock() else { return Part::Nothing }; // as above
        if said.len() > MOST_OF_A_KIND || !said.insert(what.to_string()) {
            Part::Nothing
        } else if said.len() > MOST_OF_A_KIND {
            Part::Rest
        } else {
            Part::All
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_kind_ten_warnings_are_said_and_that_there_are_more_and_other_kinds_do_not_suffer() {
        let (one, other) = (Kind::new("more"), Kind::new("more"));
        let part = |kind: &Kind, number: u32| kind.part(format_args!("{number} is silent"));
        let first: Vec<Part> = (0..10).map(|number| part(&one, number)).collect();
        assert_eq!((first, part(&one, 3)), (vec![Part::All; 10], Part::Nothing));
        assert_eq!(
            (part(&one, 10), part(&one, 11), part(&one, 10)),
            (Part::Rest, Part::Nothing, Part::Nothing)
        );
        assert_eq!(part(&other, 11), Part::All);
    }
}
