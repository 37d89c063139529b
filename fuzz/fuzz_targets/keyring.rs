//! A keyring that has met a peer, and then anybody's datagrams: genuine ones that were changed, and made up ones. None
//! opens, none disturbs the context.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use srd_fuzz::to_bytes;
use srd_wire::seal::{Keyring, Limits, OpenError, Psk, overhead};
use srd_wire::*;

const ALICE: Incarnation = Incarnation(0xa1a2_a3a4_a5a6_a7a8);
const BOB: Incarnation = Incarnation(0xb1b2_b3b4_b5b6_b7b8);
const AT: InstanceAddr = InstanceAddr { gid: Gid([1; 16]), port: 4791 };

fn ring(own: Incarnation) -> Keyring {
    let limits = Limits { confirmed: 2, unconfirmed: 2, retired: 2 };
    Keyring::new(own, Psk::from_bytes(&[7; 32]).unwrap(), limits)
}

/// From Alice to Bob, or to one she does not know yet.
fn seal(alice: &mut Keyring, hello: bool, known: bool) -> Vec<u8> {
    let hello = hello.then_some(Hello {
        incarnation: ALICE,
        echo: 0,
        version_min: 1,
        version_max: 1,
        features: 0,
        max_datagram: 9000,
        context: 0,
        rcvbuf_kib: 1,
    });
    let peer = known.then_some(BOB);
    let packet = Packet {
        src_port: AT.port,
        dst_tag: peer.map_or(Tag::UNKNOWN, Incarnation::tag),
        src_tag: ALICE.tag(),
        hello,
        ack: None,
        body: Body::<Vec<u8>>::None,
    };
    let mut bytes = to_bytes(&packet, 0);
    let len = bytes.len();
    bytes.resize(len + overhead(hello.is_some()), 0);
    alice.seal(AT, peer, &mut bytes, len).unwrap();
    bytes
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let (mut alice, mut bob) = (ring(ALICE), ring(BOB));
    bob.open(AT.gid, &mut seal(&mut alice, true, false)).unwrap();
    bob.open(AT.gid, &mut seal(&mut alice, true, true)).unwrap();
    assert_eq!(bob.contexts(), (1, 0));

    while !u.is_empty() {
        let genuine = match u.int_in_range(0..=3)? {
            0 => Vec::new(),
            1 => seal(&mut alice, true, false),
            2 => seal(&mut alice, true, true),
            _ => seal(&mut alice, false, true),
        };
        let mut datagram = genuine.clone();
        if genuine.is_empty() {
            datagram = u.arbitrary()?;
        } else {
            for _ in 0..u.int_in_range(0..=4)? {
                let at = u.choose_index(datagram.len())?;
                datagram[at] ^= u.arbitrary::<u8>()?;
            }
            let len = u.int_in_range(0..=datagram.len())?;
            if u.arbitrary()? {
                datagram.truncate(len);
            }
        }
        let changed = genuine.is_empty() || datagram != genuine;
        let from = if u.arbitrary()? { AT.gid } else { Gid([2; 16]) };
        let opened = bob.open(from, &mut datagram.clone()).map(|opened| codec::decode(opened.packet).is_ok());
        match opened {
            Ok(decodes) => assert!(decodes && !changed),
            // From another address a hello or a short packet of hers is refused, and introductions are welcome.
            Err(_) => assert!(changed || from != AT.gid),
        }
        if opened.is_ok() {
            assert_eq!(bob.open(from, &mut datagram), Err(OpenError::Replayed));
        }
        assert_eq!((bob.contexts(), bob.confirmed_address(ALICE)), ((1, 0), Some(AT.gid)));
        assert!(bob.open(AT.gid, &mut seal(&mut alice, false, true)).is_ok());
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
