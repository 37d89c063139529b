//! The Wireshark dissector, run by tshark, beside what srd-wire says of the same bytes: on packets of every kind, good and bad,
//! on a capture of the simulator, and on one of the datapath.

mod fields;
#[path = "../../../srd-wire/tests/wire/packets.rs"]
#[allow(dead_code)]
mod packets;
mod pcap;
mod real;
#[path = "../../../srd-net/tests/support/skip.rs"]
mod skip;
mod tshark;

use fields::{Fields, expected};
use packets::to_bytes;
use pcap::{Frame, Pcap};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use srd_wire::codec::{COMMON_LEN, DecodeError, HELLO_LEN, ack_len, decode};
use srd_wire::seal::{Keyring, Limits, Psk};
use srd_wire::{Body, Gid, Incarnation, InstanceAddr, Packet};
use std::collections::BTreeSet;
use std::process::Command;
use tshark::{Seen, dissect};

/// A port at which the dissector expects packets, and one at which it does not.
const KNOWN_PORT: u16 = 17_408;
const OTHER_PORT: u16 = 5_000;

/// So many packets, always the same ones.
fn some(count: usize) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let strategy = (packets::packet(), any::<bool>(), 0usize..40);
    let mut make = || {
        let (packet, pads, padding) = strategy.new_tree(&mut runner).unwrap().current();
        let padding = if pads && fields::may_be_padded(&packet) { padding } else { 0 };
        to_bytes(&packet, padding)
    };
    (0..count).map(|_| make()).collect()
}

/// Compares what tshark has seen in each datagram with what a receiver would.
fn compare(datagrams: &[Vec<u8>], seen: &[Seen]) {
    assert_eq!(datagrams.len(), seen.len());
    for (bytes, seen) in datagrams.iter().zip(seen) {
        seen.must_be_sound();
        match decode(bytes) {
            Ok(packet) => {
                assert_eq!(seen.refused, None, "{bytes:02x?}");
                assert_eq!(seen.fields, expected(&packet, bytes), "{bytes:02x?}");
                let (payload, padding) = fields::payload_and_padding(&packet, bytes);
                assert_eq!(
                    (seen.text("srd.payload"), seen.text("srd.padding")),
                    (payload, padding),
                    "{bytes:02x?}"
                );
            }
            Err(DecodeError::Sealed) => {}
            Err(cause) => {
                assert_eq!(seen.refused.as_deref(), Some(cause.name()), "{bytes:02x?}");
                assert!(seen.experts.contains("A receiver refuses it"), "{}", seen.experts);
            }
        }
    }
}

fn dissected(datagrams: &[Vec<u8>], port: u16) -> Vec<Seen> {
    dissect(&Pcap::of(datagrams.iter().map(|bytes| Frame::udp(bytes, port))))
}

#[test]
fn every_field_of_every_kind_of_packet_is_what_srd_wire_decodes() {
    let datagrams = some(600);
    compare(&datagrams, &dissected(&datagrams, KNOWN_PORT));
}

/// The packet with each of the faults that its kind can have, one at a time.
fn spoiled(bytes: &[u8]) -> Vec<Vec<u8>> {
    let packet = decode(bytes).unwrap();
    let hello = if packet.hello.is_some() { HELLO_LEN } else { 0 };
    let (ack, body) =
        (COMMON_LEN + hello, COMMON_LEN + hello + packet.ack.as_ref().map_or(0, |ack| ack_len(ack)));
    let reserved = [bytes[1] | 0x80];
    let mut faults: Vec<(usize, &[u8])> = vec![
        (0, &[0x21]), // version
        (0, &[0x1f]), // kind
        (1, &[0x08]), // introduction key, not sealed
        (1, &reserved),
        (4, &[0; 4]), // destination tag
        (8, &[0; 4]), // source tag
        (8, &[0xaa; 4]),
    ];
    if packet.hello.is_some() {
        faults.extend([(12, &[0; 8][..]), (20, &[1; 8]), (28, &[9, 8]), (32, &[0, 1])]);
    }
    if packet.ack.is_some() {
        faults.extend([(ack + 17, &[9][..]), (ack + 18, &[17]), (ack + 19, &[9])]);
    }
    match &packet.body {
        Body::None => {}
        Body::Probe(_) => faults.push((body + 2, &[1])),
        Body::Reset { .. } => faults.push((1, &[2])), // what follows is no ACK
        Body::Data(_) => {
            faults.extend([
                (body + 12, &[0; 4][..]),
                (body + 16, &[0xff; 4]),
                (body + 20, &[0xff; 2]),
                (body + 20, &[0; 2]),
            ]);
            faults.extend([
                (body + 23, &[255][..]),
                (body + 24, &[0]),
                (body + 24, &[77]),
                (body + 25, &[0x16]),
            ]);
            faults.extend([
                (body + 26, &[0, 1][..]),
                (body + 32, &[0]),
                (body + 32, &[16]),
                (body + 35, &[1]),
            ]);
        }
    }
    let fits = faults.into_iter().filter(|(at, value)| at + value.len() <= bytes.len());
    let mut spoiled: Vec<Vec<u8>> = fits
        .map(|(at, value)| {
            let mut bytes = bytes.to_vec();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes
        })
        .collect();
    spoiled.push([bytes, &[7][..]].concat());
    spoiled
}

