//! Any bytes where a packet socket puts packets: what is read of them lies within, and its checksums are right.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use srd_net::frame::{self, HEADERS};
use std::net::SocketAddrV4;

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let [from, to]: [SocketAddrV4; 2] =
        u.arbitrary::<[(u32, u16); 2]>()?.map(|(ip, port)| SocketAddrV4::new(ip.into(), port));
    let checked = u.arbitrary()?;
    let payload: Vec<u8> = u.arbitrary()?;
    let mut packet = frame::headers(from, to, &payload[..payload.len().min(1500)]).to_vec();
    packet.extend_from_slice(&payload);
    // A packet of ours, of which some bytes are others.
    for _ in 0..u.int_in_range(0..=8)? {
        let at = u.choose_index(packet.len().min(64))?;
        packet[at] = u.arbitrary()?;
    }
    packet.truncate(u.int_in_range(0..=packet.len())?);
    let (whole, len) = (packet.clone(), packet.len());
    let Some(read) = frame::parse(&mut packet, checked) else { return Ok(()) };
    let (from, to_port, payload) = (read.from, read.to_port, read.payload.to_vec());
    assert!(payload.len() + HEADERS <= len);
    let begin = 4 * usize::from(whole[0] & 15) + 8;
    assert_eq!(whole[begin..begin + payload.len()], payload[..]);
    // Written again it is read as the same.
    let again =
        [&frame::headers(from, SocketAddrV4::new(0.into(), to_port), &payload)[..], &payload].concat();
    let mut copy = again.clone();
    let read = frame::parse(&mut copy, false).expect("it was written by us");
    assert_eq!((read.from, read.to_port, &*read.payload), (from, to_port, &payload[..]));
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
