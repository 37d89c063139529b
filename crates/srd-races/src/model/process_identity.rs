//! Processes: all of a model live.

use std::io;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessIdentity {
    pub pid: u32,
    pub started: u64,
    pub namespace: u64,
}

impl ProcessIdentity {
    pub fn this() -> io::Result<ProcessIdentity> {
        Ok(ProcessIdentity { pid: std::process::id(), started: 1, namespace: 1 })
    }

    pub fn has_ended(&self, _seen_from: &ProcessIdentity) -> bool {
        false
    }
}
