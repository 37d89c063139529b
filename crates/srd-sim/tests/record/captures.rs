//! Captures, read back by a reader that knows nothing of the one who wrote them.

use crate::{FAULTS, INCAST, directory, record, rows, scenario};
use srd_sim::record::{Recording, Traced};
use srd_wire::{Body, Packet, codec};
use std::fs;

/// A frame of a capture.
pub struct Frame {
    pub nanos: u64,
    pub bytes: Vec<u8>,
    pub length: usize,
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

pub fn short(bytes: &[u8]) -> usize {
    (bytes[0] as usize) << 8 | bytes[1] as usize
}

/// The frames of a file in pcap format with nanoseconds, and its longest length.
pub fn frames(file: &[u8]) -> (Vec<Frame>, u32) {
    assert_eq!((word(file), file[4], file[6], word(&file[20..])), (0xA1B2_3C4D, 2, 4, 1));
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let [seconds, nanos, kept, length] = [0, 4, 8, 12].map(|at| word(&rest[at..]));
        assert!(nanos < 1_000_000_000 && kept <= length);
        let bytes = rest[16..16 + kept as usize].to_vec();
        let nanos = seconds as u64 * 1_000_000_000 + nanos as u64;
        frames.push(Frame { nanos, bytes, length: length as usize });
        rest = &rest[16 + kept as usize..];
    }
    (frames, word(&file[16..]))
}

