//! Texts as htsim's files: those that begin with `Nodes` as traffic matrices too, with a number of hosts and without.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_sim::input::htsim::{cm_file, topo_file};
use std::sync::LazyLock;

static TOPOLOGY: LazyLock<topo_file::TopoFile> = LazyLock::new(|| {
    let text = include_str!("../../scenarios/bundles.topo");
    topo_file::parse(text, "bundles.topo").expect("a file that is shipped")
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.lines().count().max(1) as u32;
    let is_told = |error: &srd_sim::input::InputError| {
        assert!(!error.place.is_empty() && error.line.is_none_or(|line| (1..=lines).contains(&line)));
    };
    match topo_file::parse(text, "a.topo") {
        Ok(file) => assert_eq!(file.topology.check(), Ok(())),
        Err(error) => is_told(&error),
    }
    for hosts in [None, Some(TOPOLOGY.topology.hosts)] {
        match cm_file::parse(text, "a.cm", hosts) {
            Ok(matrix) => {
                assert_eq!(matrix.traffic.check(matrix.hosts), Ok(()));
                let _ = matrix.faults(&TOPOLOGY.topology);
            }
            Err(error) => is_told(&error),
        }
    }
});
