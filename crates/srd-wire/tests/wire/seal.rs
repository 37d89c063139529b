//! Keyrings against each other: what one seals the other opens, once, and nothing else.

use crate::packets::{to_bytes, to_owned};
use proptest::prelude::*;
use srd_wire::codec::DecodeError;
use srd_wire::seal::{Keyring, Limits, OpenError, Psk, PskError, SealError, overhead};
use srd_wire::*;

const ALICE: Incarnation = Incarnation(0xa1a2_a3a4_a5a6_a7a8);
const BOB: Incarnation = Incarnation(0xb1b2_b3b4_b5b6_b7b8);

fn address(host: u8) -> InstanceAddr {
    InstanceAddr { gid: std::net::IpAddr::from([10, 0, 0, host]).into(), port: 4791 }
}

fn psk() -> Psk {
    Psk::from_bytes(&[9; 32]).unwrap()
}

/// An instance with its keyring.
struct Instance {
    own: Incarnation,
    at: InstanceAddr,
    ring: Keyring,
}

impl Instance {
    fn new(own: Incarnation, host: u8) -> Instance {
        Instance::limited(own, host, Limits::default())
    }

    fn limited(own: Incarnation, host: u8, limits: Limits) -> Instance {
        Instance { own, at: address(host), ring: Keyring::new(own, psk(), limits) }
    }

    fn hello(&self, peer: Option<Incarnation>) -> Packet<Vec<u8>> {
        let hello = Hello {
            incarnation: self.own,
            echo: peer.map_or(0, |peer| peer.0),
            version_min: 1,
            version_max: 1,
            features: 0,
            max_datagram: 9000,
            context: 0,
            rcvbuf_kib: 1024,
        };
        Packet {
            src_port: self.at.port,
            dst_tag: peer.map_or(Tag::UNKNOWN, Incarnation::tag),
            src_tag: self.own.tag(),
            hello: Some(hello),
            ack: None,
            body: Body::None,
        }
    }

    fn data(&self, peer: Incarnation) -> Packet<Vec<u8>> {
        let route = Route { dst_qpn: Qpn(1), src_qpn: Qpn(2), qkey: Qkey(3) };
        let data = Data {
            psn: Psn(1),
            stamp: Stamp(2),
            path: PathId(3),
            tx_count: 0,
            ack_request: false,
            more: false,
            msg: MsgId(4),
            len: 5,
            offset: 0,
            op: Op::Send { route, imm: None, datagram: false },
            payload: b"hello".to_vec(),
        };
        Packet { hello: None, body: Body::Data(data), ..self.hello(Some(peer)) }
    }

    fn try_seal(
        &mut self,
        packet: &Packet<Vec<u8>>,
        to: InstanceAddr,
        peer: Option<Incarnation>,
    ) -> Result<Vec<u8>, SealError> {
        let mut bytes = to_bytes(packet, 0);
        let len = bytes.len();
        bytes.resize(len + overhead(packet.hello.is_some()), 0);
        let sealed_len = self.ring.seal(to, peer, &mut bytes, len)?;
        assert_eq!(sealed_len, bytes.len());
        Ok(bytes)
    }

    fn introduce(&mut self) -> Vec<u8> {
        self.try_seal(&self.hello(None), address(0), None).unwrap()
    }

    fn greet(&mut self, peer: &Instance) -> Vec<u8> {
        self.try_seal(&self.hello(Some(peer.own)), peer.at, Some(peer.own)).unwrap()
    }

    fn send(&mut self, peer: &Instance) -> Vec<u8> {
        self.try_seal(&self.data(peer.own), peer.at, Some(peer.own)).unwrap()
    }

    fn open_from(&mut self, from: InstanceAddr, datagram: &[u8]) -> Result<Packet<Vec<u8>>, OpenError> {
        let mut datagram = datagram.to_vec();
        let opened = self.ring.open(from.gid, &mut datagram)?;
        Ok(to_owned(codec::decode(opened.packet).expect("what opens decodes")))
    }

