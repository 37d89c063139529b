//! iWARP: RDMA over TCP, all of it on the network card. TCP is that of [`tcp`](crate::tcp), as a card runs
//! it: segments leave one by one when the window lets them, ACKs are not collected, timers are short. Each
//! segment carries one FPDU of MPA (RFC 5044) with one tagged DDP segment (RFC 5041) of an RDMA Write (RFC
//! 5040): 2 bytes of length, 14 of header, padding to a multiple of four, 4 of CRC; markers only if they are
//! asked for.
//!
//! `placement = "relaxed"`: tagged segments say where they belong, and are written there in the order in
//! which they come; a message is complete when it is and all before it are (RFC 5041, section 5.3).
//! `placement = "in-order"`: the card keeps `reorder_buffer` bytes behind a hole and drops what comes after
//! them, as cards without memory did.
//!
//! Choices: losses are found by RACK, which is more than cards tell of (`recovery = "sack"` is what they do);
//! the retransmission timeout is at least 1 ms and an ACK waits for 100 us at most, as a card's timers allow.
//! It may run on a lossless class: the cluster of Sandia's talk (Naegle et al., OpenFabrics 2008) had
//! link-level pause.

use crate::input::InputError;
use crate::section::Section;
use crate::tcp::config::{Config, Framing, Placement};
use crate::tcp::congestion::Algorithm;
use crate::tcp::engine::Engine;
use crate::transport::{Role, WireCost};
use crate::{Baseline, Surroundings};
use srd_wire::Nanos;

/// Bytes behind a hole that a card keeps in order, where nothing else is said.
const REORDER_BUFFER: u64 = 32_768;

/// What tells this transport from TCP.
pub enum Card {}

/// A process whose network card speaks iWARP.
pub type Iwarp = Engine<Card>;

/// What holds where nothing is said.
fn usual() -> Config {
    Config {
        congestion: Algorithm::NewReno,
        min_rto: Nanos::from_millis(1),
        delayed_ack: Nanos::from_micros(100),
        tso_bytes: 0,
        gro_bytes: 0,
        restarts: false,
        placement: Placement::Direct,
        framing: Framing::Mpa { markers: false },
        ..Config::default()
    }
}

impl Baseline for Iwarp {
    type Config = Config;

