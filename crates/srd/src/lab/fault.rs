//! `srd lab fault`.

use crate::output;
use clap::Subcommand;
use srd_lab::{Fault, Lab};

const NAMES: &str = "\
AT names links, ways of links, or routers:
  leaf0-spine1   a link, both ways           leaf0>spine1   one way of it (quote it for the shell)
  spine1         all links of a router       host3          a host's link
  leaf0-*        * stands for anything

Faults overlap, each with a number of its own by which `srd lab heal NUMBER` ends it.";

/// Arguments of `srd lab fault`.
#[derive(clap::Args, Debug)]
#[command(after_help = NAMES, disable_help_subcommand = true)]
pub struct Args {
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
        percent: f64,
    },
    /// One bit of packets is turned, at random
    Corruption {
        /// Links, ways or routers
        at: String,
        /// Of all packets
        percent: f64,
    },
    /// Packets arrive twice, at random
    Duplication {
        /// Links, ways or routers
        at: String,
        /// Of all packets
        percent: f64,
    },
    /// Nothing arrives for a part of each period, and nobody notices
    Flap {
        /// Links, ways or routers
        at: String,
        /// Length of a period
        #[arg(long, value_name = "MS")]
        period_ms: u64,
        /// How long of it nothing arrives [default: half of it]
        #[arg(long, value_name = "MS")]
        down_ms: Option<u64>,
    },
    /// The link is slower
    Slow {
        /// Links, ways or routers
        at: String,
        /// Its rate
        mbps: f64,
    },
    /// Every process in a host stands still
    Pause {
        /// host3
        host: String,
    },
}

/// Lets something go wrong, and says its number.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<()> {
    let fault = match &args.kind {
        Kind::Down { at } => Fault::Down { at: at.clone() },
        Kind::Blackhole { at } => Fault::Blackhole { at: at.clone() },
        Kind::Loss { at, percent } => Fault::Loss { at: at.clone(), percent: *percent },
        Kind::Corruption { at, percent } => Fault::Corruption { at: at.clone(), percent: *percent },
        Kind::Duplication { at, percent } => Fault::Duplication { at: at.clone(), percent: *percent },
        Kind::Flap { at, period_ms, down_ms } => {
            Fault::Flap { at: at.clone(), period_ms: *period_ms, down_ms: down_ms.unwrap_or(period_ms / 2) }
        }
        Kind::Slow { at, mbps } => Fault::Slow { at: at.clone(), mbps: *mbps },
        Kind::Pause { host } => Fault::Pause { host: host.clone() },
    };
    let text = fault.to_string();
    let id = lab.fault(fault)?;
    output::text(&format!("fault {id}: {text}\n"))
}
