//! `srd lab fault`.

use super::interrupt;
use crate::output;
use clap::Subcommand;
use srd_lab::{Fault, Lab};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

const NAMES: &str = "\
AT names links, ways of links, or routers:
  leaf0-spine1   a link, both ways           leaf0>spine1   one way of it (quote it for the shell)
  spine1         all links of a router       host3          a host's link
  leaf0-*        * stands for anything

A link that is down without anybody noticing is a blackhole. Faults overlap,
each with a number of its own by which `srd lab heal NUMBER` ends it.";

/// How soon an interrupt is heeded.
const STEP: Duration = Duration::from_millis(10);
/// A day is as good as for ever, and no sum of moments overflows.
const LONGEST_MS: u64 = 86_400_000;

/// Arguments of `srd lab fault`.
#[derive(clap::Args, Debug)]
#[command(after_help = NAMES, disable_help_subcommand = true)]
pub struct Args {
    /// End it after so long; without, it stays until healed
    #[arg(long, value_name = "MS", global = true, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    for_ms: Option<u64>,
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand, Debug)]
enum Kind {
    /// The link goes down, and its ends notice: the lower router takes other links at once
    Down {
        /// Links
        at: String,
    },
    /// Nothing arrives, and nobody notices
    Blackhole {
        /// Links, ways or routers
        at: String,
    },
    /// Packets are lost at random
    Loss {
        /// Links, ways or routers
        at: String,
        /// Of all packets
        #[arg(allow_negative_numbers = true)]
        percent: f64,
    },
    /// One bit of packets is turned, at random
    Corruption {
        /// Links, ways or routers
        at: String,
        /// Of all packets
        #[arg(allow_negative_numbers = true)]
        percent: f64,
    },
    /// Packets arrive twice, at random
    Duplication {
        /// Links, ways or routers
        at: String,
        /// Of all packets
        #[arg(allow_negative_numbers = true)]
        percent: f64,
    },
    /// Nothing arrives for a part of each period; nobody notices, unless --carrier
    Flap {
        /// Links, ways or routers
        at: String,
        /// Length of a period
        #[arg(long, value_name = "MS")]
        period_ms: u64,
        /// How long of it nothing arrives [default: half of it]
        #[arg(long, value_name = "MS")]
        down_ms: Option<u64>,
        /// The link goes down each time, and its ends see it
        #[arg(long)]
        carrier: bool,
    },
    /// The link is slower
    Slow {
        /// Links, ways or routers
        at: String,
        /// Its rate
        #[arg(allow_negative_numbers = true)]
        mbps: f64,
    },
    /// Packets take longer, and stay in order
    Delay {
        /// Links, ways or routers
        at: String,
        /// How much longer
        delay_us: u64,
        /// Up to so much more, at random
        #[arg(long, value_name = "US", default_value_t = 0)]
        jitter_us: u64,
    },
    /// Some packets take longer, and are overtaken
    Reordering {
        /// Links, ways or routers
        at: String,
        /// Of all packets
        #[arg(allow_negative_numbers = true)]
        percent: f64,
        /// How late they are
        late_us: u64,
    },
    /// Every process that is in a host now stands still
    Pause {
        /// host3
        host: String,
    },
    /// Processes end at once; healing the fault starts them again as they were
    Kill {
        /// host3
        host: String,
        /// A program's name, or a process's number
        program: String,
    },
}

/// Lets something go wrong, and says its number.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<ExitCode> {
    let fault = match &args.kind {
        Kind::Down { at } => Fault::Down { at: at.clone() },
        Kind::Blackhole { at } => Fault::Blackhole { at: at.clone() },
        Kind::Loss { at, percent } => Fault::Loss { at: at.clone(), percent: *percent },
        Kind::Corruption { at, percent } => Fault::Corruption { at: at.clone(), percent: *percent },
        Kind::Duplication { at, percent } => Fault::Duplication { at: at.clone(), percent: *percent },
        Kind::Flap { at, period_ms, down_ms, carrier } => Fault::Flap {
            at: at.clone(),
            period_ms: *period_ms,
            down_ms: down_ms.unwrap_or(period_ms / 2),
            carrier: *carrier,
        },
        Kind::Slow { at, mbps } => Fault::Slow { at: at.clone(), mbps: *mbps },
        Kind::Delay { at, delay_us, jitter_us } => {
            Fault::Delay { at: at.clone(), delay_us: *delay_us, jitter_us: *jitter_us }
        }
        Kind::Reordering { at, percent, late_us } => {
            Fault::Reordering { at: at.clone(), percent: *percent, late_us: *late_us }
        }
        Kind::Pause { host } => Fault::Pause { host: host.clone() },
        Kind::Kill { host, program } => Fault::Kill { host: host.clone(), program: program.clone() },
    };
    let text = fault.to_string();
    let Some(for_ms) = args.for_ms else {
        let id = lab.fault(fault)?;
        output::text(&format!("fault {id}: {text}\n"))?;
        return Ok(ExitCode::SUCCESS);
    };
    // An interrupt ends the waiting, not the healing.
    let interrupted = interrupt::watch()?;
    let id = lab.fault(fault)?;
    let told = output::text(&format!("fault {id}: {text}\n"));
    let end = Instant::now() + Duration::from_millis(for_ms);
    while told.is_ok() && !interrupted.load(Ordering::Relaxed) && Instant::now() < end {
        thread::sleep(STEP.min(end.saturating_duration_since(Instant::now())));
    }
    lab.heal(id)?;
    told?;
    output::text(&format!("fault {id}: healed\n"))?;
    Ok(if interrupted.load(Ordering::Relaxed) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}
