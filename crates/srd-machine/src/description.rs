//! What a machine says of itself to the libraries in its programs: a file in its own `/sys`, so that a program needs no variable
//! to find it, and one of another machine or of none cannot.

use crate::device::Device;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Where it is, below the root of the tree.
pub const DESCRIPTION: &str = "devices/virtual/opensrd/machine.json";

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// What it is called.
    pub name: String,
    /// DMI product name.
    pub product: String,
    /// Its devices.
    pub devices: Vec<Device>,
}

impl Description {
    /// The machine that this process is in, if it is in one.
    ///
    /// # Errors
    ///
    /// It is in one of another release, or may not read what that says.
    pub fn here() -> io::Result<Option<Description>> {
        Description::below(Path::new("/sys"))
    }

    pub(crate) fn below(root: &Path) -> io::Result<Option<Description>> {
        let path = root.join(DESCRIPTION);
        let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match std::fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text).map_err(io::Error::other).map_err(told)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(told(error)),
        }
    }
}
