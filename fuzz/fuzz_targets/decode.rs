//! Any bytes: what decodes is consistent, and is the same after having been encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_fuzz::to_bytes;
use srd_wire::codec::{self, decode};
use srd_wire::{Body, NextHeader};

/// What is taken for the next packet of a message says what the one before it says, but for its place and payload.
fn check_next(before: &[u8], datagram: &[u8]) {
    let Ok(mut expected) = decode(before) else { return };
    let Some(mut next) = NextHeader::after(before, &expected) else { return };
    let (psn, offset, header) = (next.psn(), next.offset(), next.header_len());
    if !next.take(datagram) {
        return;
    }
    let Body::Data(data) = &mut expected.body else { panic!("only data is followed") };
    (data.psn, data.offset, data.payload) = (psn, offset, &datagram[header..]);
    assert_eq!(decode(datagram), Ok(expected));
}

/// The packet that comes after `packet`, which this datagram holds, is taken for that.
fn check_next_of(datagram: &[u8]) {
    let Some(next) = decode(datagram).ok().and_then(|packet| NextHeader::after(datagram, &packet)) else {
        return;
    };
    let mut following = vec![0; next.header_len() + usize::from(next.segment())];
    next.clone().put(&mut following[..next.header_len()]);
    check_next(datagram, &following);
}

fuzz_target!(|datagram: &[u8]| {
    let (one, other) = datagram.split_at(datagram.len() / 2);
    check_next(one, other);
    let Ok(packet) = decode(datagram) else {
        return;
    };
    let seg_len = if let Body::Data(data) = &packet.body { data.payload.len() } else { 0 };
    assert_eq!(codec::check(&packet, seg_len), Ok(()));
    let again = to_bytes(&packet, 0);
    assert_eq!(again, &datagram[..again.len()]);
    assert_eq!(decode(&again), Ok(packet));
    check_next_of(datagram);
});
