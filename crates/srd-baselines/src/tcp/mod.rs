//! TCP as Linux runs it in data centres: congestion control by CUBIC, NewReno, DCTCP or BBR; losses found by
//! RACK-TLP with SACK and DSACK, repaired under proportional rate reduction, taken back when they were none
//! (Eifel); bursts of segmentation offload, segments collected by receive offload, delayed ACKs.
//!
//! Each channel is a connection of its own, with a source port of its own: ECMP pins it to a way. It is
//! established when the first order begins: the handshake costs nothing, and its round trip is the fabric's
//! longest unloaded one. Each message begins a segment (TCP_NODELAY), and is received when all before it is.
//! Applications read at once. What the kernel costs is the host's matter, not this module's.
//!
//! Choices: the retransmission timeout is at least 200 ms as on Linux (the SRD paper had 50 ms); an ACK waits
//! for a second segment for 1 ms at most (Linux: 40 ms, which a data centre's operator shortens); the receive
//! window is 6 MB from the beginning (Linux grows into it); datagrams carry timestamps, so a full segment is
//! 52 bytes shorter than a datagram.
//!
//! Beside ns-3.44 (single segments, 10 Gb/s, 100 us, one run each; ns-3 in brackets): mean windows at losses of
//! 0.3 % and 0.1 %: NewReno 22.1 and 39.2 segments (21.3 and 38.2 with an ACK for each segment: its NewReno grows by
//! ACKs, not by what they acknowledge), CUBIC 23.4 and 41.9 (21.9 and 38.3). DCTCP, 2 flows, marks from 65 frames on:
//! 52 to 68 frames wait (67 to 74; the paper's model has 55 to 67).

mod burst;
pub mod config;
pub mod congestion;
pub mod engine;
mod link;
mod mpa;
mod prr;
mod rack;
mod ranges;
mod rate;
mod receiver;
mod rtt;
mod scoreboard;
pub mod segment;
mod sender;
#[cfg(test)]
mod tests;
mod timers;
mod wire;

use crate::input::InputError;
use crate::section::Section;
use crate::transport::{Role, WireCost};
use crate::{Baseline, Surroundings};
use config::{Config, Framing, Marks, Placement, Recovery};
use congestion::Algorithm;
use engine::Engine;
use srd_wire::Nanos;

/// Largest burst of segmentation offload, and of receive offload (Linux, GSO_LEGACY_MAX_SIZE).
const OFFLOAD: u64 = 65_536;
/// Receive buffer (Linux, tcp_rmem's third value).
const RCVBUF: u64 = 6_291_456;

/// What tells this transport from iWARP.
pub enum Kernel {}

/// A process that speaks TCP.
pub type Tcp = Engine<Kernel>;

impl Default for Config {
    /// Linux: CUBIC with RACK-TLP.
    fn default() -> Config {
        Config {
            congestion: Algorithm::Cubic,
            recovery: Recovery::Rack,
            marks: Marks::Ignored,
            initial_window: 10, // RFC 6928
            min_rto: Nanos::from_millis(200),
            delayed_ack: Nanos::from_millis(1),
            tso_bytes: OFFLOAD,
            gro_bytes: OFFLOAD,
            pacing: false,
            rcvbuf: RCVBUF,
            restarts: true, // Linux, tcp_slow_start_after_idle
            placement: Placement::Kept,
            framing: Framing::Stream,
        }
    }
}

impl Baseline for Tcp {
    type Config = Config;

    const NAME: &'static str = "tcp";
    const KEYS: &'static [&'static str] = &[
        "congestion",
        "recovery",
        "ecn",
        "min_rto_us",
        "initial_window",
        "delayed_ack_us",
        "tso_bytes",
        "gro_bytes",
        "pacing",
        "rcvbuf",
    ];
    const HAS_HEADERS: bool = true;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<Config, InputError> {
        if around.lossless >> around.class & 1 == 1 {
            let class = around.class;
            return Err(section.error(format!(
                "class {class} is lossless, and TCP fills every queue until something is lost: its pauses would stop \
                 others. Give it another `class`, or take {class} out of the lossless ones"
            )));
        }
        let mut config = Config::default().read(section, around)?;
        let bytes = |key| Ok(section.bytes(key, 0)?.map(|bytes| bytes.with_bdp(around.bdp)));
        config.tso_bytes = bytes("tso_bytes")?.unwrap_or(config.tso_bytes);
        config.gro_bytes = bytes("gro_bytes")?.unwrap_or(config.gro_bytes);
        Ok(config)
    }

    fn open(role: &Role, config: &Config) -> Tcp {
        Engine::new(role, config)
    }

    fn cost(config: &Config, mtu: u16, overhead: u32) -> WireCost {
        config.cost(mtu, overhead)
    }
}
