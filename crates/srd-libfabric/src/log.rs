//! What the provider says on standard error, as much of it as `SRD_LOG` lets through. libfabric's own log is not asked: its
//! symbols would tie the provider to one way of loading the library.

use srd_net::{LogLevel, Options};
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

pub(crate) use srd_net::LogLevel as Level;

fn level() -> LogLevel {
    static LEVEL: OnceLock<LogLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| Options::from_env().map(|(options, _)| options.log).unwrap_or_default())
}

fn say(at: LogLevel, message: fmt::Arguments<'_>) {
    if at > level() {
        return;
    }
    let name = match at {
        LogLevel::Error => "error",
        LogLevel::Warn => "warning",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
    };
    // In one write, so that lines of several processes do not mix. There is nobody to tell if it fails.
    let _ = std::io::stderr().write_all(format!("srd: {name}: {message}\n").as_bytes());
}

pub(crate) fn error(message: fmt::Arguments<'_>) {
    say(LogLevel::Error, message);
}

pub(crate) fn info(message: fmt::Arguments<'_>) {
    say(LogLevel::Info, message);
}

pub(crate) fn debug(message: fmt::Arguments<'_>) {
    say(LogLevel::Debug, message);
}

/// Says it only the first time that `what` is said.
pub(crate) fn once(at: LogLevel, what: &str, message: fmt::Arguments<'_>) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // Where the lock is held at the moment of a fork, the child says nothing.
    if at <= level() && SAID.try_lock().is_ok_and(|mut said| said.insert(what.to_owned())) {
        say(at, message);
    }
}
