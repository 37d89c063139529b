//! Arbitrary consistent packets, as proptest strategies.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use srd_wire::codec::MIN_DATAGRAM;
use srd_wire::*;

fn route() -> impl Strategy<Value = Route> {
    (any::<u16>(), any::<u16>(), any::<u32>()).prop_map(|(dst, src, qkey)| Route {
        dst_qpn: Qpn(dst),
        src_qpn: Qpn(src),
        qkey: Qkey(qkey),
    })
}

fn status() -> impl Strategy<Value = Status> {
    (1u8..=255).prop_filter_map("no such status", Status::from_u8)
}

/// Any operation.
pub fn op() -> impl Strategy<Value = Op> {
    let send = (route(), any::<Option<u32>>(), any::<bool>());
    let write = (route(), any::<u32>(), any::<u64>(), any::<Option<u32>>());
    let request = (route(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
    prop_oneof![
        send.prop_map(|(route, imm, datagram)| Op::Send { route, imm, datagram }),
        write.prop_map(|(route, rkey, addr, imm)| Op::Write { route, rkey: MrKey(rkey), addr, imm }),
        request.prop_map(|(route, rkey, addr, read_len, read)| Op::ReadRequest {
            route,
            rkey: MrKey(rkey),
            addr,
            read_len,
            read
        }),
        any::<u32>().prop_map(|read| Op::ReadResponse { read }),
        (any::<u32>(), status()).prop_map(|(read, status)| Op::ReadFailed { read, status }),
        (any::<u32>(), status()).prop_map(|(id, status)| Op::Refuse { refused: Psn(id), status }),
        Just(Op::Skip),
    ]
}

/// A data packet's body; length, offset and payload fit each other and the operation.
pub fn data() -> impl Strategy<Value = Data<Vec<u8>>> {
    let numbers =
        (any::<u32>(), any::<u32>(), any::<u8>(), 0u8..=254, any::<bool>(), any::<bool>(), any::<u32>());
    let lengths = (any::<u32>(), any::<u32>(), vec(any::<u8>(), 0..300));
    (numbers, lengths, op()).prop_map(|(numbers, (before, after, bytes), op)| {
        let (psn, stamp, path, tx_count, ack_request, more, msg) = numbers;
        let (len, offset, payload) = match op {
            Op::ReadRequest { .. } | Op::ReadFailed { .. } | Op::Refuse { .. } => (0, 0, Vec::new()),
            Op::Skip => (before, after, Vec::new()),
            _ if bytes.is_empty() => (0, 0, bytes),
            _ => {
                let offset = before.min(u32::MAX - bytes.len() as u32);
                let end = offset + bytes.len() as u32;
                (end + after % (u32::MAX - end).max(1), offset, bytes)
            }
        };
        Data {
            psn: Psn(psn),
            stamp: Stamp(stamp),
            path: PathId(path),
            tx_count,
            ack_request,
            more,
            msg: MsgId(msg),
            len,
            offset,
            op,
            payload,
        }
    })
}

fn echo() -> impl Strategy<Value = Echo> {
    (any::<u8>(), any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |(path, tx_count, hold, psn, stamp)| Echo {
            path: PathId(path),
            tx_count,
            hold: Hold(hold),
            psn: Psn(psn),
            stamp: Stamp(stamp),
        },
    )
}

/// Any ACK.
pub fn ack() -> impl Strategy<Value = Ack> {
    let fixed = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u8>());
    (fixed, vec(echo(), 0..=MAX_ECHOES), any::<u8>(), vec(any::<u64>(), 0..=MAX_SACK_WORDS)).prop_map(
        |((cum, rcvd_bytes, rx_time, senders, ce_count, buffer_level), echoes, cuts, sack)| Ack {
            cum: Psn(cum),
            rcvd_bytes,
            rx_time: Stamp(rx_time),
            senders,
            ce_count,
            buffer_level,
            cuts: cuts % (echoes.len() as u8 + 1),
            echoes: echoes.into_iter().collect(),
            sack: sack.into_iter().collect(),
        },
    )
}

/// What a hello says beside the incarnations.
fn offer() -> impl Strategy<Value = (u8, u8, u16, u16, u32)> {
    (any::<u8>(), any::<u8>(), any::<u16>(), MIN_DATAGRAM.., any::<u32>()).prop_map(
        |(a, b, features, max_datagram, rcvbuf)| (a.min(b), a.max(b), features, max_datagram, rcvbuf),
    )
}

/// Any packet with `body`.
pub fn with_body(body: impl Strategy<Value = Body<Vec<u8>>>) -> impl Strategy<Value = Packet<Vec<u8>>> {
    // Whether the destination is unknown, known by its tag, or known in full.
    let ends = (any::<u16>(), 1u64.., 1u64.., 0..3u8);
    (ends, option::of(offer()), option::of(ack()), body).prop_map(|(ends, offer, ack, body)| {
        let (src_port, own, peer, knowledge) = ends;
        let hello = offer.map(|(version_min, version_max, features, max_datagram, rcvbuf_kib)| Hello {
            incarnation: Incarnation(own),
            echo: if knowledge == 2 { peer } else { 0 },
            version_min,
            version_max,
            features,
            max_datagram,
            rcvbuf_kib,
            context: features ^ max_datagram,
        });
        let unknown = hello.is_some() && knowledge == 0;
        Packet {
            src_port,
            dst_tag: if unknown { Tag::UNKNOWN } else { Incarnation(peer).tag() },
            src_tag: Incarnation(own).tag(),
            hello,
            ack: if unknown || matches!(body, Body::Reset { .. }) { None } else { ack.map(AckBox::from) },
            body,
        }
    })
}

/// Any packet.
pub fn packet() -> impl Strategy<Value = Packet<Vec<u8>>> {
    let probe = (any::<u8>(), any::<u32>(), any::<u32>()).prop_map(|(path, number, stamp)| {
        Body::Probe(Probe { path: PathId(path), number, stamp: Stamp(stamp) })
    });
    with_body(prop_oneof![
        1 => Just(Body::None),
        6 => data().prop_map(Body::Data),
        1 => probe,
        1 => any::<u32>().prop_map(|tag| Body::Reset { stale: Tag(tag) }),
    ])
}

/// The packet's bytes, with `padding` bytes behind its payload.
pub fn to_bytes(packet: &Packet<Vec<u8>>, padding: usize) -> Vec<u8> {
    let payload: &[u8] = match &packet.body {
        Body::Data(data) => &data.payload,
        _ => &[],
    };
    let mut bytes = vec![0xa5; codec::MAX_HEADER];
    let len = codec::encode_header(packet, payload.len(), &mut bytes);
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

/// The packet with a payload of its own.
pub fn to_owned(packet: Packet<&[u8]>) -> Packet<Vec<u8>> {
    packet.map_payload(<[u8]>::to_vec)
}
