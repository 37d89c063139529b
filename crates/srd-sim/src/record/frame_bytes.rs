//! A simulated frame as the bytes that a network would carry: Ethernet, IPv4, UDP and the packet in SRD's wire format, or what a
//! baseline has for these, with zeros for its payload.

use super::frame_metadata::FrameMetadata;
use crate::hosts::{Datagram, SrdContent};
use crate::net::{ETHERNET_HEADER, FrameHead};
use srd_baselines::MixedContent;
use srd_baselines::wire::Protocol;
use srd_proto::Payload;
use srd_wire::{Body, codec};

const IP: usize = 20;
const UDP: usize = 8;
/// Bytes before the UDP payload.
const BEFORE: usize = ETHERNET_HEADER as usize + IP + UDP;
/// Shortest Ethernet frame without its check sequence (IEEE 802.3, clause 3.2.8).
const SHORTEST: usize = 60;
/// Fields of IPv4 (RFC 791) and Ethernet (RFC 894).
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const TIME_TO_LIVE: u8 = 64;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_TCP: u8 = 6;
/// Where the checksum is in their headers.
const TCP_CHECKSUM: usize = 16;
/// Congestion field (RFC 3168): capable of marks, and marked.
const ECT: u8 = 0b10;
const CE: u8 = 0b11;

/// What can be written as it would be on a wire.
pub(super) trait OnWire {
    /// Writes the frame to `out`, which is emptied first, up to the end of the packet's headers, or, if the `whole` of it is wanted, as much as
    /// is known: what would follow is zeros. Returns the length of the whole frame, without check sequence.
    fn write(&self, head: &FrameHead, whole: bool, out: &mut Vec<u8>) -> usize;
}

impl OnWire for FrameMetadata {
    fn write(&self, head: &FrameHead, _: bool, out: &mut Vec<u8>) -> usize {
        match &self.content {
            MixedContent::Srd(content) => write_srd(head, content, out),
            _ => write_baseline(head, self, out),
        }
    }
}

/// Packets of real programs are bytes anyway.
impl OnWire for Datagram {
    fn write(&self, head: &FrameHead, whole: bool, out: &mut Vec<u8>) -> usize {
        const ETHERNET: usize = ETHERNET_HEADER as usize;
        let length = self.bytes.len();
        out.clear();
        out.resize(BEFORE, 0);
        out.extend(&self.bytes);
        ethernet(self.from, head.dst, &mut out[..ETHERNET]);
        let (ip, rest) = out[ETHERNET..].split_at_mut(IP);
        ipv4(head, self.from, (IP + UDP + length) as u16, PROTOCOL_UDP, ip);
        udp(self.ports, (UDP + length) as u16, &ip[12..20], rest);
        if !whole && let Ok(Body::Data(data)) = codec::decode(&self.bytes).map(|packet| packet.body) {
            out.truncate(BEFORE + length - data.payload.len());
        }
        (BEFORE + length).max(SHORTEST)
    }
}

fn write_srd(head: &FrameHead, content: &SrdContent, out: &mut Vec<u8>) -> usize {
    let packet = &content.packet;
    let payload = match &packet.body {
        Body::Data(data) => data.payload.len(),
        _ => 0,
    };
    out.clear();
    out.resize(BEFORE + codec::MAX_HEADER, 0);
    let header = codec::encode_header(packet, payload, &mut out[BEFORE..]);
    out.truncate(BEFORE + header);
    ethernet(content.from, head.dst, &mut out[..ETHERNET_HEADER as usize]);
    let datagram = content.datagram as usize;
    let (ip, rest) = out[ETHERNET_HEADER as usize..].split_at_mut(IP);
    ipv4(head, content.from, (IP + UDP + datagram) as u16, PROTOCOL_UDP, ip);
    udp(content.ports, (UDP + datagram) as u16, &ip[12..20], rest);
    (BEFORE + datagram).max(SHORTEST)
}