    const NAME: &'static str = "iwarp";
    const KEYS: &'static [&'static str] = &[
        "congestion",
        "recovery",
        "ecn",
        "min_rto_us",
        "initial_window",
        "delayed_ack_us",
        "pacing",
        "rcvbuf",
        "placement",
        "reorder_buffer",
        "markers",
    ];
    const HAS_HEADERS: bool = true;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<Config, InputError> {
        let mut config = usual().read(section, around)?;
        let markers = section.flag("markers")?.unwrap_or(false);
        config.framing = Framing::Mpa { markers };
        let in_order = section.word("placement", &[("relaxed", false), ("in-order", true)])?.unwrap_or(false);
        let buffer = section.bytes("reorder_buffer", 0)?.map(|bytes| bytes.with_bdp(around.bdp));
        config.placement = match (in_order, buffer) {
            (false, None) => Placement::Direct,
            (true, bytes) => Placement::Bounded(bytes.unwrap_or(REORDER_BUFFER)),
            (false, Some(_)) => {
                let what = "only together with `placement = \"in-order\"`: the other needs no buffer";
                return Err(section.error_at("reorder_buffer", what));
            }
        };
        Ok(config)
    }

    fn open(role: &Role, config: &Config) -> Iwarp {
        Engine::new(role, config)
    }

    fn cost(config: &Config, mtu: u16, overhead: u32) -> WireCost {
        config.cost(mtu, overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::star::{Ended, Net, Transfer, run};
    use crate::units::Ps;
    use srd_wire::BitRate;

    fn read(net: &Net, lines: &str) -> Result<Config, InputError> {
        let document = Document::parse(&format!("[iwarp]\n{lines}"), "test").unwrap();
        Iwarp::read(&Section::of(&document, "iwarp")?.only(Iwarp::KEYS)?, &net.surroundings())
    }

    fn iwarp(net: &Net, lines: &str, flows: u32, bytes: u64) -> Ended {
        let config = read(net, lines).unwrap_or_else(|error| panic!("{error}"));
        let transfers: Vec<Transfer> =
            (0..flows).map(|n| Transfer { from: n + 1, to: 0, bytes, start: Ps::ZERO, channel: n }).collect();
        run::<Iwarp>(net, &config, &transfers, Ps::from_micros(1_000_000))
    }

    /// With 4200 bytes of datagram: 4200 - 52 for TCP, and 20 for MPA and DDP.
    #[test]
    fn a_lone_flow_fills_the_line() {
        let net = Net::default();
        let ended = iwarp(&net, "", 1, 10_000_000);
        assert_eq!(Iwarp::cost(&usual(), 4200, 24), WireCost { payload: 4128, headers: 72 + 14 + 24 });
        let frames = 10_000_000u64.div_ceil(4128);
        assert_eq!((ended.counts[1].data_new, ended.counts[1].data_again), (frames, 0));
        let line = Ps::to_send(10_000_000 + frames * (72 + 14), net.rate).as_micros();
        let took = ended.received[0].unwrap().as_micros();
        assert!(took < 1.03 * line + 8.0, "{took} us, on the wire {line} us");
    }

    /// 98 Gb/s of a 100 Gb/s link: what the maker of a card measured (Chelsio, "Windows iSER Performance at 100Gbps", 2018).
    /// Markers take 4 bytes of 512 (RFC 5044, section 4.3).
    #[test]
    fn goodput_is_what_framing_leaves() {
        let net = Net { mtu: 9000, ..Net::default() };
        let gbps = |lines| {
            let ended = iwarp(&net, lines, 1, 100_000_000);
            8e-3 * 100_000_000.0 / ended.received[0].expect("it arrives").as_micros()
        };
        let (plain, marked) = (gbps(""), gbps("markers = true"));
        assert!((plain / 98.0 - 1.0).abs() < 0.02, "{plain} Gb/s");
        assert!((marked / plain / (508.0 / 512.0) - 1.0).abs() < 0.002, "{marked} and {plain} Gb/s");
    }

    /// Mathis et al. 1997: a window of 1.22 / sqrt(p) segments.
    #[test]
    fn the_law_of_the_square_root_holds_on_cards_too() {
        for loss in [1e-3, 3e-3] {
            let (rate, delay, sample) = (BitRate(10_000_000_000), Ps::from_micros(25), Ps::from_micros(1000));
            let net = Net { rate, delay, loss, sample, mtu: 1500, capacity: 100_000_000, ..Net::default() };
            let config = read(&net, "").unwrap();
            let transfer = Transfer { from: 1, to: 0, bytes: u64::MAX, start: Ps::ZERO, channel: 0 };
            let ended = run::<Iwarp>(&net, &config, &[transfer], Ps::from_micros(2_000_000));
            let window = ended.delivered[0] as f64 / 1428.0 * 100e-6 / 2.0;
            let law = 1.22 / loss.sqrt();
            assert!((window / law - 1.0).abs() < 0.1, "{loss}: {window} for {law}");
        }
    }

    /// Losses cost a card that drops what comes after a hole much more than one that places it.
    #[test]
    fn in_order_placement_sends_more_again() {
        let net = Net { loss: 2e-3, ..Net::default() };
        let again = |lines| {
            let ended = iwarp(&net, lines, 1, 20_000_000);
            assert_eq!(ended.delivered, [20_000_000]);
            ended.counts[1].data_again
        };
        let (relaxed, bounded, none) = (
            again(""),
            again("placement = \"in-order\"\nreorder_buffer = 16384"),
            again("placement = \"in-order\"\nreorder_buffer = 0"),
        );
        assert!(relaxed < 20 && 2 * relaxed < bounded && bounded < none, "{relaxed} {bounded} {none}");
    }

    #[test]
    fn many_to_one_ends() {
        let net = Net { hosts: 17, capacity: 200_000, ..Net::default() };
        for lines in ["", "recovery = \"sack\"", "congestion = \"cubic\"", "placement = \"in-order\"", "markers = true"] {
            let ended = iwarp(&net, lines, 16, 1_000_000);
            let last = ended.received.iter().map(|at| at.expect("it arrives").as_micros()).fold(0.0, f64::max);
            println!("{lines}: {last}");
            // 16 MB take 1.3 ms.
            assert!(last < 8_000.0, "{lines}: {last}");
        }
    }

    #[test]
    fn sections_are_read() {
        let net = Net::default();
        let config = read(&net, "placement = \"in-order\"\nmin_rto_us = 500\ncongestion = \"cubic\"").unwrap();
        assert_eq!(config.placement, Placement::Bounded(REORDER_BUFFER));
        assert_eq!((config.min_rto, config.congestion), (Nanos::from_micros(500), Algorithm::Cubic));
        for lines in ["reorder_buffer = 4096", "congestion = \"dctcp\"", "ecn = true", "placement = \"no\"", "tso_bytes = 1"] {
            assert!(read(&net, lines).is_err(), "{lines}");
        }
        let lossless = Surroundings { lossless: 1, ..net.surroundings() };
        let document = Document::parse("[iwarp]", "test").unwrap();
        assert!(Iwarp::read(&Section::of(&document, "iwarp").unwrap(), &lossless).is_ok());
    }
}
