//! The processor: binding to one, and how much time of it this process has used.

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Binds this thread, and those that it starts from now on, to one processor.
pub fn bind(cpu: usize) -> anyhow::Result<()> {
    srd_net::confine_thread_to(cpu)
        .with_context(|| format!("cannot run on processor {cpu} (`nproc` tells how many there are, from 0)"))
}

/// Processor time that all threads of this process have used so far, in the kernel too.
pub fn time_used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