    fn open(&mut self, from: &Instance, datagram: &[u8]) -> Result<Packet<Vec<u8>>, OpenError> {
        self.open_from(from.at, datagram)
    }
}

/// Alice introduces herself, Bob answers, and both know each other.
fn acquainted() -> (Instance, Instance) {
    let (mut alice, mut bob) = (Instance::new(ALICE, 1), Instance::new(BOB, 2));
    let introduction = alice.introduce();
    assert_eq!(bob.open(&alice, &introduction), Ok(alice.hello(None)));
    let answer = bob.greet(&alice);
    assert_eq!(alice.open(&bob, &answer), Ok(bob.hello(Some(ALICE))));
    let data = alice.send(&bob);
    assert_eq!(bob.open(&alice, &data), Ok(alice.data(BOB)));
    (alice, bob)
}

#[test]
fn one_round_trip_confirms_a_peer() {
    let (mut alice, mut bob) = (Instance::new(ALICE, 1), Instance::new(BOB, 2));
    let introduction = alice.introduce();
    let mut datagram = introduction.clone();
    assert!(bob.ring.open(alice.at.gid, &mut datagram).unwrap().introduction);
    assert_eq!((bob.ring.contexts(), bob.ring.confirmed_address(ALICE)), ((0, 1), None));

    let mut answer = bob.greet(&alice);
    assert!(!alice.ring.open(bob.at.gid, &mut answer).unwrap().introduction);
    assert_eq!((alice.ring.contexts(), alice.ring.confirmed_address(BOB)), ((1, 0), Some(bob.at.gid)));

    let data = alice.send(&bob);
    bob.open(&alice, &data).unwrap();
    assert_eq!((bob.ring.contexts(), bob.ring.confirmed_address(ALICE)), ((1, 0), Some(alice.at.gid)));
}

#[test]
fn nothing_is_accepted_twice() {
    let (mut alice, mut bob) = acquainted();
    let packets: Vec<Vec<u8>> = (0..5000).map(|_| alice.send(&bob)).collect();
    // As they come over many paths: far out of order.
    let mut order: Vec<usize> = (0..packets.len()).collect();
    order.sort_by_key(|i| i * 7919 % 4999);
    for &i in &order {
        assert_eq!(bob.open(&alice, &packets[i]), Ok(alice.data(BOB)), "{i}");
    }
    for packet in &packets {
        assert_eq!(bob.open(&alice, packet), Err(OpenError::Replayed));
    }
    let introduction = alice.introduce();
    assert!(bob.open(&alice, &introduction).is_ok());
    assert_eq!(bob.open(&alice, &introduction), Err(OpenError::Replayed));
}

#[test]
fn packets_beyond_the_window_are_refused() {
    let (mut alice, mut bob) = acquainted();
    let early: Vec<Vec<u8>> = (0..9000).map(|_| alice.send(&bob)).collect();
    bob.open(&alice, &early[8999]).unwrap();
    assert_eq!(bob.open(&alice, &early[0]), Err(OpenError::Replayed));
    assert!(bob.open(&alice, &early[8999 - 4096]).is_ok());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (mut alice, mut bob) = acquainted();
    for packet in [alice.send(&bob), alice.greet(&bob), alice.introduce()] {
        for bit in 0..packet.len() * 8 {
            let mut forged = packet.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let error = bob.open(&alice, &forged).expect_err("opened a forged packet");
            assert!(!error.name().is_empty() && !error.to_string().is_empty());
        }
        assert!(bob.open(&alice, &packet).is_ok());
    }
}

#[test]
fn a_sealed_packet_cut_anywhere_is_refused() {
    let (mut alice, mut bob) = acquainted();
    for packet in [alice.send(&bob), alice.greet(&bob), alice.introduce()] {
        for len in 0..packet.len() {
            assert!(bob.open(&alice, &packet[..len]).is_err(), "{len}");
        }
    }
}

