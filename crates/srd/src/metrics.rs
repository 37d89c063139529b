//! `srd metrics`: the counters of this host's processes under documented names, once or for whoever asks over HTTP.

mod encode;
mod gather;
mod serve;
mod table;

use crate::output;
use crate::top::sample::{self, Chosen};
use gather::Snapshot;
use srd_machine::Description;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd metrics                               once, as OpenMetrics text (which Prometheus reads)
  srd metrics --json | jq .                 the same as JSON
  srd metrics --listen 127.0.0.1:9417       serves /metrics and /json until it is told to end
  srd metrics --program lmp --peers 8       processes of one program, the 8 busiest peers of each

All processes of this user on this host that use SRD are there, whichever network namespace they are in, unless they run with
SRD_TOP=off. In a machine (`srd run --machine`) those of the machine are, and its devices' counters besides, under the names of AWS's
EFA exporter (node_amazonefa_*). docs/METRICS.md has every name. Whoever can reach the address of --listen can read the counters.";

/// Peers of a process that are told of at most, whatever is asked for: processes themselves list no more.
const MOST_PEERS: u32 = srd_net::MOST_PEERS as u32;

/// Arguments of `srd metrics`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Serve /metrics and /json over HTTP at this address until ^C (port 0: any that is free)
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, conflicts_with = "json")]
    listen: Option<SocketAddr>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// These processes [default: all]
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// Processes of this program
    #[arg(long, value_name = "NAME", conflicts_with = "pids")]
    program: Option<String>,
    /// Tell of so many peers of each process, those with the most traffic
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_PEERS)))]
    peers: u32,
    /// Print docs/METRICS.md
    #[arg(long, hide = true)]
    document: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let what = "an IP address and a port, such as 127.0.0.1:9417 or [::]:9417";
        match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            Ok(port) => {
                format!("{what}: for this host alone 127.0.0.1:{port}, for others too 0.0.0.0:{port}")
            }
            Err(_) => what.to_string(),
        }
    })
}

/// Prints, or serves.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.document {
        output::text(&table::markdown())?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = Chosen { pids: args.pids.clone(), program: args.program.clone() };
    let peers = args.peers as usize;
    if let Some(address) = args.listen {
        return serve::run(address, || look(&chosen, peers));
    }
    let snapshot = look(&chosen, peers);
    if args.json {
        output::json(&encode::json(&snapshot))?
    } else {
        output::text(&encode::text(&snapshot))?
    }
    Ok(ExitCode::SUCCESS)
}

/// The counters of now.
fn look(chosen: &Chosen, peers: usize) -> Snapshot {
    let machine = Description::here().ok().flatten();
    let names = machine.iter().flat_map(|machine| &machine.devices).map(|device| device.name.as_str());
    let devices: Vec<PathBuf> = names.map(|name| Path::new("/sys/class/infiniband").join(name)).collect();
    Snapshot::of(&sample::take(chosen), peers, &devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(address("127.0.0.1:9417"), Ok(([127, 0, 0, 1], 9417).into()));
        assert!(address("[::1]:80").is_ok());
        for text in ["", "9417", ":9417", "127.0.0.1", "localhost", "127.0.0.1:99999", "127.0.0.1:"] {
            assert!(address(text).is_err_and(|why| why.contains("127.0.0.1:9417")), "{text}");
        }
    }
}
