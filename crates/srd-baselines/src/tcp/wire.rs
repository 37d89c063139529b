//! A segment's header as RFC 9293 has it, with timestamps (RFC 7323) and SACK (RFC 2018). Connections carry data one way, and
//! their handshake is not simulated: numbers begin at 1, and windows are scaled by 2^7 without anybody having said so.

use super::segment::{Ack, Data, IP_TCP, TIMESTAMPS};
use crate::wire::{Departure, FIRST_BYTE, Streams};
use srd_wire::Time;

/// Bytes of IPv4's header.
const IP: u32 = 20;
/// Flags.
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;
/// Kinds of options.
const NOP: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;
/// By which windows are scaled: Linux's for a buffer of 6 MB.
const SCALE: u32 = 7;

/// The fields of a header.
struct Header {
    ports: (u16, u16),
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    /// TSval and TSecr, in microseconds.
    stamps: (u32, u32),
    /// Behind the timestamps.
    sack: Vec<(u32, u32)>,
}

fn micros(time: Time) -> u32 {
    (time.0 / 1000) as u32
}

/// Of a segment with data.
pub fn data(data: &Data, leaves: &Departure, streams: &mut Streams) -> Vec<u8> {
    let carried = leaves.bytes.saturating_sub(IP_TCP + TIMESTAMPS);
    let sequence = streams.of(leaves.from, data.connection.serial).leaves(data.number, carried);
    let push = if data.push { PSH } else { 0 };
    let reduced = if data.reduced { CWR } else { 0 };
    let header = Header {
        ports: leaves.ports,
        sequence,
        acknowledgement: FIRST_BYTE,
        flags: ACK | push | reduced,
        window: u16::MAX,
        stamps: (micros(data.sent_at), 0),
        sack: Vec::new(),
    };
    header.bytes()
}

/// Of an ACK.
pub fn ack(ack: &Ack, leaves: &Departure, streams: &mut Streams) -> Vec<u8> {
    let stream = streams.of(leaves.to, ack.connection.serial);
    let begin = |beyond: u32| stream.begin_of(ack.next + beyond as u64);
    let duplicate = ack.duplicate.map(|number| (stream.begin_of(number), stream.begin_of(number + 1)));
    let blocks = ack.blocks[..ack.ranges as usize].iter().map(|&(from, to)| (begin(from), begin(to)));
    let window = (ack.window as u64 * stream.longest() as u64) >> SCALE;
    let header = Header {
        ports: leaves.ports,
        sequence: FIRST_BYTE,
        acknowledgement: stream.begin_of(ack.next),
        flags: ACK | if ack.marked { ECE } else { 0 },
        window: window.min(u16::MAX as u64) as u16,
        stamps: (micros(leaves.now), micros(ack.echo)),
        sack: duplicate.into_iter().chain(blocks).collect(), // what came twice is the first (RFC 2883)
    };
    header.bytes()
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let sack = if self.sack.is_empty() { 0 } else { 4 + 8 * self.sack.len() };
        let length = (IP_TCP - IP + TIMESTAMPS) as usize + sack;
        let mut out = Vec::with_capacity(length);
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.acknowledgement.to_be_bytes());
        out.extend([(length as u8 / 4) << 4, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0; 4]); // checksum, urgent pointer
        out.extend([NOP, NOP, TIMESTAMP, 10]);
        out.extend(self.stamps.0.to_be_bytes());
        out.extend(self.stamps.1.to_be_bytes());
        if !self.sack.is_empty() {
            out.extend([NOP, NOP, SACK, sack as u8 - 2]);
            for (begin, end) in &self.sack {
                out.extend(begin.to_be_bytes());
                out.extend(end.to_be_bytes());
            }
        }
        out
    }
}
