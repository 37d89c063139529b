//! IPv4 and UDP headers (RFC 791, RFC 768, checksums by RFC 1071) of datagrams that go past the kernel's UDP sockets: as those
//! would send them.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of both headers.
pub const HEADERS: usize = IP + UDP;
const IP: usize = 20;
/// Of the inner one.
pub const UDP: usize = 8;

/// "ECN-capable transport" and "congestion experienced", RFC 3168, section 5.
pub const ECT0: u8 = 0b10;
/// See above.
pub const CE: u8 = 0b11;

const DO_NOT_FRAGMENT: u16 = 1 << 14;
const TTL: u8 = 64;
const PROTOCOL: u8 = 17;

/// A datagram.
#[derive(PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Who says that he has sent it.
    pub from: SocketAddrV4,
    /// The port that it is for.
    pub to_port: u16,
    /// Whether it carries a congestion mark.
    pub ce: bool,
    /// What it holds.
    pub payload: &'a mut [u8],
}

/// Reads a packet whose IP header the kernel has not looked at. `checked`: its UDP checksum is known to be right.
#[inline]
pub fn parse(packet: &mut [u8], checked: bool) -> Option<Datagram<'_>> {
    let (&mut [version, tos, a, b, ..], _) = packet.split_first_chunk_mut::<IP>()?;
    let header = 4 * usize::from(version & 15);
    let total = usize::from(u16::from_be_bytes([a, b]));
    if version >> 4 != 4 || header < IP {
        return None;
    }
    let (ip, rest) = packet.get_mut(..total)?.split_at_mut_checked(header)?;
    if sum(ip, 0) != 0xffff {
        return None;
    }
    let &mut [.., _, _, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = ip.first_chunk_mut::<IP>()?;
    let (from, to) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
    let &mut [p0, p1, q0, q1, l0, l1, c0, c1] = rest.first_chunk_mut::<UDP>()?;
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    if protocol != PROTOCOL || len < UDP {
        return None;
    }
    let datagram = rest.get_mut(..len)?;
    // Without a checksum it is zero.
    if !checked && [c0, c1] != [0, 0] && sum(datagram, pseudo_header(from, to, len as u16)) != 0xffff {
        return None;
    }
    Some(Datagram {
        from: SocketAddrV4::new(from, u16::from_be_bytes([p0, p1])),
        to_port: u16::from_be_bytes([q0, q1]),
        ce: tos & 3 == CE,
        payload: datagram.get_mut(UDP..)?,
    })
}

/// The headers of a datagram.
///
/// # Panics
///
/// If the payload does not fit an IP packet.
#[inline]
pub fn headers(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> [u8; HEADERS] {
    assert!(payload.len() <= usize::from(u16::MAX) - HEADERS, "an IP packet is shorter");
    let len = (UDP + payload.len()) as u16;
    let [t0, t1] = (IP as u16 + len).to_be_bytes();
    let [f0, f1] = DO_NOT_FRAGMENT.to_be_bytes();
    let [s0, s1, s2, s3] = from.ip().octets();
    let [d0, d1, d2, d3] = to.ip().octets();
    let [p0, p1] = from.port().to_be_bytes();
    let [q0, q1] = to.port().to_be_bytes();
    let [l0, l1] = len.to_be_bytes();
    let ip = [0x45, ECT0, t0, t1, 0, 0, f0, f1, TTL, PROTOCOL, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
    let [c0, c1] = (!sum(&ip, 0)).to_be_bytes();
    let ports = sum(&[p0, p1, q0, q1, l0, l1], pseudo_header(*from.ip(), *to.ip(), len));
    // Zero would say that there is none.
    let [u0, u1] = match !sum(payload, u64::from(ports)) {
        0 => [0xff; 2],
        checksum => checksum.to_be_bytes(),
    };
    let [v, e, ..] = ip;
    [
        v, e, t0, t1, 0, 0, f0, f1, TTL, PROTOCOL, c0, c1, s0, s1, s2, s3, d0, d1, d2, d3, //
        p0, p1, q0, q1, l0, l1, u0, u1,
    ]
}

/// The sum of what a UDP checksum covers besides the datagram.
#[inline]
fn pseudo_header(from: Ipv4Addr, to: Ipv4Addr, len: u16) -> u64 {
    u64::from(u32::from(from)) + u64::from(u32::from(to)) + u64::from(PROTOCOL) + u64::from(len)
}

/// The ones' complement sum of big-endian 16-bit words, the last filled up with zero, on top of `start`.
#[inline]
fn sum(bytes: &[u8], start: u64) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    // 32 bits at a time: the carries of 2^29 of them fit.
    let mut sum = words.iter().fold(start, |sum, &word| sum + u64::from(u32::from_be_bytes(word)));
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, &from)| *to = from);
    sum += u64::from(u32::from_be_bytes(last));
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
        [&headers(from, to, payload)[..], payload].concat()
    }

    /// The example of RFC 1071, section 3.
    #[test]
    fn words_are_summed_with_their_carries() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            from in any::<(u32, u16)>(),
            to in any::<(u32, u16)>(),
            payload in prop::collection::vec(any::<u8>(), 0..1500),
            padding in 0usize..20,
        ) {
            let [from, to] = [from, to].map(|(ip, port)| SocketAddrV4::new(ip.into(), port));
            let mut bytes = packet(from, to, &payload);
            bytes.resize(bytes.len() + padding, 7);
            let read = parse(&mut bytes, false).unwrap();
            prop_assert_eq!((read.from, read.to_port, read.ce), (from, to.port(), false));
            prop_assert_eq!(&*read.payload, &payload[..]);
        }

        #[test]
        fn a_changed_bit_is_noticed(
            ip in any::<u32>(),
            payload in prop::collection::vec(any::<u8>(), 0..100),
            bit in any::<prop::sample::Index>(),
        ) {
            let (from, to) = (SocketAddrV4::new(ip.into(), 1), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2));
            let mut bytes = packet(from, to, &payload);
            let bit = bit.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assume!(bytes[26..28] != [0, 0]); // which would say that there is no checksum
            prop_assert!(parse(&mut bytes, false).is_none(), "bit {}", bit);
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80), checked in any::<bool>()) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | *first & 15;
            }
            let len = bytes.len();
            prop_assert!(parse(&mut bytes, checked).is_none_or(|read| read.payload.len() + HEADERS <= len));
        }
    }
}
