//! `srd lab worker`: the process that plays a host's programs in an experiment.

use srd_lab::flow::worker;
use std::io;

/// Obeys the orders on standard input.
pub fn run() -> anyhow::Result<()> {
    worker::run(io::stdin().lock(), io::stdout().lock())
}
