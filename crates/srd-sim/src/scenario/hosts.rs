//! `[host]`: the hosts' network cards.

use crate::input::InputError;
use crate::settings::HostSettings;
use crate::units::Ps;
use srd_rivals::document::Document;
use srd_rivals::section::Section;

/// Keys of the section.
pub(super) const KEYS: [&str; 5] = ["per_packet_us", "latency_us", "receive_ring", "queues", "jitter_us"];

/// Packets that may wait unless the file says otherwise: a usual ring of 100 Gb/s cards.
const DEFAULT_RING: u64 = 4096;

/// Reads `[host]`.
pub(super) fn read(document: &Document) -> Result<HostSettings, InputError> {
    let section = Section::of(document, "host")?.only(&KEYS)?;
    Ok(HostSettings {
        per_packet: section.micros("per_packet_us")?.unwrap_or(Ps::ZERO),
        latency: section.micros("latency_us")?.unwrap_or(Ps::ZERO),
        receive_ring: section.whole("receive_ring", 1..=1 << 20)?.unwrap_or(DEFAULT_RING) as u32,
        queues: section.whole("queues", 1..=1024)?.unwrap_or(1) as u16,
        jitter: section.micros("jitter_us")?.unwrap_or(Ps::ZERO),
        looks_every: Ps::ZERO,
        on_node: None,
    })
}
