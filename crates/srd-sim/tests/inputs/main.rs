//! What a run is read from: topologies, htsim's files, workloads, scenarios. What must hold for good input, and what a
//! person is told about bad input.

mod htsim;
mod mutations;
mod programs;
mod scenarios;
mod topologies;
mod workloads;

use std::path::PathBuf;

/// The text of one of htsim's own files.
fn htsim_file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/inputs/htsim").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The repository's `scenarios` folder.
fn shipped() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}
