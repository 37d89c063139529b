//! One packet of every kind, byte for byte, so that the format cannot change unnoticed. `docs/SPEC.md` shows the same
//! bytes.

use crate::packets::{to_bytes, to_owned};
use srd_wire::seal::{Keyring, Limits, Psk};
use srd_wire::*;

const SPEC: &str = include_str!("../../../../docs/SPEC.md");

const ALICE: Incarnation = Incarnation(0xa1a2_a3a4_a5a6_a7a8);
const BOB: Incarnation = Incarnation(0xb1b2_b3b4_b5b6_b7b8);
const ROUTE: Route = Route { dst_qpn: Qpn(0x0102), src_qpn: Qpn(0x0304), qkey: Qkey(0x1122_3344) };

fn from_alice(body: Body<Vec<u8>>) -> Packet<Vec<u8>> {
    Packet { src_port: 0x12b7, dst_tag: BOB.tag(), src_tag: ALICE.tag(), hello: None, ack: None, body }
}

fn data(op: Op, len: u32, offset: u32, payload: &[u8]) -> Packet<Vec<u8>> {
    from_alice(Body::Data(Data {
        psn: Psn(0x0001_0002),
        stamp: Stamp(0x0a0b_0c0d),
        path: PathId(0x2a),
        tx_count: 1,
        ack_request: false,
        more: false,
        msg: MsgId(0x0000_0007),
        len,
        offset,
        op,
        payload: payload.to_vec(),
    }))
}

fn hello(echo: u64) -> Hello {
    Hello {
        incarnation: ALICE,
        echo,
        version_min: 1,
        version_max: 2,
        features: 0x8001,
        max_datagram: 8952,
        context: 0,
        rcvbuf_kib: 4096,
    }
}

fn introduction() -> Packet<Vec<u8>> {
    Packet { dst_tag: Tag::UNKNOWN, hello: Some(hello(0)), ..from_alice(Body::None) }
}

fn ack() -> Ack {
    let echo = Echo {
        path: PathId(0x2a),
        tx_count: 1,
        hold: Hold(0x0064),
        psn: Psn(0x0001_0002),
        stamp: Stamp(0x0a0b_0c0d),
    };
    let answer = Echo { path: PathId(0x2b), tx_count: Echo::PROBE, psn: Psn(5), ..echo };
    Ack {
        cum: Psn(0x0001_0000),
        rcvd_bytes: 0x0009_0a00,
        rx_time: Stamp(0x0102_0304),
        senders: 48,
        ce_count: 3,
        buffer_level: 0x80,
        echoes: [echo, answer].into_iter().collect(),
        cuts: 0,
        sack: [0x8000_0000_0000_0002, 1].into_iter().collect(),
    }
}

fn ack_of_cut() -> Ack {
    let whole = ack();
    let cut = Echo { psn: Psn(0x0001_0005), ..whole.echoes[0] };
    Ack { echoes: [whole.echoes[0], cut].into_iter().collect(), cuts: 1, sack: Default::default(), ..whole }
}

