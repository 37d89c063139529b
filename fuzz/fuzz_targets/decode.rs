//! Any bytes: what decodes is consistent, and is the same after having been encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_fuzz::to_bytes;
use srd_wire::Body;
use srd_wire::codec::{self, decode};

fuzz_target!(|datagram: &[u8]| {
    let Ok(packet) = decode(datagram) else {
        return;
    };
    let seg_len = if let Body::Data(data) = &packet.body { data.payload.len() } else { 0 };
    assert_eq!(codec::check(&packet, seg_len), Ok(()));
    let again = to_bytes(&packet, 0);
    assert_eq!(again, &datagram[..again.len()]);
    assert_eq!(decode(&again), Ok(packet));
});
