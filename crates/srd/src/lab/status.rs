//! `srd lab status`: hosts, faults, and what links have carried.

use crate::output;
use srd_lab::{Lab, LinkStatus, Status};
use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `srd lab status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// As one line of JSON
    #[arg(long)]
    json: bool,
    /// Again and again, so long apart, until interrupted or the lab is removed
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    every_ms: Option<u64>,
}

/// Prints what happens in a lab.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<()> {
    let sampler = lab.sampler()?;
    let mut next = Instant::now();
    loop {
        let status = lab.status_by(&sampler)?;
        match args.json {
            true => output::json(&status)?,
            false => output::text(&(headline(lab) + "\n\n" + &table(&status)))?,
        }
        let Some(every_ms) = args.every_ms else { return Ok(()) };
        // From the moments that were meant, so that delays do not add up; those that have been missed are left out.
        next = (next + Duration::from_millis(every_ms)).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// What a lab is, in a line.
pub fn headline(lab: &Lab) -> String {
    let shape = lab.shape();
    let routers = if shape.pods > 0 {
        format!(
            "{} leaves, {} pods of {} aggregation routers, {} cores",
            shape.leaves, shape.pods, shape.aggs_per_pod, shape.cores
        )
    } else {
        format!("{} leaves, {} spines", shape.leaves, shape.spines())
    };
    format!(
        "lab {}: {} hosts, {routers}; {} Mbit/s to hosts, {} up, oversubscribed {:.2}; queues of {} bytes, MTU {}",
        lab.name(),
        shape.hosts(),
        shape.host_mbps,
        shape.uplink_mbps,
        shape.oversubscription(),
        shape.buffer_bytes,
        shape.mtu_bytes,
    )
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    for host in &status.hosts {
        let _ = writeln!(
            text,
            "{:8} fabric {:15} management {:12} namespace {}",
            host.name,
            host.fabric_address.to_string(),
            host.management_address.to_string(),
            host.namespace
        );
    }
    let width = status.links.iter().map(|link| link.name.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(
        text,
        "\n{:width$} {:>8} {:>10} {:>13} {:>12} {:>8} {:>8} {:>8}  faults",
        "link", "Mbit/s", "packets", "bytes", "queued bytes", "drops", "marked", "trimmed"
    );
    for link in &status.links {
        let _ = writeln!(text, "{}", row(link, width));
    }
    for fault in &status.faults {
        let met = fault.packets.map_or(String::new(), |packets| format!(": {packets} packets so far"));
        let _ = writeln!(text, "fault {}: {}{met}", fault.id, fault.text);
        if let Some(broken) = &fault.broken {
            let _ = writeln!(text, "  {broken}");
        }
    }
    text
}

fn row(link: &LinkStatus, width: usize) -> String {
    let counters = &link.counters;
    let faults: Vec<_> = link.faults.iter().map(u32::to_string).collect();
    let row = format!(
        "{:width$} {:>8} {:>10} {:>13} {:>12} {:>8} {:>8} {:>8}  {}",
        link.name,
        link.mbps,
        counters.packets,
        counters.bytes,
        counters.queue_bytes,
        counters.drops,
        counters.marked,
        counters.trimmed,
        faults.join(" ")
    );
    row.trim_end().to_owned()
}