/// Sum of 16-bit words in one's complement: all ones over what has a right checksum.
pub fn ones_sum(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let mut sum = 0u32;
    for (n, byte) in bytes.into_iter().enumerate() {
        sum += if n % 2 == 0 { (byte as u32) << 8 } else { byte as u32 };
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

/// The frame in full, with zeros where the capture has cut it off.
pub fn whole(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.bytes.clone();
    bytes.resize(frame.length, 0);
    bytes
}

/// The UDP payload, after everything before it has been checked. Also the hosts that it came from and goes to.
fn datagram(bytes: &[u8]) -> (&[u8], u32, u32) {
    assert_eq!(&bytes[12..14], [8, 0], "IPv4");
    let ip = &bytes[14..];
    assert_eq!((ip[0], ip[9]), (0x45, 17), "a header without options, and UDP");
    let total = short(&ip[2..]);
    assert_eq!(ones_sum(ip[..20].iter().copied()), 0xFFFF, "checksum of IP");
    let udp = &ip[20..total];
    assert_eq!(short(&udp[4..]), udp.len());
    let pseudo = ip[12..20].iter().copied().chain([0, 17, udp[4], udp[5]]);
    assert_eq!(ones_sum(pseudo.chain(udp.iter().copied())), 0xFFFF, "checksum of UDP");
    assert!(total + 14 == bytes.len() || bytes.len() == 60 && total + 14 < 60, "length of the frame");
    let host = |at: usize| u32::from_be_bytes([0, ip[at + 1], ip[at + 2], ip[at + 3]]);
    assert_eq!((ip[12], ip[16]), (10, 10));
    assert_eq!((&bytes[2..6], &bytes[8..12]), (&host(16).to_be_bytes()[..], &host(12).to_be_bytes()[..]));
    (&udp[8..], host(12), host(16))
}

fn packet(datagram: &[u8]) -> Packet<&[u8]> {
    codec::decode(datagram).unwrap_or_else(|error| panic!("{error}: {datagram:?}"))
}

#[test]
fn a_capture_holds_every_frame_of_its_cable_as_a_network_would_carry_it() {
    let recording = Recording {
        pcap: vec!["h0-leaf0".into(), "leaf1-spine*".into()],
        traced: Traced::No,
        ..Recording::to(directory("capture"))
    };
    let files = record(&scenario(&format!("{INCAST}{FAULTS}"), &["queues.ecn_min=10KB"]), &recording).files;
    let captures: Vec<&String> = files.iter().filter(|file| file.ends_with(".pcap")).collect();
    assert_eq!(captures, ["h0-leaf0.pcap", "leaf1-spine0.pcap", "leaf1-spine1.pcap"]);
    let (all, _) = frames(&fs::read(recording.dir.join("h0-leaf0.pcap")).unwrap());
    let ports = rows(&recording, "ports.csv");
    let sent = |port: &str| -> usize {
        let row =
            ports.iter().find(|row| row["port"] == port).unwrap_or_else(|| panic!("{port} sent nothing"));
        row["frames"].parse().unwrap()
    };
    assert!(all.is_sorted_by_key(|frame| frame.nanos));
    let (mut to_host, mut payload, mut marked) = (0, 0, 0);
    for frame in &all {
        let bytes = whole(frame);
        let (datagram, from, to) = datagram(&bytes);
        assert!(from == 0 || to == 0, "between {from} and {to}");
        to_host += (to == 0) as usize;
        marked += (bytes[15] & 3 == 3) as usize;
        let packet = packet(datagram);
        assert!(frame.bytes.len() <= 14 + 28 + codec::MAX_HEADER, "headers only");
        if let Body::Data(data) = packet.body {
            assert_eq!(to, 0);
            payload += data.payload.len();
        }
    }
    assert_eq!((to_host, all.len() - to_host), (sent("leaf0->h0"), sent("h0->leaf0")));
    assert!(payload >= 2_400_000, "{payload} bytes of payload");
    assert!(marked > 0, "congestion marks are in the captures");
}

#[test]
fn whole_frames_are_kept_on_request() {
    let recording = Recording {
        pcap: vec!["h0-leaf0".into()],
        snap_len: Some(65_535),
        ..Recording::to(directory("whole"))
    };
    record(&scenario(INCAST, &[]), &recording);
    let (all, longest) = frames(&fs::read(recording.dir.join("h0-leaf0.pcap")).unwrap());
    assert_eq!(longest, 65_535);
    assert!(all.iter().all(|frame| frame.bytes.len() == frame.length));
    assert!(all.iter().any(|frame| frame.length > 8900));

    let short = Recording { snap_len: Some(64), ..recording };
    record(&scenario(INCAST, &[]), &short);
    let (all, longest) = frames(&fs::read(short.dir.join("h0-leaf0.pcap")).unwrap());
    assert_eq!(longest, 64);
    assert!(all.iter().all(|frame| frame.bytes.len() == frame.length.min(64)));
}

#[test]
fn a_frame_is_captured_when_it_begins_to_leave() {
    let recording = Recording { pcap: vec!["leaf0-h0".into()], ..Recording::to(directory("moment")) };
    record(&scenario(INCAST, &[]), &recording);
    let (all, _) = frames(&fs::read(recording.dir.join("h0-leaf0.pcap")).unwrap());
    // Frames to the host follow one another on a cable of 100 Gb/s: none begins before the one ahead has left.
    let down: Vec<&Frame> = all.iter().filter(|frame| datagram(&whole(frame)).2 == 0).collect();
    for pair in down.windows(2) {
        let takes = (pair[0].length as u64 + 24) * 8 / 100; // with preamble, check sequence and gap
        assert!(pair[1].nanos + 1 >= pair[0].nanos + takes, "{} then {}", pair[0].nanos, pair[1].nanos);
    }
}

#[test]
fn each_cable_of_a_bundle_has_a_capture_of_its_own() {
    let text = INCAST.replace("spines = 2", "spines = 2\nbundle = 2");
    let recording = Recording { pcap: vec!["leaf0-spine1".into()], ..Recording::to(directory("bundle")) };
    let files = record(&scenario(&text, &[]), &recording).files;
    let captures: Vec<&String> = files.iter().filter(|file| file.ends_with(".pcap")).collect();
    assert_eq!(captures, ["leaf0-spine1#0.pcap", "leaf0-spine1#1.pcap"]);
}
