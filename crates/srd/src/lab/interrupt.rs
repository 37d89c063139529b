//! Interrupts (Ctrl-C, SIGTERM) for commands that must tidy up before they end.

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// From now on an interrupt only sets what this gives back.
pub fn watch() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).context("cannot watch for interrupts")?;
    }
    Ok(interrupted)
}
