//! Runs of `srd sim`, for tests of what comes of them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `srd sim` with such arguments, at the repository's root.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.current_dir(repository()).arg("sim").args(arguments);
    command
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What it writes with `--json`.
pub fn outcome(arguments: &[&str]) -> Value {
    let output = command(arguments).arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
