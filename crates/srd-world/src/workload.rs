//! What the processes of a random run ask their devices to do.

use crate::ledger::{Flaw, Verb};
use crate::node::MAX_MSG;
use crate::plan::Shape;
use crate::rng::Rng;
use srd_device::MAX_INLINE;
use srd_wire::{Op, Qkey, Qpn, Route, codec};

/// A message before it has a source and a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draft {
    /// From an unreliable queue pair.
    pub datagram: bool,
    /// Operation.
    pub verb: Verb,
    /// With immediate data.
    pub imm: bool,
    /// Length in bytes.
    pub len: u32,
    /// The bytes are copied when the work is posted.
    pub inline: bool,
    /// Length of the first of two pieces of memory; one piece if it is 0 or the whole.
    pub split: u32,
    /// To the sending process itself.
    pub to_self: bool,
    /// What is wrong with it.
    pub flaw: Flaw,
}

/// Draws a message.
pub fn draft(shape: &Shape, rng: &mut Rng) -> Draft {
    let datagram = shape.ud_qps > 0 && rng.percent(25);
    let rdma = !datagram && rng.percent(shape.rdma_percent);
    let verb = match rdma {
        false => Verb::Send,
        true if rng.percent(40) => Verb::Read,
        true => Verb::Write,
    };
    let imm = verb != Verb::Read && rng.percent(50);
    let edge = rng.percent(shape.edge_percent);
    let mut len = if edge { edge_len(shape, verb, rng) } else { rng.spread(1, 20_000) };
    let longest = if verb == Verb::Send { MAX_MSG as u64 } else { shape.rdma_len };
    len = len.min(if datagram { MAX_DATAGRAM } else { longest });
    let flaw = if rng.percent(shape.invalid_percent) { draw_flaw(verb, datagram, rng) } else { Flaw::None };
    if flaw == Flaw::TooLong {
        len = longest.max(MAX_MSG as u64) + 1;
    }
    // A key or an address without a single byte behind it is never looked at.
    if matches!(flaw, Flaw::Lkey | Flaw::Rkey | Flaw::Range | Flaw::Access) {
        len = len.max(1);
    }
    if flaw == Flaw::TooLong && verb != Verb::Send {
        len = (1 << 22) + 1;
    }
    let inline = verb == Verb::Send
        && len <= MAX_INLINE as u64
        && rng.percent(40)
        && !matches!(flaw, Flaw::Lkey | Flaw::TooLong);
    let split = if verb == Verb::Send && !inline && rng.percent(30) { rng.below(len + 1) as u32 } else { 0 };
    let to_self = rng.percent(shape.self_percent);
    Draft { datagram, verb, imm, len: len as u32, inline, split, to_self, flaw }
}

/// Longest datagram: the receiver's buffers hold the longest message, and the routing header as well.
const MAX_DATAGRAM: u64 = MAX_MSG as u64 - 40;

fn edge_len(shape: &Shape, verb: Verb, rng: &mut Rng) -> u64 {
    let route = Route { dst_qpn: Qpn(0), src_qpn: Qpn(0), qkey: Qkey(0) };
    let op = Op::Send { route, imm: None, datagram: false };
    let packet = codec::max_payload(&op, shape.max_datagram as usize, shape.codec == 2) as u64;
    let around = |n: u64, rng: &mut Rng| (n + rng.below(3)).saturating_sub(1);
    match rng.below(if verb == Verb::Send { 8 } else { 10 }) {
        0 => 0,
        1 => rng.within(1, 9),
        2 => around(128, rng),
        3 => around(packet, rng),
        4 => packet.saturating_sub(rng.below(64)),
        5 => around(packet * rng.within(2, 5), rng),
        6 => around(shape.chunk_bytes, rng),
        7 => 8_192,
        8 => around(shape.chunk_bytes * rng.within(2, 5), rng),
        _ => shape.rdma_len - rng.below(3),
    }
}

fn draw_flaw(verb: Verb, datagram: bool, rng: &mut Rng) -> Flaw {
    match verb {
        Verb::Send if datagram => rng.pick(&[Flaw::Qkey, Flaw::Qpn, Flaw::Handle]),
        Verb::Send => rng.pick(&[Flaw::Qkey, Flaw::Qpn, Flaw::Lkey, Flaw::TooLong, Flaw::Handle]),
        Verb::Read | Verb::Write => rng.pick(&[
            Flaw::Qkey,
            Flaw::Qpn,
            Flaw::Rkey,
            Flaw::Range,
            Flaw::Access,
            Flaw::Lkey,
            Flaw::TooLong,
            Flaw::Handle,
        ]),
    }
}
