//! Typed packets to bytes and back. Whatever is inconsistent in itself is refused here, with its cause, so that
//! nothing behind this module has to ask whether a length fits or a count is too large. Whether a packet makes sense
//! to its receiver (is the tag mine, is the PSN in the window) is not decided here.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use crate::ack_box::AckBox;
use crate::layout as raw;
use crate::packet::*;
use crate::units::*;
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header that begins every packet.
pub const COMMON_LEN: usize = size_of::<raw::Common>();
/// Bytes that a [`Hello`] adds.
pub const HELLO_LEN: usize = size_of::<raw::Hello>();
/// Bytes that an [`Ack`] adds, without its echoes and bitmap (see [`ack_len`]).
pub const ACK_LEN: usize = size_of::<raw::Ack>();
/// Bytes per [`Echo`] of an ACK.
pub const ECHO_LEN: usize = size_of::<raw::Echo>();
/// Bytes per word of an ACK's bitmap.
pub const SACK_WORD_LEN: usize = size_of::<u64>();
/// The most bytes that may come before the payload: hello, full ACK and the longest operation.
pub const MAX_HEADER: usize = COMMON_LEN
    + HELLO_LEN
    + ACK_LEN
    + MAX_ECHOES * ECHO_LEN
    + MAX_SACK_WORDS * SACK_WORD_LEN
    + size_of::<raw::Data>()
    + size_of::<raw::ReadRequest>();

/// Least that an instance must be able to receive in one datagram: all headers, and a block of payload at whose boundaries
/// RDMA is cut. Below it messages could not be cut into packets. (The smallest MTU that can be configured, 576 bytes, leaves
/// 496 under IPv6 and sealed.)
pub const MIN_DATAGRAM: u16 = (MAX_HEADER + 128) as u16;

/// Why a datagram is not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DecodeError {
    /// It ends inside a header.
    Truncated,
    /// It is of another protocol version.
    Version {
        /// The version it names.
        version: u8,
    },
    /// It is sealed, and has not been opened: no key is configured here.
    Sealed,
    /// Its kind is none that this version knows.
    UnknownKind,
    /// A flag that this version does not define, or that does not belong with this kind or operation.
    BadFlags,
    /// A reserved field is not zero.
    BadReserved,
    /// The source tag is zero.
    ZeroSourceTag,
    /// The destination tag is zero in a packet that does not introduce its sender.
    NotIntroduced,
    /// The hello's incarnation is zero or is not that of the source tag, or its echo is not that of the destination
    /// tag.
    IncarnationMismatch,
    /// The hello's lowest version is above its highest.
    BadVersionRange,
    /// The hello's longest datagram is shorter than [`MIN_DATAGRAM`].
    SmallDatagram,
    /// More echoes than an ACK may have.
    TooManyEchoes,
    /// A longer bitmap than an ACK may have.
    TooManySackWords,
    /// An ACK with more cut packets than echoes.
    TooManyCuts,
    /// The operation is none that this version knows.
    UnknownOp,
    /// The transmission number is the one that marks probes.
    BadTxCount,
    /// Message length, offset and segment length contradict each other or the datagram's size.
    BadLength,
    /// The status of a failure is unknown, or none.
    BadStatus,
    /// Bytes follow a packet that has no payload.
    TrailingBytes,
}

