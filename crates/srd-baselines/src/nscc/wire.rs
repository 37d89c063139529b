//! A packet's header behind UDP, of a format that is this simulator's own, in as many bytes as headers of UET have here
//! (docs/OUTPUTS.md): kind, flags, path, connection, and three numbers.

use super::packet::{DATAGRAM_HEADERS, Packet};

/// Bytes of IPv4's and UDP's headers.
const IP_UDP: u32 = 28;
/// Bytes of the header.
const LENGTH: usize = (DATAGRAM_HEADERS - IP_UDP) as usize;
/// Kinds.
const DATA: u8 = 1;
const ACK: u8 = 2;
const NACK: u8 = 3;
const PROBE: u8 = 4;
const CREDIT: u8 = 5;
const ASK: u8 = 6;
/// Flags.
const AGAIN: u8 = 1;
const ASKS: u8 = 2;
const MARKED: u8 = 4;
const OF_PROBE: u8 = 8;

/// The header.
pub fn header(packet: &Packet) -> Vec<u8> {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let (kind, flags, path, connection, numbers) = match packet {
        Packet::Data(data) => {
            let flags = flag(data.again, AGAIN) | flag(data.ack_request, ASKS);
            (DATA, flags, data.path, data.label.serial, [data.psn, data.inbox, data.payload as u32])
        }
        Packet::Ack(ack) => {
            let flags = flag(ack.again, AGAIN) | flag(ack.marked, MARKED) | flag(ack.probe, OF_PROBE);
            (ACK, flags, ack.path, ack.serial, [ack.of, ack.cumulative, ack.out_of_order])
        }
        Packet::Nack(nack) => (NACK, flag(nack.again, AGAIN), nack.path, nack.serial, [nack.psn, 0, 0]),
        Packet::Probe { label, number, path } => (PROBE, 0, *path, label.serial, [*number, 0, 0]),
        Packet::Credit { serial, granted, .. } => (CREDIT, 0, 0, *serial, [*granted as u32, 0, 0]),
        Packet::Ask { label, target } => (ASK, 0, 0, label.serial, [*target as u32, 0, 0]),
    };
    let mut out = vec![kind, flags];
    out.extend(path.to_be_bytes());
    out.extend(connection.to_be_bytes());
    out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    out.resize(LENGTH, 0);
    out
}
