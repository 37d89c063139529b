//! Hellos and ACKs on their own.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use srd_fuzz::{packet, round_trip};
use srd_wire::{Body, Packet};

fn read(u: &mut Unstructured<'_>) -> arbitrary::Result<Packet<Vec<u8>>> {
    let body = Body::None;
    packet(u, body)
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = read(&mut Unstructured::new(bytes)) {
        round_trip(&packet);
    }
});