impl DecodeError {
    /// Name of the cause, for counters.
    pub fn name(self) -> &'static str {
        match self {
            DecodeError::Truncated => "truncated",
            DecodeError::Version { .. } => "version",
            DecodeError::Sealed => "sealed",
            DecodeError::UnknownKind => "unknown_kind",
            DecodeError::BadFlags => "bad_flags",
            DecodeError::BadReserved => "bad_reserved",
            DecodeError::ZeroSourceTag => "zero_source_tag",
            DecodeError::NotIntroduced => "not_introduced",
            DecodeError::IncarnationMismatch => "incarnation_mismatch",
            DecodeError::BadVersionRange => "bad_version_range",
            DecodeError::SmallDatagram => "small_datagram",
            DecodeError::TooManyEchoes => "too_many_echoes",
            DecodeError::TooManySackWords => "too_many_sack_words",
            DecodeError::TooManyCuts => "too_many_cuts",
            DecodeError::UnknownOp => "unknown_op",
            DecodeError::BadTxCount => "bad_tx_count",
            DecodeError::BadLength => "bad_length",
            DecodeError::BadStatus => "bad_status",
            DecodeError::TrailingBytes => "trailing_bytes",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecodeError::Truncated => "datagram ends inside a header",
            DecodeError::Version { version } => {
                return write!(f, "packet of protocol version {version}; this end speaks version {VERSION}");
            }
            DecodeError::Sealed => "packet is sealed, but no pre-shared key is configured here",
            DecodeError::UnknownKind => "packet of unknown kind",
            DecodeError::BadFlags => "flag that is undefined or does not belong with this kind of packet",
            DecodeError::BadReserved => "reserved field is not zero",
            DecodeError::ZeroSourceTag => "source tag is zero",
            DecodeError::NotIntroduced => {
                "destination tag is zero, and the packet does not introduce its sender"
            }
            DecodeError::IncarnationMismatch => {
                "hello names incarnations that are not those of the packet's tags"
            }
            DecodeError::BadVersionRange => "hello's lowest version is above its highest",
            DecodeError::SmallDatagram => "hello's longest datagram has no room for a packet",
            DecodeError::TooManyEchoes => "ACK with more echoes than allowed",
            DecodeError::TooManySackWords => "ACK with a longer bitmap than allowed",
            DecodeError::TooManyCuts => "ACK with more cut packets than echoes",
            DecodeError::UnknownOp => "data packet with an unknown operation",
            DecodeError::BadTxCount => "data packet with the transmission number of a probe",
            DecodeError::BadLength => {
                "length, offset and segment length contradict each other or the datagram's size"
            }
            DecodeError::BadStatus => "failure with a status that is unknown or is no failure",
            DecodeError::TrailingBytes => "bytes after the end of a packet without payload",
        })
    }
}

impl std::error::Error for DecodeError {}

/// The part of a packet that is the same in every protocol version, and in clear in sealed packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preamble {
    /// Protocol version in which the rest is written.
    pub version: u8,
    /// Whether the rest is sealed. (As version 1 has it; not to be relied on in another version.)
    pub sealed: bool,
    /// UDP port on which the sending instance receives.
    pub src_port: u16,
    /// Whom the packet is for.
    pub dst_tag: Tag,
    /// The sender.
    pub src_tag: Tag,
}

/// What can be said of any datagram of this protocol, also of another version's. `None` if it is too short.
#[inline]
pub fn peek(datagram: &[u8]) -> Option<Preamble> {
    let (common, _) = raw::Common::read_from_prefix(datagram).ok()?;
    Some(Preamble {
        version: common.version_kind >> 4,
        sealed: common.flags & raw::FLAG_SEALED != 0,
        src_port: common.src_port.get(),
        dst_tag: Tag(common.dst_tag.get()),
        src_tag: Tag(common.src_tag.get()),
    })
}

/// Bytes that `ack` takes in a packet.
#[inline]
pub fn ack_len(ack: &Ack) -> usize {
    ACK_LEN + ack.echoes.len() * ECHO_LEN + ack.sack.len() * SACK_WORD_LEN
}

/// Bytes of the data header with the header of `op`.
#[inline]
pub(crate) fn data_len(op: &Op) -> usize {
    let imm_len = |imm: &Option<u32>| if imm.is_some() { 4 } else { 0 };
    size_of::<raw::Data>()
        + match op {
            Op::Send { imm, .. } => size_of::<raw::Route>() + imm_len(imm),
            Op::Write { imm, .. } => size_of::<raw::Write>() + imm_len(imm),
            Op::ReadRequest { .. } => size_of::<raw::ReadRequest>(),
            Op::ReadResponse { .. } => size_of::<u32>(),
            Op::ReadFailed { .. } | Op::Refuse { .. } => size_of::<raw::Failure>(),
            Op::Skip => 0,
        }
}

/// Bytes of `packet` before its payload: what [`encode_header`] will write.
#[inline]
pub fn header_len<P>(packet: &Packet<P>) -> usize {
    COMMON_LEN
        + packet.hello.as_ref().map_or(0, |_| HELLO_LEN)
        + packet.ack.as_ref().map_or(0, |ack| ack_len(ack))
        + match &packet.body {
            Body::None => 0,
            Body::Data(data) => data_len(&data.op),
            Body::Probe(_) => size_of::<raw::Probe>(),
            Body::Reset { .. } => size_of::<raw::Reset>(),
        }
}