fn plain() -> Vec<(&'static str, Packet<Vec<u8>>)> {
    let (rkey, addr) = (MrKey(0x0055_6677), 0x7f00_1234_5678_9abc);
    let mut piggyback = data(Op::Skip, 0, 0, b"");
    piggyback.hello = Some(hello(BOB.0));
    piggyback.ack = Some(Ack { echoes: ack().echoes.into_iter().take(1).collect(), ..Ack::default() }.into());
    let mut urgent = data(Op::Send { route: ROUTE, imm: Some(0xdead_beef), datagram: true }, 3, 0, b"SRD");
    if let Body::Data(data) = &mut urgent.body {
        data.ack_request = true;
    }
    vec![
        ("introduction", introduction()),
        ("ack", Packet { ack: Some(ack().into()), ..from_alice(Body::None) }),
        ("ack of a cut packet", Packet { ack: Some(ack_of_cut().into()), ..from_alice(Body::None) }),
        (
            "probe",
            from_alice(Body::Probe(Probe { path: PathId(0x2b), number: 5, stamp: Stamp(0x0a0b_0c0d) })),
        ),
        ("reset", from_alice(Body::Reset { stale: Tag(0xcccc_dddd) })),
        ("send", data(Op::Send { route: ROUTE, imm: None, datagram: false }, 10, 4, b"packet")),
        ("send with immediate data, datagram, ACK requested", urgent),
        ("write", data(Op::Write { route: ROUTE, rkey, addr, imm: None }, 4, 0, b"data")),
        (
            "write with immediate data",
            data(Op::Write { route: ROUTE, rkey, addr, imm: Some(0xdead_beef) }, 4, 0, b"data"),
        ),
        (
            "read request",
            data(
                Op::ReadRequest { route: ROUTE, rkey, addr, read_len: 0x0010_0000, read: 0x0000_0009 },
                0,
                0,
                b"",
            ),
        ),
        ("read response", data(Op::ReadResponse { read: 0x0000_0009 }, 0x0010_0000, 0x2200, b"bytes")),
        (
            "read failed",
            data(Op::ReadFailed { read: 0x0000_0009, status: Status::RemoteBadAddress }, 0, 0, b""),
        ),
        ("refuse", data(Op::Refuse { refused: Psn(0x0000_0008), status: Status::RemoteRnr }, 0, 0, b"")),
        ("skip with hello and ACK", piggyback),
    ]
}

fn sealed() -> Vec<(&'static str, Vec<u8>)> {
    let bob: InstanceAddr =
        InstanceAddr { gid: "10.0.0.2".parse::<std::net::IpAddr>().unwrap().into(), port: 4791 };
    let psk: Psk = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f".parse().unwrap();
    let mut ring = Keyring::new(ALICE, psk, Limits::default());
    let mut seal = |packet: &Packet<Vec<u8>>, peer| {
        let mut bytes = to_bytes(packet, 0);
        let len = bytes.len();
        bytes.resize(len + seal::overhead(packet.hello.is_some()), 0);
        let sealed_len = ring.seal(bob, peer, &mut bytes, len).unwrap();
        assert_eq!(sealed_len, bytes.len());
        bytes
    };
    let send = data(Op::Send { route: ROUTE, imm: None, datagram: false }, 10, 4, b"packet");
    let known = Packet { hello: Some(hello(BOB.0)), ..from_alice(Body::None) };
    vec![
        ("sealed introduction", seal(&introduction(), None)),
        ("sealed hello to a known peer", seal(&known, Some(BOB))),
        ("sealed send", seal(&send, Some(BOB))),
    ]
}

