//! The machine of `srd run --machine`, for a process in one: which devices it has, and that what they count here is added to the
//! machine's counters.

use srd_machine::{Description, HwCounters};
use srd_net::{Instance, log};
use std::io;
use std::sync::{Mutex, PoisonError};

/// The machine that this process is in.
pub(crate) fn here() -> Result<Option<Description>, String> {
    Description::here().map_err(|error| {
        format!("cannot read what the machine says of itself: {error}; start it with the `srd` that belongs to these libraries")
    })
}

/// Adds what `instance` counts to the counters of its device, from now on and to its end.
pub(crate) fn count(instance: &Instance, counters: HwCounters) {
    let added = Mutex::new(Vec::new());
    instance.on_counters(move |now| {
        let mut added = added.lock().unwrap_or_else(PoisonError::into_inner);
        // An earlier state may come after a later one: it adds nothing, and takes nothing back.
        let more: Vec<(&'static str, u64, u64)> = now
            .iter()
            .enumerate()
            .map(|(at, (name, count))| (name, count, added.get(at).copied().unwrap_or(0)))
            .collect();
        match counters.add(more.iter().map(|&(name, count, before)| (name, count.saturating_sub(before)))) {
            Ok(()) => *added = more.iter().map(|&(_, count, before)| count.max(before)).collect(),
            Err(error) => {
                let who = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "; only processes of the user who has started the machine can add to them"
                    }
                    _ => "",
                };
                log::warn_once(format_args!(
                    "what this process counts is missing in the machine's hw_counters: {error}{who}"
                ))
            }
        }
    });
}
