//! What is said on standard error, as much of it as `SRD_LOG` lets through: one line each, with one prefix. A library must
//! not rely on its host program for this, and must not say the same thing a million times. The C libraries above say here
//! what they have to say, too; libfabric's own log is not asked, because its symbols would tie a provider to one way of
//! loading the library.

use crate::options::Options;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

pub use crate::options::LogLevel as Level;

/// Nobody has set a level: it is that of the environment.
const UNSET: u8 = u8::MAX;

static LEVEL: AtomicU8 = AtomicU8::new(UNSET);

/// Most different messages that are remembered, and so said once.
const MOST_REMEMBERED: usize = 1000;

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

/// Says `what` the first time that something is said under this name.
pub fn once(level: Level, name: &str, what: fmt::Arguments<'_>) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = |said: &mut BTreeSet<String>| said.len() < MOST_REMEMBERED && said.insert(name.to_owned());
    // Where the lock is held at the moment of a fork, the child says nothing.
    if enabled(level) && SAID.try_lock().is_ok_and(|mut said| is_new(&mut said)) {
        say(level, what);
    }
}

/// Says a warning the first time.
pub fn warn_once(what: fmt::Arguments<'_>) {
    if enabled(Level::Warn) {
        once(Level::Warn, &what.to_string(), what);
    }
}
