//! What a scenario may say of RoCEv2, and the constants that it need not say.

use super::dcqcn::{AlphaUpdate, Constants};
use super::packet::{ADDRESS_HEADER, DATA_HEADERS};
use crate::Surroundings;
use crate::input::InputError;
use crate::quantity::Bytes;
use crate::section::Section;
use crate::units::Ps;
use srd_wire::{BitRate, Nanos};

/// Keys of the section. Those behind `dcqcn` mean something only with it.
pub(super) const KEYS: &[&str] = &[
    "qps",
    "payload",
    "message",
    "recovery",
    "ack_every",
    "rto_us",
    "rto_low_us",
    "nak_again_us",
    "retries",
    "window",
    "dcqcn",
    "preset",
    "g",
    "alpha_interval_us",
    "decrease_interval_us",
    "rp_timer_us",
    "byte_counter",
    "recoveries",
    "rai_mbps",
    "rhai_mbps",
    "min_rate_mbps",
    "clamp_target",
    "cnp_interval_us",
    "cnp_delay_us",
    "cnp_class",
    "reaction_us",
];

/// InfiniBand's path MTUs.
const PAYLOADS: [u64; 5] = [4096, 2048, 1024, 512, 256];
/// Packets in flight, at most: half of the 24-bit sequence numbers.
const MOST_IN_FLIGHT: u64 = 1 << 23;

/// How losses are mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// All from the first that is missing are retransmitted.
    GoBackN,
    /// Only those that are missing: IRN (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM'18, section 3).
    Irn,
}

/// Congestion control of both ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dcqcn {
    /// Constants of the reaction point.
    pub reaction_point: Constants,
    /// Least time between notifications of a queue pair.
    pub cnp_interval: Nanos,
    /// Between a marked packet and the notification.
    pub cnp_delay: Nanos,
    /// Class of notifications.
    pub cnp_class: u8,
    /// Between a notification's arrival and what it does: tens of ns in hardware, tens of us in firmware ("Resilient RoCE",
    /// Mellanox 2017).
    pub reaction: Nanos,
}

/// What the section says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Queue pairs to each other process, for flows in turn; `None`: each channel its own.
    pub qps: Option<u32>,
    /// Payload of a full packet.
    pub payload: u32,
    /// Packets of a full message.
    pub message_packets: u64,
    /// How losses are mended.
    pub recovery: Recovery,
    /// An ACK is asked for with each so many packets, and at the end of a message.
    pub ack_every: u32,
    /// How long nothing must be heard for a timeout.
    pub rto: Nanos,
    /// The same when few packets are in flight.
    pub rto_low: Nanos,
    /// After how long a responder that still misses a packet says so again; InfiniBand's does not (go-back-N).
    pub nak_again: Nanos,
    /// Timeouts in a row after which a queue pair gives up, less one.
    pub retries: u32,
    /// Packets in flight, at most.
    pub window: u64,
    /// Congestion control.
    pub dcqcn: Option<Dcqcn>,
}

/// Where constants of DCQCN come from.
#[derive(Clone, Copy)]
enum Preset {
    Paper,
    Hpcc,
    Mellanox,
}

pub(super) fn read(section: &Section<'_>, around: &Surroundings) -> Result<Config, InputError> {
    let payload = payload(section, around)?;
    let words = [("go-back-n", Recovery::GoBackN), ("irn", Recovery::Irn)];
    let recovery = section.word("recovery", &words)?.unwrap_or(Recovery::GoBackN);
    let irn = recovery == Recovery::Irn;
    let bdp = |bytes: Bytes| bytes.with_bdp(around.bdp);
    let message = section.bytes("message", 1)?.map_or(1 << 20, bdp);
    // IRN's BDP-FC (section 3.2), and one packet that is being sent.
    let bdp_packets = || around.bdp.div_ceil(payload as u64) + 1;
    let window = match section.bytes("window", payload as u64)?.map(bdp) {
        Some(bytes) => bytes / payload as u64,
        None if irn => bdp_packets(),
        None => MOST_IN_FLIGHT,
    };
    let window_is_small = irn || section.has("window");
    if irn && section.has("ack_every") {
        return Err(section.error_at("ack_every", "with `recovery = \"irn\"` each packet is acknowledged"));
    }
    if irn && section.has("nak_again_us") {
        return Err(section.error_at("nak_again_us", "with `recovery = \"irn\"` each packet out of order makes a NAK"));
    }
    if !irn && section.has("rto_low_us") {
        return Err(section.error_at("rto_low_us", "only with `recovery = \"irn\"`"));
    }
    let rto = section.some_micros("rto_us")?.map(nanos);
    let rto_low = section.some_micros("rto_low_us")?.map(nanos);
    Ok(Config {
        qps: section.count("qps")?,
        payload,
        message_packets: message.div_ceil(payload as u64),
        recovery,
        ack_every: section.count("ack_every")?.unwrap_or(if window_is_small { 1 } else { 16 }),
        rto: rto.unwrap_or_else(|| usual_rto(recovery, around)),
        rto_low: rto_low.unwrap_or(Nanos::from_micros(100).max(Nanos(4 * around.base_rtt.0))),
        nak_again: some_nanos(section, "nak_again_us")?.unwrap_or(Nanos(u64::MAX)),
        retries: section.whole("retries", 0..=7)?.unwrap_or(7) as u32,
        window: window.min(MOST_IN_FLIGHT),
        dcqcn: dcqcn(section, around)?,
    })
}

