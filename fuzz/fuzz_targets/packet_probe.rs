//! Probes.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use srd_fuzz::{packet, round_trip};
use srd_wire::{Body, Packet, PathId, Probe, Stamp};

fn read(u: &mut Unstructured<'_>) -> arbitrary::Result<Packet<Vec<u8>>> {
    let body = Body::Probe(Probe {
        path: PathId(u.arbitrary()?),
        number: u.arbitrary()?,
        stamp: Stamp(u.arbitrary()?),
    });
    packet(u, body)
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = read(&mut Unstructured::new(bytes)) {
        round_trip(&packet);
    }
});