/// Room for payload in a datagram of `max_datagram` bytes that carries a segment of an `op` message and neither hello
/// nor ACK.
pub fn max_payload(op: &Op, max_datagram: usize, sealed: bool) -> usize {
    let seal = if sealed { crate::seal::overhead(false) } else { 0 };
    max_datagram.saturating_sub(COMMON_LEN + data_len(op) + seal).min(u16::MAX as usize)
}

/// What must hold in every packet whose payload is `seg_len` bytes long: [`decode`] refuses a packet in which it does
/// not, and [`encode_header`] asserts it.
#[inline]
pub fn check<P>(packet: &Packet<P>, seg_len: usize) -> Result<(), DecodeError> {
    check_ends(packet.src_tag, packet.dst_tag, packet.hello.as_ref(), packet.ack.is_some())?;
    match &packet.body {
        Body::Data(data) => check_data(&data.op, data.tx_count, data.len, data.offset, seg_len),
        _ if seg_len != 0 => Err(DecodeError::TrailingBytes),
        // A reset speaks for an instance that has no such context; there is nothing that it could acknowledge.
        Body::Reset { .. } if packet.ack.is_some() => Err(DecodeError::BadFlags),
        _ => Ok(()),
    }
}

#[inline]
fn check_ends(src_tag: Tag, dst_tag: Tag, hello: Option<&Hello>, acks: bool) -> Result<(), DecodeError> {
    if src_tag == Tag::UNKNOWN {
        return Err(DecodeError::ZeroSourceTag);
    }
    // Who acknowledges something has got it, and so knows whose it is.
    if acks && dst_tag == Tag::UNKNOWN {
        return Err(DecodeError::BadFlags);
    }
    match hello {
        Some(hello) => check_hello(hello, src_tag, dst_tag),
        None if dst_tag == Tag::UNKNOWN => Err(DecodeError::NotIntroduced),
        None => Ok(()),
    }
}

fn check_hello(hello: &Hello, src_tag: Tag, dst_tag: Tag) -> Result<(), DecodeError> {
    let echo_fits = hello.echo == 0 || Incarnation(hello.echo).tag() == dst_tag;
    if hello.incarnation.0 == 0 || hello.incarnation.tag() != src_tag || !echo_fits {
        return Err(DecodeError::IncarnationMismatch);
    }
    if hello.version_min > hello.version_max {
        return Err(DecodeError::BadVersionRange);
    }
    if hello.max_datagram < MIN_DATAGRAM {
        return Err(DecodeError::SmallDatagram);
    }
    Ok(())
}

#[inline(always)]
fn check_data(op: &Op, tx_count: u8, len: u32, offset: u32, seg_len: usize) -> Result<(), DecodeError> {
    if tx_count == Echo::PROBE {
        return Err(DecodeError::BadTxCount);
    }
    let fits = match op {
        Op::Send { .. } | Op::Write { .. } | Op::ReadResponse { .. } => {
            // An empty segment of a message that is not empty would be a packet that says nothing.
            offset as u64 + seg_len as u64 <= len as u64 && (seg_len == 0) == (len == 0)
        }
        Op::ReadFailed { status: Status::Ok, .. } | Op::Refuse { status: Status::Ok, .. } => {
            return Err(DecodeError::BadStatus);
        }
        Op::ReadRequest { .. } | Op::ReadFailed { .. } | Op::Refuse { .. } => {
            len == 0 && offset == 0 && seg_len == 0
        }
        Op::Skip => seg_len == 0,
    };
    if fits && seg_len <= u16::MAX as usize { Ok(()) } else { Err(DecodeError::BadLength) }
}

/// Writes headers one behind the other.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    #[inline(always)]
    fn put<T: IntoBytes + Immutable>(&mut self, header: T) {
        let rest = core::mem::take(&mut self.rest);
        let (here, rest) = rest.split_at_mut(size_of::<T>());
        here.copy_from_slice(header.as_bytes());
        self.rest = rest;
    }
}

