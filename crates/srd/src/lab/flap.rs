//! `srd lab flap`: the process that switches links off and on, started by `srd lab fault flap --carrier`.

use srd_lab::Lab;
use std::time::Duration;

/// Arguments of `srd lab flap`.
#[derive(clap::Args, Debug)]
pub struct Args {
    at: String,
    #[arg(long)]
    period_ms: u64,
    #[arg(long)]
    down_ms: u64,
}

/// Switches links off and on until it is killed.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<()> {
    let (period, down) = (Duration::from_millis(args.period_ms), Duration::from_millis(args.down_ms));
    Ok(lab.flap(&args.at, period, down)?)
}
