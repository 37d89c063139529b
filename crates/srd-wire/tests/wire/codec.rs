//! The codec as a whole: what is written is what is read, and nothing else is accepted.

use crate::packets::{packet, to_bytes, to_owned, with_body};
use proptest::prelude::*;
use srd_wire::codec::{self, DecodeError, MIN_DATAGRAM, decode};
use srd_wire::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_encoded_is_decoded(packet in packet()) {
        let bytes = to_bytes(&packet, 0);
        prop_assert!(bytes.len() <= codec::MAX_HEADER + 300);
        let decoded = decode(&bytes).map(to_owned);
        prop_assert_eq!(decoded, Ok(packet));
    }

    #[test]
    fn padding_follows_data_and_probes_and_nothing_else(packet in packet(), padding in 1usize..100) {
        let bytes = to_bytes(&packet, padding);
        let decoded = decode(&bytes).map(to_owned);
        if matches!(packet.body, Body::Data(_) | Body::Probe(_)) {
            prop_assert_eq!(decoded, Ok(packet));
        } else {
            prop_assert_eq!(decoded, Err(DecodeError::TrailingBytes));
        }
    }

    #[test]
    fn a_packet_cut_anywhere_is_refused(packet in packet()) {
        let bytes = to_bytes(&packet, 0);
        for len in 0..bytes.len() {
            let error = decode(&bytes[..len]).expect_err("a cut packet decoded");
            prop_assert!(matches!(error, DecodeError::Truncated | DecodeError::BadLength), "{len}: {error}");
        }
    }

    #[test]
    fn of_a_cut_data_packet_all_but_the_payload_is_read(packet in packet()) {
        let bytes = to_bytes(&packet, 0);
        let header = codec::header_len(&packet);
        for len in 0..=bytes.len() {
            let read = codec::decode_cut(&bytes[..len]).map(to_owned);
            if len < header || len == bytes.len() {
                let error = read.expect_err("nothing was cut off, or too much");
                prop_assert!(matches!(error, DecodeError::Truncated | DecodeError::BadLength), "{len}: {error}");
            } else {
                prop_assert_eq!(read, Ok(packet.clone().map_payload(|_| Vec::new())), "{}", len);
            }
        }
    }

    #[test]
    fn header_length_is_known_beforehand(packet in packet()) {
        let mut out = [0; codec::MAX_HEADER];
        let seg_len = if let Body::Data(data) = &packet.body { data.payload.len() } else { 0 };
        prop_assert_eq!(codec::encode_header(&packet, seg_len, &mut out), codec::header_len(&packet));
    }

    #[test]
    fn what_decodes_encodes_to_the_same_packet(
        packet in packet(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8), 0..4),
    ) {
        let mut bytes = to_bytes(&packet, 0);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
        }
        if let Ok(decoded) = decode(&bytes).map(to_owned) {
            let again = to_bytes(&decoded, 0);
            prop_assert_eq!(&again[..], &bytes[..again.len()]);
            prop_assert_eq!(decode(&again).map(to_owned), Ok(decoded));
        }
    }

    #[test]
    fn what_comes_next_is_what_decodes_so(
        packet in packet(),
        packets_before in 0u32..3,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8), 0..2),
        (cut, more) in (0usize..3, 0usize..3),
    ) {
        let Some(mut next) = NextHeader::after(&to_bytes(&packet, 0), &packet) else { return Ok(()) };
        let mut expected = packet.clone();
        let Body::Data(data) = &mut expected.body else { panic!("only data is followed") };
        let mut writer = next.clone();
        let mut bytes = vec![0; next.header_len()];
        for _ in 0..=packets_before {
            writer.put(&mut bytes);
            data.psn = data.psn.plus(1);
            data.offset = data.offset.saturating_add(data.payload.len() as u32);
        }
        bytes.extend_from_slice(&data.payload);
        for _ in 0..packets_before {
            let mut before = vec![0; next.header_len()];
            next.clone().put(&mut before);
            before.extend_from_slice(&data.payload);
            if !next.take(&before) {
                return Ok(()); // the message has ended
            }
        }
        prop_assert_eq!((next.psn(), next.offset()), (data.psn, data.offset));
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
        }
        bytes.truncate(bytes.len() - cut);
        bytes.resize(bytes.len() + more, 0);
        let padded = bytes.len() != next.header_len() + data.payload.len();
        let decoded = decode(&bytes).map(to_owned);
        // Whatever the payload is.
        if let Ok(Packet { body: Body::Data(it), .. }) = &decoded
            && it.payload.len() == data.payload.len()
        {
            data.payload = it.payload.clone();
        }
        // Decoding judges a packet alone: one without payload may lie anywhere.
        let has_a_place = data.offset as u64 + data.payload.len() as u64 <= data.len as u64;
        prop_assert_eq!(next.clone().take(&bytes), !padded && has_a_place && decoded == Ok(expected));
    }

    #[test]
    fn any_bytes_are_judged_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = VERSION << 4 | *first & 3;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn another_version_is_told_with_its_sender(packet in packet(), version in 0u8..16) {
        prop_assume!(version != VERSION);
        let mut bytes = to_bytes(&packet, 0);
        bytes[0] = version << 4 | bytes[0] & 0xf;
        prop_assert_eq!(decode(&bytes), Err(DecodeError::Version { version }));
        prop_assert_eq!(decode(&bytes[..1]), Err(DecodeError::Version { version }));
        let preamble = codec::peek(&bytes).unwrap();
        prop_assert_eq!(preamble.version, version);
        prop_assert_eq!(
            (preamble.src_port, preamble.dst_tag, preamble.src_tag),
            (packet.src_port, packet.dst_tag, packet.src_tag)
        );
    }

    #[test]
    fn payload_room_is_used_to_the_last_byte(op in crate::packets::op(), max_datagram in 100usize..9000) {
        let data = Data {
            psn: Psn(0), stamp: Stamp(0), path: PathId(0), tx_count: 0, ack_request: false, more: false, msg: MsgId(0),
            len: 0, offset: 0, op, payload: (),
        };
        let packet = Packet {
            src_port: 1, dst_tag: Tag(1), src_tag: Tag(1), hello: None, ack: None, body: Body::Data(data),
        };
        let room = codec::max_payload(&op, max_datagram, false);
        prop_assert_eq!(codec::header_len(&packet) + room, max_datagram);
        let room = codec::max_payload(&op, max_datagram, true);
        prop_assert_eq!(codec::header_len(&packet) + room + seal::overhead(false), max_datagram);
    }
}

