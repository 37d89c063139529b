//! Where the software EFA's libraries lie: beside this command, or where `SRD_LIB_DIR` says.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// Overrides the directory that is looked in.
pub const DIRECTORY_VARIABLE: &str = "SRD_LIB_DIR";

/// What programs written for EFA load, under the names that they ask for.
pub const NAMES: [&str; 2] = ["libibverbs.so.1", "libefa.so.1"];

/// The directory that should hold the libraries, whether or not it does: `SRD_LIB_DIR`, or `../lib/srd/efa` from the
/// directory of this executable.
pub fn directory() -> anyhow::Result<PathBuf> {
    let directory = match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(directory) => PathBuf::from(directory),
        None => {
            let executable = std::env::current_exe().context("the path of this executable is unknown")?;
            let bin = executable.parent().context("this executable lies in no directory")?;
            bin.parent().unwrap_or(bin).join("lib/srd/efa")
        }
    };
    // Programs may change their working directory, so the loader needs an absolute path.
    std::path::absolute(&directory).with_context(|| format!("{} names no directory", directory.display()))
}

/// The libraries of `directory` that are missing.
pub fn missing(directory: &Path) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| !directory.join(name).is_file()).collect()
}

/// The directory of the libraries, or a message that says where they were looked for and how to come by them.
pub fn locate() -> anyhow::Result<PathBuf> {
    let directory = directory()?;
    let missing = missing(&directory);
    if missing.is_empty() {
        return Ok(directory);
    }
    let missing = missing.join(" and ");
    match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(_) => bail!(
            "{missing} not found in {}, which {DIRECTORY_VARIABLE} names\n  \
             set {DIRECTORY_VARIABLE} to the directory that holds them, or unset it to use those beside srd",
            directory.display()
        ),
        None => bail!(
            "{missing} not found in {}\n  \
             build them: run `make build` in the OpenSRD source tree, then use its target/srd/bin/srd\n  \
             or set {DIRECTORY_VARIABLE} to the directory that holds them",
            directory.display()
        ),
    }
}
