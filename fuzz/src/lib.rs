//! Packets out of a fuzzer's bytes, and what must hold for every packet.

pub mod forger;

use arbitrary::{Arbitrary, Result, Unstructured};
use srd_wire::codec::{self, decode};
use srd_wire::*;

/// A packet with this body. Its tags and lengths are not always consistent.
pub fn packet(u: &mut Unstructured<'_>, body: Body<Vec<u8>>) -> Result<Packet<Vec<u8>>> {
    let own = Incarnation(u.arbitrary()?);
    let peer: u64 = u.arbitrary()?;
    let hello = if u.arbitrary()? { Some(hello(u, own, peer)?) } else { None };
    Ok(Packet {
        src_port: u.arbitrary()?,
        dst_tag: if u.arbitrary()? { Incarnation(peer).tag() } else { Tag(u.arbitrary()?) },
        src_tag: own.tag(),
        hello,
        ack: if u.arbitrary()? { Some(ack(u)?.into()) } else { None },
        body,
    })
}

fn hello(u: &mut Unstructured<'_>, own: Incarnation, peer: u64) -> Result<Hello> {
    Ok(Hello {
        incarnation: own,
        echo: if u.arbitrary()? { peer } else { 0 },
        version_min: u.arbitrary()?,
        version_max: u.arbitrary()?,
        features: u.arbitrary()?,
        max_datagram: u.arbitrary()?,
        context: u.arbitrary()?,
        rcvbuf_kib: u.arbitrary()?,
    })
}

fn ack(u: &mut Unstructured<'_>) -> Result<Ack> {
    let mut ack = Ack {
        cum: Psn(u.arbitrary()?),
        rcvd_bytes: u.arbitrary()?,
        rx_time: Stamp(u.arbitrary()?),
        senders: u.arbitrary()?,
        ce_count: u.arbitrary()?,
        buffer_level: u.arbitrary()?,
        ..Ack::default()
    };
    for _ in 0..u.int_in_range(0..=MAX_ECHOES)? {
        ack.echoes.push(Echo {
            path: PathId(u.arbitrary()?),
            tx_count: u.arbitrary()?,
            hold: Hold(u.arbitrary()?),
            psn: Psn(u.arbitrary()?),
            stamp: Stamp(u.arbitrary()?),
        });
    }
    ack.cuts = u.int_in_range(0..=ack.echoes.len() as u8)?;
    for _ in 0..u.int_in_range(0..=MAX_SACK_WORDS)? {
        ack.sack.push(u.arbitrary()?);
    }
    Ok(ack)
}

/// A data body.
pub fn data(u: &mut Unstructured<'_>) -> Result<Data<Vec<u8>>> {
    Ok(Data {
        op: op(u)?,
        psn: Psn(u.arbitrary()?),
        stamp: Stamp(u.arbitrary()?),
        path: PathId(u.arbitrary()?),
        tx_count: u.arbitrary()?,
        ack_request: u.arbitrary()?,
        more: u.arbitrary()?,
        msg: MsgId(u.arbitrary()?),
        len: u.arbitrary()?,
        offset: u.arbitrary()?,
        payload: Vec::arbitrary(u)?,
    })
}

fn op(u: &mut Unstructured<'_>) -> Result<Op> {
    let route =
        Route { dst_qpn: Qpn(u.arbitrary()?), src_qpn: Qpn(u.arbitrary()?), qkey: Qkey(u.arbitrary()?) };
    let rkey = MrKey(u.arbitrary()?);
    let status = Status::from_u8(u.arbitrary()?).unwrap_or(Status::RemoteRnr);
    Ok(match u.int_in_range(0..=6)? {
        0 => Op::Send { route, imm: u.arbitrary()?, datagram: u.arbitrary()? },
        1 => Op::Write { route, rkey, addr: u.arbitrary()?, imm: u.arbitrary()? },
        2 => Op::ReadRequest {
            route,
            rkey,
            addr: u.arbitrary()?,
            read_len: u.arbitrary()?,
            read: u.arbitrary()?,
        },
        3 => Op::ReadResponse { read: u.arbitrary()? },
        4 => Op::ReadFailed { read: u.arbitrary()?, status },
        5 => Op::Refuse { refused: Psn(u.arbitrary()?), status },
        _ => Op::Skip,
    })
}

/// The packet's bytes, with `padding` bytes behind its payload.
pub fn to_bytes<P: AsRef<[u8]>>(packet: &Packet<P>, padding: usize) -> Vec<u8> {
    let payload = payload_of(packet);
    let mut bytes = vec![0; codec::MAX_HEADER];
    let len = codec::encode_header(packet, payload.len(), &mut bytes);
    assert_eq!(len, codec::header_len(packet));
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

fn payload_of<P: AsRef<[u8]>>(packet: &Packet<P>) -> &[u8] {
    if let Body::Data(data) = &packet.body { data.payload.as_ref() } else { &[] }
}

fn borrowed(packet: &Packet<Vec<u8>>) -> Packet<&[u8]> {
    packet.clone().map_payload(|_| payload_of(packet))
}

/// A consistent packet survives being written and read, also with padding where that may be, and cut short it is
/// refused.
pub fn round_trip(packet: &Packet<Vec<u8>>) {
    if codec::check(packet, payload_of(packet).len()).is_err() {
        return;
    }
    let bytes = to_bytes(packet, 0);
    assert_eq!(decode(&bytes), Ok(borrowed(packet)));
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err());
    }
    let padded = to_bytes(packet, 7);
    assert_eq!(
        decode(&padded).ok(),
        matches!(packet.body, Body::Data(_) | Body::Probe(_)).then(|| borrowed(packet))
    );
}
