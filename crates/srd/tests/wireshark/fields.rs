//! What the dissector's fields must be, worked out from what srd-wire decodes.

use srd_wire::codec::header_len;
use srd_wire::seal::Keyring;
use srd_wire::{Body, Data, Echo, Incarnation, InstanceAddr, Op, Packet};
use std::collections::BTreeMap;

/// Values by name, all of a frame in their order.
pub type Fields = BTreeMap<&'static str, Vec<u64>>;

/// The fields with numbers.
pub const NAMES: [&str; 72] = [
    "srd.version",
    "srd.kind",
    "srd.flags",
    "srd.flags.hello",
    "srd.flags.ack",
    "srd.flags.sealed",
    "srd.flags.introduction",
    "srd.flags.reserved",
    "srd.src_port",
    "srd.dst_tag",
    "srd.src_tag",
    "srd.hello.incarnation",
    "srd.hello.echo",
    "srd.hello.version_min",
    "srd.hello.version_max",
    "srd.hello.features",
    "srd.hello.max_datagram",
    "srd.hello.context",
    "srd.hello.rcvbuf_kib",
    "srd.ack.cum",
    "srd.ack.rcvd_bytes",
    "srd.ack.rx_time",
    "srd.ack.senders",
    "srd.ack.ce_count",
    "srd.ack.buffer_level",
    "srd.ack.echoes",
    "srd.ack.sack_words",
    "srd.ack.cuts",
    "srd.ack.echo.path",
    "srd.ack.echo.tx_count",
    "srd.ack.echo.probe",
    "srd.ack.echo.cut",
    "srd.ack.echo.hold",
    "srd.ack.echo.psn",
    "srd.ack.echo.stamp",
    "srd.ack.sack",
    "srd.ack.missing",
    "srd.psn",
    "srd.stamp",
    "srd.message",
    "srd.len",
    "srd.offset",
    "srd.seg_len",
    "srd.path",
    "srd.tx_count",
    "srd.retransmission",
    "srd.op",
    "srd.op_flags",
    "srd.op_flags.ack_request",
    "srd.op_flags.imm",
    "srd.op_flags.datagram",
    "srd.op_flags.more",
    "srd.op_flags.reserved",
    "srd.data.reserved",
    "srd.dst_qpn",
    "srd.src_qpn",
    "srd.qkey",
    "srd.rkey",
    "srd.address",
    "srd.imm",
    "srd.read_len",
    "srd.read",
    "srd.refused_psn",
    "srd.status",
    "srd.failure.reserved",
    "srd.probe.path",
    "srd.probe.reserved",
    "srd.probe.number",
    "srd.probe.stamp",
    "srd.reset.stale",
    "srd.sealed.counter",
    "srd.sealed.incarnation",
];

/// Those with bytes.
pub const TEXTS: [&str; 4] = ["srd.payload", "srd.padding", "srd.sealed.ciphertext", "srd.sealed.tag"];

pub fn may_be_padded<P>(packet: &Packet<P>) -> bool {
    matches!(packet.body, Body::Data(_) | Body::Probe(_))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A field of no bytes is not there.
pub fn some_hex(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| hex(bytes))
}

