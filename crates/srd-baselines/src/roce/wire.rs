//! A packet's headers behind UDP: the base transport header and its extensions (InfiniBand, volume 1, chapter 9). The check
//! sum at the end (ICRC) is zeros. Queue pairs have the numbers of their requesters, at both ends. A write of IRN has an address
//! in each packet, which InfiniBand allows to first and only ones: each is written as one of these.

use super::packet::{ADDRESS_HEADER, DATA_HEADERS, Packet, Segment};
use crate::wire::Departure;

/// Opcodes of reliable connections, and of notifications (RoCEv2 annex, section A17.9.3).
const WRITE_FIRST: u8 = 0x06;
const WRITE_MIDDLE: u8 = 0x07;
const WRITE_LAST: u8 = 0x08;
const WRITE_ONLY: u8 = 0x0A;
const ACKNOWLEDGE: u8 = 0x11;
const NOTIFICATION: u8 = 0x81;
/// The default partition.
const PARTITION: u16 = 0xFFFF;
/// Numbers of queue pairs begin here: the first few are for management.
const FIRST_QP: u32 = 0x100;
/// An ACK asks for no credits; a NAK says that a packet before is missing.
const ACK: u8 = 0x1F;
const NAK_SEQUENCE: u8 = 0x60;
/// BECN, in the byte before the queue pair.
const BECN: u8 = 0x40;
/// AckReq, in the byte before the sequence number.
const ACK_REQUEST: u8 = 0x80;

/// BTH and what follows it.
pub fn transport_header(packet: &Packet, leaves: &Departure) -> Vec<u8> {
    match *packet {
        Packet::Write(segment) => write(&segment, leaves.bytes),
        Packet::Ack { qp, psn, nak, sack } => {
            let (syndrome, psn) = if nak { (NAK_SEQUENCE, psn) } else { (ACK, psn.wrapping_sub(1)) };
            let mut out = base(ACKNOWLEDGE, 0, qp, 0, psn);
            out.extend([syndrome, 0, 0, 0]);
            out.extend(sack.iter().flat_map(|psn| (*psn as u32).to_be_bytes()));
            out
        }
        Packet::Notification { qp } => base(NOTIFICATION, BECN, qp, 0, 0),
    }
}

fn write(segment: &Segment, bytes: u32) -> Vec<u8> {
    let addressed = bytes.saturating_sub(segment.bytes as u32) >= DATA_HEADERS + ADDRESS_HEADER;
    let opcode = match (addressed, segment.left == segment.bytes as u32) {
        (true, true) => WRITE_ONLY,
        (true, false) => WRITE_FIRST,
        (false, true) => WRITE_LAST,
        (false, false) => WRITE_MIDDLE,
    };
    let mut out = base(opcode, 0, segment.qp, if segment.ack { ACK_REQUEST } else { 0 }, segment.psn);
    if addressed {
        out.extend([0; 8]); // the address is nobody's
        out.extend(segment.inbox.to_be_bytes());
        out.extend(segment.left.to_be_bytes());
    }
    out
}

fn base(opcode: u8, congestion: u8, qp: u32, asks: u8, psn: u64) -> Vec<u8> {
    let mut out = vec![opcode, 0];
    out.extend(PARTITION.to_be_bytes());
    let [_, qp @ ..] = FIRST_QP.wrapping_add(qp).to_be_bytes();
    let [_, psn @ ..] = (psn as u32).to_be_bytes();
    out.push(congestion);
    out.extend(qp);
    out.push(asks);
    out.extend(psn);
    out
}