#[test]
fn another_key_opens_nothing() {
    let (mut alice, mut bob) = acquainted();
    let other = Psk::from_bytes(&[8; 32]).unwrap();
    let mut eve = Instance { own: ALICE, at: alice.at, ring: Keyring::new(ALICE, other, Limits::default()) };
    // Counters that Bob has seen are not looked at any further.
    eve.introduce();
    eve.greet(&bob);
    assert_eq!(bob.open(&alice, &eve.introduce()), Err(OpenError::WrongKey));
    for packet in [eve.greet(&bob), eve.send(&bob)] {
        assert_eq!(bob.open(&alice, &packet), Err(OpenError::BadTag));
    }
    let mut fresh = Instance::new(BOB, 2);
    assert_eq!(fresh.open(&alice, &eve.introduce()), Err(OpenError::WrongKey));
    assert_eq!(fresh.open(&alice, &eve.greet(&bob)), Err(OpenError::BadTag));
    assert_eq!(fresh.ring.contexts(), (0, 0), "forged packets cost no memory");
    let data = alice.send(&bob);
    assert!(bob.open(&alice, &data).is_ok());
}

#[test]
fn clear_packets_and_sealed_ones_do_not_mix() {
    let (mut alice, mut bob) = acquainted();
    let clear = to_bytes(&alice.data(BOB), 0);
    assert_eq!(bob.open(&alice, &clear), Err(OpenError::NotSealed));
    assert_eq!(codec::decode(&alice.send(&bob)), Err(DecodeError::Sealed));
    assert_eq!(codec::decode(&alice.introduce()), Err(DecodeError::Sealed));
}

#[test]
fn another_version_is_told() {
    let (mut alice, mut bob) = acquainted();
    let mut packet = alice.send(&bob);
    packet[0] = 0x21;
    assert_eq!(bob.open(&alice, &packet), Err(OpenError::Version { version: 2 }));
}

#[test]
fn the_introduction_key_seals_only_introductions() {
    let (mut alice, bob) = acquainted();
    let seal =
        |alice: &mut Instance, packet: &Packet<Vec<u8>>| alice.try_seal(packet, bob.at, None).map(drop);
    let data = alice.data(BOB);
    assert_eq!(seal(&mut alice, &data), Err(SealError::NotAnIntroduction));
    let hello = alice.hello(None).hello;
    assert_eq!(seal(&mut alice, &Packet { hello, ..data }), Err(SealError::NotAnIntroduction));
    let ack = Packet { ack: Some(Ack::default().into()), dst_tag: Tag(8), ..alice.hello(None) };
    assert_eq!(seal(&mut alice, &ack), Err(SealError::NotAnIntroduction));
    let reset = Packet { body: Body::Reset { stale: Tag(7) }, dst_tag: Tag(8), ..alice.hello(None) };
    assert_eq!(seal(&mut alice, &reset), Ok(()));
}

#[test]
fn data_under_the_introduction_key_is_refused() {
    // What a peer with the key but other manners might send: kinds and flags changed before sealing cannot be made
    // with this keyring, so change them after; they are judged before the tag is.
    let (mut alice, mut bob) = acquainted();
    for (byte, change) in [(0, 1), (0, 2), (1, 2), (1, 1)] {
        let mut packet = alice.introduce();
        packet[byte] ^= change;
        assert_eq!(bob.open(&alice, &packet), Err(OpenError::NotAnIntroduction), "byte {byte}");
    }
}