#[test]
fn malformed_packets_are_refused_for_the_cause_that_srd_wire_names() {
    let mut datagrams: Vec<Vec<u8>> = some(120).iter().flat_map(|bytes| spoiled(bytes)).collect();
    let mut runner = TestRunner::deterministic();
    let changes = (0usize..90, 0u8..8);
    for mut bytes in some(400) {
        let (place, bit) = changes.new_tree(&mut runner).unwrap().current();
        let place = place % bytes.len();
        bytes[place] ^= 1 << bit;
        bytes[1] &= !4; // sealed ones have a test of their own
        datagrams.push(bytes);
    }
    let seen: BTreeSet<&str> =
        datagrams.iter().filter_map(|bytes| Some(decode(bytes).err()?.name())).collect();
    let wanted = [
        "bad_flags",
        "bad_length",
        "bad_reserved",
        "bad_status",
        "bad_tx_count",
        "bad_version_range",
        "incarnation_mismatch",
        "not_introduced",
        "small_datagram",
        "too_many_cuts",
        "too_many_echoes",
        "too_many_sack_words",
        "trailing_bytes",
        "truncated",
        "unknown_kind",
        "unknown_op",
        "version",
        "zero_source_tag",
    ];
    assert_eq!(seen, BTreeSet::from(wanted), "every cause but that of sealed packets");
    compare(&datagrams, &dissected(&datagrams, KNOWN_PORT));
}

#[test]
fn packets_that_end_anywhere_are_refused_as_srd_wire_does() {
    let datagrams: Vec<Vec<u8>> =
        some(40).iter().flat_map(|bytes| (1..bytes.len()).map(|end| bytes[..end].to_vec())).collect();
    compare(&datagrams, &dissected(&datagrams, KNOWN_PORT));
}

#[test]
fn noise_makes_no_error_of_the_dissector() {
    let mut runner = TestRunner::deterministic();
    let noise = proptest::collection::vec(any::<u8>(), 1..200);
    let make = |_| {
        let mut bytes = noise.new_tree(&mut runner).unwrap().current();
        bytes[0] = 0x10 | bytes[0] & 3; // else nearly all of it is of another version
        if let Some(flags) = bytes.get_mut(1) {
            *flags &= 0x0b;
        }
        bytes
    };
    let datagrams: Vec<Vec<u8>> = (0..1000).map(make).collect();
    compare(&datagrams, &dissected(&datagrams, KNOWN_PORT));
}

#[test]
fn what_the_capture_has_cut_off_is_no_fault_of_the_packet() {
    let mut frames = Vec::new();
    for bytes in some(30) {
        for kept in (1..bytes.len()).step_by(3) {
            frames.push(Frame::udp(&bytes, KNOWN_PORT).cut_to(kept));
        }
    }
    for seen in dissect(&Pcap::of(frames)) {
        seen.must_be_sound();
        assert_eq!(seen.refused, None);
    }
}