fn hex(bytes: &[u8]) -> String {
    let line = |bytes: &[u8]| {
        let words: Vec<String> =
            bytes.chunks(4).map(|word| word.iter().map(|b| format!("{b:02x}")).collect()).collect();
        words.join(" ")
    };
    bytes.chunks(32).map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn expect(name: &str, bytes: &[u8], expected: &[(&str, &str)]) {
    let found = hex(bytes);
    let Some((_, expected)) = expected.iter().find(|(it, _)| *it == name) else {
        panic!("no vector of this name:\n{name}\n{found}");
    };
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    let expected = expected.join("\n");
    assert_eq!(found, expected, "{name}");
    assert!(
        SPEC.contains(&format!("{name}:\n\n```\n{found}\n```")),
        "docs/SPEC.md shows another {name}:\n{found}"
    );
}

#[test]
fn every_kind_of_packet_is_written_as_specified() {
    for (name, packet) in plain() {
        let bytes = to_bytes(&packet, 0);
        assert_eq!(codec::decode(&bytes).map(to_owned), Ok(packet), "{name}");
        expect(name, &bytes, PLAIN);
    }
    assert_eq!(PLAIN.len(), plain().len());
}

#[test]
fn sealed_packets_are_written_as_specified() {
    for (name, bytes) in sealed() {
        expect(name, &bytes, SEALED);
    }
    assert_eq!(SEALED.len(), sealed().len());
}

const PLAIN: &[(&str, &str)] = &[
    (
        "introduction",
        "100112b7 00000000 a5a6a7a8 a1a2a3a4 a5a6a7a8 00000000 00000000 01028001
         22f80000 00001000",
    ),
    (
        "ack",
        "100212b7 b5b6b7b8 a5a6a7a8 00010000 00090a00 01020304 00300003 80020200
         2a010064 00010002 0a0b0c0d 2bff0064 00000005 0a0b0c0d 80000000 00000002
         00000000 00000001",
    ),
    (
        "ack of a cut packet",
        "100212b7 b5b6b7b8 a5a6a7a8 00010000 00090a00 01020304 00300003 80020001
         2a010064 00010002 0a0b0c0d 2a010064 00010005 0a0b0c0d",
    ),
    ("probe", "120012b7 b5b6b7b8 a5a6a7a8 2b000000 00000005 0a0b0c0d"),
    ("reset", "130012b7 b5b6b7b8 a5a6a7a8 ccccdddd"),
    (
        "send",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 0000000a 00000004
         00062a01 01000000 01020304 11223344 7061636b 6574",
    ),
    (
        "send with immediate data, datagram, ACK requested",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00000003 00000000
         00032a01 01070000 01020304 11223344 deadbeef 535244",
    ),
    (
        "write",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00000004 00000000
         00042a01 02000000 01020304 11223344 00556677 7f001234 56789abc 64617461",
    ),
    (
        "write with immediate data",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00000004 00000000
         00042a01 02020000 01020304 11223344 00556677 7f001234 56789abc deadbeef
         64617461",
    ),
    (
        "read request",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00000000 00000000
         00002a01 03000000 01020304 11223344 00556677 7f001234 56789abc 00100000
         00000009",
    ),
    (
        "read response",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00100000 00002200
         00052a01 04000000 00000009 62797465 73",
    ),
    (
        "read failed",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00000000 00000000
         00002a01 05000000 00000009 07000000",
    ),
    (
        "refuse",
        "110012b7 b5b6b7b8 a5a6a7a8 00010002 0a0b0c0d 00000007 00000000 00000000
         00002a01 06000000 00000008 0a000000",
    ),
    (
        "skip with hello and ACK",
        "110312b7 b5b6b7b8 a5a6a7a8 a1a2a3a4 a5a6a7a8 b1b2b3b4 b5b6b7b8 01028001
         22f80000 00001000 00000000 00000000 00000000 00000000 00010000 2a010064
         00010002 0a0b0c0d 00010002 0a0b0c0d 00000007 00000000 00000000 00002a01
         07000000",
    ),
];

const SEALED: &[(&str, &str)] = &[
    (
        "sealed introduction",
        "100d12b7 00000000 a5a6a7a8 610f6adb 9b70c80c f67a1402 8ce02646 4196e6ca
         72e21157 12dff819 7584ec27 f9f7f792 d424ef49 ff74c4f0 a1a2a3a4 a5a6a7a8
         00000000 00000000",
    ),
    (
        "sealed hello to a known peer",
        "100512b7 b5b6b7b8 a5a6a7a8 db50ed48 f0165b4b c4d8783f f96972c1 78d2d700
         dc404549 1bb0714d 1337b500 cadc47a5 3016496e 46a758b6 a1a2a3a4 a5a6a7a8
         00000000 01000000",
    ),
    (
        "sealed send",
        "110412b7 b5b6b7b8 a5a6a7a8 cd173bb6 78dda62e fc193975 467d7fd4 8e8804fa
         795eab22 739ffc41 8aad741f 1d0ed218 25914bb2 bcaec71a 05ec7d04 f356dedc
         6d603bca 424d0000 00000100 0001",
    ),
];