#[test]
fn a_restarted_process_refuses_what_was_meant_for_the_one_before() {
    let (mut alice, bob) = acquainted();
    let mut restarted = Instance::new(Incarnation(0xc1c2_c3c4_c5c6_c7c8), 2);
    for packet in [alice.send(&bob), alice.greet(&bob)] {
        assert_eq!(restarted.open(&alice, &packet), Err(OpenError::WrongDestination));
    }
    // It says so under its own introduction key, and a second context begins while the first still exists.
    let reset =
        Packet { body: Body::Reset { stale: BOB.tag() }, dst_tag: ALICE.tag(), ..restarted.hello(None) };
    let reset = restarted.try_seal(&reset, alice.at, None).unwrap();
    assert!(matches!(alice.open(&restarted, &reset), Ok(Packet { body: Body::Reset { .. }, .. })));
    assert_eq!(alice.ring.contexts(), (1, 1));
    let greeting = alice.greet(&restarted);
    assert!(restarted.open(&alice, &greeting).is_ok());
    let data = restarted.send(&alice);
    assert!(alice.open(&restarted, &data).is_ok());
    assert_eq!(alice.ring.contexts(), (2, 0));
    let mut bob = bob;
    let late = bob.send(&alice);
    assert!(alice.open(&bob, &late).is_ok(), "the old context is still there");
}

#[test]
fn an_old_introduction_changes_no_confirmed_context() {
    let (mut alice, mut bob) = (Instance::new(ALICE, 1), Instance::new(BOB, 2));
    let kept = alice.introduce();
    let second = alice.introduce();
    bob.open(&alice, &second).unwrap();
    let data = alice.send(&bob);
    bob.open(&alice, &data).unwrap();
    // Played by somebody elsewhere, for the first time.
    let mut replay = kept.clone();
    assert!(bob.ring.open(address(66).gid, &mut replay).unwrap().introduction);
    assert_eq!(bob.ring.contexts(), (1, 0));
    assert_eq!(bob.ring.confirmed_address(ALICE), Some(alice.at.gid));
    let data = alice.send(&bob);
    assert!(bob.open(&alice, &data).is_ok());
}

#[test]
fn captured_packets_are_refused_from_other_addresses() {
    let (mut alice, mut bob) = acquainted();
    let (data, greeting) = (alice.send(&bob), alice.greet(&bob));
    assert_eq!(bob.open_from(address(66), &data), Err(OpenError::NoContext));
    assert_eq!(bob.open_from(address(66), &greeting), Err(OpenError::WrongAddress));
    assert!(bob.open(&alice, &data).is_ok() && bob.open(&alice, &greeting).is_ok());
}

#[test]
fn own_packets_that_come_back_are_refused() {
    let (mut alice, mut bob) = acquainted();
    let (introduction, greeting, data) = (alice.introduce(), alice.greet(&bob), alice.send(&bob));
    assert_eq!(alice.open(&bob, &introduction), Err(OpenError::Reflected));
    assert_eq!(alice.open(&bob, &greeting), Err(OpenError::Reflected));
    assert_eq!(alice.open(&bob, &data), Err(OpenError::WrongDestination));
    bob.open(&alice, &data).unwrap();
}

#[test]
fn an_instance_may_talk_to_itself_at_its_own_address() {
    let mut alice = Instance::new(ALICE, 1);
    alice.ring.allow_self(alice.at.gid);
    let at = alice.at;
    let introduction = alice.introduce();
    assert!(alice.open_from(at, &introduction).is_ok());
    let data = alice.try_seal(&alice.data(ALICE), at, Some(ALICE)).unwrap();
    assert!(alice.open_from(at, &data).is_ok());
    assert_eq!(alice.open_from(at, &data), Err(OpenError::Replayed));
    assert_eq!(alice.open_from(address(3), &introduction), Err(OpenError::Reflected));
}

#[test]
fn a_hello_under_the_context_key_revives_a_context() {
    let (mut alice, mut bob) = acquainted();
    let before: Vec<Vec<u8>> = (0..10).map(|_| alice.send(&bob)).collect();
    let greeting = alice.greet(&bob);
    bob.open(&alice, &before[5]).unwrap();
    bob.ring.forget(ALICE);
    assert_eq!(bob.ring.contexts(), (0, 0));
    assert_eq!(bob.open(&alice, &before[9]), Err(OpenError::NoContext));
    assert!(bob.open(&alice, &greeting).is_ok());
    assert_eq!(bob.ring.contexts(), (1, 0));
    // What it had seen before stays refused, and with it whatever is older.
    assert_eq!(bob.open(&alice, &before[5]), Err(OpenError::Replayed));
    assert!(bob.open(&alice, &before[9]).is_ok());
}