#[test]
fn a_sealed_packet_is_shown_as_sealed() {
    let (ours, theirs) = (Incarnation(0xa1a2_a3a4_a5a6_a7a8), Incarnation(0xb1b2_b3b4_b5b6_b7b8));
    let mut keyring = Keyring::new(ours, Psk::from_bytes(&[7; 32]).unwrap(), Limits::default());
    let to = InstanceAddr { gid: Gid::from(std::net::IpAddr::from([10, 0, 0, 2])), port: KNOWN_PORT };
    let mut sealed = Vec::new();
    let mut clear = Vec::new();
    for bytes in some(100) {
        let packet = decode(&bytes).unwrap();
        // Whatever it says, it is from us to them.
        let hello = packet.hello.map(|hello| srd_wire::Hello { incarnation: ours, echo: theirs.0, ..hello });
        let packet = Packet { dst_tag: theirs.tag(), src_tag: ours.tag(), hello, ..packet };
        let bytes = to_bytes(&packet.map_payload(<[u8]>::to_vec), 0);
        if let Some(datagram) = fields::sealed(&mut keyring, to, theirs, &bytes) {
            clear.push(bytes);
            sealed.push(datagram);
        }
    }
    assert!(sealed.len() > 50, "{}", sealed.len());
    for ((bytes, datagram), seen) in clear.iter().zip(&sealed).zip(dissected(&sealed, KNOWN_PORT)) {
        seen.must_be_sound();
        assert_eq!(seen.refused, None, "{datagram:02x?}");
        let hello = bytes[1] & 1 != 0;
        let trailer = datagram.len() - 24 - if hello { 8 } else { 0 };
        assert_eq!(seen.number("srd.flags.sealed"), Some(1));
        assert_eq!(seen.text("srd.sealed.tag"), Some(fields::hex(&datagram[trailer..trailer + 16])));
        assert_eq!(seen.text("srd.sealed.ciphertext"), fields::some_hex(&datagram[12..trailer]));
        assert_eq!(seen.number("srd.sealed.incarnation"), hello.then_some(ours.0));
        let counter = u64::from_be_bytes(datagram[datagram.len() - 8..].try_into().unwrap());
        assert_eq!(seen.number("srd.sealed.counter"), Some(counter));
        assert_eq!(seen.number("srd.psn"), None, "nobody can know");
    }
}

#[test]
fn at_other_ports_packets_are_known_by_their_form_and_others_left_alone() {
    let datagrams = some(100);
    for (bytes, seen) in datagrams.iter().zip(dissected(&datagrams, OTHER_PORT)) {
        seen.must_be_sound();
        let packet = decode(bytes).unwrap();
        let wanted = if packet.src_port == 0 { Fields::new() } else { expected(&packet, bytes) };
        assert_eq!(seen.fields, wanted);
    }
    let mut broken = datagrams;
    broken.iter_mut().for_each(|bytes| bytes[8..12].fill(0)); // no source tag
    for seen in dissected(&broken, OTHER_PORT) {
        assert_eq!(seen.fields, Fields::new());
    }
}

#[test]
fn datagrams_that_the_kernel_has_not_cut_yet_are_taken_apart() {
    let whole = some(200).into_iter().filter(|bytes| {
        let packet = decode(bytes).unwrap();
        fields::may_be_padded(&packet.map_payload(<[u8]>::to_vec))
    });
    let whole: Vec<Vec<u8>> = whole.take(20).collect();
    let (segment, copies) = (600, 5);
    let joined = whole.iter().map(|bytes| {
        let mut joined = Vec::new();
        for _ in 0..copies {
            joined.extend_from_slice(bytes);
            joined.resize(joined.len().next_multiple_of(segment), 0);
        }
        joined
    });
    let joined: Vec<Vec<u8>> = joined.collect();
    for (bytes, seen) in whole.iter().zip(dissected(&joined, KNOWN_PORT)) {
        seen.must_be_sound();
        assert_eq!(seen.refused, None);
        let packet = decode(bytes).unwrap();
        let one = expected(&packet, bytes);
        let five: Vec<u64> = one["srd.src_tag"].iter().copied().cycle().take(copies).collect();
        assert_eq!(seen.fields["srd.src_tag"], five);
    }
}

#[test]
fn a_capture_of_the_simulator_is_read_packet_by_packet() {
    let dir = tshark::scratch("sim");
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/dead-uplink.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(["sim", scenario, "--pcap", "leaf0-spine1", "--out"])
        .arg(&dir.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let capture = Pcap::read(&dir.0.join("leaf0-spine1.pcap"));
    let frames = capture.frames();
    assert!(frames.len() > 1000, "{}", frames.len());
    let mut again = 0;
    for (frame, seen) in frames.iter().zip(dissect(&capture)) {
        seen.must_be_sound();
        assert_eq!(seen.refused, None);
        // Of each frame the headers are there; payload, which the simulator has none of, is zeros.
        let bytes = frame.datagram_with_zeros();
        let packet = decode(&bytes).unwrap();
        assert_eq!(seen.fields, expected(&packet, &bytes));
        again += seen.number("srd.retransmission").unwrap_or(0);
    }
    assert!(again > 0, "an uplink dies in this scenario");
}

#[test]
fn every_field_is_documented() {
    let document = include_str!("../../../../docs/WIRESHARK.md");
    for name in fields::NAMES.iter().chain(&fields::TEXTS) {
        // Fields of one header share a row: the first in full, the others by their last word.
        let last = name.rsplit('.').next().unwrap();
        let told = document.contains(&format!("`{name}`")) || document.contains(&format!("`.{last}`"));
        assert!(told, "{name}");
    }
}
