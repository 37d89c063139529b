//! `srd lab emulate`: the process that delays packets, started by `srd lab fault delay` and `reordering`.

use srd_lab::Lateness;

/// Arguments of `srd lab emulate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[arg(long)]
    delay_us: u64,
    #[arg(long)]
    jitter_us: u64,
    #[arg(long)]
    late_percent: f64,
    #[arg(long)]
    late_us: u64,
    /// NAMESPACE:DEVICE
    taps: Vec<String>,
}

/// Delays packets until it is killed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lateness = Lateness {
        delay_us: args.delay_us,
        jitter_us: args.jitter_us,
        late_percent: args.late_percent,
        late_us: args.late_us,
    };
    Ok(srd_lab::emulate(&lateness, &args.taps)?)
}