/// The packet as its sender seals it, if it would.
pub fn sealed(keyring: &mut Keyring, to: InstanceAddr, peer: Incarnation, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = bytes.to_vec();
    buffer.resize(bytes.len() + 64, 0);
    let length = keyring.seal(to, Some(peer), &mut buffer, bytes.len()).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

struct Collected(Fields);

impl Collected {
    fn put(&mut self, name: &'static str, value: impl Into<u64>) {
        self.0.entry(name).or_default().push(value.into());
    }
}

/// The fields of a packet that was decoded from `bytes`.
pub fn expected(packet: &Packet<&[u8]>, bytes: &[u8]) -> Fields {
    let mut fields = Collected(Fields::new());
    let (kind, flags) = (bytes[0] & 15, bytes[1]);
    fields.put("srd.version", 1u8);
    fields.put("srd.kind", kind);
    fields.put("srd.flags", flags);
    fields.put("srd.flags.hello", packet.hello.is_some());
    fields.put("srd.flags.ack", packet.ack.is_some());
    for name in ["srd.flags.sealed", "srd.flags.introduction", "srd.flags.reserved"] {
        fields.put(name, false);
    }
    fields.put("srd.src_port", packet.src_port);
    fields.put("srd.dst_tag", packet.dst_tag.0);
    fields.put("srd.src_tag", packet.src_tag.0);
    if let Some(hello) = &packet.hello {
        fields.put("srd.hello.incarnation", hello.incarnation.0);
        fields.put("srd.hello.echo", hello.echo);
        fields.put("srd.hello.version_min", hello.version_min);
        fields.put("srd.hello.version_max", hello.version_max);
        fields.put("srd.hello.features", hello.features);
        fields.put("srd.hello.max_datagram", hello.max_datagram);
        fields.put("srd.hello.context", hello.context);
        fields.put("srd.hello.rcvbuf_kib", hello.rcvbuf_kib);
    }
    if let Some(ack) = &packet.ack {
        put_ack(&mut fields, ack);
    }
    match &packet.body {
        Body::None => {}
        Body::Data(data) => put_data(&mut fields, data),
        Body::Probe(probe) => {
            fields.put("srd.probe.path", probe.path.0);
            fields.put("srd.probe.reserved", 0u8);
            fields.put("srd.probe.number", probe.number);
            fields.put("srd.probe.stamp", probe.stamp.0);
        }
        Body::Reset { stale } => fields.put("srd.reset.stale", stale.0),
    }
    fields.0
}

fn put_ack(fields: &mut Collected, ack: &srd_wire::Ack) {
    fields.put("srd.ack.cum", ack.cum.0);
    fields.put("srd.ack.rcvd_bytes", ack.rcvd_bytes);
    fields.put("srd.ack.rx_time", ack.rx_time.0);
    fields.put("srd.ack.senders", ack.senders);
    fields.put("srd.ack.ce_count", ack.ce_count);
    fields.put("srd.ack.buffer_level", ack.buffer_level);
    fields.put("srd.ack.echoes", ack.echoes.len() as u8);
    fields.put("srd.ack.sack_words", ack.sack.len() as u8);
    fields.put("srd.ack.cuts", ack.cuts);
    for (number, echo) in ack.echoes.iter().enumerate() {
        fields.put("srd.ack.echo.path", echo.path.0);
        fields.put("srd.ack.echo.tx_count", echo.tx_count);
        fields.put("srd.ack.echo.probe", echo.tx_count == Echo::PROBE);
        fields.put("srd.ack.echo.cut", number >= ack.arrived().len());
        fields.put("srd.ack.echo.hold", echo.hold.0);
        fields.put("srd.ack.echo.psn", echo.psn.0);
        fields.put("srd.ack.echo.stamp", echo.stamp.0);
    }
    for &word in &ack.sack {
        fields.put("srd.ack.sack", word);
    }
    if !ack.sack.is_empty() {
        // Bit 0 is PSN cum + 1; cum itself is missing if anything behind it is there.
        let bits: Vec<bool> =
            ack.sack.iter().flat_map(|word| (0..64).map(move |bit| word >> bit & 1 == 1)).collect();
        let below = bits.iter().rposition(|&set| set);
        let missing = below.map_or(0, |newest| 1 + bits[..newest].iter().filter(|&&set| !set).count());
        fields.put("srd.ack.missing", missing as u64);
    }
}

fn put_data(fields: &mut Collected, data: &Data<&[u8]>) {
    let (op, imm, datagram) = match data.op {
        Op::Send { imm, datagram, .. } => (1u8, imm, datagram),
        Op::Write { imm, .. } => (2, imm, false),
        Op::ReadRequest { .. } => (3, None, false),
        Op::ReadResponse { .. } => (4, None, false),
        Op::ReadFailed { .. } => (5, None, false),
        Op::Refuse { .. } => (6, None, false),
        Op::Skip => (7, None, false),
    };
    let flags =
        data.ack_request as u8 | (imm.is_some() as u8) << 1 | (datagram as u8) << 2 | (data.more as u8) << 3;
    fields.put("srd.psn", data.psn.0);
    fields.put("srd.stamp", data.stamp.0);
    fields.put("srd.message", data.msg.0);
    fields.put("srd.len", data.len);
    fields.put("srd.offset", data.offset);
    fields.put("srd.seg_len", data.payload.len() as u16);
    fields.put("srd.path", data.path.0);
    fields.put("srd.tx_count", data.tx_count);
    if data.tx_count > 0 {
        fields.put("srd.retransmission", true);
    }
    fields.put("srd.op", op);
    fields.put("srd.op_flags", flags);
    fields.put("srd.op_flags.ack_request", data.ack_request);
    fields.put("srd.op_flags.imm", imm.is_some());
    fields.put("srd.op_flags.datagram", datagram);
    fields.put("srd.op_flags.more", data.more);
    fields.put("srd.op_flags.reserved", 0u8);
    fields.put("srd.data.reserved", 0u8);
    let mut put_route = |route: srd_wire::Route| {
        fields.put("srd.dst_qpn", route.dst_qpn.0);
        fields.put("srd.src_qpn", route.src_qpn.0);
        fields.put("srd.qkey", route.qkey.0);
    };
    match data.op {
        Op::Send { route, .. } => put_route(route),
        Op::Write { route, rkey, addr, .. } => {
            put_route(route);
            fields.put("srd.rkey", rkey.0);
            fields.put("srd.address", addr);
        }
        Op::ReadRequest { route, rkey, addr, read_len, read } => {
            put_route(route);
            fields.put("srd.rkey", rkey.0);
            fields.put("srd.address", addr);
            fields.put("srd.read_len", read_len);
            fields.put("srd.read", read);
        }
        Op::ReadResponse { read } => fields.put("srd.read", read),
        Op::ReadFailed { read, status } => {
            fields.put("srd.read", read);
            fields.put("srd.status", status as u8);
            fields.put("srd.failure.reserved", 0u8);
        }
        Op::Refuse { refused, status } => {
            fields.put("srd.refused_psn", refused.0);
            fields.put("srd.status", status as u8);
            fields.put("srd.failure.reserved", 0u8);
        }
        Op::Skip => {}
    }
    if let Some(imm) = imm {
        fields.put("srd.imm", imm);
    }
}

/// The bytes of a packet's payload and of the padding behind it, in hexadecimal; none where there are none.
pub fn payload_and_padding(packet: &Packet<&[u8]>, bytes: &[u8]) -> (Option<String>, Option<String>) {
    let payload = match &packet.body {
        Body::Data(data) => data.payload,
        _ => &[],
    };
    let end = header_len(packet) + payload.len();
    (some_hex(payload), some_hex(&bytes[end..]))
}
