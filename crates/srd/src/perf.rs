//! `srd perf`: measures SRD between two hosts, and beside it the kernel's TCP in the same shape.

mod client;
pub mod control;
mod histogram;
mod memory;
mod pattern;
mod plan;
mod processor;
mod result;
mod round;
mod server;
mod srd_side;
mod tcp_side;
mod watch;

use control::Control;
use srd_net::{Options, options::Address};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd perf server                                      on one host, and on another:
  srd perf client nodeb --test latency --vs-tcp
  srd perf client nodeb --test bandwidth --size 8192
  srd perf client nodeb --test msgrate --json

JSON fields: test, transport, size, paths, mtu, half_rtt_us {p50, p99, p999}, gbps, msgs_per_s, cpu_us_per_msg,
retransmissions; with --vs-tcp the same under tcp, and SRD divided by TCP under ratio.";

/// Arguments of `srd perf`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(clap::Subcommand, Debug)]
enum Side {
    /// Wait for clients
    Server(server::Args),
    /// Measure against a server
    Client(client::Args),
}

/// Plays one side.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.side {
        Side::Server(args) => server::run(args),
        Side::Client(args) => client::run(args),
    }
}

/// The options of the environment; unless an address is chosen there, that by which the other side is reached.
fn local_options(control: &Control) -> anyhow::Result<Options> {
    let (mut options, warnings) = Options::from_env()?;
    for warning in warnings {
        eprintln!("srd: {warning}");
    }
    options.fault.iter().try_for_each(|plan| plan.packets_only("srd perf")).map_err(anyhow::Error::msg)?;
    if options.addr == Address::Auto {
        options.addr = Address::Ip(control.local_address()?);
    }
    Ok(options)
}

/// Segments that the kernel's TCP has sent again in this network namespace, of all connections.
fn tcp_retransmissions() -> u64 {
    let snmp = std::fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (Some(mut names), Some(mut values)) = (lines.next(), lines.next()) else { return 0 };
    let column = names.position(|name| name == "RetransSegs");
    column.and_then(|column| values.nth(column)?.parse().ok()).unwrap_or(0)
}
