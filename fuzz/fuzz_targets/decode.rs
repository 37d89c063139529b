//! Any bytes: what decodes is consistent, and is the same after having been encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_fuzz::to_bytes;
use srd_wire::Body;
use srd_wire::codec::{self, decode};

/// What is taken for the follower of a packet says what that says, but for PSN, offset and payload.
fn check_follower(before: &[u8], datagram: &[u8]) {
    let Ok(mut expected) = decode(before) else { return };
    let Some(header) = codec::bare_data_header(before, &expected) else { return };
    let Some((psn, offset, payload)) = codec::follower(header, datagram) else { return };
    let Body::Data(data) = &mut expected.body else { panic!("only data is followed") };
    (data.psn, data.offset, data.payload) = (psn, offset, payload);
    assert_eq!(decode(datagram), Ok(expected));
}

fuzz_target!(|datagram: &[u8]| {
    let (one, other) = datagram.split_at(datagram.len() / 2);
    check_follower(one, other);
    let Ok(packet) = decode(datagram) else {
        return;
    };
    let seg_len = if let Body::Data(data) = &packet.body { data.payload.len() } else { 0 };
    assert_eq!(codec::check(&packet, seg_len), Ok(()));
    let again = to_bytes(&packet, 0);
    assert_eq!(again, &datagram[..again.len()]);
    assert_eq!(decode(&again), Ok(packet));
    check_follower(datagram, datagram);
});
