//! Processes: all of a model live.

use std::io;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: u32,
    pub started: u64,
    pub namespace: u64,
}

impl Process {
    pub fn this() -> io::Result<Process> {
        Ok(Process { pid: std::process::id(), started: 1, namespace: 1 })
    }

    pub fn has_ended(&self, _seen_from: &Process) -> bool {
        false
    }
}