fn payload(section: &Section<'_>, around: &Surroundings) -> Result<u32, InputError> {
    let room = (around.mtu as u64).saturating_sub((DATA_HEADERS + ADDRESS_HEADER) as u64);
    let fits = PAYLOADS.iter().copied().find(|payload| *payload <= room);
    let Some(fits) = fits else {
        let most = format!("datagrams of {} bytes have no room for 256 bytes of payload and headers", around.mtu);
        return Err(section.error(most));
    };
    match section.whole("payload", 256..=4096)? {
        None => Ok(fits as u32),
        Some(payload) if !PAYLOADS.contains(&payload) => {
            Err(section.error_at("payload", "InfiniBand has 256, 512, 1024, 2048 and 4096 bytes: write one of them"))
        }
        Some(payload) if payload > fits => {
            let mtu = around.mtu;
            let most = format!("datagrams of {mtu} bytes have room for {fits}: write that or less, or raise `mtu`");
            Err(section.error_at("payload", most))
        }
        Some(payload) => Ok(payload as u32),
    }
}

/// Timeouts double each time. The first is:
/// - IRN: RTO_high of section 4.1, 320 us, unless round trips are long;
/// - go-back-N: a Local ACK Timeout of InfiniBand, 4.096 us 2^n. Verbs programs mostly ask for n = 14, 67 ms; ConnectX-5
///   with adaptive retransmission is seen to take 2 ms and double it (linux-rdma/perftest, issue 251). Where packets get lost
///   this takes n = 8, 1.05 ms, and in a lossless class, where pauses last and a needless timeout does harm, n = 10, 4.2 ms.
fn usual_rto(recovery: Recovery, around: &Surroundings) -> Nanos {
    match (recovery, is_lossless(around)) {
        (Recovery::Irn, _) => Nanos::from_micros(320).max(Nanos(8 * around.base_rtt.0)),
        (Recovery::GoBackN, false) => Nanos(4096 << 8),
        (Recovery::GoBackN, true) => Nanos(4096 << 10),
    }
}

fn is_lossless(around: &Surroundings) -> bool {
    around.lossless >> around.class & 1 == 1
}

