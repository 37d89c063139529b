//! `[host]`: the hosts' network cards.

use crate::hosts::{HostSettings, OnNode};
use srd_baselines::document::Document;
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use srd_baselines::units::Ps;

/// Keys of the section.
pub(super) const KEYS: [&str; 8] = [
    "per_packet_us",
    "latency_us",
    "receive_ring",
    "queues",
    "jitter_us",
    "slow_hosts",
    "slow_per_packet_us",
    "shared_memory",
];

/// Packets that may wait unless the file says otherwise: a usual ring of 100 Gb/s cards.
const DEFAULT_RING: u64 = 4096;

/// Reads `[host]`, of a fabric of so many hosts.
pub(super) fn read(document: &Document, hosts: u32) -> Result<HostSettings, InputError> {
    let section = Section::of(document, "host")?.only(&KEYS)?;
    let expected = "numbers of hosts";
    let slow = section.list("slow_hosts", expected, |item| item.whole())?;
    let slow_per_packet = section.some_micros("slow_per_packet_us")?;
    let slow = match (slow, slow_per_packet) {
        (Some(slow), Some(per_packet)) => (slow, per_packet),
        (None, None) => (Vec::new(), Ps::ZERO),
        (Some(_), None) => {
            return Err(section.error("`slow_per_packet_us` is missing: say how slow `slow_hosts` are"));
        }
        (None, Some(_)) => {
            return Err(section.error_at("slow_per_packet_us", "without `slow_hosts`: say which"));
        }
    };
    if let Some(host) = slow.0.iter().find(|&&host| host >= hosts) {
        return Err(section.error_at("slow_hosts", format!("there is no host {host}: there are {hosts}")));
    }
    Ok(HostSettings {
        per_packet: section.micros("per_packet_us")?.unwrap_or(Ps::ZERO),
        latency: section.micros("latency_us")?.unwrap_or(Ps::ZERO),
        receive_ring: section.whole("receive_ring", 1..=1 << 20)?.unwrap_or(DEFAULT_RING) as u32,
        queues: section.whole("queues", 1..=1024)?.unwrap_or(1) as u16,
        jitter: section.micros("jitter_us")?.unwrap_or(Ps::ZERO),
        looks_every: Ps::ZERO,
        intra_node: section.flag("shared_memory")?.unwrap_or(false).then(OnNode::default),
        slow_hosts: slow.0,
        slow_per_packet: slow.1,
    })
}
