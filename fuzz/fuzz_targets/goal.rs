//! Texts as GOAL schedules.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_sim::apps::goal;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match goal::parse(text, "a.goal") {
        Ok(goal) => assert!(!goal.scripts.is_empty()),
        Err(error) => assert!(!error.place.is_empty() && !error.message.is_empty()),
    }
});