/// Writes everything of `packet` that comes before the payload to the front of `out` and returns its length
/// ([`header_len`]). `seg_len` is the length of the payload, which the caller puts behind it.
///
/// # Panics
///
/// If `out` is shorter than the header; [`MAX_HEADER`] bytes always suffice. In debug builds also if the packet is
/// not consistent (see [`check`]).
#[inline]
pub fn encode_header<P>(packet: &Packet<P>, seg_len: usize, out: &mut [u8]) -> usize {
    debug_assert_eq!(check(packet, seg_len), Ok(()), "inconsistent packet encoded");
    let room = out.len();
    let (kind, mut flags) = match &packet.body {
        Body::None => (raw::KIND_NONE, 0),
        Body::Data(_) => (raw::KIND_DATA, 0),
        Body::Probe(_) => (raw::KIND_PROBE, 0),
        Body::Reset { .. } => (raw::KIND_RESET, 0),
    };
    if packet.hello.is_some() {
        flags |= raw::FLAG_HELLO;
    }
    if packet.ack.is_some() {
        flags |= raw::FLAG_ACK;
    }
    let mut to = Writer { rest: out };
    to.put(raw::Common {
        version_kind: VERSION << 4 | kind,
        flags,
        src_port: packet.src_port.into(),
        dst_tag: packet.dst_tag.0.into(),
        src_tag: packet.src_tag.0.into(),
    });
    if let Some(hello) = &packet.hello {
        put_hello(&mut to, hello);
    }
    if let Some(ack) = &packet.ack {
        put_ack(&mut to, ack);
    }
    match &packet.body {
        Body::None => {}
        Body::Data(data) => put_data(&mut to, data, seg_len as u16),
        Body::Probe(probe) => to.put(raw::Probe {
            path: probe.path.0,
            reserved: [0; 3],
            number: probe.number.into(),
            stamp: probe.stamp.0.into(),
        }),
        Body::Reset { stale } => to.put(raw::Reset { stale: stale.0.into() }),
    }
    room - to.rest.len()
}

fn put_hello(to: &mut Writer<'_>, hello: &Hello) {
    to.put(raw::Hello {
        incarnation: hello.incarnation.0.into(),
        echo: hello.echo.into(),
        version_min: hello.version_min,
        version_max: hello.version_max,
        features: hello.features.into(),
        max_datagram: hello.max_datagram.into(),
        context: hello.context.into(),
        rcvbuf_kib: hello.rcvbuf_kib.into(),
    });
}

fn put_ack(to: &mut Writer<'_>, ack: &Ack) {
    to.put(raw::Ack {
        cum: ack.cum.0.into(),
        rcvd_bytes: ack.rcvd_bytes.into(),
        rx_time: ack.rx_time.0.into(),
        senders: ack.senders.into(),
        ce_count: ack.ce_count.into(),
        buffer_level: ack.buffer_level,
        echoes: ack.echoes.len() as u8,
        sack_words: ack.sack.len() as u8,
        cuts: ack.cuts,
    });
    for echo in &ack.echoes {
        to.put(raw::Echo {
            path: echo.path.0,
            tx_count: echo.tx_count,
            hold: echo.hold.0.into(),
            psn: echo.psn.0.into(),
            stamp: echo.stamp.0.into(),
        });
    }
    for word in &ack.sack {
        to.put(word.to_be_bytes());
    }
}