fn write_baseline(head: &FrameHead, seen: &FrameMetadata, out: &mut Vec<u8>) -> usize {
    const ETHERNET: usize = ETHERNET_HEADER as usize;
    let (length, from) = (seen.bytes as usize, seen.from.host);
    let Some(headers) = &seen.headers else { return (ETHERNET + length).max(SHORTEST) };
    let (protocol, before) = match headers.protocol {
        Protocol::Tcp => (PROTOCOL_TCP, 0),
        Protocol::Udp => (PROTOCOL_UDP, UDP),
    };
    out.clear();
    out.resize(ETHERNET + IP + before, 0);
    out.extend(&headers.bytes);
    ethernet(from, head.dst, &mut out[..ETHERNET]);
    let (ip, rest) = out[ETHERNET..].split_at_mut(IP);
    ipv4(head, from, length as u16, protocol, ip);
    let behind = (length - IP) as u16;
    match headers.protocol {
        Protocol::Tcp => {
            let sum = checksum(pseudo_header(&ip[12..20], protocol, behind) + sum_of(rest));
            rest[TCP_CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
        }
        Protocol::Udp => udp(seen.ports, behind, &ip[12..20], rest),
    }
    (ETHERNET + length).max(SHORTEST)
}

/// Addresses are locally administered and end with the host's number.
fn ethernet(from: u32, to: u32, out: &mut [u8]) {
    for (host, place) in [(to, 0), (from, 6)] {
        out[place..place + 2].copy_from_slice(&[0x02, 0]);
        out[place + 2..place + 6].copy_from_slice(&host.to_be_bytes());
    }
    out[12..14].copy_from_slice(&ETHERTYPE_IPV4);
}

fn ipv4(head: &FrameHead, from: u32, length: u16, protocol: u8, out: &mut [u8]) {
    let congestion = match (head.ecn_capable, head.marked) {
        (_, true) => CE,
        (true, false) => ECT,
        (false, false) => 0,
    };
    out[0] = 0x45;
    out[1] = head.class << 5 | congestion; // class selector codepoints (RFC 2474)
    out[2..4].copy_from_slice(&length.to_be_bytes());
    out[4..6].fill(0); // no identification: whole datagrams need none (RFC 6864)
    out[6..8].copy_from_slice(&DONT_FRAGMENT);
    out[8..12].copy_from_slice(&[TIME_TO_LIVE, protocol, 0, 0]);
    for (host, place) in [(from, 12), (head.dst, 16)] {
        let [_, b, c, d] = host.to_be_bytes();
        out[place..place + 4].copy_from_slice(&[10, b, c, d]);
    }
    let sum = checksum(sum_of(out));
    out[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// `rest` begins with the UDP header and ends with the packet's.
fn udp(ports: (u16, u16), length: u16, addresses: &[u8], rest: &mut [u8]) {
    rest[0..2].copy_from_slice(&ports.0.to_be_bytes());
    rest[2..4].copy_from_slice(&ports.1.to_be_bytes());
    rest[4..6].copy_from_slice(&length.to_be_bytes());
    rest[6..8].fill(0);
    // The payload is zeros, which add nothing.
    let sum = match checksum(pseudo_header(addresses, PROTOCOL_UDP, length) + sum_of(rest)) {
        0 => 0xFFFF, // 0 means that there is none (RFC 768)
        sum => sum,
    };
    rest[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// What the checksums of TCP and UDP cover beside the two (RFC 9293, section 3.1).
fn pseudo_header(addresses: &[u8], protocol: u8, length: u16) -> u32 {
    sum_of(addresses) + protocol as u32 + length as u32
}

/// Sum of 16-bit words; a last odd byte counts as a word's first.
fn sum_of(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| (word[0] as u32) << 8 | word.get(1).copied().unwrap_or(0) as u32).sum()
}

/// The Internet checksum (RFC 1071).
fn checksum(mut sum: u32) -> u16 {
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    !(sum as u16)
}