/// A packet that [`decode`] accepts, to be spoilt.
fn send() -> Packet<Vec<u8>> {
    let route = Route { dst_qpn: Qpn(1), src_qpn: Qpn(2), qkey: Qkey(3) };
    Packet {
        src_port: 4791,
        dst_tag: Tag(0x22222222),
        src_tag: Tag(0x11111111),
        hello: Some(Hello {
            incarnation: Incarnation(0xaaaa_aaaa_1111_1111),
            echo: 0xbbbb_bbbb_2222_2222,
            version_min: 1,
            version_max: 1,
            features: 0,
            max_datagram: 8900,
            context: 0,
            rcvbuf_kib: 4096,
        }),
        ack: None,
        body: Body::Data(Data {
            psn: Psn(0),
            stamp: Stamp(0),
            path: PathId(0),
            tx_count: 0,
            ack_request: false,
            more: false,
            msg: MsgId(0),
            len: 10,
            offset: 2,
            op: Op::Send { route, imm: None, datagram: false },
            payload: vec![7; 8],
        }),
    }
}

const HELLO: usize = codec::COMMON_LEN;
const DATA: usize = HELLO + codec::HELLO_LEN;

/// Where fields lie in [`send`]'s bytes.
mod at {
    use super::{DATA, HELLO};
    pub const FLAGS: usize = 1;
    pub const INCARNATION: usize = HELLO;
    pub const VERSION_MIN: usize = HELLO + 16;
    pub const LEN: usize = DATA + 12;
    pub const OFFSET: usize = DATA + 16;
    pub const SEG_LEN: usize = DATA + 20;
    pub const TX_COUNT: usize = DATA + 23;
    pub const OP: usize = DATA + 24;
    pub const OP_FLAGS: usize = DATA + 25;
    pub const DATA_RESERVED: usize = DATA + 26;
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Vec<u8>), because: DecodeError) {
    let mut bytes = to_bytes(&send(), 0);
    assert!(decode(&bytes).is_ok());
    change(&mut bytes);
    assert_eq!(decode(&bytes), Err(because), "{because}");
    assert!(!because.to_string().is_empty() && !because.name().contains(' '));
}