#[inline]
fn put_data<P>(to: &mut Writer<'_>, data: &Data<P>, seg_len: u16) {
    let (op, imm, datagram) = match data.op {
        Op::Send { imm, datagram, .. } => (raw::OP_SEND, imm, datagram),
        Op::Write { imm, .. } => (raw::OP_WRITE, imm, false),
        Op::ReadRequest { .. } => (raw::OP_READ_REQUEST, None, false),
        Op::ReadResponse { .. } => (raw::OP_READ_RESPONSE, None, false),
        Op::ReadFailed { .. } => (raw::OP_READ_FAILED, None, false),
        Op::Refuse { .. } => (raw::OP_REFUSE, None, false),
        Op::Skip => (raw::OP_SKIP, None, false),
    };
    let bit = |set: bool, flag: u8| if set { flag } else { 0 };
    to.put(raw::Data {
        psn: data.psn.0.into(),
        stamp: data.stamp.0.into(),
        msg: data.msg.0.into(),
        len: data.len.into(),
        offset: data.offset.into(),
        seg_len: seg_len.into(),
        path: data.path.0,
        tx_count: data.tx_count,
        op,
        op_flags: bit(data.ack_request, raw::OP_ACK_REQUEST)
            | bit(data.more, raw::OP_MORE)
            | bit(imm.is_some(), raw::OP_IMM)
            | bit(datagram, raw::OP_DATAGRAM),
        reserved: 0.into(),
    });
    match data.op {
        Op::Send { route, .. } => to.put(raw_route(route)),
        Op::Write { route, rkey, addr, .. } => {
            to.put(raw::Write { route: raw_route(route), rkey: rkey.0.into(), addr: addr.into() });
        }
        Op::ReadRequest { route, rkey, addr, read_len, read } => to.put(raw::ReadRequest {
            route: raw_route(route),
            rkey: rkey.0.into(),
            addr: addr.into(),
            read_len: read_len.into(),
            read: read.into(),
        }),
        Op::ReadResponse { read } => to.put(read.to_be_bytes()),
        Op::ReadFailed { read, status } => to.put(raw_failure(read, status)),
        Op::Refuse { refused, status } => to.put(raw_failure(refused.0, status)),
        Op::Skip => {}
    }
    if let Some(imm) = imm {
        to.put(imm.to_be_bytes());
    }
}

#[inline]
fn raw_route(route: Route) -> raw::Route {
    raw::Route { dst_qpn: route.dst_qpn.0.into(), src_qpn: route.src_qpn.0.into(), qkey: route.qkey.0.into() }
}

fn raw_failure(subject: u32, status: Status) -> raw::Failure {
    raw::Failure { subject: subject.into(), status: status as u8, reserved: [0; 3] }
}

/// Reads headers one behind the other.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline(always)]
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<&'a T, DecodeError> {
        let (header, rest) = T::ref_from_prefix(self.rest).map_err(|_| DecodeError::Truncated)?;
        self.rest = rest;
        Ok(header)
    }

    #[inline]
    fn take_u32(&mut self) -> Result<u32, DecodeError> {
        self.take::<[u8; 4]>().map(|bytes| u32::from_be_bytes(*bytes))
    }
}

fn zero(reserved: &[u8]) -> Result<(), DecodeError> {
    if reserved.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(DecodeError::BadReserved) }
}

/// Reads a datagram. The payload is a part of it; nothing is copied.
#[inline]
pub fn decode(datagram: &[u8]) -> Result<Packet<&[u8]>, DecodeError> {
    decode_as::<false>(datagram)
}

/// Reads a data packet of which a switch has left the beginning, all headers included, because it had no room for the rest
/// (packet trimming). What is left of the payload is not given: it has no length of its own.
#[cold]
pub fn decode_cut(datagram: &[u8]) -> Result<Packet<&[u8]>, DecodeError> {
    decode_as::<true>(datagram)
}

/// `CUT`: a data packet without its payload, and nothing else.
#[inline(always)]
fn decode_as<const CUT: bool>(datagram: &[u8]) -> Result<Packet<&[u8]>, DecodeError> {
    let mut from = Reader { rest: datagram };
    let Some(&first) = datagram.first() else {
        return Err(DecodeError::Truncated);
    };
    // Of a packet of another version nothing else is judged, not even its length.
    if first >> 4 != VERSION {
        return Err(DecodeError::Version { version: first >> 4 });
    }
    let common = from.take::<raw::Common>()?;
    if common.flags & raw::FLAG_SEALED != 0 {
        return Err(DecodeError::Sealed);
    }
    if common.flags & !(raw::FLAG_HELLO | raw::FLAG_ACK) != 0 {
        return Err(DecodeError::BadFlags);
    }
    let (src_tag, dst_tag) = (Tag(common.src_tag.get()), Tag(common.dst_tag.get()));
    let hello = if common.flags & raw::FLAG_HELLO != 0 { Some(take_hello(&mut from)?) } else { None };
    check_ends(src_tag, dst_tag, hello.as_ref(), common.flags & raw::FLAG_ACK != 0)?;
    let src_port = common.src_port.get();
    let with = |ack, body| Packet { src_port, dst_tag, src_tag, hello, ack, body };
    let kind = first & 0xf;
    if common.flags & raw::FLAG_ACK == 0 {
        return match kind {
            raw::KIND_DATA => take_data::<CUT>(from, |data| with(None, Body::Data(data))),
            _ if CUT => Err(DecodeError::Truncated),
            _ => Ok(with(None, take_bare(from, kind)?)),
        };
    }
    let ack = take_ack(&mut from)?;
    match kind {
        raw::KIND_DATA => take_data::<CUT>(from, |data| with(Some(ack), Body::Data(data))),
        _ if CUT => Err(DecodeError::Truncated),
        raw::KIND_RESET => Err(DecodeError::BadFlags),
        _ => Ok(with(Some(ack), take_bare(from, kind)?)),
    }
}

