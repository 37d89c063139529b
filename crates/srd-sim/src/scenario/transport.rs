//! `[transport]`: the transport that all hosts run.

use super::document::Document;
use super::quantity::Bytes;
use super::section::Section;
use crate::input::InputError;
use crate::settings::TransportSettings;
use crate::topology::{PacketSizes, Topology};
use crate::units::Ps;
use srd_proto::{Config, ControllerKind, SelectorKind};
use srd_wire::BitRate;

/// Keys of the section.
pub(super) const KEYS: [&str; 9] = [
    "mtu",
    "paths",
    "selector",
    "controller",
    "window",
    "base_rtt_us",
    "line_rate_gbps",
    "receiver_hint",
    "ack_every",
];

/// Largest IP datagram unless the file says otherwise: EC2's jumbo frames without tags (SRD paper, 9000).
const DEFAULT_MTU: u64 = 9000;
/// IPv4's least, and jumbo frames' usual most.
const MTU: std::ops::RangeInclusive<u64> = 576..=9216;

/// Path selectors by name.
pub const SELECTORS: &[(&str, SelectorKind)] = &[
    ("pinned", SelectorKind::Pinned),
    ("oblivious", SelectorKind::Oblivious),
    ("bitmap", SelectorKind::Bitmap),
    ("reps", SelectorKind::Reps),
    ("mixed", SelectorKind::Mixed),
    ("rtt-p2c", SelectorKind::RttP2c),
];

/// Congestion controllers by name. The fixed one's window is the section's `window`.
pub const CONTROLLERS: &[(&str, ControllerKind)] = &[
    ("log-target", ControllerKind::LogTarget),
    ("paper", ControllerKind::Paper),
    ("fixed", ControllerKind::Fixed { window_bytes: 0 }),
];

/// What must be known before the fabric is.
#[derive(Clone, Copy)]
pub(super) struct Wire {
    pub(super) mtu: u16,
    base_rtt: Option<Ps>,
    line_rate: Option<BitRate>,
}

/// Reads what must be known before the fabric is.
pub(super) fn wire(document: &Document) -> Result<Wire, InputError> {
    let section = Section::of(document, "transport")?.only(&KEYS)?;
    Ok(Wire {
        mtu: section.whole("mtu", MTU)?.unwrap_or(DEFAULT_MTU) as u16,
        base_rtt: section.some_micros("base_rtt_us")?,
        line_rate: section.gbps("line_rate_gbps")?,
    })
}

/// The bandwidth-delay product in bytes: the fastest host's rate times the longest unloaded round trip, or what
/// `[transport]` says in their place.
pub(super) fn bdp(wire: &Wire, topology: &Topology, sizes: PacketSizes) -> u64 {
    let rate = wire.line_rate.unwrap_or_else(|| topology.fastest_host());
    let rtt = wire.base_rtt.unwrap_or_else(|| topology.longest_base_rtt(sizes));
    let bytes = rate.0 as u128 * rtt.0 as u128 / 8_000_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
}

/// Reads `[transport]`.
pub(super) fn read(document: &Document, wire: Wire, bdp: u64) -> Result<TransportSettings, InputError> {
    let section = Section::of(document, "transport")?.only(&KEYS)?;
    let usual = Config::default();
    Ok(TransportSettings {
        mtu: wire.mtu,
        paths: section.whole("paths", 1..=256)?.map_or(usual.paths, |paths| paths as u16),
        selector: section.word("selector", SELECTORS)?.unwrap_or(usual.selector),
        controller: controller(&section, bdp)?.unwrap_or(usual.controller),
        law: super::law::read(document)?,
        base_rtt: wire.base_rtt,
        line_rate: wire.line_rate,
        receiver_hint: section.flag("receiver_hint")?,
        ack_every: section.whole("ack_every", 1..=1024)?.map(|every| every as u32),
    })
}

fn controller(section: &Section<'_>, bdp: u64) -> Result<Option<ControllerKind>, InputError> {
    let window = section.bytes("window", 1)?;
    match (section.word("controller", CONTROLLERS)?, window) {
        (Some(ControllerKind::Fixed { .. }), window) => {
            let window_bytes = window.unwrap_or(Bytes::Bdp(1.0)).with_bdp(bdp);
            Ok(Some(ControllerKind::Fixed { window_bytes }))
        }
        (_, Some(_)) => Err(section.error_at("window", "only together with `controller = \"fixed\"`")),
        (kind, None) => Ok(kind),
    }
}