#[test]
fn tags_that_contradict_the_hello_are_refused() {
    refused(|b| b[4..8].fill(0), DecodeError::IncarnationMismatch);
    refused(|b| b[8..12].fill(0), DecodeError::ZeroSourceTag);
    refused(|b| b[at::INCARNATION + 7] ^= 1, DecodeError::IncarnationMismatch);
    refused(|b| b[at::INCARNATION + 15] ^= 1, DecodeError::IncarnationMismatch);
    // The high half is no part of the tag.
    let mut bytes = to_bytes(&send(), 0);
    bytes[at::INCARNATION] ^= 1;
    assert!(decode(&bytes).is_ok());
}

#[test]
fn an_incarnation_of_zero_is_refused_even_where_its_tag_fits() {
    refused(
        |b| {
            b[8..12].copy_from_slice(&1u32.to_be_bytes());
            b[at::INCARNATION..][..8].fill(0);
        },
        DecodeError::IncarnationMismatch,
    );
}

#[test]
fn an_unknown_destination_needs_an_introduction() {
    let mut packet = send();
    packet.hello = None;
    let mut bytes = to_bytes(&packet, 0);
    bytes[4..8].fill(0);
    assert_eq!(decode(&bytes), Err(DecodeError::NotIntroduced));
}

#[test]
fn only_who_names_somebody_acknowledges_something() {
    let mut packet = send();
    packet.hello = packet.hello.map(|hello| Hello { echo: 0, ..hello });
    packet.ack = Some(Ack::default().into());
    let mut bytes = to_bytes(&packet, 0);
    assert!(decode(&bytes).is_ok());
    bytes[4..8].fill(0);
    assert_eq!(decode(&bytes), Err(DecodeError::BadFlags));
}

#[test]
fn who_cannot_receive_a_block_behind_all_headers_is_refused() {
    let max_datagram = at::INCARNATION + 20;
    for bytes in [0, 1, 28, 76, 204, MIN_DATAGRAM - 1] {
        refused(|b| b[max_datagram..][..2].copy_from_slice(&bytes.to_be_bytes()), DecodeError::SmallDatagram);
    }
}

#[test]
fn undefined_bits_and_values_are_refused() {
    for bit in 4..8 {
        refused(|b| b[at::FLAGS] |= 1 << bit, DecodeError::BadFlags);
    }
    refused(|b| b[at::FLAGS] |= 1 << 3, DecodeError::BadFlags);
    refused(|b| b[at::FLAGS] |= 1 << 2, DecodeError::Sealed);
    for bit in 4..8 {
        refused(|b| b[at::OP_FLAGS] |= 1 << bit, DecodeError::BadFlags);
    }
    refused(|b| b[at::DATA_RESERVED + 1] = 1, DecodeError::BadReserved);
    for op in [0, 8, 255] {
        refused(|b| b[at::OP] = op, DecodeError::UnknownOp);
    }
    for kind in 4..16 {
        refused(|b| b[0] = VERSION << 4 | kind, DecodeError::UnknownKind);
    }
    refused(|b| b[at::TX_COUNT] = 255, DecodeError::BadTxCount);
    refused(|b| b[at::VERSION_MIN] = 2, DecodeError::BadVersionRange);
}