/// Reads a body without payload.
fn take_bare<'a>(mut from: Reader<'a>, kind: u8) -> Result<Body<&'a [u8]>, DecodeError> {
    let body = match kind {
        raw::KIND_NONE => Body::None,
        raw::KIND_PROBE => Body::Probe(take_probe(&mut from)?),
        raw::KIND_RESET => Body::Reset { stale: Tag(from.take_u32()?) },
        _ => return Err(DecodeError::UnknownKind),
    };
    // A probe may be padded, to ask whether a packet of that size gets through.
    let padded = matches!(body, Body::Probe(_));
    if from.rest.is_empty() || padded { Ok(body) } else { Err(DecodeError::TrailingBytes) }
}

fn take_hello(from: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let hello = from.take::<raw::Hello>()?;
    Ok(Hello {
        incarnation: Incarnation(hello.incarnation.get()),
        echo: hello.echo.get(),
        version_min: hello.version_min,
        version_max: hello.version_max,
        features: hello.features.get(),
        max_datagram: hello.max_datagram.get(),
        context: hello.context.get(),
        rcvbuf_kib: hello.rcvbuf_kib.get(),
    })
}

fn take_ack(from: &mut Reader<'_>) -> Result<AckBox, DecodeError> {
    let fixed = from.take::<raw::Ack>()?;
    if fixed.echoes as usize > MAX_ECHOES {
        return Err(DecodeError::TooManyEchoes);
    }
    if fixed.cuts > fixed.echoes {
        return Err(DecodeError::TooManyCuts);
    }
    if fixed.sack_words as usize > MAX_SACK_WORDS {
        return Err(DecodeError::TooManySackWords);
    }
    let mut filled = AckBox::to_be_filled();
    let ack = &mut *filled;
    ack.cum = Psn(fixed.cum.get());
    ack.rcvd_bytes = fixed.rcvd_bytes.get();
    ack.rx_time = Stamp(fixed.rx_time.get());
    ack.senders = fixed.senders.get();
    ack.ce_count = fixed.ce_count.get();
    ack.buffer_level = fixed.buffer_level;
    ack.cuts = fixed.cuts;
    for _ in 0..fixed.echoes {
        let echo = from.take::<raw::Echo>()?;
        ack.echoes.push(Echo {
            path: PathId(echo.path),
            tx_count: echo.tx_count,
            hold: Hold(echo.hold.get()),
            psn: Psn(echo.psn.get()),
            stamp: Stamp(echo.stamp.get()),
        });
    }
    for _ in 0..fixed.sack_words {
        ack.sack.push(u64::from_be_bytes(*from.take::<[u8; 8]>()?));
    }
    Ok(filled)
}

fn take_probe(from: &mut Reader<'_>) -> Result<Probe, DecodeError> {
    let probe = from.take::<raw::Probe>()?;
    zero(&probe.reserved)?;
    Ok(Probe { path: PathId(probe.path), number: probe.number.get(), stamp: Stamp(probe.stamp.get()) })
}

