//! What it costs to write and read a packet, and to seal and open one.

use divan::{Bencher, black_box};
use srd_wire::*;

fn main() {
    divan::main();
}

/// A data packet as a bulk transfer sends it.
fn send(payload: &[u8]) -> Packet<&[u8]> {
    Packet {
        src_port: 4791,
        dst_tag: Tag(0x1234_5678),
        src_tag: Tag(0x8765_4321),
        hello: None,
        ack: None,
        body: Body::Data(Data {
            psn: Psn(77),
            stamp: Stamp(123_456),
            path: PathId(9),
            tx_count: 0,
            ack_request: false,
            more: false,
            msg: MsgId(5),
            len: payload.len() as u32,
            offset: 0,
            op: Op::Send {
                route: Route { dst_qpn: Qpn(1), src_qpn: Qpn(2), qkey: Qkey(3) },
                imm: None,
                datagram: false,
            },
            payload,
        }),
    }
}

/// An ACK as a busy receiver sends it: four paths, two words of bitmap.
fn ack() -> Packet<&'static [u8]> {
    let echo = Echo { path: PathId(3), tx_count: 0, hold: Hold(100), psn: Psn(99), stamp: Stamp(1) };
    let mut ack = Ack { cum: Psn(90), rcvd_bytes: 800_000, ..Ack::default() };
    ack.echoes.extend([echo; 4]);
    ack.sack.extend([0x55; 2]);
    Packet {
        src_port: 4791,
        dst_tag: Tag(1),
        src_tag: Tag(2),
        hello: None,
        ack: Some(ack.into()),
        body: Body::None,
    }
}

fn bytes_of(packet: &Packet<&[u8]>) -> Vec<u8> {
    let payload = if let Body::Data(data) = &packet.body { data.payload } else { &[] };
    let mut bytes = vec![0; codec::MAX_HEADER];
    let len = codec::encode_header(packet, payload.len(), &mut bytes);
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes
}

const PAYLOAD: [u8; 8800] = [7; 8800];

#[divan::bench(sample_size = 1000)]
fn encode_data(bencher: Bencher) {
    let packet = send(&PAYLOAD);
    let mut out = [0; 512];
    bencher.bench_local(|| codec::encode_header(black_box(&packet), 8800, black_box(&mut out)));
}

#[divan::bench(sample_size = 1000)]
fn decode_data(bencher: Bencher) {
    let bytes = bytes_of(&send(&PAYLOAD));
    bencher.bench_local(|| match codec::decode(black_box(&bytes)) {
        Ok(Packet { ack: None, body: Body::Data(data), .. }) => {
            black_box((data.psn, data.path, data.payload.len()));
        }
        other => panic!("{other:?}"),
    });
}

#[divan::bench(sample_size = 1000)]
fn encode_ack(bencher: Bencher) {
    let packet = ack();
    let mut out = [0; 512];
    bencher.bench_local(|| codec::encode_header(black_box(&packet), 0, black_box(&mut out)));
}

#[divan::bench(sample_size = 1000)]
fn decode_ack(bencher: Bencher) {
    let bytes = bytes_of(&ack());
    bencher.bench_local(|| match codec::decode(black_box(&bytes)) {
        Ok(Packet { ack: Some(ack), .. }) => {
            black_box((ack.cum, ack.echoes.len()));
        }
        other => panic!("{other:?}"),
    });
}

const GID: Gid = Gid([1; 16]);
const ADDR: InstanceAddr = InstanceAddr { gid: GID, port: 4791 };

/// A sender's keyring, and a receiver's that knows it.
fn keyrings() -> (seal::Keyring, seal::Keyring) {
    let psk = || seal::Psk::from_bytes(&[7; 32]).unwrap();
    let ring = |tag: u64| seal::Keyring::new(Incarnation(tag), psk(), seal::Limits::default());
    let (mut from, mut to) = (ring(0x8765_4321), ring(0x1234_5678));
    let hello = Hello {
        incarnation: Incarnation(0x8765_4321),
        echo: 0x1234_5678,
        version_min: 1,
        version_max: 1,
        features: 0,
        max_datagram: 9000,
        context: 0,
        rcvbuf_kib: 4096,
    };
    let mut bytes = bytes_of(&Packet { hello: Some(hello), body: Body::None, ..send(&[]) });
    let len = bytes.len();
    bytes.resize(len + seal::overhead(true), 0);
    from.seal(ADDR, Some(Incarnation(0x1234_5678)), &mut bytes, len).unwrap();
    to.open(GID, &mut bytes).unwrap();
    (from, to)
}

#[divan::bench(args = [64, 8800], sample_size = 100)]
fn seal_send(bencher: Bencher, payload: usize) {
    let (mut from, _) = keyrings();
    let mut buf = bytes_of(&send(&PAYLOAD[..payload]));
    let len = buf.len();
    buf.resize(len + seal::overhead(false), 0);
    let flags = buf[1];
    bencher.counter(divan::counter::BytesCount::new(payload)).bench_local(|| {
        buf[1] = flags;
        from.seal(ADDR, Some(Incarnation(0x1234_5678)), black_box(&mut buf), len).unwrap()
    });
}

#[divan::bench(args = [64, 8800], sample_size = 100)]
fn open_send(bencher: Bencher, payload: usize) {
    let (mut from, mut to) = keyrings();
    let plain = bytes_of(&send(&PAYLOAD[..payload]));
    bencher
        .counter(divan::counter::BytesCount::new(payload))
        .with_inputs(|| {
            let mut buf = plain.clone();
            buf.resize(plain.len() + seal::overhead(false), 0);
            from.seal(ADDR, Some(Incarnation(0x1234_5678)), &mut buf, plain.len()).unwrap();
            buf
        })
        .bench_local_values(|mut buf| to.open(GID, black_box(&mut buf)).unwrap().packet.len());
}

/// What a forged packet costs that names a peer nobody knows.
#[divan::bench(sample_size = 100)]
fn refuse_forged_hello(bencher: Bencher) {
    let (_, mut to) = keyrings();
    let mut forged = vec![0x55; 12 + 28 + 32];
    forged[..12].copy_from_slice(&[0x10, 0x05, 0x12, 0xb7, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 9]);
    let at = forged.len() - 16;
    forged[at..at + 8].copy_from_slice(&9u64.to_be_bytes());
    bencher
        .with_inputs(|| forged.clone())
        .bench_local_values(|mut buf| assert_eq!(to.open(GID, &mut buf), Err(seal::OpenError::BadTag)));
}
