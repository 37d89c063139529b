//! Texts as scenario and sweep files: refused with a place and a message, or a run that can be. Files with `[[case]]` are
//! sweeps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_sim::input::Scenario;
use srd_sim::run::MemoryEstimate;
use srd_sim::sweep::Sweep;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Nothing lies there: files that they name are other targets' business.
    let nowhere = Path::new("/nonexistent");
    let error = if text.contains("[[case]]") {
        Sweep::parse(text, "a.toml", nowhere, &[]).err()
    } else {
        match Scenario::parse(text, "a.toml", nowhere, &[]) {
            Ok(scenario) => {
                assert_eq!(scenario.topology.check(), Ok(()));
                assert_eq!(scenario.traffic.check(scenario.topology.hosts), Ok(()));
                assert!(MemoryEstimate::of(&scenario).bytes() > 0);
                None
            }
            Err(error) => Some(error),
        }
    };
    assert!(error.is_none_or(|error| !error.place.is_empty() && !error.message.is_empty()));
});