/// Reads a data header and its operation's, and hands the whole to `with`. Each operation ends in a construction of
/// its own, through [`finish_data`]: the fields then go straight to where the packet is wanted, which takes half the
/// time of putting the parts together in between.
#[inline(always)]
fn take_data<'a, const CUT: bool>(
    mut from: Reader<'a>,
    with: impl FnOnce(Data<&'a [u8]>) -> Packet<&'a [u8]>,
) -> Result<Packet<&'a [u8]>, DecodeError> {
    let data = from.take::<raw::Data>()?;
    let allowed = match data.op {
        raw::OP_SEND => raw::OP_ANY | raw::OP_IMM | raw::OP_DATAGRAM,
        raw::OP_WRITE => raw::OP_ANY | raw::OP_IMM,
        _ => raw::OP_ANY,
    };
    if data.op_flags & !allowed != 0 {
        return Err(DecodeError::BadFlags);
    }
    if data.reserved.get() != 0 {
        return Err(DecodeError::BadReserved);
    }
    match data.op {
        raw::OP_SEND => {
            let route = typed_route(from.take()?);
            let imm = take_imm(&mut from, data.op_flags)?;
            let op = Op::Send { route, imm, datagram: data.op_flags & raw::OP_DATAGRAM != 0 };
            finish_data::<CUT>(from, data, op, with)
        }
        raw::OP_WRITE => {
            let write = from.take::<raw::Write>()?;
            let imm = take_imm(&mut from, data.op_flags)?;
            let (rkey, addr) = (MrKey(write.rkey.get()), write.addr.get());
            finish_data::<CUT>(
                from,
                data,
                Op::Write { route: typed_route(&write.route), rkey, addr, imm },
                with,
            )
        }
        raw::OP_READ_RESPONSE => {
            let read = from.take_u32()?;
            finish_data::<CUT>(from, data, Op::ReadResponse { read }, with)
        }
        _ => {
            let op = take_rare_op(&mut from, data.op)?;
            finish_data::<CUT>(from, data, op, with)
        }
    }
}

#[inline(always)]
fn take_imm(from: &mut Reader<'_>, op_flags: u8) -> Result<Option<u32>, DecodeError> {
    if op_flags & raw::OP_IMM != 0 { from.take_u32().map(Some) } else { Ok(None) }
}

/// The operations that come once per message at most, without payload.
fn take_rare_op(from: &mut Reader<'_>, op: u8) -> Result<Op, DecodeError> {
    Ok(match op {
        raw::OP_READ_REQUEST => {
            let request = from.take::<raw::ReadRequest>()?;
            Op::ReadRequest {
                route: typed_route(&request.route),
                rkey: MrKey(request.rkey.get()),
                addr: request.addr.get(),
                read_len: request.read_len.get(),
                read: request.read.get(),
            }
        }
        raw::OP_READ_FAILED | raw::OP_REFUSE => {
            let failure = from.take::<raw::Failure>()?;
            zero(&failure.reserved)?;
            let subject = failure.subject.get();
            let status = Status::from_u8(failure.status).ok_or(DecodeError::BadStatus)?;
            if op == raw::OP_REFUSE {
                Op::Refuse { refused: Psn(subject), status }
            } else {
                Op::ReadFailed { read: subject, status }
            }
        }
        raw::OP_SKIP => Op::Skip,
        _ => return Err(DecodeError::UnknownOp),
    })
}

#[inline(always)]
fn finish_data<'a, const CUT: bool>(
    from: Reader<'a>,
    data: &raw::Data,
    op: Op,
    with: impl FnOnce(Data<&'a [u8]>) -> Packet<&'a [u8]>,
) -> Result<Packet<&'a [u8]>, DecodeError> {
    let (tx_count, len, offset) = (data.tx_count, data.len.get(), data.offset.get());
    let seg_len = data.seg_len.get() as usize;
    // What is behind the payload is padding.
    let payload = match from.rest.get(..seg_len) {
        Some(payload) if !CUT => payload,
        None if CUT => &[],
        _ => return Err(DecodeError::BadLength),
    };
    check_data(&op, tx_count, len, offset, seg_len)?;
    Ok(with(Data {
        psn: Psn(data.psn.get()),
        stamp: Stamp(data.stamp.get()),
        path: PathId(data.path),
        tx_count,
        ack_request: data.op_flags & raw::OP_ACK_REQUEST != 0,
        more: data.op_flags & raw::OP_MORE != 0,
        msg: MsgId(data.msg.get()),
        len,
        offset,
        op,
        payload,
    }))
}

#[inline]
fn typed_route(route: &raw::Route) -> Route {
    Route {
        dst_qpn: Qpn(route.dst_qpn.get()),
        src_qpn: Qpn(route.src_qpn.get()),
        qkey: Qkey(route.qkey.get()),
    }
}