#[test]
fn a_context_that_returns_uses_no_counter_again() {
    let (mut alice, bob) = acquainted();
    let counter = |packet: &[u8]| u64::from_be_bytes(*packet.last_chunk().unwrap());
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        for _ in 0..3 {
            assert!(seen.insert(counter(&alice.send(&bob))));
        }
        assert!(seen.insert(counter(&alice.introduce())));
        alice.ring.forget(BOB);
    }
}

#[test]
fn unconfirmed_contexts_are_bounded_and_spare_the_confirmed() {
    let limits = Limits { confirmed: 2, unconfirmed: 3, retired: 2 };
    let mut server = Instance::limited(Incarnation(1), 1, limits);
    let mut peers: Vec<Instance> =
        (0..10).map(|i| Instance::new(Incarnation(100 + i), 10 + i as u8)).collect();
    let confirm = |server: &mut Instance, peer: &mut Instance| {
        let greeting = peer.greet(server);
        server.open(peer, &greeting).unwrap();
    };
    confirm(&mut server, &mut peers[0]);
    for peer in &mut peers[2..] {
        let introduction = peer.introduce();
        server.open(peer, &introduction).unwrap();
    }
    assert_eq!(server.ring.contexts(), (1, 3));
    // The newest three are there; an older one has to introduce itself again.
    let (old, new) = (peers[2].send(&server), peers[9].send(&server));
    assert_eq!(server.open(&peers[2], &old), Err(OpenError::NoContext));
    assert!(server.open(&peers[9], &new).is_ok());
    assert_eq!(server.ring.contexts(), (2, 2));

    // A third one confirmed takes the place of the longest unused.
    let data = peers[0].send(&server);
    server.open(&peers[0], &data).unwrap();
    confirm(&mut server, &mut peers[1]);
    assert_eq!(server.ring.contexts(), (2, 2));
    assert_eq!(server.ring.confirmed_address(peers[9].own), None);
    assert!(server.ring.confirmed_address(peers[0].own).is_some());
}

#[test]
fn callers_mistakes_are_told() {
    let (mut alice, bob) = acquainted();
    let packet = to_bytes(&alice.data(BOB), 0);
    let len = packet.len();
    let seal = |alice: &mut Instance, mut bytes: Vec<u8>, room: usize, peer| {
        let len = bytes.len();
        bytes.resize(len + room, 0);
        alice.ring.seal(bob.at, peer, &mut bytes, len)
    };
    assert_eq!(seal(&mut alice, packet.clone(), 23, Some(BOB)), Err(SealError::NoRoom));
    assert_eq!(seal(&mut alice, packet.clone(), 24, Some(BOB)), Ok(len + 24));
    assert_eq!(seal(&mut alice, packet.clone(), 24, Some(Incarnation(5))), Err(SealError::WrongDestination));
    assert_eq!(seal(&mut alice, packet[..11].to_vec(), 24, Some(BOB)), Err(SealError::NotAPacket));
    let foreign = to_bytes(&bob.data(BOB), 0);
    assert_eq!(seal(&mut alice, foreign, 24, Some(BOB)), Err(SealError::NotAPacket));
}

/// Bytes of the counter of a sealed datagram, which is its last.
fn counter_of(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(*datagram.last_chunk().unwrap())
}

