//! What is said on standard error: one line each, with one prefix. A library must not rely on its host program for
//! this, and must not say the same thing a million times.

use crate::options::LogLevel;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Warn as u8);
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Most different warnings that are remembered, and so said.
const MOST_WARNINGS: usize = 1000;

/// Sets how much is said.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether `level` is said.
pub fn enabled(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Says `what` if `level` is said.
pub fn say(level: LogLevel, what: fmt::Arguments<'_>) {
    if enabled(level) {
        let name = match level {
            LogLevel::Error => "error",
            LogLevel::Warn => "warning",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        };
        // In one write, so that lines of several processes do not mix. There is nobody to tell if it fails.
        let _ = std::io::stderr().write_all(format!("srd: {name}: {what}\n").as_bytes());
    }
}

/// Says a warning the first time.
pub fn warn_once(what: fmt::Arguments<'_>) {
    if enabled(LogLevel::Warn) {
        let text = what.to_string();
        let mut said = SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if said.len() < MOST_WARNINGS && said.insert(text) {
            drop(said);
            say(LogLevel::Warn, what);
        }
    }
}
