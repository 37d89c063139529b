//! Runs of `srd sim`, for tests of what comes of them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn outcome(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_srd"))
        .current_dir(repository())
        .arg("sim")
        .args(arguments)
        .arg("--json")
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