#[test]
fn a_leap_to_other_keys_loses_nothing_and_two_copies_part() {
    // Two instances stand for a process and its copy: they have the same key, incarnation and counters.
    let (mut original, mut bob) = acquainted();
    let (mut copy, _) = acquainted();
    let late = original.send(&bob);
    assert_eq!(copy.send(&bob), late, "the copy seals the same, nonce for nonce");
    original.ring.leap(0x7654_3210);
    copy.ring.leap(0x0123_4567);
    let (first, second) = (original.send(&bob), original.send(&bob));
    let of_copy = copy.send(&bob);
    assert!(![&first, &second].map(|sealed| counter_of(sealed)).contains(&counter_of(&of_copy)));
    for datagram in [&second, &late, &first] {
        assert!(bob.open(&original, datagram).is_ok(), "in any order");
        assert_eq!(bob.open(&original, datagram), Err(OpenError::Replayed));
    }
}

#[test]
fn a_key_files_content_is_digits_or_bytes() {
    let read = |content: &[u8]| {
        let mut key = [0; Psk::LEN];
        Psk::read(content, &mut key).map(|()| key)
    };
    let digits = "0f".repeat(32);
    assert_eq!(read(format!("\n {digits}\r\n").as_bytes()), Ok([15; 32]));
    assert_eq!(read(&[200; 32]), Ok([200; 32]));
    // 32 characters are bytes, whatever they look like.
    assert_eq!(read(&[b'0'; 32]), Ok([b'0'; 32]));
    assert_eq!(read(&[200; 31]), Err(PskError::Length { bytes: 31 }));
    assert_eq!(read(b""), Err(PskError::Digits { digits: 0 }));
}

#[test]
fn keys_are_read_from_hexadecimal_and_never_shown() {
    let digits = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
    let key: Psk = format!(" {digits}\n").parse().unwrap();
    assert!(!format!("{key:?}").contains("11"));
    let bytes: Vec<u8> = (0..32).map(|i| i % 16 * 0x11).collect();
    assert_eq!(Psk::from_bytes(&bytes), Ok(key));
    assert_eq!(digits[1..].parse::<Psk>(), Err(PskError::Digits { digits: 63 }));
    assert_eq!("0x11".parse::<Psk>(), Err(PskError::NotHex { at: 1 }));
    assert_eq!("é".repeat(32).parse::<Psk>(), Err(PskError::NotHex { at: 0 }));
    assert_eq!(Psk::from_bytes(&[1; 16]), Err(PskError::Length { bytes: 16 }));
    assert_eq!(
        PskError::Length { bytes: 16 }.to_string(),
        "pre-shared key of 16 bytes; it must have 32 (64 hexadecimal digits)"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_packet_survives_sealing(mut packet in crate::packets::packet(), padding in 0usize..40) {
        let (mut alice, mut bob) = acquainted();
        (packet.src_port, packet.src_tag, packet.dst_tag) = (alice.at.port, ALICE.tag(), BOB.tag());
        if let Some(hello) = &mut packet.hello {
            (hello.incarnation, hello.echo) = (ALICE, BOB.0);
        }
        let padding = if matches!(packet.body, Body::Data(_)) { padding } else { 0 };
        let mut bytes = to_bytes(&packet, padding);
        let len = bytes.len();
        bytes.resize(len + overhead(packet.hello.is_some()), 0);
        alice.ring.seal(bob.at, Some(BOB), &mut bytes, len).unwrap();
        prop_assert_eq!(bob.open(&alice, &bytes), Ok(packet));
        prop_assert_eq!(bob.open(&alice, &bytes), Err(OpenError::Replayed));
    }

    #[test]
    fn any_bytes_are_judged_without_panic(
        start in 0usize..4,
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut alice, mut bob) = acquainted();
        // Headers of packets that would be looked at closely.
        let header = match start {
            0 => Vec::new(),
            1 => alice.send(&bob),
            2 => alice.greet(&bob),
            _ => alice.introduce(),
        };
        for (byte, from) in bytes.iter_mut().zip(header.iter().take(12)) {
            *byte = *from;
        }
        prop_assert!(bob.open(&alice, &bytes).is_err());
        let data = alice.send(&bob);
        prop_assert!(bob.open(&alice, &data).is_ok());
    }
}
