//! What a scenario says of TCP, and of the TCP below iWARP.

use super::congestion::Algorithm;
use super::segment::{IP_TCP, TIMESTAMPS};
use crate::Surroundings;
use crate::frame::ETHERNET_HEADER;
use crate::input::InputError;
use crate::section::Section;
use crate::transport::WireCost;
use crate::units::Ps;
use srd_wire::Nanos;

/// How losses are found. Either way with SACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// By time, with probes of the tail: RACK-TLP (RFC 8985).
    Rack,
    /// By three segments that have come after it (RFC 6675).
    Sack,
}

/// What switches' marks mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    /// Segments ask for none.
    Ignored,
    /// A loss, once per round trip (RFC 3168).
    Classic,
    /// The share of marked segments counts (RFC 8257).
    Counted,
}

/// What a receiver does with segments that have come out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Keeps them; the application gets bytes in order.
    Kept,
    /// Keeps so many bytes of them, and drops the rest; the application gets bytes in order.
    Bounded(u64),
    /// Writes them where they belong: DDP's tagged segments say where.
    Direct,
}

/// What is between TCP's header and the flow's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Nothing.
    Stream,
    /// An FPDU in each segment, with or without markers.
    Mpa {
        /// Four bytes in every 512.
        markers: bool,
    },
}

/// A connection's rules.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Congestion control.
    pub congestion: Algorithm,
    /// Loss detection.
    pub recovery: Recovery,
    /// Marks.
    pub marks: Marks,
    /// Segments.
    pub initial_window: u32,
    /// Shortest retransmission timeout.
    pub min_rto: Nanos,
    /// How long an ACK may wait for a second segment.
    pub delayed_ack: Nanos,
    /// Bytes of the largest burst.
    pub tso_bytes: u64,
    /// Bytes that come together and are acknowledged together; 0: segments are taken one by one.
    pub gro_bytes: u64,
    /// Bursts are spaced out.
    pub pacing: bool,
    /// Bytes that the receiver has room for.
    pub rcvbuf: u64,
    /// After a pause the window is small again.
    pub restarts: bool,
    /// Segments out of order.
    pub placement: Placement,
    /// Framing.
    pub framing: Framing,
}

/// Algorithms by name.
pub const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("cubic", Algorithm::Cubic),
    ("newreno", Algorithm::NewReno),
    ("dctcp", Algorithm::Dctcp),
    ("bbr", Algorithm::Bbr),
    ("bbr3", Algorithm::Bbr3),
];

impl Config {
    /// Reads the keys that TCP and iWARP have in common; `self` says what holds where there are none.
    pub fn read(self, section: &Section<'_>, around: &Surroundings) -> Result<Config, InputError> {
        let nanos = |span: Ps| Nanos(span.0 / 1000);
        let congestion = section.word("congestion", ALGORITHMS)?.unwrap_or(self.congestion);
        let recovery = section.word("recovery", &[("rack", Recovery::Rack), ("sack", Recovery::Sack)])?;
        Ok(Config {
            congestion,
            recovery: recovery.unwrap_or(self.recovery),
            marks: marks(congestion, section, around)?,
            initial_window: section.whole("initial_window", 1..=10_000)?.map_or(self.initial_window, |n| n as u32),
            min_rto: section.some_micros("min_rto_us")?.map_or(self.min_rto, nanos),
            delayed_ack: section.micros("delayed_ack_us")?.map_or(self.delayed_ack, nanos),
            // BBR is no BBR without (draft-cardwell-iccrg-bbr-congestion-control, section 4.2.1).
            pacing: section.flag("pacing")?.unwrap_or(self.pacing || congestion.is_bbr()),
            rcvbuf: rcvbuf(section, around)?.unwrap_or(self.rcvbuf),
            ..self
        })
    }

    /// Segments that a receiver has room for.
    pub fn room(&self, full: u32) -> u32 {
        (self.rcvbuf / full as u64).clamp(1, 1 << 30) as u32
    }

    /// Bytes of IPv4 and TCP headers.
    pub fn headers(&self) -> u32 {
        IP_TCP + TIMESTAMPS
    }

    /// Bytes of the flow in a full segment.
    pub fn payload(&self, mtu: u16) -> u32 {
        let segment = (mtu as u32).saturating_sub(self.headers()).max(1);
        match self.framing {
            Framing::Stream => segment,
            Framing::Mpa { markers } => super::mpa::payload(segment, markers),
        }
    }

    /// Bytes of the IP datagram of segment `number` of a message, which carries `payload` of its bytes; a
    /// full one carries `full`.
    pub fn datagram(&self, number: u64, payload: u32, full: u32) -> u32 {
        let carried = match self.framing {
            Framing::Stream => payload,
            Framing::Mpa { markers } => super::mpa::segment(number, payload, full, markers),
        };
        self.headers() + carried
    }

    /// What flows cost on the wire.
    pub fn cost(&self, mtu: u16, overhead: u32) -> WireCost {
        let payload = self.payload(mtu);
        let headers = self.datagram(0, payload, payload) - payload + ETHERNET_HEADER + overhead;
        WireCost { payload: payload as u64, headers: headers as u64 }
    }
}

fn marks(
    congestion: Algorithm,
    section: &Section<'_>,
    around: &Surroundings,
) -> Result<Marks, InputError> {
    let wanted = section.flag("ecn")?;
    let lacking = "the switches mark nothing: give [queues] `ecn_min` and `ecn_max`";
    match (congestion, wanted) {
        (Algorithm::Dctcp, Some(false)) => {
            Err(section.error_at("ecn", "DCTCP lives on marks: leave `ecn` out, or choose another `congestion`"))
        }
        (Algorithm::Dctcp, _) if !around.marks => {
            Err(section.error_at("congestion", format!("{lacking}, or choose \"cubic\"")))
        }
        (Algorithm::Dctcp, _) => Ok(Marks::Counted),
        (Algorithm::Bbr | Algorithm::Bbr3, Some(true)) => {
            Err(section.error_at("ecn", "BBR does not look at these marks: leave `ecn` out"))
        }
        (_, Some(true)) if !around.marks => Err(section.error_at("ecn", format!("{lacking}, or leave it out"))),
        (_, Some(true)) => Ok(Marks::Classic),
        (_, _) => Ok(Marks::Ignored),
    }
}

/// Room for two packets is the least with which a window can move (RFC 1122, section 4.2.3.3).
fn rcvbuf(section: &Section<'_>, around: &Surroundings) -> Result<Option<u64>, InputError> {
    let bytes = section.bytes("rcvbuf", 1)?.map(|bytes| bytes.with_bdp(around.bdp));
    let least = 2 * u64::from(around.mtu);
    match bytes {
        Some(bytes) if bytes < least => {
            let message = format!("{bytes} bytes do not hold two packets of {}: at least {least}", around.mtu);
            Err(section.error_at("rcvbuf", message))
        }
        bytes => Ok(bytes),
    }
}

