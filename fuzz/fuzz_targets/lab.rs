//! Texts as a lab's shapes and experiments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_lab::experiment::plan::Experiment;
use srd_lab::{Plan, Shape};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(shape) = Shape::from_toml(text)
        && shape.check().is_ok()
    {
        let plan = Plan::new(&shape).expect("a shape that has been checked");
        assert!(shape.hosts() > 0 && shape.oversubscription() > 0.0);
        drop(plan);
    }
    if let Err(error) = Experiment::from_toml(text) {
        assert!(!error.to_string().is_empty());
    }
});
