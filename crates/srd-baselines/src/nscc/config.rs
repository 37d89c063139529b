//! What a scenario may say of NSCC.

use super::packet::DATAGRAM_HEADERS;
use super::paths::Selector;
use crate::Surroundings;
use crate::input::InputError;
use crate::section::Section;
use srd_wire::Nanos;

/// See [`super::Nscc`].
pub(super) const KEYS: &[&str] = &[
    "payload",
    "paths",
    "selector",
    "trimming",
    "recovery",
    "target_us",
    "max_window",
    "ack_every",
    "rto_us",
    "control_class",
];

/// Entropy values unless the file says otherwise (main_uec.cpp, `path_entropy_size`).
pub(crate) const PATHS: u64 = 64;
/// Largest window in bandwidth-delay products (uec.cpp, `initNscc`).
const MAX_WINDOW: f64 = 1.5;
/// Bytes for which a receiver sends an ACK (uec.cpp, `_bytes_unacked_threshold`).
const ACK_BYTES: u64 = 16_384;

/// How losses are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// By NACKs, and by the clock: uet-htsim's default, with and without trimming.
    Timeout,
    /// Also by what comes out of order, and by probes: finds stray losses sooner, and sends again what was not lost where
    /// queues are long.
    Sleek,
}

/// Who says how much may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// The sender's window.
    Window,
    /// The receiver's credit.
    Credit,
    /// Both.
    Both,
}

/// The section `[transport]` of NSCC.
#[derive(Clone, PartialEq, Debug)]
pub struct NsccConfig {
    /// Bytes of payload in a full packet.
    pub payload: u16,
    /// Bytes of headers beside UET's: none, or those of MRC.
    pub route_bytes: u16,
    /// Entropy values.
    pub paths: u16,
    /// How they are chosen.
    pub selector: Selector,
    /// Switches cut packets.
    pub trimming: bool,
    /// How losses are found.
    pub recovery: Recovery,
    /// Who says how much may be sent.
    pub control: Control,
    /// Queueing delay that is aimed at; otherwise 3/4 of a round trip, or all of it where nothing is cut.
    pub target: Option<Nanos>,
    /// Largest window in bandwidth-delay products.
    pub max_window: f64,
    /// Data packets per ACK.
    pub ack_every: u32,
    /// Retransmission timeout; otherwise 15 us and the time that six queues of a bandwidth-delay product take.
    pub rto: Option<Nanos>,
    /// Class of packets without data; otherwise that of the data.
    pub control_class: Option<u8>,
}

/// What sections of NSCC and of transports that take their window from it have in common. `payload` is the usual one, of at most
/// what `route_bytes` beside UET's headers leave.
pub(crate) fn read_common(
    section: &Section<'_>,
    around: &Surroundings,
    name: &str,
    (usual_payload, route_bytes): (u64, u16),
    (usual_paths, most_paths): (u64, u64),
) -> Result<NsccConfig, InputError> {
    if !around.marks {
        let what = format!(
            "{name} answers to congestion marks, and these switches make none: write `ecn_min = \"0.2bdp\"` and \
             `ecn_max = \"0.8bdp\"` in [queues]"
        );
        return Err(section.error(what));
    }
    let room = around.mtu as u64 - DATAGRAM_HEADERS as u64 - route_bytes as u64;
    let payload = section.whole("payload", 64..=room)?.unwrap_or(room.min(usual_payload));
    let paths = section.whole("paths", 1..=most_paths)?.unwrap_or(usual_paths) as u16;
    if !paths.is_power_of_two() {
        return Err(
            section.error_at("paths", format!("{paths} is not a power of two: entropy values are bits"))
        );
    }
    let nanos = |span: crate::units::Ps| Nanos(span.0 / 1000);
    Ok(NsccConfig {
        payload: payload as u16,
        route_bytes,
        paths,
        selector: Selector::Mixed,
        trimming: around.trims,
        recovery: Recovery::Timeout,
        control: Control::Window,
        target: section.some_micros("target_us")?.map(nanos),
        max_window: section.number("max_window", 0.01..=1000.0)?.unwrap_or(MAX_WINDOW),
        ack_every: match section.whole("ack_every", 1..=1024)? {
            Some(every) => every as u32,
            None => ACK_BYTES.div_ceil(payload + super::packet::HEADERS as u64) as u32,
        },
        rto: section.some_micros("rto_us")?.map(nanos),
        control_class: section.whole("control_class", 0..=7)?.map(|class| class as u8),
    })
}

/// Reads the section.
pub(super) fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError> {
    let common = read_common(section, around, "nscc", (u64::MAX, 0), (PATHS, 1 << 12))?;
    let trimming = section.flag("trimming")?.unwrap_or(around.trims);
    if trimming && !around.trims {
        let what = "these switches cut no packets: write `trim = true` in [queues], or `trimming = false`";
        return Err(section.error_at("trimming", what));
    }
    let selectors = [
        ("mixed", Selector::Mixed),
        ("reps", Selector::Reps),
        ("bitmap", Selector::Bitmap),
        ("oblivious", Selector::Oblivious),
    ];
    let recoveries = [("timeout", Recovery::Timeout), ("sleek", Recovery::Sleek)];
    Ok(NsccConfig {
        selector: section.word("selector", &selectors)?.unwrap_or(Selector::Mixed),
        trimming,
        recovery: section.word("recovery", &recoveries)?.unwrap_or(Recovery::Timeout),
        ..common
    })
}
