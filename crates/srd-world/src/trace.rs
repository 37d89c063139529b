//! How a run is told: one line per event, with `--trace`.

use srd_proto::Payload;
use srd_wire::{Body, Op, Packet, Time};
use std::fmt::Write;

/// A time as lines begin with it.
pub fn stamp(now: Time) -> String {
    format!("{:>14.3} us", now.0 as f64 / 1e3)
}

/// A packet in one line.
pub fn packet<P: Payload>(packet: &Packet<P>) -> String {
    let mut line = format!("{:08x}>{:08x}", packet.src_tag.0, packet.dst_tag.0);
    if let Some(hello) = &packet.hello {
        let _ = write!(line, " hello(echo {:x})", hello.echo);
    }
    match &packet.body {
        Body::None => {}
        Body::Data(data) => {
            let _ = write!(
                line,
                " data psn {} tx {} path {} msg {} {}+{}/{} {}{}",
                data.psn.0,
                data.tx_count,
                data.path.0,
                data.msg.0,
                data.offset,
                data.payload.len(),
                data.len,
                op(&data.op),
                if data.ack_request { " ack!" } else { "" },
            );
        }
        Body::Probe(probe) => {
            let _ = write!(line, " probe {} path {}", probe.number, probe.path.0);
        }
        Body::Reset { stale } => {
            let _ = write!(line, " reset stale {:08x}", stale.0);
        }
    }
    if let Some(ack) = &packet.ack {
        let _ = write!(line, " ack cum {} rcvd {}", ack.cum.0, ack.rcvd_bytes);
        if ack.senders > 1 {
            let _ = write!(line, " senders {}", ack.senders);
        }
        for word in &ack.sack {
            let _ = write!(line, " sack {word:x}");
        }
        for echo in &ack.echoes {
            let _ = write!(line, " echo {}:{}/{}", echo.path.0, echo.psn.0, echo.tx_count);
        }
    }
    line
}

fn op(op: &Op) -> String {
    match op {
        Op::Send { route, imm, datagram } => {
            let kind = if *datagram { "datagram" } else { "send" };
            format!("{kind} {}>{}{}", route.src_qpn.0, route.dst_qpn.0, imm_of(imm))
        }
        Op::Write { route, rkey, addr, imm } => format!(
            "write {}>{} rkey {:x} addr {addr:x}{}",
            route.src_qpn.0,
            route.dst_qpn.0,
            rkey.0,
            imm_of(imm)
        ),
        Op::ReadRequest { route, rkey, addr, read_len, read } => format!(
            "read {read:x} {}>{} rkey {:x} addr {addr:x} len {read_len}",
            route.src_qpn.0, route.dst_qpn.0, rkey.0
        ),
        Op::ReadResponse { read } => format!("response {read:x}"),
        Op::ReadFailed { read, status } => format!("read failed {read:x} {status:?}"),
        Op::Refuse { refused, status } => format!("refuse {} {status:?}", refused.0),
        Op::Skip => "skip".to_string(),
    }
}

fn imm_of(imm: &Option<u32>) -> String {
    imm.map_or(String::new(), |imm| format!(" imm {imm}"))
}