#[test]
fn immediate_data_and_datagram_flags_belong_to_their_operations() {
    // Skip: no payload, and neither flag.
    let skip = |flags: u8| {
        let mut packet = send();
        if let Body::Data(data) = &mut packet.body {
            data.op = Op::Skip;
            data.payload.clear();
        }
        let mut bytes = to_bytes(&packet, 8);
        bytes[at::OP_FLAGS] = flags;
        decode(&bytes).map(to_owned)
    };
    assert!(skip(0).is_ok());
    assert_eq!(skip(2), Err(DecodeError::BadFlags));
    assert_eq!(skip(4), Err(DecodeError::BadFlags));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let put = |b: &mut Vec<u8>, at: usize, value: u32| b[at..at + 4].copy_from_slice(&value.to_be_bytes());
    refused(|b| put(b, at::LEN, 9), DecodeError::BadLength);
    refused(|b| put(b, at::OFFSET, 3), DecodeError::BadLength);
    refused(|b| put(b, at::OFFSET, u32::MAX), DecodeError::BadLength);
    refused(|b| b[at::SEG_LEN + 1] = 9, DecodeError::BadLength);
    refused(|b| b[at::SEG_LEN] = 255, DecodeError::BadLength);
    // An empty segment of a message that is not empty.
    refused(|b| b[at::SEG_LEN + 1] = 0, DecodeError::BadLength);
    // A read request has neither length nor payload; it is longer than the send's header, so pad.
    refused(
        |b| {
            b[at::OP] = 3;
            b.resize(b.len() + 40, 0);
        },
        DecodeError::BadLength,
    );
    refused(|b| b[at::OP] = 7, DecodeError::BadLength);
}

#[test]
fn a_refusal_needs_a_reason() {
    let mut packet = send();
    if let Body::Data(data) = &mut packet.body {
        data.op = Op::Refuse { refused: Psn(1), status: Status::RemoteRnr };
        (data.len, data.offset) = (0, 0);
        data.payload.clear();
    }
    let bytes = to_bytes(&packet, 0);
    assert_eq!(decode(&bytes).map(to_owned), Ok(packet));
    let status = bytes.len() - 4;
    for bad in [0, 16, 17, 19, 255] {
        let mut bytes = bytes.clone();
        bytes[status] = bad;
        assert_eq!(decode(&bytes), Err(DecodeError::BadStatus), "{bad}");
    }
    let mut bytes = bytes.clone();
    bytes[status + 1] = 1;
    assert_eq!(decode(&bytes), Err(DecodeError::BadReserved));
}

#[test]
fn counts_beyond_an_acks_limits_are_refused() {
    let mut packet = send();
    packet.body = Body::None;
    packet.ack = Some(Ack::default().into());
    let mut bytes = to_bytes(&packet, 0);
    let ack = HELLO + codec::HELLO_LEN;
    bytes[ack + 17] = MAX_ECHOES as u8 + 1;
    bytes.resize(bytes.len() + 200, 0);
    assert_eq!(decode(&bytes), Err(DecodeError::TooManyEchoes));
    bytes[ack + 17] = 0;
    bytes[ack + 18] = MAX_SACK_WORDS as u8 + 1;
    assert_eq!(decode(&bytes), Err(DecodeError::TooManySackWords));
    bytes[ack + 18] = 0;
    bytes[ack + 19] = 1;
    assert_eq!(decode(&bytes), Err(DecodeError::TooManyCuts));
}

#[test]
fn a_reset_acknowledges_nothing() {
    let mut packet = send();
    packet.hello = None;
    packet.body = Body::Reset { stale: Tag(9) };
    let mut bytes = to_bytes(&packet, 0);
    bytes[at::FLAGS] |= 2;
    bytes.splice(codec::COMMON_LEN..codec::COMMON_LEN, [0; codec::ACK_LEN]);
    assert_eq!(decode(&bytes), Err(DecodeError::BadFlags));
}

proptest! {
    #[test]
    fn every_kind_survives_with_all_headers(packet in with_body(crate::packets::data().prop_map(Body::Data))) {
        prop_assert_eq!(decode(&to_bytes(&packet, 3)).map(to_owned), Ok(packet));
    }
}

#[test]
fn a_plain_send_has_a_header_of_48_bytes() {
    let mut packet = send();
    packet.hello = None;
    assert_eq!(codec::header_len(&packet), 48);
    assert_eq!(codec::MAX_HEADER, 12 + 28 + (20 + 8 * 12 + 16 * 8) + 28 + 28);
}