fn dcqcn(section: &Section<'_>, around: &Surroundings) -> Result<Option<Dcqcn>, InputError> {
    let wanted = section.flag("dcqcn")?;
    if wanted == Some(true) && !around.marks {
        return Err(section.error_at("dcqcn", "the fabric's switches do not mark: DCQCN would never hear of congestion"));
    }
    if !wanted.unwrap_or(around.marks) {
        let why = if around.marks { "`dcqcn = false` makes it" } else { "on a fabric that does not mark it is" };
        return match KEYS.iter().skip_while(|key| **key != "dcqcn").skip(1).find(|key| section.has(key)) {
            Some(key) => Err(section.error_at(key, format!("{why} meaningless: leave it out"))),
            None => Ok(None),
        };
    }
    let words = [("paper", Preset::Paper), ("hpcc", Preset::Hpcc), ("mellanox", Preset::Mellanox)];
    // What ConnectX is shipped with does best where nothing is lost; the paper's slower hand keeps losses rarer.
    let usual = if is_lossless(around) { Preset::Mellanox } else { Preset::Paper };
    let preset = section.word("preset", &words)?.unwrap_or(usual);
    let mut dcqcn = preset.constants(around.line_rate, section.whole("cnp_class", 0..=7)?.unwrap_or(6) as u8);
    let rate = |key: &str| {
        let most = around.line_rate.0 as f64 / 1e6;
        Ok(section.number(key, 0.001..=most)?.map(|mbps| BitRate((mbps * 1e6).round() as u64)))
    };
    let point = &mut dcqcn.reaction_point;
    put(&mut point.g, section.number("g", 0.0..=1.0)?);
    put(&mut point.alpha_interval, some_nanos(section, "alpha_interval_us")?);
    put(&mut point.decrease_interval, section.micros("decrease_interval_us")?.map(nanos));
    put(&mut point.timer, some_nanos(section, "rp_timer_us")?);
    put(&mut point.recoveries, section.whole("recoveries", 0..=1000)?.map(|n| n as u32));
    put(&mut point.additive, rate("rai_mbps")?);
    put(&mut point.hyper, rate("rhai_mbps")?);
    put(&mut point.least, rate("min_rate_mbps")?);
    put(&mut point.clamp_target, section.flag("clamp_target")?);
    if let Some(bytes) = section.bytes("byte_counter", 0)? {
        point.byte_counter = Some(bytes.with_bdp(around.bdp)).filter(|bytes| *bytes > 0);
    }
    put(&mut dcqcn.cnp_interval, section.micros("cnp_interval_us")?.map(nanos));
    put(&mut dcqcn.cnp_delay, section.micros("cnp_delay_us")?.map(nanos));
    put(&mut dcqcn.reaction, section.micros("reaction_us")?.map(nanos));
    Ok(Some(dcqcn))
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn nanos(span: Ps) -> Nanos {
    Nanos(span.0.div_ceil(1000))
}

fn some_nanos(section: &Section<'_>, key: &str) -> Result<Option<Nanos>, InputError> {
    Ok(section.some_micros(key)?.map(nanos))
}

impl Preset {
    /// Increments grow with the line, as those who simulate DCQCN have them (HPCC's `run.py`: so much per 25 Gb/s).
    fn constants(self, line: BitRate, cnp_class: u8) -> Dcqcn {
        let share = |mbps: u64, of_gbps: u64| BitRate((line.0 as u128 * mbps as u128 / (of_gbps as u128 * 1000)) as u64);
        let common = Constants {
            g: 1.0 / 256.0,
            alpha_update: AlphaUpdate::Interval,
            alpha_interval: Nanos::from_micros(1),
            decrease_interval: Nanos::from_micros(4),
            timer: Nanos::from_micros(900),
            byte_counter: None,
            recoveries: 1,
            additive: share(50, 100),
            hyper: share(100, 100),
            least: BitRate(100_000_000),
            clamp_target: false,
        };
        let (reaction_point, cnp_interval) = match self {
            // SIGCOMM'15, sections 5 and 6 and figure 14, for 40 Gb/s; hyper increase is 200 Mb/s in its authors' simulator
            // (bobzhuyb/ns3-rdma, mix/config.txt).
            Preset::Paper => (
                Constants {
                    alpha_update: AlphaUpdate::Notification,
                    alpha_interval: Nanos::from_micros(55),
                    decrease_interval: Nanos::from_micros(50),
                    timer: Nanos::from_micros(55),
                    byte_counter: Some(10_000_000),
                    recoveries: 5,
                    additive: share(40, 40),
                    hyper: share(200, 40),
                    clamp_target: true,
                    ..common
                },
                Nanos::from_micros(50),
            ),
            // alibaba-edu/High-Precision-Congestion-Control, mix/config.txt, for 100 Gb/s. There the mark comes back with
            // each ACK: a notification for each marked packet.
            Preset::Hpcc => (common, Nanos::ZERO),
            // ConnectX as `mlxconfig query` shows it: DCE_TCP_G 1019, DCE_TCP_RTT 1, RATE_REDUCE_MONITOR_PERIOD 4,
            // RPG_TIME_RESET 300, RPG_THRESHOLD 1, RPG_AI_RATE 5, RPG_HAI_RATE 50, RPG_MIN_RATE 1, CLAMP_TGT_RATE 0,
            // MIN_TIME_BETWEEN_CNPS 4. RPG_BYTE_RESET is at the end of its range: no byte counter. The increments are those
            // that HPCC's run.py makes of these: per 25 Gb/s.
            Preset::Mellanox => (
                Constants {
                    g: 5.0 / 1024.0,
                    timer: Nanos::from_micros(300),
                    additive: share(5, 25),
                    hyper: share(50, 25),
                    least: BitRate(1_000_000),
                    ..common
                },
                Nanos::from_micros(4),
            ),
        };
        Dcqcn { reaction_point, cnp_interval, cnp_delay: Nanos::ZERO, cnp_class, reaction: Nanos::ZERO }
    }
}
